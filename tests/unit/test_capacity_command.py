"""``kvplan capacity``: what it refuses and where, exit codes, what it prints and writes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator.cli import app
from tests.capacity_search import OVER, SCENARIO, Capacities, finite_json

LINE = SCENARIO.count("\n") + 1
WORKLOAD = SCENARIO[: SCENARIO.index("workload:")].count("\n") + 1
FILES = {"answer.json", "candidates.csv", "probes.csv", "provenance.json", "scenario.yaml", "winner.yaml"}


@pytest.fixture
def capacities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Capacities:
    return Capacities(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("options", "change", "place", "said"),
    [
        (("--gpus", "h100-sxm-80gb,nope"), "", "--gpus nope", "not a GPU of the catalogue"),
        ((), "capacity: {gpus: [l4, nope]}", f":{LINE}:23", "'nope' is not a GPU"),
        ((), "capacity: {candidates: [{gpu: nope}]}", f":{LINE}:31", "'nope' is not a GPU"),
        ((), "capacity: {over: {slo.ttft_ms.p99: [1]}}", f":{LINE}:19", "slo.ttft_ms.p99 cannot differ"),
        ((), "capacity: {over: {name: [a, b]}}", f":{LINE}:19", "name cannot differ"),
        ((), "capacity: {over: {variants: [a]}}", f":{LINE}:19", "variants cannot differ"),
        ((), "capacity: {over: {workload.rate_rps: [1]}}", f":{LINE}:19", "workload.rate_rps cannot differ"),
        ((), "capacity: {candidates: [{seed: 4}]}", f":{LINE}:", "seed cannot differ"),
        ((), "capacity: {over: {engine.max_num_seq: [1, 2]}}", f":{LINE}:19", "did you mean max_num_seqs"),
        ((), "capacity: {goodput_share: 1.5}", f":{LINE}:27", "at most 1"),
        ((), "capacity: {rate_rps: 0}", f":{LINE}:22", "rate_rps"),
        ((), "capacity: {budget_usd_per_hour: .nan}", f":{LINE}:", "budget_usd_per_hour"),
        ((), "capacity: {replicas: [0]}", f":{LINE}:", "replicas"),
        ((), "capacity: {budget: 3}", f":{LINE}:", "budget_usd_per_hour"),
        ((), "fleet: {groups: [{name: a, replicas: 2}]}", f":{LINE}:1", "delete fleet"),
        ((), "mode: admission", f":{LINE}:7", "no clock"),
        (("--set", "workload.max_concurrency=4"), "", "", "closed loop"),
        (("--set", "workload.arrivals={kind: closed_loop, max_concurrency: 4}"), "", "", "closed loop"),
        (("--set", "workload.arrivals={kind: all_at_once}"), "", "", "all at once"),
        (("--set", "model=llama-9"), "", "", "llama-9"),
        (("--budget", "0"), "", "--budget", "above 0"),
        (("--budget", "-3"), "", "--budget", "greater than or equal to 0"),
        (("--budget", "inf"), "", "--budget", "above 0"),
        (("--rate", "nan"), "", "--rate", "nvalid value"),
        (("--rate", "inf"), "", "--rate", "above 0"),
        (("--rate", "0"), "", "--rate", "above 0"),
        (("--requests", "0"), "", "--requests", "nvalid value"),
        (("--gpus", ","), "", "--gpus", "names no GPU"),
        (("--resume", "--restart"), "", "--resume", "contradict"),
    ],
)
def test_bad_input_is_told_at_its_place_before_anything_runs(
    capacities: Capacities, options: tuple[str, ...], change: str, place: str, said: str
) -> None:
    done = capacities(*options, text=SCENARIO + change + "\n")
    assert done.exit_code == 2, done.output
    assert place in done.stderr and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
    assert capacities.ran == 0 and not (capacities.folder / "out" / "answer.json").exists()


def test_what_no_executor_or_folder_takes_is_bad_input_too(tmp_path: Path) -> None:
    path = tmp_path / "chat.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    file = tmp_path / "file"
    file.write_text("here")
    for options, said in [
        (["--executor", "nope"], "--executor nope"),
        (["--scheduler", "tcp://x"], "no scheduler"),
        (["--out", str(file)], "is a file"),
    ]:
        done = CliRunner().invoke(app, ["capacity", str(path), "--out", str(tmp_path / "o"), *options])
        assert done.exit_code == 2 and said in done.stderr, done.stderr


def test_a_winner_is_exit_code_0_one_json_object_and_a_whole_folder(capacities: Capacities) -> None:
    done = capacities("--json", "--quiet", "--rate", "10", text=SCENARIO + OVER)
    assert done.exit_code == 0 and done.stderr == "", done.stderr
    said = finite_json(done.stdout)
    out = capacities.folder / "out"
    assert {path.name for path in out.iterdir() if path.is_file()} == FILES
    written = finite_json((out / "answer.json").read_text())
    assert {key: said[key] for key in written} == written
    assert written["rate_rps"] == 10 and written["grid"] == {"anchor_rps": 10, "step": 1.03}
    rows = list(csv.DictReader((out / "candidates.csv").open(newline="")))
    assert [row["candidate"] for row in rows] == [row["candidate"] for row in said["candidates"]]
    assert rows[0]["candidate"] == written["winner"]["candidate"] and rows[0]["rank"] == "1"
    probes = list(csv.DictReader((out / "probes.csv").open(newline="")))
    stored = list((out / "probes").glob("*.json"))
    assert len(stored) == capacities.ran == written["counts"]["probes"] <= len(probes)
    assert (
        sum(json.loads(path.read_text())["outcome"]["facts"]["num_prompts"] for path in stored)
        == (written["counts"]["simulated_requests"])
    )
    for row in probes:
        if row["passed"] == "true":
            assert row["why_not"] == "" and float(row["p99_tpot_ms"]) <= 12 and float(row["p99_ttft_ms"]) <= 500
        elif row["purpose"] != "saturation":
            assert row["why_not"]


def test_without_json_it_prints_the_two_sentences_and_where_the_results_are(capacities: Capacities) -> None:
    done = capacities("--quiet")
    assert done.exit_code == 0 and done.stderr == ""
    assert done.stdout.startswith("Rent ") and "results: " in done.stdout and "nan" not in done.stdout.lower()


@pytest.mark.parametrize(
    ("options", "change", "missing"),
    [
        (("--budget", "1"), "", "4.76"),
        ((), "slo.tpot_ms.p99=5", "even without load"),
        (("--set", "engine.num_gpu_blocks_override=1"), "", "num_gpu_blocks_override"),
        (("--rate", "500"), "capacity={replicas: [1]}", "replicas of"),
        (("--rate", "500"), "capacity={max_gpus: 2}", "replicas of"),
        ((), "capacity={replicas: [4], max_gpus: 2}", "max_gpus is 2"),
    ],
)
def test_where_nothing_serves_the_exit_code_is_4_and_it_says_what_is_missing(
    capacities: Capacities, options: tuple[str, ...], change: str, missing: str
) -> None:
    sets = ("--set", change) if change else ()
    done = capacities("--json", *options, *sets)
    if done.exit_code == 2:  # a fault that every candidate has
        assert missing in done.stderr and "num_gpu_blocks_override" in done.stderr
        return
    assert done.exit_code == 4, done.output
    said = finite_json(done.stdout)
    assert said["winner"] is None and said["missing"] and missing in "\n".join(said["missing"])
    assert said["sentences"][0].startswith("The only candidate does not serve")
    assert not (capacities.folder / "out" / "winner.yaml").exists()


def test_gpus_of_the_command_line_take_the_place_of_the_files(capacities: Capacities) -> None:
    text = SCENARIO + "capacity: {gpus: [b200], candidates: [{gpu: l4}]}\n"
    done = capacities("--json", "--gpus", "h100-sxm-80gb, a100-sxm-80gb", text=text)
    assert {row["gpu"] for row in finite_json(done.stdout)["candidates"]} == {"h100-sxm-80gb", "a100-sxm-80gb"}


def test_scenario_yaml_of_the_folder_asks_the_same_again(capacities: Capacities) -> None:
    """With the options of the command line in it: rate, seed, settings."""
    first = capacities("--rate", "15", "--seed", "9", "--set", "engine.max_num_seqs=8", "--requests", "30")
    assert first.exit_code == 0
    out = capacities.folder / "out"
    again = capacities(out="again", text=(out / "scenario.yaml").read_text())
    assert again.exit_code == 0
    for name in ("candidates.csv", "probes.csv", "winner.yaml"):
        assert (capacities.folder / "again" / name).read_bytes() == (out / name).read_bytes()

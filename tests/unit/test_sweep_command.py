"""``kvplan sweep``: its table, its findings, its exit codes, and what it keeps when it is cut short."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator.cli import app
from simulator.planner.lock import NAME
from simulator.planner.point import Outcome, Task
from tests.sweeping import SCENARIO, Inline, Sweeps, contents, rows_of, said_of

BLOCKS = ("--over", "engine.block_size=8,16,32")
FIRST = "point,variant,engine.block_size,replication,seed,status,exit_code,error,binding_limit,saturated,schema_version"


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweeps:
    return Sweeps(tmp_path, monkeypatch)


def test_a_point_is_what_kvplan_run_gives(sweep: Sweeps, tmp_path: Path) -> None:
    assert sweep(*BLOCKS).exit_code == 0
    scenario = str(tmp_path / "chat.yaml")
    run = ["run", scenario, "--set", "engine.block_size=16", "--no-report", "--out", str(tmp_path / "run")]
    assert CliRunner().invoke(app, run).exit_code == 0
    folder = tmp_path / "out" / "points" / "0001-block_size-16"
    assert (folder / "result.json").read_bytes() == (tmp_path / "run" / "result.json").read_bytes()
    assert (tmp_path / "out" / "points.csv").read_text().startswith(FIRST)
    rows, result = rows_of(tmp_path / "out"), json.loads((folder / "result.json").read_text())
    assert [row["engine.block_size"] for row in rows] == ["8", "16", "32"]
    assert float(rows[1]["mean_ttft_ms"]) == result["mean_ttft_ms"]
    assert float(rows[1]["kv.peak_utilization"]) == result["kv"]["peak_utilization"]
    assert rows[1]["run_status"] == "ok" and rows[1]["saturated"] in ("true", "false")
    said = said_of(tmp_path / "out")
    assert said["question"] == "How many chats does it take?"
    assert said["axes"] == [{"path": "engine.block_size", "values": [8, 16, 32]}]
    assert said["statuses"] == {"ok": 3} and said["folders"][1] == "points/0001-block_size-16"


def test_the_scenario_that_it_leaves_repeats_the_sweep(sweep: Sweeps, tmp_path: Path) -> None:
    assert sweep(*BLOCKS, "--replications", "2").exit_code == 0
    again = tmp_path / "out" / "scenario.yaml"
    done = CliRunner().invoke(app, ["sweep", str(again), "--out", str(tmp_path / "again"), "--no-report"])
    assert done.exit_code == 0, done.output
    assert contents(tmp_path / "out") == contents(tmp_path / "again")


def test_failed_points_are_rows_with_their_error(sweep: Sweeps, tmp_path: Path) -> None:
    done = sweep("--over", "engine.num_gpu_blocks_override=2,400", "--over", "engine.max_model_len=64,4096")
    assert done.exit_code == 0
    rows = rows_of(tmp_path / "out")
    failed = [row for row in rows if row["status"] == "does_not_fit"]
    assert failed and all(row["exit_code"] == "3" and row["error"] and not row["mean_ttft_ms"] for row in failed)
    assert any("do not fit in memory" in line for line in said_of(tmp_path / "out")["findings"])
    folder = tmp_path / "out" / said_of(tmp_path / "out")["folders"][int(failed[0]["point"])]
    assert {path.name for path in folder.iterdir()} == {"error.json", "provenance.json"}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--over", "engine.num_gpu_blocks_override=2,3"], 3),
        (["--over", "slo.ttft_ms.p99=0.001,0.002"], 4),
        (["--over", "slo.ttft_ms.p99=0.001,0.002", "--allow-missed"], 0),
        (["--over", "slo.ttft_ms.p99=0.001,100000"], 0),
    ],
)
def test_exit_codes(sweep: Sweeps, options: list[str], code: int) -> None:
    done = sweep(*options)
    assert done.exit_code == code, done.output


def test_combinations_that_contradict_each_other_are_rows_and_values_that_never_work_are_refused(
    sweep: Sweeps, tmp_path: Path
) -> None:
    swap = ("--over", "engine.swap_space=null,1")  # a setting of vLLM v0 alone
    assert sweep("--over", "engine.preset=vllm,vllm-v0", *swap).exit_code == 0
    rows = rows_of(tmp_path / "out")
    assert [row["status"] for row in rows] == ["ok", "bad_input", "ok", "ok"]
    assert "swap_space" in rows[1]["error"] and rows[1]["exit_code"] == "2" and sweep.ran == 3
    done = sweep("--over", "engine.preset=vllm", *swap, out="other")
    assert done.exit_code == 2 and "swap_space" in done.stderr and not sweep.ran
    budget = ("--over", "engine.max_num_batched_tokens=4,8192", "--set", "engine.max_num_seqs=128")
    assert sweep(*budget, out="budget").exit_code == 0
    assert [row["status"] for row in rows_of(tmp_path / "budget")] == ["bad_input", "ok"]  # fewer tokens than seats


def test_equal_points_run_once_and_fill_every_row(sweep: Sweeps, tmp_path: Path) -> None:
    # a vLLM of that version and the default one resolve to the same scenario
    text = SCENARIO + "variants:\n  a: {}\n  b: {engine.preset: vllm}\n"
    assert sweep(*BLOCKS, text=text).exit_code == 0
    assert sweep.ran == 3
    rows = rows_of(tmp_path / "out")
    assert [row["variant"] for row in rows] == ["a"] * 3 + ["b"] * 3
    assert rows[0]["mean_ttft_ms"] == rows[3]["mean_ttft_ms"] != ""
    result = json.loads((tmp_path / "out" / "points" / "0003-b-block_size-8" / "result.json").read_text())
    assert result["variant"] == "b"


def test_a_knob_that_changed_nothing_names_the_limit_that_binds(sweep: Sweeps, tmp_path: Path) -> None:
    slow = SCENARIO.replace("rate_rps: 40", "rate_rps: 2").replace("num_requests: 40", "num_requests: 12")
    assert sweep("--over", "engine.max_num_seqs=1,64,128", text=slow).exit_code == 0
    line = said_of(tmp_path / "out")["findings"][0]
    assert line.startswith("engine.max_num_seqs from 64 on (64, 128) does not change")
    assert "requests arrive too slowly" in line
    capped = (
        SCENARIO.replace("num_gpu_blocks_override: 400", "kv_cache_memory_bytes: 2147483648")
        + "variants: {old: {engine.allocator: {kind: contiguous}}, new: {}}\n"
    )
    assert sweep(*BLOCKS, "--set", "engine.max_num_seqs=1", out="capped", text=capped).exit_code == 0
    found = said_of(tmp_path / "capped")["findings"]
    assert "old: engine.block_size does not change anything at all: a contiguous cache has no blocks." in found
    assert any(line.startswith("new: ") and "max_num_seqs binds" in line for line in found)
    assert sweep("--over", "workload.arrivals.rate_rps=1,100", out="effect").exit_code == 0
    assert not any("does not change" in line for line in said_of(tmp_path / "effect")["findings"])


def test_lengths_that_every_block_size_divides_are_named(sweep: Sweeps, tmp_path: Path) -> None:
    text = SCENARIO.replace("seed: 3\n", "seed: 3\nmode: admission\n")
    fixed = ["--set", "workload.prompt_tokens={kind: fixed, tokens: 64}"]
    fixed += ["--set", "workload.output_tokens={kind: fixed, tokens: 64}"]
    done = sweep("--over", "engine.block_size=1..32", *fixed, text=text)
    assert done.exit_code == 0, done.output
    assert any("divides every length" in line for line in said_of(tmp_path / "out")["findings"])
    assert sweep("--over", "engine.block_size=1..32", text=text, out="drawn").exit_code == 0
    assert not any("divides every length" in line for line in said_of(tmp_path / "drawn")["findings"])


def test_replications_use_the_same_seeds_at_all_points_and_give_intervals(sweep: Sweeps, tmp_path: Path) -> None:
    assert sweep("--over", "workload.arrivals.rate_rps=20,40", "--replications", "3").exit_code == 0
    rows = rows_of(tmp_path / "out")
    seeds = [row["seed"] for row in rows]
    assert seeds[:3] == seeds[3:] and len(set(seeds)) == 3 and seeds[0] == "3"
    lines = (tmp_path / "out" / "summary.csv").read_text().splitlines()
    summary = dict(zip(lines[0].split(","), lines[1].split(","), strict=True))
    values = [float(row["mean_ttft_ms"]) for row in rows[:3]]
    half = 4.302652729911275 * statistics.stdev(values) / 3**0.5  # Student's t, two degrees of freedom
    assert float(summary["mean_ttft_ms"]) == pytest.approx(statistics.fmean(values))
    assert float(summary["mean_ttft_ms.ci95_high"]) == pytest.approx(statistics.fmean(values) + half, rel=1e-4)
    assert summary["replications"] == summary["with_numbers"] == "3"


def test_json_is_one_object_with_every_row(sweep: Sweeps) -> None:
    done = sweep(*BLOCKS, "--json", "--quiet")
    said = json.loads(done.stdout)
    assert [row["engine.block_size"] for row in said["rows"]] == [8, 16, 32] and done.stderr == ""


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_what_is_cut_short_is_kept_and_resumed(sweep: Sweeps, tmp_path: Path, fault: BaseException) -> None:
    assert sweep(*BLOCKS, out="whole").exit_code == 0
    done = sweep(*BLOCKS, executor=Inline(stop_after=2, fault=fault))
    assert done.exit_code == (130 if isinstance(fault, KeyboardInterrupt) else 2)
    assert "2 of 3 runs are kept" in done.stderr and "--resume" in done.stderr
    assert not (tmp_path / "out" / "points.csv").exists() and not (tmp_path / "out" / NAME).exists()
    again = sweep(*BLOCKS)
    assert again.exit_code == 2 and "--resume continues it" in again.stderr
    assert sweep(*BLOCKS, "--resume").exit_code == 0 and sweep.ran == 1
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert sweep(*BLOCKS, "--resume").exit_code == 0 and sweep.ran == 0


def test_restart_and_a_finished_sweep_start_anew(sweep: Sweeps) -> None:
    sweep(*BLOCKS, executor=Inline(stop_after=2, fault=KeyboardInterrupt()))
    assert sweep(*BLOCKS, "--restart").exit_code == 0 and sweep.ran == 3
    assert sweep(*BLOCKS).exit_code == 0 and sweep.ran == 3


def test_resume_gives_a_point_whose_worker_died_another_try(sweep: Sweeps, tmp_path: Path) -> None:
    class Poor(Inline):
        def run(self, tasks: Iterable[Task]) -> Iterator[tuple[int, Outcome] | None]:
            for found in super().run(tasks):
                died = Outcome("failed", "the worker died", None, 0.0, "")
                yield (1, died) if found is not None and found[0] == 1 else found

    text = SCENARIO + "variants: {a: {}, b: {engine.preset: vllm}}\n"  # equal: the failure stands in both rows
    assert sweep(*BLOCKS, executor=Poor(), text=text).exit_code == 0
    row = rows_of(tmp_path / "out")[4]
    assert row["status"] == "failed" and row["exit_code"] == "1" and "the worker died" in row["error"]
    assert any("2 of 6 points failed" in line for line in said_of(tmp_path / "out")["findings"])
    assert sweep(*BLOCKS, "--resume", text=text).exit_code == 0 and sweep.ran == 1
    assert [row["status"] for row in rows_of(tmp_path / "out")] == ["ok"] * 6
    assert sweep(*BLOCKS, out="whole", text=text).exit_code == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_resume_runs_what_changed_and_moves_the_rest(sweep: Sweeps, tmp_path: Path) -> None:
    assert sweep(*BLOCKS).exit_code == 0
    more = ("--over", "engine.block_size=4,8,32")
    assert sweep(*more, "--resume").exit_code == 0 and sweep.ran == 1
    assert sweep(*more, out="fresh").exit_code == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")
    changed = SCENARIO.replace("num_requests: 40", "num_requests: 41")
    assert sweep(*more, "--resume", text=changed).exit_code == 0 and sweep.ran == 3


def test_points_that_change_places_are_kept(sweep: Sweeps, tmp_path: Path) -> None:
    """The folder of each point is where another one belongs."""
    over = ("--over", "engine.max_num_seqs=8")
    text = SCENARIO + "variants: {a: {engine.block_size: 8}, b: {engine.block_size: 32}}\n"
    swapped = SCENARIO + "variants: {a: {engine.block_size: 32}, b: {engine.block_size: 8}}\n"
    assert sweep(*over, text=text).exit_code == 0
    assert sweep(*over, "--resume", text=swapped).exit_code == 0 and sweep.ran == 0
    assert sweep(*over, text=swapped, out="fresh").exit_code == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


@pytest.mark.parametrize("harm", ["cut", "empty", "edited", "no provenance", "half provenance", "left over"])
def test_no_half_written_file_is_taken_for_a_result(sweep: Sweeps, tmp_path: Path, harm: str) -> None:
    assert sweep(*BLOCKS).exit_code == 0
    whole = contents(tmp_path / "out")
    folder = tmp_path / "out" / "points" / "0001-block_size-16"
    result, provenance = folder / "result.json", folder / "provenance.json"
    text = result.read_text()
    match harm:
        case "cut":
            result.write_text(text[: len(text) // 2])
        case "empty":
            result.write_text("")
        case "edited":
            result.write_text(text.replace('"completed": 40', '"completed": 39'))
        case "no provenance":
            provenance.unlink()
        case "half provenance":
            provenance.write_text(provenance.read_text()[:40])
        case "left over":
            (folder / ".result.json.abc").write_text(text)
    assert sweep(*BLOCKS, "--resume").exit_code == 0
    assert sweep.ran == (0 if harm == "left over" else 1)
    assert contents(tmp_path / "out") == whole


def test_a_full_disk_leaves_no_half_written_point(
    sweep: Sweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sweep(*BLOCKS, out="whole").exit_code == 0
    synced = 0

    def full(handle: int) -> None:
        nonlocal synced
        synced += 1
        if synced == 4:  # the provenance of the second point
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    done = sweep(*BLOCKS)
    assert done.exit_code == 2 and "No space left on device" in done.stderr and "1 of 3 runs are kept" in done.stderr
    assert "Traceback" not in done.stderr
    monkeypatch.undo()
    again = Sweeps(tmp_path, monkeypatch)
    assert again(*BLOCKS, "--resume").exit_code == 0 and again.ran == 2
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_folder_that_cannot_be_written_is_named(
    sweep: Sweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", denied)
    done = sweep(*BLOCKS)
    assert done.exit_code == 2 and f"--out {tmp_path / 'out'}: cannot be written: Read-only file system" in done.stderr
    assert not sweep.ran
    monkeypatch.undo()
    (tmp_path / "file").write_text("")
    assert Sweeps(tmp_path, monkeypatch)(*BLOCKS, out="file").exit_code == 2


def test_two_sweeps_into_one_folder_at_once_are_refused(sweep: Sweeps, tmp_path: Path) -> None:
    assert sweep(*BLOCKS).exit_code == 0
    before = contents(tmp_path / "out")
    with (tmp_path / "out" / NAME).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for option in ((), ("--resume",), ("--restart",)):
            done = sweep(*BLOCKS, *option)
            assert done.exit_code == 2 and "another sweep is writing there" in done.stderr and not sweep.ran
    (tmp_path / "out" / NAME).unlink()
    assert contents(tmp_path / "out") == before
    assert sweep(*BLOCKS).exit_code == 0


def test_the_folder_of_a_run_is_left_alone(sweep: Sweeps, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in ("result.json", "report.html"):
        (tmp_path / "out" / name).write_text("{}")
    done = sweep(*BLOCKS)
    assert done.exit_code == 2 and "holds the result of a run" in done.stderr
    assert contents(tmp_path / "out") == {"result.json": b"{}", "report.html": b"{}"}


def test_a_users_own_files_beside_the_sweep_survive(sweep: Sweeps, tmp_path: Path) -> None:
    assert sweep(*BLOCKS).exit_code == 0
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert sweep("--over", "engine.block_size=8").exit_code == 0
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"
    assert len(list((tmp_path / "out" / "points").iterdir())) == 1

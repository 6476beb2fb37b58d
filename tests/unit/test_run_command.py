"""``kvplan run``: the result folder, the same bytes, variants, thresholds, shipped scenarios."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator.cli import app
from simulator.scenario import shipped_scenarios
from tests.running import SCENARIO, Run, result_of, runs_in, same_bytes
from tests.support import DATA, needs_shared

FILES = {"result.json", "requests.csv", "timeline.csv", "report.html", "scenario.resolved.yaml", "provenance.json"}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return runs_in(tmp_path)


def test_the_folder_is_whole_and_json_is_the_result(run: Run, tmp_path: Path) -> None:
    done = run("--json", "--quiet", report=True)
    assert (done.exit_code, done.stderr) == (0, "")
    out = tmp_path / "out"
    assert not FILES - {path.name for path in out.iterdir()}
    assert not [path for path in out.rglob("*") if path.name.startswith(".")]
    assert json.loads(done.stdout) == result_of(out)
    provenance = json.loads((out / "provenance.json").read_text(encoding="utf-8"))
    assert provenance["versions"]["numpy"] and provenance["host"] and provenance["wall_clock_s"]["chat"] >= 0


def test_the_report_can_be_drawn_again_and_later(run: Run, tmp_path: Path) -> None:
    run(out="a", report=True)
    page = (tmp_path / "a" / "report.html").read_bytes()
    run(out="b")
    assert not (tmp_path / "b" / "report.html").exists()
    for folder in ("a", "b"):
        assert CliRunner().invoke(app, ["report", str(tmp_path / folder)]).exit_code == 0
        assert (tmp_path / folder / "report.html").read_bytes() == page
    nothing = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert nothing.exit_code == 2 and "no result.json" in nothing.stderr


def test_the_summary_is_ascii_and_says_where_the_files_are(run: Run, tmp_path: Path) -> None:
    done = run()
    assert done.stdout.isascii()
    assert done.stdout.rstrip().endswith(f"results: {tmp_path / 'out'}")


def test_leaps_steps_and_another_place_give_the_same_bytes(run: Run, tmp_path: Path) -> None:
    run(out="a")
    run("--stepwise", out="b")
    run(out="c", file="elsewhere/other.yaml")
    same_bytes(tmp_path / "a", tmp_path / "b")
    same_bytes(tmp_path / "a", tmp_path / "c")


def test_the_resolved_scenario_repeats_the_run(run: Run, tmp_path: Path) -> None:
    run(out="a")
    resolved = (tmp_path / "a" / "scenario.resolved.yaml").read_text(encoding="utf-8")
    assert "max_num_seqs: 1024" in resolved  # a default of the engine, written out
    run(out="b", text=resolved)
    same_bytes(tmp_path / "a", tmp_path / "b")


def test_seed_and_set_change_what_they_say(run: Run, tmp_path: Path) -> None:
    run(out="a")
    run("--seed", "4", out="b")
    run("--set", "seed=4", out="c")
    assert result_of(tmp_path / "b") != result_of(tmp_path / "a")
    assert result_of(tmp_path / "b") == result_of(tmp_path / "c")
    run("--set", "engine.block_size=32", "--set", "workload.num_requests=7", out="d")
    changed = result_of(tmp_path / "d")
    assert changed["num_prompts"] == 7
    assert changed["kv"]["block_size"] == 32


def test_variants_have_a_folder_each_that_repeats_alone(run: Run, tmp_path: Path) -> None:
    text = (
        SCENARIO + "variants:\n  small: {engine.block_size: 8}\n  contiguous: {engine.allocator: {kind: contiguous}}\n"
    )
    done = run("--json", out="a", text=text)
    whole = json.loads(done.stdout)
    assert list(whole["variants"]) == ["small", "contiguous"]
    for name in whole["variants"]:
        assert result_of(tmp_path / "a" / name) == whole["variants"][name]
    assert whole["variants"]["contiguous"]["labels"]["allocator"] == "contiguous"
    top = (tmp_path / "a" / "scenario.resolved.yaml").read_text(encoding="utf-8")
    run(out="b", text=top)
    assert (tmp_path / "a" / "result.json").read_bytes() == (tmp_path / "b" / "result.json").read_bytes()
    alone = (tmp_path / "a" / "small" / "scenario.resolved.yaml").read_text(encoding="utf-8")
    run(out="c", text=alone)
    small = whole["variants"]["small"] | {"variant": None}
    assert result_of(tmp_path / "c") == small


def test_the_hash_follows_content_and_not_place(run: Run, tmp_path: Path) -> None:
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,10,5\n0.5,20,6\n"
    start = SCENARIO.index("  num_requests")
    text = SCENARIO[:start] + "  trace: {path: t.csv}\n"
    hashes = []
    for number, (folder, rows) in enumerate([("x", trace), ("y", trace), ("z", trace + "0.9,30,7\n")]):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "t.csv").write_text(rows, encoding="utf-8")
        assert run(out=f"out{number}", text=text, file=f"{folder}/chat.yaml").exit_code == 0
        hashes.append(result_of(tmp_path / f"out{number}")["scenario_sha256"])
    assert hashes[0] == hashes[1] != hashes[2]


def test_what_is_missed_sets_the_exit_code(run: Run) -> None:
    missed = run("--set", "slo={ttft_ms: {p99: 0.001}}")
    assert missed.exit_code == 4
    assert "missed: p99 of ttft is" in missed.stderr and "above its 0.001 ms" in missed.stderr
    assert run("--set", "slo={ttft_ms: {p99: 0.001}}", "--allow-missed").exit_code == 0
    assert run("--set", "slo={ttft_ms: {p99: 1000000}}").exit_code == 0
    assert run("--set", "expect={completed: {min: 61}}").exit_code == 4
    assert run("--set", "expect={completed: {min: 60, max: 60}, kv.peak_utilization: {max: 1}}").exit_code == 0
    unknown = run("--set", "expect={completd: {min: 1}}")
    assert unknown.exit_code == 2 and "did you mean completed?" in unknown.stderr


def test_of_several_variants_one_has_to_meet_the_slo(run: Run) -> None:
    text = SCENARIO + "variants: {good: {}, bad: {slo: {ttft_ms: {p99: 0.001}}}}\n"
    assert run(text=text).exit_code == 0


def test_what_was_left_out_takes_the_servers_default_and_is_listed(run: Run, tmp_path: Path) -> None:
    run()
    assumptions = list(result_of(tmp_path / "out")["assumptions"])
    assert "enable_prefix_caching = true (vllm's default)" in assumptions
    assert "async_scheduling = true (vllm's default)" in assumptions
    assert "max_num_seqs = 1024 (vllm's default)" in assumptions
    assert any("nothing in the workload says which tokens requests share" in line for line in assumptions)
    run("--set", "engine.enable_prefix_caching=false", "--set", "engine.async_scheduling=false", out="off")
    stated = " ".join(result_of(tmp_path / "off")["assumptions"])
    assert "prefix" not in stated and "async" not in stated


def test_other_engines_names_are_read_and_noted(run: Run, tmp_path: Path) -> None:
    text = SCENARIO.replace(
        "{max_model_len: 4096, num_gpu_blocks_override: 400}",
        "{context_length: 4096, max_total_tokens: 6384, page_size: 16, max_running_requests: 9, "
        "disable_radix_cache: true}",
    )
    assert run(text=text).exit_code == 0
    result = result_of(tmp_path / "out")
    assert result["limits"]["max_num_seqs"] == 9
    assert result["kv"]["num_gpu_blocks"] == 6384 // 16 + 1
    assert "engine.page_size (SGLang's name) is read as vLLM's block_size, with vLLM's meaning" in result["assumptions"]


def test_prompts_longer_than_the_context_are_rejected_with_a_warning(run: Run, tmp_path: Path) -> None:
    done = run("--set", "engine.max_model_len=300")
    assert done.exit_code == 0
    result = result_of(tmp_path / "out")
    assert 0 < result["rejected"] < 60
    assert "longer than the context of 300 tokens" in result["warnings"][0]


def test_the_largest_context_that_fits(run: Run, tmp_path: Path) -> None:
    assert run("--set", "engine.max_model_len=-1").exit_code == 0
    assert result_of(tmp_path / "out")["limits"]["max_model_len"] == 399 * 16  # one is the null block


def test_an_old_result_survives_a_failed_run(run: Run, tmp_path: Path) -> None:
    run()
    before = (tmp_path / "out" / "result.json").read_bytes()
    assert run("--set", "model=llama-3.1-70b", "--set", "engine.num_gpu_blocks_override=null").exit_code == 3
    assert (tmp_path / "out" / "result.json").read_bytes() == before


def test_seed_capacity_prints_the_lessons_numbers(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", "seed-capacity", "--out", str(tmp_path / "out"), "--no-report"])
    assert done.exit_code == 0
    for word in ("122 requests", "16 with contiguous", "913", "130,800", "12.9%", "a memory effect, not a speed"):
        assert word in done.stdout


TRACED = {"azure-conversation", "mooncake-conversation"}


@pytest.mark.parametrize("name", sorted(set(shipped_scenarios()) - TRACED))
def test_shipped_scenarios_run(name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", name, "--out", str(tmp_path / "out"), "--quiet", "--no-report"])
    assert done.exit_code == 0, done.stderr
    question = shipped_scenarios()[name].read_text(encoding="utf-8").splitlines()[0]
    assert question.startswith("# ") and "?" in question


@needs_shared
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "trace", "rows"),
    [
        ("azure-conversation", "AzureLLMInferenceTrace_conv.csv", 19366),
        ("mooncake-conversation", "mooncake_fast25_conversation_trace.jsonl", 12031),
    ],
)
def test_public_traces_run_from_end_to_end(name: str, trace: str, rows: int, tmp_path: Path) -> None:
    path = DATA / "traces" / trace
    done = CliRunner().invoke(
        app,
        [
            "run",
            name,
            "--set",
            f"workload.trace.path={path}",
            "--out",
            str(tmp_path / "out"),
            "--json",
            "--quiet",
            "--no-report",
        ],
    )
    assert done.exit_code == 0, done.stderr
    whole = json.loads(done.stdout)
    for result in whole.get("variants", {"": whole}).values():
        assert result["completed"] == rows
        assert result["rejected"] == 0


@pytest.mark.parametrize("name", sorted(TRACED))
def test_a_trace_that_is_not_there_says_where_to_get_it(name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", name, "--set", "workload.trace.path=nowhere.csv", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "--set workload.trace.path=FILE" in done.stderr


@pytest.mark.parametrize(
    ("setting", "asked"),
    [("num_gpu_blocks_override=900000", "900000 blocks"), ("max_total_tokens=14400000", "900001 blocks")],
)
def test_a_pool_larger_than_the_gpu_is_warned_of(run: Run, tmp_path: Path, setting: str, asked: str) -> None:
    """A million blocks are taken at their word, as the server's flag is, but never in silence."""
    text = SCENARIO.replace(", num_gpu_blocks_override: 400", "")
    assert run("--quiet", "--set", f"engine.{setting}", text=text).exit_code == 0
    warnings = [w for w in result_of(tmp_path / "out")["warnings"] if asked in w]
    assert len(warnings) == 1
    assert "by the memory table" in warnings[0] and "may run out of memory" in warnings[0]


def test_a_stated_pool_that_the_gpu_holds_is_not_warned_of(run: Run, tmp_path: Path) -> None:
    assert run("--quiet", "--set", "engine.num_gpu_blocks_override=2000").exit_code == 0
    assert "memory table" not in str(result_of(tmp_path / "out")["warnings"])

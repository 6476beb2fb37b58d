"""``kvplan run`` with prefix caching, other versions and systems, and models with several KV groups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reports.style import line
from simulator.cli import app
from simulator.deployment import build_deployment
from simulator.scenario import load_scenario
from tests.running import SCENARIO, Run, result_of, runs_in, same_bytes


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return runs_in(tmp_path)


SHARED_PREFIX = "workload.prefix={prefix_tokens: {kind: fixed, tokens: 320}, groups: 2}"


def test_shared_prefixes_are_found_in_the_cache(run: Run, tmp_path: Path) -> None:
    """320 tokens are 20 blocks: whoever comes after the first of its group finds all of them."""
    run("--set", SHARED_PREFIX, out="on")
    run("--set", SHARED_PREFIX, "--set", "engine.enable_prefix_caching=false", out="off")
    on, off = (result_of(tmp_path / name) for name in ("on", "off"))
    assert on["total_input_tokens"] == off["total_input_tokens"]
    hits = on["prefix_cache_hit_rate"] * on["total_input_tokens"]
    assert hits == pytest.approx(58 * 320)
    assert off["prefix_cache_hit_rate"] == 0
    assert on["mean_ttft_ms"] < off["mean_ttft_ms"]
    assert "prefix caching is on" not in " ".join(on["assumptions"])


def test_a_contiguous_cache_takes_no_prefix_caching_by_default(run: Run, tmp_path: Path) -> None:
    assert run("--set", "engine.allocator={kind: contiguous}").exit_code == 0
    assumptions = " ".join(result_of(tmp_path / "out")["assumptions"])
    assert "enable_prefix_caching = false (a contiguous cache shares nothing between requests)" in assumptions
    resolved = (tmp_path / "out" / "scenario.resolved.yaml").read_text(encoding="utf-8")
    assert "enable_prefix_caching: false" in resolved


def test_an_older_vllm_has_its_own_defaults(run: Run, tmp_path: Path) -> None:
    text = SCENARIO.replace("engine: {", 'engine: {version: "2025", ')
    assert run(text=text).exit_code == 0
    result = result_of(tmp_path / "out")
    assumptions = list(result["assumptions"])
    for expected in (
        "gpu_memory_utilization = 0.9 (vllm-2025's default)",
        "scheduler_reserve_full_isl = false (vllm-2025's default)",
        "async_scheduling = false (vllm-2025's default)",
        "prefix_cache_retention_interval = none (vllm-2025's default)",
    ):
        assert expected in assumptions
    resolved = (tmp_path / "out" / "scenario.resolved.yaml").read_text(encoding="utf-8")
    run(out="again", text=resolved)
    same_bytes(tmp_path / "out", tmp_path / "again")


PRESETS = ("vllm", "vllm-v0", "sglang", "trtllm", "orca-max", "orca-pow2", "orca-oracle", "fastertransformer")


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_serves_all_and_repeats_from_its_resolved_file(run: Run, tmp_path: Path, preset: str) -> None:
    text = SCENARIO.replace("num_gpu_blocks_override: 400", f"max_total_tokens: 12800, preset: {preset}")
    done = run(text=text)
    assert done.exit_code == 0, done.stderr
    result = result_of(tmp_path / "out")
    assert result["completed"] == 60
    kv = dict(result["kv"])
    assert kv["total_slots"] == 12800  # whether it has a null block or none
    assert result["labels"]["preset"] == preset
    resolved = (tmp_path / "out" / "scenario.resolved.yaml").read_text(encoding="utf-8")
    run(out="again", text=resolved)
    same_bytes(tmp_path / "out", tmp_path / "again")
    run("--stepwise", out="steps", text=text)
    same_bytes(tmp_path / "out", tmp_path / "steps")


def test_what_a_contiguous_preset_reserves(run: Run, tmp_path: Path) -> None:
    """Max reserves max_model_len for each: 12,800 slots hold two buddies of 4,096; Oracle holds many more at once."""
    most = {}
    for preset in ("orca-max", "orca-pow2", "orca-oracle"):
        text = SCENARIO.replace("num_gpu_blocks_override: 400", f"max_total_tokens: 12800, preset: {preset}")
        run("--set", "workload.arrivals={kind: all_at_once}", out=preset, text=text)
        most[preset] = result_of(tmp_path / preset)["mean_running"]
    assert most["orca-max"] <= 3 < most["orca-pow2"] < most["orca-oracle"]


def test_swap_needs_its_space(run: Run, tmp_path: Path) -> None:
    """A preempted request is copied out and back where the CPU's pool holds it, else computed again."""
    text = SCENARIO.replace("num_gpu_blocks_override: 400", "num_gpu_blocks_override: 260, preset: vllm-v0")
    text += (
        "variants:\n  swap: {engine.preemption_mode: swap}\n"
        "  none: {engine.preemption_mode: swap, engine.swap_space: 0}\n"
    )
    whole = json.loads(run("--json", "--set", "workload.arrivals={kind: all_at_once}", text=text).stdout)["variants"]
    assert whole["swap"]["preemptions"] and not whole["swap"]["recomputed_tokens"]
    assert whole["none"]["preemptions"] and whole["none"]["recomputed_tokens"]
    assert "swapped blocks move at 64 GB/s each way (PCIe of the GPU)" in " ".join(whole["swap"]["assumptions"])


def test_a_hybrid_model_has_a_group_for_its_windows(run: Run, tmp_path: Path) -> None:
    """gpt-oss-20b: 12 full layers and 12 that see 128 tokens back, so a block of either group is 12 layers' worth."""
    text = SCENARIO.replace("llama-3.1-8b", "gpt-oss-20b")
    assert run("--quiet", out="hybrid", text=text).exit_code == 0
    text = text.replace("engine: {", "engine: {disable_hybrid_kv_cache_manager: true, ")
    assert run("--quiet", out="plain", text=text).exit_code == 0
    hybrid, plain = (result_of(tmp_path / name)["kv"] for name in ("hybrid", "plain"))
    assert hybrid["num_gpu_blocks"] == plain["num_gpu_blocks"] == 400
    assert 2 * hybrid["pool_bytes"] == plain["pool_bytes"]
    said = " ".join(result_of(tmp_path / "hybrid")["assumptions"])
    assert "2 KV groups share the blocks (1 with blocks of 16 tokens and a window of 128, 1 with blocks of 16" in said
    run("--stepwise", out="steps", text=SCENARIO.replace("llama-3.1-8b", "gpt-oss-20b"))
    same_bytes(tmp_path / "hybrid", tmp_path / "steps")


def test_several_answers_share_the_prompt_in_vllm_v0_and_are_requests_elsewhere(run: Run, tmp_path: Path) -> None:
    text = SCENARIO.replace("num_gpu_blocks_override: 400", "max_total_tokens: 40000, preset: PRESET")
    shares = {}
    for preset in ("vllm-v0", "orca-oracle", "vllm"):
        done = run("--set", "workload.n=3", out=preset, text=text.replace("PRESET", preset))
        assert done.exit_code == 0, done.stderr
        result = result_of(tmp_path / preset)
        shares[preset] = result["kv"]["mean_utilization"]
        assert result["completed"] == (60 if preset == "vllm-v0" else 180)
        said = str(result["assumptions"])
        assert "each request asks for 3 answers" in said
        assert ("is a request of its own" in said) == (preset != "vllm-v0")
        assert ("count one answer of each" in said) == (preset == "vllm-v0")
    assert shares["vllm-v0"] < shares["orca-oracle"]
    assert result_of(tmp_path / "vllm")["prefix_cache_hit_rate"] > 0


def test_beams_of_one_text_share_its_blocks(run: Run, tmp_path: Path) -> None:
    text = SCENARIO.replace("num_gpu_blocks_override: 400", "num_gpu_blocks_override: 4000, preset: vllm-v0")
    used = {}
    for key in ("n", "beam_width"):
        assert run("--set", f"workload.{key}=4", out=key, text=text).exit_code == 0
        used[key] = result_of(tmp_path / key)["kv"]["mean_utilization"]
    assert used["beam_width"] < used["n"]


@pytest.mark.parametrize(("preset", "most"), [("vllm", 64), ("sglang", 2048), ("trtllm", 2048), ("orca-max", 256)])
def test_a_small_token_budget_limits_the_batch_in_vllm_alone(run: Run, tmp_path: Path, preset: str, most: int) -> None:
    text = SCENARIO.replace("num_gpu_blocks_override: 400", f"max_num_batched_tokens: 64, preset: {preset}")
    assert run("--set", "workload.prompt_tokens={kind: fixed, tokens: 40}", text=text).exit_code == 0
    assert result_of(tmp_path / "out")["limits"]["max_num_seqs"] == most


def test_windows_that_share_a_prefix_leap_as_they_step(run: Run, tmp_path: Path) -> None:
    text = SCENARIO.replace("llama-3.1-8b", "gpt-oss-20b").replace("override: 400", "override: 750")
    run("--set", SHARED_PREFIX, out="leaps", text=text)
    run("--set", SHARED_PREFIX, "--stepwise", out="steps", text=text)
    same_bytes(tmp_path / "leaps", tmp_path / "steps")
    assert result_of(tmp_path / "leaps")["kv"]["saved_by_sharing_share"] > 0


def test_eight_variants_are_eight_lines() -> None:
    assert len({str(line(index)) for index in range(len(PRESETS))}) == len(PRESETS)


@pytest.mark.parametrize("preset", PRESETS)
def test_quickstart_s_settings_are_taken_by_every_preset(preset: str) -> None:
    """Values that say what a system does anyway (no async scheduling, fcfs) are no error under it."""
    loaded = load_scenario("quickstart", ["variants=null", f"engine.preset={preset}"])
    assert build_deployment(loaded.scenario.settings).settings.engine.preset == preset


def test_no_server_hits_more_than_the_infinite_cache_of_its_workload(run: Run, tmp_path: Path) -> None:
    """Each of 3 answers looks its prompt up; where memory never ends, what is served is the ideal."""
    asked = ("--set", SHARED_PREFIX, "--set", "workload.n=3", "--set", "engine.num_gpu_blocks_override=20000")
    assert run(*asked).exit_code == 0
    words = ["workload", str(tmp_path / "chat.yaml"), "--prefix-cache", "--json", *asked]
    facts = json.loads(CliRunner().invoke(app, words).stdout)
    served = result_of(tmp_path / "out")
    assert facts["rows"] == served["num_prompts"] == 180
    assert facts["prefix_cache"]["ideal_token_hit_rate"] == pytest.approx(served["prefix_cache_hit_rate"], abs=1e-12)
    groups = json.loads(CliRunner().invoke(app, [*words[:2], *words[3:], "--set", "engine.preset=vllm-v0"]).stdout)
    assert groups["rows"] == 60

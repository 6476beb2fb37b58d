"""Numbers that no server has are refused in milliseconds, each at its place; and a plain name is the catalogue's."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator.catalog import find_model
from simulator.cli import app
from simulator.errors import InputError
from simulator.scenario import find_scenario
from tests.unit.test_nobody_served import run

HUGE = [
    "engine.num_gpu_blocks_override=1e30",
    "engine.kv_cache_memory_bytes=1e30",
    "engine.max_total_tokens=1e30",
    "engine.max_num_seqs=1e30",
    "engine.max_num_batched_tokens=1e30",
    "engine.max_model_len=1e30",
    "engine.block_size=1e30",
    "engine.long_prefill_token_threshold=1e30",
    "parallelism.tensor_parallel_size=1e30",
    "parallelism.replicas=1e30",
    "workload.num_requests=1e30",
    "workload.output_tokens={kind: fixed, tokens: 1e30}",
    "workload={duration_s: 1e6, arrivals: {kind: poisson, rate_rps: 1e6}, prompt_tokens: {kind: fixed, tokens: 1}, "
    "output_tokens: {kind: fixed, tokens: 1}}",
    "workload={duration_s: 1e6, arrivals: {kind: constant, rate_rps: 1e6}, prompt_tokens: {kind: fixed, tokens: 1}, "
    "output_tokens: {kind: fixed, tokens: 1}}",
    "step_time={kind: linear, base_ms: 1e30, per_token_us: 0, per_context_token_ns: 0}",
]


@pytest.mark.parametrize("patch", HUGE)
def test_a_number_that_no_server_has(tmp_path: Path, patch: str) -> None:
    refused = run(tmp_path, [patch])
    assert refused.exit_code == 2, refused.stderr
    assert refused.stderr.startswith("--set ") and patch.partition("=")[0] in refused.stderr


@pytest.mark.parametrize("option", ["max-model-len", "max-num-seqs", "max-num-batched-tokens", "block-size"])
def test_size_refuses_it_too(option: str) -> None:
    done = CliRunner().invoke(app, ["size", "--model", "llama-3.1-8b", "--gpu", "l4", f"--{option}", str(10**30)])
    assert done.exit_code == 2 and f"--{option}" in done.stderr


def test_no_memory_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("simulator.scenario_workload.build_workload", full)
    done = run(tmp_path, [])
    assert done.exit_code == 2 and "more memory than this machine has" in done.stderr


def test_a_plain_name_is_the_catalogues_and_a_path_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("llama-3.1-8b", "quickstart", "my-model"):
        (tmp_path / name).mkdir()
    assert find_model("llama-3.1-8b").source.startswith("catalogue")
    for path in ("./llama-3.1-8b", "./llama-3.1-8b/", str(tmp_path / "llama-3.1-8b"), "my-model"):
        with pytest.raises(InputError, match=r"there is no file .*config\.json"):
            find_model(path)
    assert find_scenario("quickstart").is_file()
    assert find_scenario("./quickstart").is_dir()


def test_a_variant_cannot_stop_the_clock(tmp_path: Path) -> None:
    refused = run(tmp_path, ["variants={a: {mode: admission}, b: {}}"])
    assert refused.exit_code == 2 and "a variant cannot change mode" in refused.stderr

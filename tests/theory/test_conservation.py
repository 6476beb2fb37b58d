"""What no scheduler may change: tokens are conserved, and a run knows neither the unit nor the origin of time."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.allocators.pools import ContiguousPool, PagedPool, PoolConfig
from simulator.cluster import simulate
from simulator.metrics import summarize
from simulator.run_log import RunLog
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from workloads.workload import Workload

MS = 1_000_000_000
STEP_PS = 10 * MS
POOLS: dict[str, PoolConfig] = {
    "roomy": PagedPool(num_gpu_blocks=3000),
    "preempts": PagedPool(num_gpu_blocks=60),
    "slots": ContiguousPool(num_slots=2000, reservation="max", fit="first"),
}
TIMES = ("arrival_ps", "scheduled_ps", "first_token_ps", "finish_ps")


def run(pool: str, *, scale: int = 1, shift_ps: int = 0, seed: int = 0, replicas: int = 1) -> RunLog:
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.integers(0, 40, 120)) * MS
    work = Workload.from_columns(arrivals * scale + shift_ps, rng.integers(1, 250, 120), rng.integers(1, 90, 120))
    engine = EngineConfig(
        max_model_len=400, max_num_seqs=24, max_num_batched_tokens=256, scheduler_reserve_full_isl=False
    )
    step_time = LinearStepTime(6 * MS * scale, 50_000_000 * scale, 26_000 * scale)
    return simulate(work, engine, POOLS[pool], step_time, replicas=replicas)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("replicas", [1, 3])
def test_tokens_are_conserved(pool: str, replicas: int) -> None:
    log = run(pool, replicas=replicas)
    table = log.request_columns()
    outputs = int(log.workload.output_tokens.sum())
    steps = [replica.segment_columns() for replica in log.replicas]
    assert sum(int((rows["steps"] * rows["sampled"]).sum()) for rows in steps) == outputs
    # each prompt token and each output token but the last is computed once, and again after a preemption
    once = int(log.workload.prompt_tokens.sum()) + outputs - len(log.workload)
    computed = sum(int((rows["steps"] * rows["tokens"]).sum()) for rows in steps)
    assert computed == once + int(table["recomputed_tokens"].sum())
    assert (int(table["preemptions"].sum()) > 0) == (pool == "preempts")


@pytest.mark.parametrize("pool", POOLS)
def test_a_run_does_not_know_the_unit_of_time(pool: str) -> None:
    plain, slow = run(pool).request_columns(), run(pool, scale=7).request_columns()
    for name in TIMES:
        assert (7 * plain[name]).tolist() == slow[name].tolist(), name


@pytest.mark.parametrize("pool", POOLS)
def test_a_run_does_not_know_when_it_began(pool: str) -> None:
    shift_ps = 86_400_000 * MS
    plain, late = run(pool).request_columns(), run(pool, shift_ps=shift_ps).request_columns()
    for name in TIMES:
        assert (plain[name] + shift_ps).tolist() == late[name].tolist(), name
    early, later = summarize(run(pool)), summarize(run(pool, shift_ps=shift_ps))
    # the trend of the backlog and such are floats of differences, and may differ in the last bits
    assert {key: later[key] for key in ("duration", "p99_ttft_ms", "p99_itl_ms", "kv")} == {
        key: early[key] for key in ("duration", "p99_ttft_ms", "p99_itl_ms", "kv")
    }


def test_room_beyond_all_tokens_changes_nothing() -> None:
    rng = np.random.default_rng(3)
    arrivals, prompts, outputs = (
        np.cumsum(rng.integers(0, 20, 60)) * MS,
        rng.integers(1, 90, 60),
        rng.integers(1, 60, 60),
    )
    need = int(sum(-(-(p + o) // 16) for p, o in zip(prompts.tolist(), outputs.tolist(), strict=True))) + 1
    engine = EngineConfig(max_model_len=400, max_num_seqs=64, max_num_batched_tokens=256)
    tables = [
        simulate(
            Workload.from_columns(arrivals, prompts, outputs), engine, PagedPool(blocks), LinearStepTime(MS, MS, 1000)
        ).request_columns()
        for blocks in (need, 10 * need)
    ]
    for name in TIMES:
        assert tables[0][name].tolist() == tables[1][name].tolist()


def busy_ps(log: RunLog) -> int:
    rows = log.replicas[0].segment_columns()
    k, d, g = rows["steps"], rows["duration_ps"], rows["growth_ps"]
    return int((k * d + g * (k * (k - 1) // 2)).sum())


@pytest.mark.parametrize("gap_steps", [3, 5, 8])
def test_constant_arrivals_and_services_are_d_d_1(gap_steps: int) -> None:
    """Nobody waits while the gap is at least the service; else the n-th waits n·(service − gap)."""
    requests, outputs = 200, 5
    arrivals = np.arange(requests) * gap_steps * STEP_PS
    engine = EngineConfig(max_model_len=64, max_num_seqs=1, max_num_batched_tokens=64)
    work = Workload.from_columns(arrivals, np.full(requests, 8), np.full(requests, outputs))
    log = simulate(work, engine, PagedPool(100), LinearStepTime(STEP_PS, 0, 0))
    table = log.request_columns()
    late = max(outputs - gap_steps, 0) * STEP_PS
    assert (table["scheduled_ps"] - table["arrival_ps"]).tolist() == [n * late for n in range(requests)]
    assert busy_ps(log) == requests * outputs * STEP_PS
    assert summarize(log)["saturated"] is (gap_steps < outputs)

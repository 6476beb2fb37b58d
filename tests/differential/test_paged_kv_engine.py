"""The whole engine on real block ids against the engine that counts: the same log to the last number.

The two caches must agree when the scheduler itself drives them: chunks, leaps, growth one by one, preemption in
the middle of a pass, priorities.
"""

from __future__ import annotations

import numpy as np
import pytest

import simulator.cluster as cluster
from simulator.allocators.content import TokenContent
from simulator.allocators.kv_cache import KvCache
from simulator.allocators.paged_kv import PagedKv
from simulator.allocators.pools import PagedPool, PoolConfig
from simulator.run_log import RunLog
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from workloads.workload import PS_PER_S, Workload

SEEDS = range(16)


def random_run(seed: int) -> tuple[Workload, EngineConfig, PagedPool]:
    """A burst of chats into a pool that holds a few of them."""
    rng = np.random.default_rng(seed)
    n = 40
    block_size = int(rng.choice([1, 4, 16]))
    prompts, outputs = rng.integers(1, 80, n), rng.integers(1, 60, n)
    workload = Workload.from_columns(
        np.sort(rng.integers(0, 20, n)) * (PS_PER_S // 10),
        prompts,
        outputs,
        priority=rng.integers(0, 3, n) if seed % 2 else None,
    )
    engine = EngineConfig(
        max_model_len=160,
        max_num_seqs=16,
        max_num_batched_tokens=int(rng.integers(16, 120)),
        scheduling_policy="priority" if seed % 2 else "fcfs",
        scheduler_reserve_full_isl=bool(rng.integers(2)),
        watermark=float(rng.choice([0.0, 0.05])),
    )
    return workload, engine, PagedPool(int(rng.integers(150, 400)) // block_size + 2, block_size)


def tables(log: RunLog) -> list[list[int]]:
    """Every fact of a run."""
    replica = log.replicas[0]
    parts = [log.requests, replica.segments, replica.growth_blocks, replica.irregular_gaps_ps, replica.requeues]
    return [list(part) for part in parts] + [[log.end_ps]]


def run(seed: int, *, stepwise: bool) -> RunLog:
    workload, engine, pool = random_run(seed)
    step_time = LinearStepTime.from_units(base_ms=6, per_token_us=50, per_context_token_ns=26)
    return cluster.simulate(workload, engine, pool, step_time, stepwise=stepwise)


@pytest.mark.parametrize("stepwise", [False, True], ids=["leaps", "stepwise"])
def test_the_engine_runs_the_same_on_ids_and_on_counts(stepwise: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {seed: run(seed, stepwise=stepwise) for seed in SEEDS}
    caches: list[PagedKv] = []

    def with_ids(pool: PoolConfig, engine: EngineConfig, content: TokenContent, *, stages: int = 1) -> KvCache:
        assert isinstance(pool, PagedPool)
        caches.append(
            PagedKv(
                pool.num_gpu_blocks,
                pool.block_size,
                engine.max_model_len,
                engine.watermark,
                engine.scheduler_reserve_full_isl,
            )
        )
        return caches[-1]

    monkeypatch.setattr(cluster, "make_cache", with_ids)
    preemptions = 0
    for seed in SEEDS:
        log = run(seed, stepwise=stepwise)
        assert tables(log) == tables(counted[seed])
        preemptions += int(log.request_columns()["preemptions"].sum())
        caches[-1].check()
        assert caches[-1].free_units == caches[-1].blocks.usable_blocks, "a run ends with every block back"
    assert len(caches) == len(SEEDS)
    assert preemptions > 50, "these runs must hurt"

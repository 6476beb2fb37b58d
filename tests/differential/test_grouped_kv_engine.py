"""The whole engine on the cache with block ids against the engine that counts: without caching, the same log."""

from __future__ import annotations

from dataclasses import replace

import pytest

import simulator.cluster as cluster
from simulator.allocators.block_pool import VLLM_V1
from simulator.allocators.content import TokenContent
from simulator.allocators.group_shape import KvGroupShape
from simulator.allocators.grouped_kv import GroupedKv
from simulator.allocators.kv_cache import KvCache
from simulator.allocators.pools import PagedPool, PoolConfig
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from tests.differential.test_paged_kv_engine import SEEDS, random_run, run, tables
from tests.property.test_leaps import assert_same_run

CACHES: list[GroupedKv] = []


def grouped(pool: PoolConfig, engine: EngineConfig, content: TokenContent, *, stages: int = 1) -> KvCache:
    assert isinstance(pool, PagedPool)
    CACHES.append(
        GroupedKv(
            pool.num_gpu_blocks,
            (KvGroupShape(pool.block_size),),
            engine.max_model_len,
            content,
            caching=engine.enable_prefix_caching,
            retention_interval=0,
            watermark=engine.watermark,
            reserve_full_sequence=engine.scheduler_reserve_full_isl,
            batched_tokens=engine.max_num_batched_tokens,
            lag=0,
            bytes_per_token=0,
            policy=VLLM_V1,
        )
    )
    return CACHES[-1]


@pytest.mark.parametrize("stepwise", [False, True], ids=["leaps", "stepwise"])
def test_without_caching_it_is_the_engine_that_counts(stepwise: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {seed: run(seed, stepwise=stepwise) for seed in SEEDS}
    monkeypatch.setattr(cluster, "make_cache", grouped)
    for seed in SEEDS:
        assert tables(run(seed, stepwise=stepwise)) == tables(counted[seed])
        CACHES[-1].check()
        assert CACHES[-1].free_units == CACHES[-1].blocks.usable_blocks


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    "groups",
    [(), (KvGroupShape(4, 20),), (KvGroupShape(4), KvGroupShape(8, 20))],
    ids=["full", "window", "hybrid"],
)
def test_leaps_and_steps_agree_with_caching_on(groups: tuple[KvGroupShape, ...], asynchronous: bool) -> None:
    """Preempted requests find their own blocks again; windows slide; and the log is that of single steps."""
    step_time = LinearStepTime.from_units(base_ms=6, per_token_us=50, per_context_token_ns=26)
    for seed in range(6):
        workload, engine, pool = random_run(seed)
        engine = replace(engine, enable_prefix_caching=True, async_scheduling=asynchronous)
        pool = replace(pool, groups=groups, block_size=4, num_gpu_blocks=90 * max(1, len(groups)))
        leaps, steps = (
            cluster.simulate(workload, engine, pool, step_time, stepwise=stepwise, max_steps=20_000)
            for stepwise in (False, True)
        )
        assert_same_run(leaps, steps)
        if engine.scheduler_reserve_full_isl:
            assert leaps.status == "ok"

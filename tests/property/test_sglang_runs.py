"""SGLang under pressure: little caution, small pools, sharing prompts; leaps are steps, memory balances, all end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simulator.cluster
from simulator.allocators.content import TokenContent
from simulator.allocators.kv_cache import KvCache
from simulator.allocators.pools import PagedPool, PoolConfig, make_cache
from simulator.allocators.radix_kv import RadixKv
from simulator.cluster import simulate
from simulator.request import RequestState
from simulator.run_log import RunLog
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.plan import Plan
from simulator.schedulers.policies import SglangPolicy
from simulator.schedulers.running import Scheduler
from simulator.step_time.linear import LinearStepTime
from tests.policy_cases import paged, policy_cases, token_pages, watched
from tests.property.test_conformance import limits_hold
from tests.property.test_leaps import assert_same_run, run
from tests.scenarios_random import Case, workloads
from workloads.prefix_reuse import prefix_reuse
from workloads.workload import Workload

MANY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def shared_prompts(draw: st.DrawFn, workload: Workload) -> Workload:
    """The same rows, whose prompts are prefixes of a few streams, now and then with an earlier answer in between."""
    segments: list[tuple[tuple[str, int, int], ...] | None] = []
    for row, prompt in enumerate(workload.prompt_tokens.tolist()):
        kind = draw(st.integers(0, 3))
        own = draw(st.integers(0, prompt))
        if kind == 0:
            segments.append(None)
        elif kind == 1 or not row:
            shared = (draw(st.sampled_from("ab")), 0, prompt - own)
            segments.append(tuple(s for s in (shared, (f"q{row}", 0, own)) if s[2]))
        else:  # a later turn: an earlier prompt and its answer come first
            before = draw(st.integers(0, row - 1))
            told = segments[before] or ((f"p:{before}", 0, int(workload.prompt_tokens[before])),)
            answer = int(workload.output_tokens[before])
            turn, left = [], prompt
            for stream, start, length in (*told, (f"o:{before}", 0, answer), (f"q{row}", 0, prompt)):
                if left:
                    turn.append((stream, start, min(length, left)))
                    left -= turn[-1][2]
            segments.append(tuple(turn))
    return replace(workload, segments=segments)


@st.composite
def sglang_cases(draw: st.DrawFn, *, caching: bool) -> Case:
    policy = SglangPolicy(
        schedule_policy=draw(st.sampled_from(["fcfs", "lpm"])),
        schedule_conservativeness=draw(st.sampled_from([0.01, 0.1, 1.0, 2.0])),
        max_prefill_tokens=draw(st.sampled_from([5, 64, 16384])),
        ignore_eos=draw(st.sampled_from([False, False, False, True])),
    )
    case = draw(policy_cases(policy, [paged, token_pages]))
    if draw(st.booleans()):  # all at once and long, so that memory runs out
        n = len(case.workload)
        outputs = np.asarray(draw(st.lists(st.integers(20, 60), min_size=n, max_size=n)))
        hard = replace(case.workload, arrival_ps=case.workload.arrival_ps * 0, output_tokens=outputs)
        engine = replace(case.engine, max_model_len=1024, max_num_seqs=max(3, case.engine.max_num_seqs))
        case = replace(case, workload=hard, engine=engine)
    workload = draw(shared_prompts(case.workload)) if caching else case.workload
    return replace(case, workload=workload, engine=replace(case.engine, enable_prefix_caching=caching))


def balances(scheduler: Scheduler, plan: Plan, step: int) -> None:
    """Every pass keeps the limits, and the pool is what is free and what the running requests hold."""
    limits_hold(scheduler, plan, step)
    kv = scheduler.kv
    page = kv.pool.block_size
    grows = plan.decodes > 0
    tables = sum(
        -(-(r.computed_at(step) + grows * (r.state is RequestState.DECODING)) // page)
        for r in scheduler.running.values()
    )
    used = kv.pool.total_slots // page - kv.free_units
    assert used == tables - kv.saved_units


def run_and_keep_caches(case: Case, *, stepwise: bool) -> tuple[RunLog, list[KvCache]]:
    """The run, and the caches as they are at its end."""
    caches: list[KvCache] = []

    def make_and_keep(pool: PoolConfig, engine: EngineConfig, content: TokenContent, *, stages: int = 1) -> KvCache:
        caches.append(make_cache(pool, engine, content))
        return caches[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator.cluster, "make_cache", make_and_keep)
        return run(case, stepwise=stepwise), caches


@pytest.mark.parametrize("caching", [False, True])
@MANY
@given(st.data())
def test_leaps_are_steps_and_memory_balances(caching: bool, data: st.DataObject) -> None:
    case = data.draw(sglang_cases(caching=caching))
    with watched(balances):
        steps, slow = run_and_keep_caches(case, stepwise=True)
    leaps, fast = run_and_keep_caches(case, stepwise=False)
    assert leaps.status == "ok"
    assert_same_run(leaps, steps)
    for mine, theirs in zip(fast, slow, strict=True):
        mine.check()
        assert mine.free_units == theirs.free_units == mine.pool.total_slots // mine.pool.block_size
        assert mine.evicted_blocks == theirs.evicted_blocks
        if isinstance(mine, RadixKv) and isinstance(theirs, RadixKv):
            assert content_of(mine) == content_of(theirs)


def content_of(kv: RadixKv) -> list[tuple[object, ...]]:
    """What the tree holds, and when each part was last used."""
    return sorted((node.time, node.spans) for node in kv.tree.nodes())


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from([1, 4, 16]))
def test_a_cache_without_end_finds_all_that_can_be_found(data: st.DataObject, page: int) -> None:
    """Requests that come one after the other hit what the analysis of the workload says an infinite cache holds."""
    workload = data.draw(shared_prompts(data.draw(workloads(reactive=False))))
    workload = replace(workload, arrival_ps=np.arange(len(workload)) * 10**12)
    engine = EngineConfig(1000, 8, 32, enable_prefix_caching=True, policy=SglangPolicy())
    log = simulate(workload, engine, PagedPool(6000 // page, page, null_block=False), LinearStepTime(10**9, 0, 0))
    assert log.request_columns()["cached_tokens"].sum() == prefix_reuse(workload, page).cached_tokens

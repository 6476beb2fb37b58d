"""Random scenarios of one policy: tiny pools, bursts, long prompts, small budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec

import pytest
from hypothesis import strategies as st

import simulator.cluster
import simulator.inbox
from simulator.allocators.kv_cache import KvCache
from simulator.allocators.pools import ContiguousPool, PagedPool, PoolConfig
from simulator.request import LEGAL_MOVES, Request
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.make import SCHEDULERS, make_scheduler
from simulator.schedulers.plan import Plan
from simulator.schedulers.policies import (
    IterationLevelPolicy,
    Policy,
    RequestLevelPolicy,
    SglangPolicy,
    TrtLlmPolicy,
    VllmV0Policy,
    VllmV1Policy,
)
from simulator.schedulers.running import Scheduler
from simulator.step_time.linear import LinearStepTime
from tests.scenarios_random import PS_PER_MS, Case, workloads

Pools = Callable[[st.DrawFn], PoolConfig]


def small_paged(draw: st.DrawFn, *, null_block: bool) -> PagedPool:
    """A pool of about 60 to 250 slots in blocks of 1 to 16."""
    block = draw(st.sampled_from([1, 2, 4, 16]))
    return PagedPool(draw(st.integers(4, 10 + 200 // block)), block, null_block=null_block)


def paged(draw: st.DrawFn) -> PoolConfig:
    return small_paged(draw, null_block=False)


def paged_with_null_block(draw: st.DrawFn) -> PoolConfig:
    return small_paged(draw, null_block=True)


def token_pages(draw: st.DrawFn) -> PoolConfig:
    return PagedPool(draw(st.integers(40, 250)), 1, null_block=False)


def contiguous(draw: st.DrawFn) -> PoolConfig:
    return ContiguousPool(
        draw(st.integers(40, 400)),
        draw(st.sampled_from(["max", "pow2", "oracle"])),
        draw(st.sampled_from(["first", "best", "buddy"])),
    )


@dataclass(frozen=True)
class System:
    """A policy over a kind of pool that it may meet in practice."""

    policy: Policy
    pool: Pools
    caching: bool = False

    @property
    def name(self) -> str:
        """For the names of tests: the policy's kind, what differs from its defaults, the pool."""
        usual = type(self.policy)()
        knobs = [
            str(value) for name, value in vars(self.policy).items() if value != getattr(usual, name) and name != "kind"
        ]
        return "-".join([self.policy.kind, *knobs, self.pool.__name__] + ["caching"] * self.caching)

    def cases(self) -> st.SearchStrategy[Case]:
        return policy_cases(self.policy, [self.pool], caching=self.caching)

    @property
    def is_there(self) -> bool:
        module = SCHEDULERS[self.policy.kind].split(":")[0]
        return find_spec(f"simulator.schedulers.{module}") is not None


SYSTEMS = [
    System(VllmV1Policy(), paged_with_null_block),
    System(VllmV1Policy(), paged_with_null_block, caching=True),
    System(VllmV1Policy(), contiguous),
    System(RequestLevelPolicy(), contiguous),
    System(RequestLevelPolicy(), paged),
    System(IterationLevelPolicy(), contiguous),
    System(IterationLevelPolicy(), paged),
    System(VllmV0Policy(), paged),
    System(VllmV0Policy(preemption_mode="swap", swap_blocks=6, swap_ps_per_block=1_000_000), paged),
    System(TrtLlmPolicy("guaranteed_no_evict"), paged),
    System(TrtLlmPolicy("guaranteed_no_evict", "equal_progress"), paged),
    System(TrtLlmPolicy("max_utilization"), paged),
    System(TrtLlmPolicy("max_utilization", "equal_progress"), paged),
    System(TrtLlmPolicy("static_batch"), paged),
    System(TrtLlmPolicy("guaranteed_no_evict"), paged, caching=True),
    System(TrtLlmPolicy("max_utilization", "equal_progress"), paged, caching=True),
    System(TrtLlmPolicy("static_batch"), paged, caching=True),
    System(TrtLlmPolicy("guaranteed_no_evict"), contiguous),
    System(TrtLlmPolicy("max_utilization"), contiguous),
    System(SglangPolicy(), token_pages),
    System(SglangPolicy("lpm"), paged, caching=True),
]
"""Every policy over the pools that make sense for it; a system appears as soon as its module does."""


def systems() -> list[object]:
    """The systems as test parameters; those whose module is still missing are skipped."""
    return [
        pytest.param(
            system,
            id=system.name,
            marks=[] if system.is_there else pytest.mark.skip(reason=f"no module for {system.policy.kind} yet"),
        )
        for system in SYSTEMS
    ]


@st.composite
def policy_engines(draw: st.DrawFn, policy: Policy) -> EngineConfig:
    """Settings that are legal for the policy; prompts of ``workloads`` have up to 60 tokens."""
    seqs = draw(st.integers(1, 20))
    needs_room = policy.kind in ("vllm-v1", "vllm-v0")
    budget = draw(st.integers(seqs if needs_room else 1, 100))
    return EngineConfig(
        max_model_len=draw(st.sampled_from([32, 64, 128, 1024])),
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        enable_chunked_prefill=draw(st.booleans()) if budget >= 60 else True,
        policy=policy,
    )


@st.composite
def policy_cases(
    draw: st.DrawFn, policy: Policy, pools: Sequence[Pools], *, reactive: bool = True, caching: bool = False
) -> Case:
    """Scenarios of one policy over one of ``pools``: whoever knows the policy gives the pools it may meet."""
    engine, pool = draw(policy_engines(policy)), draw(st.sampled_from(list(pools)))(draw)
    engine = replace(engine, enable_prefix_caching=caching)
    if policy.kind == "sglang" and isinstance(pool, PagedPool):  # its chunks are whole pages
        chunk = -(-engine.max_num_batched_tokens // pool.block_size) * pool.block_size
        engine = replace(engine, max_num_batched_tokens=chunk)
    if policy.kind == "trtllm" and isinstance(pool, PagedPool):  # a chunk is a block at least
        engine = replace(engine, max_num_batched_tokens=max(engine.max_num_batched_tokens, pool.block_size))
    return Case(
        draw(workloads(reactive=reactive)),
        engine,
        pool,
        LinearStepTime(
            draw(st.sampled_from([5, 10])) * PS_PER_MS,
            draw(st.sampled_from([0, 50_000_000, 1_000_000_000])),
            draw(st.sampled_from([0, 100_000, 50_000_000])),
        ),
        {"replicas": draw(st.sampled_from([1, 1, 2])), "router": "round_robin", "max_steps": 20_000},
    )


class WatchedRequest(Request):
    """Refuses a move that the table does not allow."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        if name == "state":
            before = getattr(self, "state", None)
            assert before is None or value in LEGAL_MOVES[before], f"{before!r} -> {value!r}"
        super().__setattr__(name, value)


@contextmanager
def watched(after_pass: Callable[[Scheduler, Plan, int], None]) -> Iterator[None]:
    """Each scheduler checks itself before every pass, and ``after_pass(scheduler, plan, step)`` looks at it after."""

    def make_watched(config: EngineConfig, kv: KvCache) -> Scheduler:
        scheduler = make_scheduler(config, kv)
        kind = type(scheduler)

        class Watched(kind):  # type: ignore[misc, valid-type]
            __slots__ = ()

            def schedule(self, step: int, now_ps: int) -> Plan:
                self.check(step)
                plan: Plan = super().schedule(step, now_ps)
                after_pass(self, plan, step)
                return plan

        scheduler.__class__ = Watched
        return scheduler

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator.inbox, "Request", WatchedRequest)
        patch.setattr(simulator.cluster, "make_scheduler", make_watched)
        yield

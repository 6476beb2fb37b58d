"""Random engine scenarios that hurt: tiny pools, bursts, priorities, preemption, several replicas."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from simulator.allocators.pools import ContiguousPool, KvGroupShape, PagedPool, PoolConfig
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from workloads.workload import Segment, Workload

PS_PER_MS = 1_000_000_000


@dataclass(frozen=True)
class Case:
    workload: Workload
    engine: EngineConfig
    pool: PoolConfig
    step_time: LinearStepTime
    options: dict[str, Any]


@st.composite
def contents(draw: st.DrawFn, prompt: list[int], output: list[int]) -> list[tuple[Segment, ...] | None]:
    """Prompts that share: a few common beginnings, earlier prompts and answers, repeats; lengths as given."""
    rows: list[tuple[Segment, ...] | None] = []
    for row, length in enumerate(prompt):
        kind = draw(st.sampled_from(["private", "common", "common", "earlier", "turn"]))
        if kind == "private" or (row == 0 and kind != "common"):
            rows.append(None)
            continue
        if kind == "common":
            begin: tuple[Segment, ...] = ((f"g{draw(st.integers(0, 2))}", 0, draw(st.integers(1, 60))),)
        else:
            other = draw(st.integers(0, row - 1))
            begin = rows[other] or ((f"p:{other}", 0, prompt[other]),)
            if kind == "turn":
                begin = (*begin, (f"o:{other}", 0, output[other]))
        rows.append(cut((*begin, (f"u{row}", 0, length)), length))
    return rows


def cut(segments: tuple[Segment, ...], length: int) -> tuple[Segment, ...]:
    """The first ``length`` tokens."""
    kept = []
    for stream, start, tokens in segments:
        taken = min(tokens, length)
        if taken:
            kept.append((stream, start, taken))
        length -= taken
    return tuple(kept)


@st.composite
def workloads(draw: st.DrawFn, *, reactive: bool = True) -> Workload:
    """Up to 40 requests; arrivals in bursts on a coarse grid, so that equal times happen."""
    n = draw(st.integers(1, 40))
    grid = draw(st.sampled_from([1, 7, 10, 1000]))
    spread = draw(st.sampled_from([0, 20, 300]))
    ms = st.integers(0, spread)
    arrival = sorted(draw(st.lists(ms, min_size=n, max_size=n)))
    length = st.integers(1, 60)
    priority = draw(st.booleans())
    after = None
    think = None
    if reactive and draw(st.booleans()):
        after = [-1] + [draw(st.integers(-1, i - 1)) for i in range(1, n)]
        think = draw(st.lists(st.integers(0, 40), min_size=n, max_size=n))
    prompt, output = draw(st.lists(length, min_size=n, max_size=n)), draw(st.lists(length, min_size=n, max_size=n))
    segments = draw(contents(prompt, output)) if draw(st.booleans()) else None
    return Workload.from_columns(
        [ms // grid * grid * PS_PER_MS for ms in arrival],
        prompt,
        output,
        segments=segments,
        priority=draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)) if priority else None,
        after=after,
        think_ps=None if think is None else [t * PS_PER_MS for t in think],
        max_concurrency=draw(st.none() | st.integers(1, 12)) if reactive else None,
    )


@st.composite
def engines(draw: st.DrawFn) -> EngineConfig:
    seqs = draw(st.integers(1, 20))
    budget = draw(st.integers(seqs, 100))
    return EngineConfig(
        max_model_len=draw(st.sampled_from([32, 64, 128, 1024])),
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        enable_chunked_prefill=draw(st.booleans()) if budget >= 60 else True,
        scheduling_policy=draw(st.sampled_from(["fcfs", "priority"])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 7, 30])),
        long_prefill_token_threshold_adaptive=draw(st.booleans()),
        scheduler_reserve_full_isl=draw(st.booleans()),
        watermark=draw(st.sampled_from([0.0, 0.05])),
        prefill_schedule_interval=draw(st.sampled_from([1, 1, 4])),
        max_num_active_seqs=draw(st.none() | st.integers(1, 10)),
        async_scheduling=draw(st.booleans()),
        version=draw(st.sampled_from(["0.33", "0.33", "2025"])),
    )


@st.composite
def caches(draw: st.DrawFn, block: int) -> tuple[PagedPool, dict[str, Any]]:
    """A paged pool, perhaps of several KV groups, and the engine's settings of its prefix cache."""
    groups: tuple[KvGroupShape, ...] = ()
    kind = draw(st.sampled_from(["one", "one", "window", "hybrid", "mixed"]))
    window = draw(st.integers(1, 50))
    if kind == "window":
        groups = (KvGroupShape(block, window),)
    elif kind == "hybrid":
        groups = (KvGroupShape(block), *[KvGroupShape(block, window)] * draw(st.integers(1, 3)))
    elif kind == "mixed":
        groups = (KvGroupShape(block), KvGroupShape(block * 2, window))
    blocks = draw(st.integers(4, 10 + 200 // block)) * max(1, len(groups))
    caching = draw(st.booleans())
    retention = draw(st.sampled_from([0, 0, None, block * 4]))
    return (
        PagedPool(blocks, block, groups=groups),
        {"enable_prefix_caching": caching, "prefix_cache_retention_interval": retention},
    )


@st.composite
def cases(draw: st.DrawFn, *, reactive: bool = True, contiguous: bool = True) -> Case:
    block = draw(st.sampled_from([1, 2, 4, 16]))
    engine = draw(engines())
    pool: PoolConfig
    pool, cache = draw(caches(block))
    engine = replace(engine, **cache)
    if contiguous and draw(st.integers(0, 3)) == 0:
        pool = ContiguousPool(
            draw(st.integers(40, 400)),
            draw(st.sampled_from(["max", "pow2", "oracle"])),
            draw(st.sampled_from(["first", "best", "buddy"])),
        )
        engine = replace(engine, enable_prefix_caching=False)
    return Case(
        draw(workloads(reactive=reactive)),
        engine,
        pool,
        LinearStepTime(
            draw(st.sampled_from([5, 10])) * PS_PER_MS,
            draw(st.sampled_from([0, 50_000_000, 1_000_000_000])),
            draw(st.sampled_from([0, 100_000, 50_000_000])),
        ),
        {
            "replicas": draw(st.sampled_from([1, 1, 2, 3])),
            "router": draw(st.sampled_from(["round_robin", "least_outstanding", "random"])),
            "seed": draw(st.integers(0, 3)),
        },
    )


def columns_equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray], leave_out: tuple[str, ...] = ()) -> bool:
    return all(np.array_equal(a[name], b[name]) for name in a if name not in leave_out)

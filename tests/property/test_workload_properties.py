"""What holds for every synthetic workload, whatever the laws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.random_streams import Streams
from workloads.arrivals import AllAtOnce, Arrivals, Constant, Diurnal, Gamma, OnOff, Poisson, Ramp
from workloads.build import build_workload
from workloads.config import WorkloadConfig
from workloads.describe import describe
from workloads.lengths import Empirical, Fixed, Lengths, Lognormal, Uniform
from workloads.mixes import ClassConfig
from workloads.prefix_reuse import common_tokens, insert, prefix_reuse
from workloads.prefixes import SharedPrefix
from workloads.prompt_segments import PromptSegments
from workloads.sessions import Sessions, ThinkTime
from workloads.traces.hash_blocks import HashedSegments
from workloads.workload import Segment, Workload

RATES = st.floats(0.01, 1000)
ARRIVALS: st.SearchStrategy[Arrivals] = st.one_of(
    st.builds(Poisson, RATES),
    st.builds(Gamma, RATES, st.floats(0.05, 50), st.booleans()),
    st.builds(Constant, RATES),
    st.builds(OnOff, RATES, st.floats(0.1, 50), st.floats(0.1, 50), phases=st.sampled_from(["fixed", "exponential"])),
    st.builds(Diurnal, RATES, st.floats(0, 1), st.floats(0.5, 1000), st.floats(-2, 2)),
    st.builds(Ramp, RATES, RATES, st.floats(0.1, 500), st.sampled_from(["linear", "exponential"])),
    st.just(AllAtOnce()),
)
LENGTHS: st.SearchStrategy[Lengths] = st.one_of(
    st.builds(Fixed, st.integers(1, 2000)),
    st.integers(1, 50).flatmap(lambda low: st.builds(Uniform, st.just(low), st.integers(low, 3000))),
    st.builds(Lognormal, st.floats(1, 2000), st.floats(0, 5), max=st.one_of(st.none(), st.integers(1, 5000))),
    st.lists(st.integers(1, 5000), min_size=1, max_size=9).map(lambda values: Empirical(tuple(values))),
)
PREFIXES = st.one_of(
    st.none(),
    st.builds(SharedPrefix, LENGTHS, st.integers(1, 5), st.sampled_from(["uniform", "zipf"]), share=st.floats(0, 1)),
)
SESSIONS = st.one_of(
    st.none(),
    st.builds(
        Sessions,
        st.builds(Uniform, st.just(1), st.integers(1, 6)),
        st.builds(ThinkTime, st.floats(0, 9), st.sampled_from(["constant", "exponential", "lognormal"])),
        st.one_of(st.none(), st.integers(100, 9000)),
    ),
)


@st.composite
def configs(draw: st.DrawFn) -> WorkloadConfig:
    config = WorkloadConfig(
        num_requests=draw(st.integers(1, 60)),
        arrivals=draw(ARRIVALS),
        prompt_tokens=draw(LENGTHS),
        output_tokens=draw(LENGTHS),
        prefix=draw(PREFIXES),
        session=draw(SESSIONS),
    )
    names = draw(st.lists(st.sampled_from("abc"), max_size=3, unique=True))
    classes = []
    for name in names:
        own = draw(st.one_of(st.none(), ARRIVALS.filter(lambda law: not isinstance(law, AllAtOnce))))
        part: dict[str, Any] = {"arrivals": own, "prompt_tokens": draw(st.one_of(st.none(), LENGTHS))}
        if own is None:
            part["weight"] = draw(st.floats(0.1, 5))
        classes.append(ClassConfig(name, priority=draw(st.integers(-3, 3)), session=draw(SESSIONS), **part))
    return replace(config, classes=tuple(classes))


@given(config=configs(), seed=st.integers(0, 2**32))
@settings(max_examples=150)
def test_every_workload_is_well_formed(config: WorkloadConfig, seed: int) -> None:
    workload = build_workload(config, Streams(seed))
    assert len(workload) == config.num_requests
    assert np.all(np.diff(workload.arrival_ps) >= 0) and workload.arrival_ps[0] >= 0
    assert workload.prompt_tokens.min() >= 1 and workload.output_tokens.min() >= 1
    assert np.all(workload.after < np.arange(len(workload))) and np.all(workload.think_ps >= 0)
    assert workload.class_index.min() >= 0 and workload.class_index.max() < max(1, len(config.classes))
    for row, segments in enumerate(workload.segments or ()):
        if segments is not None:
            assert all(length >= 1 for _, _, length in segments)
            assert sum(length for _, _, length in segments) == workload.prompt_tokens[row]
    if isinstance(workload.segments, PromptSegments):
        assert np.array_equal(workload.segments.common_tokens(workload.prompt_tokens), common_tokens(workload))
        part = len(workload) // 2
        assert list(workload.segments.first(part)) == list(workload.segments[:part])
    again = build_workload(config, Streams(seed))
    assert np.array_equal(again.arrival_ps, workload.arrival_ps)
    facts = describe(workload, max_model_len=2048)
    assert facts["rows"] == len(workload) and 0 <= facts["ideal_prefix_hit_rate"] <= 1


SEGMENTS = st.lists(
    st.tuples(st.sampled_from("xyz"), st.integers(0, 6), st.integers(1, 6)), min_size=1, max_size=4
).map(tuple)


def tokens(segments: tuple[Segment, ...]) -> list[tuple[str, int]]:
    return [(stream, start + k) for stream, start, length in segments for k in range(length)]


def common_prefix(a: list[tuple[str, int]], b: list[tuple[str, int]]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@given(st.lists(SEGMENTS, max_size=12))
def test_the_radix_tree_finds_the_longest_common_prefix(sequences: list[tuple[Segment, ...]]) -> None:
    tree: dict[Any, Any] = {}
    for i, sequence in enumerate(sequences):
        mine = tokens(sequence)
        expected = max((common_prefix(mine, tokens(earlier)) for earlier in sequences[:i]), default=0)
        assert insert(tree, sequence) == expected


@given(st.lists(SEGMENTS, min_size=1, max_size=12), st.integers(1, 8))
def test_reuse_counts_blocks_as_a_list_of_tokens_does(sequences: list[tuple[Segment, ...]], block_size: int) -> None:
    lengths = [len(tokens(s)) for s in sequences]
    n = len(sequences)
    workload = Workload.from_columns([0] * n, lengths, [1] * n, segments=sequences)
    blocks: set[tuple[tuple[str, int], ...]] = set()
    hits = cached = 0
    for sequence in sequences:
        mine = tokens(sequence)
        ends = [min(end, len(mine)) for end in range(block_size, len(mine) + block_size, block_size)]
        known = [tuple(mine[:end]) in blocks for end in ends]
        leading = known.index(False) if False in known else len(known)
        hits += leading
        cached += min(leading * block_size, (len(mine) - 1) // block_size * block_size)
        blocks.update(tuple(mine[:end]) for end in range(1, len(mine) + 1))
    reuse = prefix_reuse(workload, block_size)
    assert (reuse.hit_blocks, reuse.cached_tokens) == (hits, cached)
    assert reuse.blocks == sum(-(-length // block_size) for length in lengths)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=4), st.integers(0, 3)), min_size=1, max_size=12),
    st.booleans(),
)
def test_hash_ids_are_counted_by_column_exactly_as_by_the_tree(
    rows: list[tuple[list[int], int]], chained: bool
) -> None:
    """Ids of a real trace name all that came before them too (``chained``); where they do not, the tree decides."""
    names: dict[tuple[int, ...], int] = {}
    ids, counts, prompts = [], [], []
    for blocks, rest in rows:
        for end in range(1, len(blocks) + 1):
            key = (rest, *blocks[:end]) if rest and end == len(blocks) else (0, *blocks[:end])
            ids.append(names.setdefault(key, len(names)) if chained else blocks[end - 1])
        counts.append(len(blocks))
        prompts.append(max(1, 4 * len(blocks) - (rest if blocks else 0)))
    prompt, count = np.array(prompts), np.array(counts)
    segments = HashedSegments(np.array(ids, dtype=np.int64), np.cumsum(count) - count, count, prompt, 4)
    workload = Workload.from_columns([0] * len(rows), prompt, [3] * len(rows), segments=segments)
    as_tree = Workload.from_columns([0] * len(rows), prompt, [3] * len(rows), segments=list(segments))
    assert prefix_reuse(workload, 4) == prefix_reuse(as_tree, 4)
    assert not chained or not ids or segments.leading_hits(4) is not None
    assert list(segments.first(2)) == list(segments[:2])

"""Prefix hashes: equal exactly where the tokens are, whatever the segments they came in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simulator.allocators.cached_blocks import CachedBlocks
from simulator.allocators.prefix_hashes import PrefixHashes
from tests.kv_chats import chats_of, workload_of
from workloads.workload import Segment

SEGMENT = st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 3))


def tokens_of(segments: tuple[Segment, ...]) -> list[tuple[str, int]]:
    return [(stream, start + i) for stream, start, length in segments for i in range(length)]


@given(st.lists(st.lists(SEGMENT, min_size=1, max_size=5).map(tuple), min_size=2, max_size=4))
def test_a_hash_names_the_tokens_and_nothing_else(rows: list[tuple[Segment, ...]]) -> None:
    hashes = PrefixHashes(chats_of(workload_of(rows, [1] * len(rows)))[0])
    names: dict[int, list[tuple[str, int]]] = {}
    prefixes: dict[tuple[tuple[str, int], ...], int] = {}
    for row, segments in enumerate(rows):
        chain, tokens = hashes.chain(row), tokens_of(segments)
        for length in range(1, len(tokens) + 1):
            name = chain.hash(length)
            assert names.setdefault(name, tokens[:length]) == tokens[:length]
            assert prefixes.setdefault(tuple(tokens[:length]), name) == name
        for size in (1, 2, 5):
            blocks = len(tokens) // size
            assert chain.hashes(size, blocks) == [chain.hash((i + 1) * size) for i in range(blocks)]


def test_an_answer_goes_on_where_the_prompt_ends_and_the_next_turn_finds_it() -> None:
    first = (("u0", 0, 5),)
    content, _ = chats_of(workload_of([first, (("u0", 0, 5), ("o:0", 0, 3), ("u1", 0, 2))], [4, 1]))
    hashes = PrefixHashes(content)
    turn_1, turn_2 = hashes.chain(0), hashes.chain(1)
    assert [turn_1.hash(n) == turn_2.hash(n) for n in range(1, 10)] == [True] * 8 + [False]


def test_the_oldest_block_of_a_content_is_found_until_it_goes() -> None:
    cached = CachedBlocks()
    for block in (7, 3, 5):
        cached.add("x", block)
    assert cached.oldest("x") == 7
    cached.remove("x", 7)
    assert cached.oldest("x") == 3
    hash_of = [None, None, None, "x", None, "x"]
    cached.check(hash_of)
    cached.remove("x", 3)
    cached.remove("x", 5)
    assert "x" not in cached
    assert cached.oldest("x") is None

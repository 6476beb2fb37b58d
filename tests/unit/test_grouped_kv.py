"""vLLM v1's prefix cache on block ids: cases worked by hand from SCHEDULERS.md 1, 2, 3 and 8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from simulator.allocators.block_pool import VLLM_V1, VLLM_V1_2025
from simulator.allocators.group_rules import GroupRules
from simulator.allocators.group_shape import KvGroupShape
from simulator.allocators.grouped_kv import GroupedKv
from simulator.errors import InputError
from tests.kv_chats import Chat, admit, chats_of, join, leave, workload_of
from workloads.workload import Segment

Prompts = Sequence[tuple[Segment, ...] | int]


def cache(
    prompts: Prompts,
    *,
    blocks: int = 65,
    groups: tuple[KvGroupShape, ...] = (KvGroupShape(16),),
    outputs: int = 40,
    **settings: Any,
) -> tuple[GroupedKv, list[Chat]]:
    content, chats = chats_of(workload_of(prompts, [outputs] * len(prompts)))
    options: dict[str, Any] = {
        "caching": True,
        "retention_interval": 0,
        "watermark": 0.0,
        "reserve_full_sequence": True,
        "batched_tokens": 64,
        "lag": 0,
        "bytes_per_token": 0,
        "policy": VLLM_V1,
    }
    return GroupedKv(blocks, groups, 4096, content, **options | settings), chats


def shared(*lengths: int) -> list[tuple[Segment, ...]]:
    """Prompts that begin with the same system prompt, of so many tokens each, and end in one of their own."""
    return [(("system", 0, length), (f"u{row}", 0, 1)) for row, length in enumerate(lengths)]


SAME_64: Prompts = [(("s", 0, 64),)] * 3


def test_a_fully_cached_aligned_prompt_computes_its_last_block_again() -> None:
    kv, (a, b, _) = cache(SAME_64)
    assert admit(kv, a) == 0
    assert kv.free_units == 60
    assert admit(kv, b) == 48
    assert kv.table(b) == [1, 2, 3, 5]
    assert (kv.free_units, kv.saved_units, b.held) == (59, 3, 4)
    kv.check()


def test_a_prompt_admitted_in_the_same_pass_hits_what_the_first_was_just_given() -> None:
    kv, (a, b, c) = cache(SAME_64)
    assert admit(kv, a, chunk=40) == 0
    assert admit(kv, b) == 32, "two blocks are full within the first chunk"
    assert kv.extend(a, 64)
    assert admit(kv, c) == 48
    assert kv.table(c)[:3] == [1, 2, 4], "of two copies of the third block the older counts: b's"
    kv.check()


def test_the_last_sampled_token_is_never_cached() -> None:
    kv, (a, b) = cache([(("u", 0, 31),), (("u", 0, 31), ("o:0", 0, 2), ("v", 0, 40))], outputs=2)
    admit(kv, a)
    join(kv, a, 5)
    assert kv.serve(5)
    leave(kv, a, 6)
    assert a.computed == a.final_tokens == 32
    kv.release(a)
    assert admit(kv, b) == 32, "floor((31 + 2 - 1) / 16) blocks, the answer's first token among them"


def test_unhashed_blocks_are_reused_first_and_of_the_cached_the_end_goes_before_its_prefix() -> None:
    kv, (a, b, c) = cache([70, 40, 64], blocks=9)
    admit(kv, a)  # 1-5, the last with 6 tokens
    admit(kv, b)  # 6-8
    kv.release(a)
    assert kv.blocks.free_list() == [5, 4, 3, 2, 1]
    kv.release(b)
    assert kv.blocks.free_list() == [8, 5, 4, 3, 2, 1, 7, 6]
    assert kv.hit(a, 70) == 64
    assert admit(kv, c) == 0
    assert kv.table(c) == [8, 5, 4, 3]
    assert kv.evicted_blocks == 2
    assert kv.hit(a, 70) == 32
    assert kv.hit(b, 40) == 32
    kv.check()


def test_before_may_2026_every_freed_block_joined_the_tail() -> None:
    kv, (a, b) = cache([70, 40], blocks=9, policy=VLLM_V1_2025)
    admit(kv, a)
    admit(kv, b)
    kv.release(b)
    kv.release(a)
    assert kv.blocks.free_list() == [8, 7, 6, 5, 4, 3, 2, 1]


def test_a_hit_renews_its_block_only_when_the_last_user_goes() -> None:
    kv, (a, b, c, d) = cache([*shared(32, 32), 33, 200], blocks=17)
    admit(kv, a)  # 1 2 3
    admit(kv, c)  # 4 5 6
    kv.release(a)
    kv.release(c)
    assert kv.blocks.free_list()[-4:] == [2, 1, 5, 4]
    assert admit(kv, b) == 32
    assert kv.table(b)[:2] == [1, 2]
    kv.release(b)
    assert kv.blocks.free_list()[-4:] == [5, 4, 2, 1]
    assert admit(kv, d) == 0, "13 of 16 blocks: 12 without a hash, then the oldest of the cached"
    assert kv.evicted_blocks == 1
    assert [kv.hit(b, 33), kv.hit(c, 33)] == [32, 16]


def test_hits_that_nobody_holds_need_room_in_the_free_queue() -> None:
    """Of 10 usable blocks the prompt's own first ones are cached and free; 6 or 7 are held by another."""
    for others, fits in ((6, True), (7, False)):
        kv, (a, b) = cache([64, 16 * others], blocks=11)
        admit(kv, a)
        kv.release(a)
        admit(kv, b)
        assert kv.hit(a, 64) == 48
        free = kv.blocks.free_list()
        assert free == [4, 3, 2, 1][-len(free) :]
        assert (admit(kv, a) == 48) == fits, "3 hits and 1 new block must fit in what is free"
        assert fits or kv.blocks.free_list() == free
        kv.check()


def test_hits_that_others_hold_cost_nothing() -> None:
    kv, (a, b, _) = cache(SAME_64, blocks=6)
    admit(kv, a)
    assert kv.free_units == 1
    assert admit(kv, b) == 48, "one new block is needed, and one is free"


def test_the_watermark_stays_free_beside_others_only() -> None:
    kv, (a, b) = cache([64, 32], blocks=20, watermark=0.85)  # keeps int(17.0) of 19 blocks
    assert admit(kv, b, others=True) == 0
    kv.release(b)
    assert admit(kv, a, others=True) == -1
    assert admit(kv, a) == 0


def test_a_chunk_is_not_enough_where_the_whole_sequence_must_fit() -> None:
    kv, (a,) = cache([100], blocks=6)
    assert admit(kv, a, chunk=32) == -1
    kv, (a,) = cache([100], blocks=6, reserve_full_sequence=False)
    assert admit(kv, a, chunk=32) == 0
    assert kv.extend(a, 80)
    assert not kv.extend(a, 100)
    assert len(kv.table(a)) == 5
    kv.check()


def test_async_scheduling_caches_a_decoders_block_a_step_later_or_when_told() -> None:
    kv, (a, b) = cache([(("u", 0, 31),), (("u", 0, 31), ("o:0", 0, 2))], lag=1)
    admit(kv, a)
    join(kv, a, 1)
    assert kv.serve(1)  # stores token 32, which is not known
    assert kv.hit(b, 33) == 16
    kv.store(a, 32)
    assert kv.hit(b, 33) == 32
    assert kv.serve(2)
    kv.check()


# -- sliding windows -----------------------------------------------------------------------------------------

WINDOW = (KvGroupShape(4, 8),)


def test_blocks_behind_the_window_are_given_up_before_new_ones_are_asked_for() -> None:
    kv, (a,) = cache([40], groups=WINDOW, blocks=12, batched_tokens=12)
    assert admit(kv, a, chunk=12) == 0
    assert kv.table(a) == [1, 2, 3]
    # 12 tokens are done: positions 0-4 lie before the window of token 12, so one whole block.
    assert kv.extend(a, 24)
    assert kv.table(a) == [0, 2, 3, 1, 4, 5], "it was not cached, so it is the next to be taken"
    a.computed, a.in_flight = 24, 12
    assert kv.extend(a, 36), "the chunk in flight still reads its window"
    assert kv.table(a) == [0, 2, 3, 1, 4, 5, 6, 7, 8]
    assert a.held == 8
    kv.check()
    kv.release(a)
    assert kv.free_units == 11


def test_given_up_blocks_stay_given_up_when_the_rest_fails() -> None:
    kv, (a, b) = cache([40, 24], groups=WINDOW, blocks=10, caching=False, reserve_full_sequence=False)
    admit(kv, a, chunk=12)
    admit(kv, b)
    a.computed = 12
    assert not kv.extend(a, 24)
    assert kv.table(a) == [0, 2, 3]
    assert kv.free_units == 1
    kv.check()


def test_a_full_sequence_counts_no_more_than_a_window_and_a_chunk() -> None:
    kv, (a,) = cache([400], groups=WINDOW, blocks=8, batched_tokens=12)
    # ceil((8 - 1 + 12) / 4) + 1 = 6 blocks, and 7 are usable.
    assert admit(kv, a, chunk=12) == 0
    assert kv.unservable(400, 440) is None
    small, _ = cache([400], groups=WINDOW, blocks=6, batched_tokens=12)
    reason = small.unservable(400, 440)
    assert reason is not None
    assert "needs 6 KV blocks" in reason
    assert "has 5" in reason


@pytest.mark.parametrize(
    ("retention", "kept"),
    [(0, [7, 8]), (None, list(range(12))), (16, [2, 3, 6, 7, 8, 10, 11])],
)
def test_which_blocks_a_window_group_keeps_cached(retention: int | None, kept: list[int]) -> None:
    """Window 8 in blocks of 4: two blocks before a position. A prompt of 37 tokens ends behind block 8."""
    rules = GroupRules.of(KvGroupShape(4, 8), 4, retention, 4096, 64)
    assert rules.tail_blocks == 2
    assert list(rules.kept(0, 12, 37, 0)) == kept
    assert [i for start in range(12) for i in rules.kept(start, start + 1, 37, 0)] == kept
    assert set(rules.kept(0, 12, 37, 21)) == {*kept, 3, 4}, "and two blocks before the junction at 21"


def test_a_window_group_is_hit_where_prompts_end() -> None:
    prompts: Prompts = [(("s", 0, 37),), (("s", 0, 60),), (("s", 0, 30),)]
    kv, (a, b, c) = cache(prompts, groups=WINDOW, retention_interval=0)
    admit(kv, a)
    assert kv.hit(b, 60) == 36
    assert kv.hit(c, 30) == 0, "nothing ends there"
    kv.release(a)
    assert admit(kv, b) == 36
    assert kv.table(b)[:9] == [0] * 7 + [8, 9]
    kv.check()
    dense, (a, b, c) = cache(prompts, groups=WINDOW, retention_interval=None)
    admit(dense, a)
    assert dense.hit(c, 30) == 28


# -- several groups ------------------------------------------------------------------------------------------

HYBRID = (KvGroupShape(4), KvGroupShape(4, 8), KvGroupShape(4, 8))


def test_groups_take_and_give_in_their_order_and_share_a_pool() -> None:
    kv, (a, _b) = cache([20, 30], groups=HYBRID)
    admit(kv, a)
    assert [kv.table(a, group) for group in range(3)] == [list(range(1, 6)), list(range(6, 11)), list(range(11, 16))]
    assert kv.free_units == 64 - 15
    kv.release(a)
    # Group 0: all full, its end before its prefix. Groups 1 and 2: cached at the end of the prompt (16) alone.
    assert kv.blocks.free_list()[-9:] == [5, 4, 3, 2, 1, 9, 8, 14, 13]
    kv.check()


def test_a_junction_is_where_full_attention_has_more_than_the_windows() -> None:
    prompts: Prompts = [(("s", 0, 24), ("u0", 0, 20)), (("s", 0, 24), ("u1", 0, 20)), (("s", 0, 24), ("u2", 0, 9))]
    kv, (a, b, c) = cache(prompts, groups=HYBRID, blocks=200)
    admit(kv, a)
    assert admit(kv, b) == 0, "full attention has 24 tokens, the windows none that end there"
    assert b.extent.junction_tokens == 24
    assert admit(kv, c) == 24, "the second has cached its windows at the junction"
    kv.check()


def test_block_sizes_may_differ_and_hits_end_where_all_blocks_do() -> None:
    groups = (KvGroupShape(4), KvGroupShape(8, 16))
    prompts: Prompts = [(("s", 0, 30),), (("s", 0, 31),), (("s", 0, 29),)]
    kv, (a, b, c) = cache(prompts, groups=groups, retention_interval=None)
    assert kv.alignment_tokens == 8
    admit(kv, a)
    assert [len(kv.table(a, group)) for group in (0, 1)] == [8, 4]
    assert kv.hit(b, 31) == 24, "28 tokens of the full group, cut to a multiple of 8"
    assert admit(kv, c) == 24
    assert kv.table(c, 0)[:6] == kv.table(a, 0)[:6]
    assert kv.table(c, 1)[:3] == [0, *kv.table(a, 1)[1:3]]
    kv.check()


def test_a_window_is_hit_only_where_the_blocks_of_all_groups_end() -> None:
    """The window group's blocks of 4 are cached up to 28; full attention's blocks of 8 end at 24."""
    kv, (a, b) = cache([(("s", 0, 30),), (("s", 0, 31),)], groups=(KvGroupShape(8), KvGroupShape(4, 6)))
    admit(kv, a)
    assert [kv.table(a, 1)[index] in _hashed(kv) for index in range(8)] == [False] * 4 + [True] * 2 + [False] * 2
    assert admit(kv, b) == 24
    kv.check()


def _hashed(kv: GroupedKv) -> set[int]:
    return {block for block, content in enumerate(kv.blocks.hash_of) if content is not None}


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="retention_interval 12 is no multiple of 8"):
        cache([4], groups=(KvGroupShape(4), KvGroupShape(8, 16)), retention_interval=12)
    with pytest.raises(InputError, match="window of 0"):
        cache([4], groups=(KvGroupShape(4, 0),))
    with pytest.raises(InputError, match="block_size"):
        cache([4], groups=(KvGroupShape(0),))


def test_a_step_that_was_not_served_is_noticed() -> None:
    kv, (a,) = cache([16])
    admit(kv, a)
    join(kv, a, 1)
    with pytest.raises(ValueError, match="was not served"):
        leave(kv, a, 3)
    assert kv.horizon(1, 100) == 100
    assert kv.horizon(1, 2000) == 63 * 16, "63 blocks are free"
    assert kv.advance(1, 16) == [1] + [0] * 15
    leave(kv, a, 17)
    assert kv.units_for(a, 33) == 1

"""The engine's caches: real ids in the order of joining, reservations over real extents, refusals with numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from simulator.allocators.block_pool import VLLM_V1_2025
from simulator.allocators.contiguous_kv import ContiguousKv
from simulator.allocators.extents import Extent
from simulator.allocators.kv_cache import KvCache
from simulator.allocators.paged_kv import PagedKv


@dataclass
class Chat:
    row: int
    prompt_tokens: int = 4
    output_tokens: int = 4
    final_tokens: int = 7
    held: int = 0
    phase: int = 0
    extent: Any = None


def admitted(cache: KvCache, row: int, tokens: int, output: int = 4) -> Chat:
    chat = Chat(row, tokens, output, tokens + output - 1)
    assert cache.admit(chat, tokens, tokens, row > 0)
    return chat


def test_decoders_get_ids_step_by_step_in_the_order_of_joining() -> None:
    kv = PagedKv(num_gpu_blocks=20, block_size=4, max_model_len=64)
    a, b, c = admitted(kv, 0, 3), admitted(kv, 1, 4), admitted(kv, 2, 4)
    assert [kv.table(x) for x in (a, b, c)] == [[1], [2], [3]]
    kv.join(c, 4, 10)
    kv.join(b, 4, 10)
    kv.join(a, 3, 10)
    assert [kv.demand(step) for step in range(10, 16)] == [2, 1, 0, 0, 2, 1]
    assert kv.advance(10, 2) == [2, 1]
    # Step 10: c joined before b. Step 11: a's block is full.
    assert [kv.table(x) for x in (a, b, c)] == [[1, 6], [2, 5], [3, 4]]
    assert (a.held, b.held) == (1, 1)
    kv.leave(b, 6)
    assert b.held == 2
    kv.check()


def test_vllm_reuses_the_last_block_of_the_last_freed_request_first() -> None:
    kv = PagedKv(num_gpu_blocks=9, block_size=4, max_model_len=64)
    a, b = admitted(kv, 0, 12), admitted(kv, 1, 8)
    kv.release(a)
    kv.release(b)
    assert kv.blocks.free_list() == [5, 4, 3, 2, 1, 6, 7, 8]
    old = PagedKv(9, 4, 64, policy=VLLM_V1_2025)
    a, b = admitted(old, 0, 12), admitted(old, 1, 8)
    old.release(a)
    old.release(b)
    assert old.blocks.free_list() == [6, 7, 8, 3, 2, 1, 5, 4]


def test_the_watermark_binds_only_when_others_run_and_the_full_sequence_is_only_checked() -> None:
    kv = PagedKv(num_gpu_blocks=11, block_size=4, max_model_len=64, watermark=0.2)
    first = Chat(0, 40)
    assert not kv.admit(first, 41, 4, others_run=False)  # 11 blocks of 10
    assert kv.admit(first, 40, 4, others_run=False)
    assert kv.free_units == 9  # only the chunk's block is taken
    assert not kv.admit(Chat(1), 32, 4, others_run=True)  # 8 + 2 kept free > 9
    assert kv.admit(Chat(1), 28, 4, others_run=True)
    assert PagedKv(11, 4, 64, reserve_full_sequence=False).admit(Chat(2), 64, 40, others_run=False)


def test_growth_never_exceeds_the_context() -> None:
    kv = PagedKv(num_gpu_blocks=20, block_size=4, max_model_len=10)
    chat = admitted(kv, 0, 8)
    assert kv.units_for(chat, 999) == 1
    assert kv.extend(chat, 999)
    assert chat.held == 3


def test_a_leap_past_the_free_blocks_is_refused_whole() -> None:
    kv = PagedKv(num_gpu_blocks=4, block_size=2, max_model_len=64)
    chat = admitted(kv, 0, 2)
    kv.join(chat, 2, 0)
    assert kv.horizon(0, 100) == 4
    with pytest.raises(ValueError, match="more blocks than are free"):
        kv.advance(0, 5)
    assert kv.table(chat) == [1]
    assert kv.advance(0, 4) == [1, 0]
    assert kv.horizon(4, 100) == 0
    assert not kv.serve(4)
    assert not kv.grow(chat, 4)
    with pytest.raises(ValueError, match="not advanced"):
        kv.leave(chat, 7)
    kv.leave(chat, 6)


def test_joining_with_the_wrong_length_is_an_error() -> None:
    kv = PagedKv(num_gpu_blocks=8, block_size=4, max_model_len=64)
    chat = admitted(kv, 0, 6)
    for wrong in (4, 9):
        with pytest.raises(ValueError, match="cannot decode"):
            kv.join(chat, wrong, 0)


@pytest.mark.parametrize(("reservation", "held"), [("max", 32), ("pow2", 10 + 8), ("oracle", 10 + 5)])
def test_a_reservation_is_made_at_admission_and_covers_all_growth(reservation: Any, held: int) -> None:
    kv = ContiguousKv(70, 32, reservation)
    chat = admitted(kv, 0, 10, output=5)
    assert (chat.held, chat.extent) == (held, Extent(0, held))
    assert kv.free_units == 70 - held
    kv.join(chat, 10, 3)
    assert (kv.demand(3), kv.horizon(3, 99), kv.advance(3, 4)) == (0, 99, [])
    assert kv.grow(chat, 7)
    assert kv.serve(8)
    kv.leave(chat, 15)
    assert kv.units_for(chat, 15) == 0
    with pytest.raises(ValueError, match=f"in a reservation of {held} slots"):
        kv.extend(chat, held + 1)
    kv.release(chat)
    assert (kv.free_units, chat.held, chat.extent) == (70, 0, None)
    kv.check()


def test_holes_refuse_a_reservation_that_the_free_total_would_hold() -> None:
    kv = ContiguousKv(32, 32, "oracle")
    chats = [admitted(kv, row, 7, output=1) for row in range(4)]
    kv.release(chats[0])
    kv.release(chats[2])
    assert (kv.free_units, kv.largest_free_run) == (16, 8)
    late = Chat(9, 8, 1)
    assert not kv.admit(late, 8, 8, others_run=True)
    assert late.extent is None
    assert kv.free_units == 16


def test_a_buddy_pool_holds_a_power_of_two() -> None:
    kv = ContiguousKv(100, 32, "oracle", "buddy")
    assert admitted(kv, 0, 10, output=7).held == 32
    assert kv.free_units == 68


@pytest.mark.parametrize(
    ("kv", "prompt", "final", "words"),
    [
        (PagedKv(5, 16, 512), 10, 65, ["65 tokens", "5 blocks of 16", "4 usable blocks"]),
        (ContiguousKv(100, 128, "max"), 1, 1, ["128 slots", "100 slots", "max"]),
        (ContiguousKv(100, 128, "oracle", "buddy"), 50, 69, ["70 slots", "rounds up to 128", "64 of them"]),
        (ContiguousKv(40, 128, "pow2"), 20, 36, ["52 slots", "40 slots"]),  # 17 outputs -> 32
    ],
)
def test_a_request_that_can_never_be_served_is_named_with_the_numbers(
    kv: KvCache, prompt: int, final: int, words: list[str]
) -> None:
    reason = kv.unservable(prompt, final)
    assert reason is not None
    for word in words:
        assert word in reason


@pytest.mark.parametrize(
    ("kv", "prompt", "final"),
    [
        (PagedKv(5, 16, 512), 10, 64),
        (ContiguousKv(128, 128, "max"), 1, 1),
        (ContiguousKv(100, 128, "oracle", "buddy"), 50, 63),
        (ContiguousKv(52, 128, "pow2"), 20, 36),
    ],
)
def test_what_an_empty_pool_can_serve_is_served(kv: KvCache, prompt: int, final: int) -> None:
    assert kv.unservable(prompt, final) is None
    chat = Chat(0, prompt, final - prompt + 1, final)
    assert kv.admit(chat, prompt, prompt, others_run=False)
    assert kv.extend(chat, final)

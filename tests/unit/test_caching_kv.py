"""The fast prefix cache by hand: what is shared, what is private, and what a preempted request finds again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from simulator.allocators.caching_kv import CachingKv
from simulator.allocators.content import TokenContent
from simulator.allocators.free_content import FreeContent, PrivateRun
from simulator.allocators.group_shape import KvGroupShape
from simulator.allocators.grouped_kv import GroupedKv
from simulator.allocators.kv_cache import KvCache
from simulator.allocators.pools import PagedPool, make_cache
from simulator.allocators.shared_content import SharedContent
from simulator.schedulers.config import EngineConfig
from tests.kv_chats import Chat, admit, chats_of, join, leave, workload_of
from workloads.workload import Segment

Prompts = Sequence[tuple[Segment, ...] | int]


def cache(prompts: Prompts, *, blocks: int = 41, outputs: int = 40, size: int = 4) -> tuple[CachingKv, list[Chat]]:
    content, chats = chats_of(workload_of(prompts, [outputs] * len(prompts)))
    kv = CachingKv(
        blocks, size, 400, content, watermark=0.0, reserve_full_sequence=True, lag=0, bytes_per_token=0
    )  # fmt: skip
    return kv, chats


def shared(prompts: Prompts, ids: Sequence[str] | None = None) -> tuple[dict[int, int], list[int]]:
    workload = replace(workload_of(prompts, [10] * len(prompts)), request_ids=ids)
    content = SharedContent(TokenContent(workload))
    return content.tokens, sorted(content.answers)


def test_a_prefix_is_shared_up_to_its_first_private_token() -> None:
    system, own = ("system", 0, 8), ("u0", 0, 5)
    assert shared([6, 7]) == ({}, [])
    assert shared([(system, own), (system, ("u1", 0, 3)), 6]) == ({0: 8, 1: 8}, [])
    assert shared([(own, system), (system, ("u1", 0, 3))]) == ({1: 8}, [])
    assert shared([(system,), (system,)]) == ({0: 8, 1: 8}, []), "the answers are private"


def test_an_answer_is_shared_where_a_later_turn_names_it() -> None:
    turn_2 = (("u0", 0, 5), ("o:0", 0, 4), ("u1", 0, 3))
    assert shared([(("u0", 0, 5),), turn_2]) == ({0: 15, 1: 9}, [0])
    assert shared([5, (("p:0", 0, 5), ("o:0", 0, 4))]) == ({0: 15, 1: 9}, [0])
    assert shared([(("u0", 0, 5),), (("x", 0, 5), ("o:0", 0, 4))]) == ({}, []), "another prefix comes before it"


def test_rows_of_one_id_have_their_streams_in_common() -> None:
    assert shared([6, 7], ids=["a", "b"]) == ({}, [])
    assert shared([6, 7, 8], ids=["a", "a", "b"]) == ({0: 16, 1: 17}, [0, 1])


def test_private_content_is_lost_from_its_end_and_what_is_left_is_hit() -> None:
    kv, (a, b, c) = cache([22, 150, 12])
    admit(kv, a)
    kv.release(a)  # 5 cached blocks, 1 without content
    assert (kv.free_units, kv.unhashed) == (40, 35)
    admit(kv, b)  # 38 blocks: all that hold nothing, then the last three of a's
    assert kv.evicted_blocks == 3
    assert kv.hit(a, 22) == 8
    assert admit(kv, c) == -1
    assert kv.free_units == 2
    kv.check()
    kv.release(b)
    assert admit(kv, a) == 8
    kv.check()


def test_a_preempted_request_hits_its_answer_too() -> None:
    kv, (a, _) = cache([10, 10])
    admit(kv, a)
    join(kv, a, 1)
    assert kv.advance(1, 13) == [0, 0, 1, 0]
    leave(kv, a, 14)
    kv.release(a)
    assert a.computed == 23
    assert kv.hit(a, 24) == 20
    assert kv.hit(a, 23) == 20
    kv.check()


def test_a_block_that_must_be_computed_again_exists_twice() -> None:
    """Of 24 tokens in blocks of 4 all 6 are cached; the look-up stops at 23."""
    kv, (a, _) = cache([24, 10])
    admit(kv, a)
    kv.release(a)
    assert admit(kv, a) == 20
    assert kv.free_units == 40 - 6
    kv.check()
    kv.release(a)
    assert kv.free_units - kv.unhashed == 7, "two blocks hold the last four tokens"
    assert admit(kv, a) == 20
    kv.check()


def test_a_free_run_keeps_its_place_and_a_row_has_one() -> None:
    free = FreeContent()
    free.add(1)
    free.add_run(2, PrivateRun(7, 0, 4))
    free.add(3)
    assert free.pop(3) == ([1], 3)
    run = free.run(7)
    assert run == PrivateRun(7, 0, 2)
    assert free.single_out(run) == 2
    free.check()
    assert free.blocks == 2
    free.add_blank(4, 5)
    assert free.pop(4) == ([2, 3], 2)
    assert free.blocks == 3
    assert free.run(7) is None
    free.check()


@pytest.mark.parametrize(
    ("groups", "engine", "kind"),
    [
        ((), {"enable_prefix_caching": True}, CachingKv),
        ((KvGroupShape(16),), {"enable_prefix_caching": True}, CachingKv),
        ((), {"enable_prefix_caching": True, "version": "2025"}, CachingKv),
        ((KvGroupShape(16, 64),), {"enable_prefix_caching": True}, GroupedKv),
        ((KvGroupShape(16), KvGroupShape(16, 64)), {}, GroupedKv),
    ],
)
def test_the_fast_cache_serves_where_it_may(
    groups: tuple[KvGroupShape, ...], engine: dict[str, object], kind: type[KvCache]
) -> None:
    content, _ = chats_of(workload_of([4], [4]))
    config = EngineConfig(256, 8, 64, **engine)  # type: ignore[arg-type]
    assert type(make_cache(PagedPool(40, groups=groups), config, content)) is kind

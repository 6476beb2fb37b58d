"""SGLang worked by hand: who is admitted when, who is retracted, and what the cache keeps."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.allocators.content import TokenContent
from simulator.allocators.pools import ContiguousPool, PagedPool, PoolConfig
from simulator.allocators.radix_kv import RadixKv
from simulator.allocators.radix_tree import RadixTree
from simulator.allocators.token_spans import merged
from simulator.cluster import simulate
from simulator.errors import InputError
from simulator.request import Request
from simulator.run_log import RunLog
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.new_token_ratio import NewTokenRatio
from simulator.schedulers.policies import SglangPolicy
from simulator.step_time.linear import LinearStepTime
from tests.expand import steps_of
from workloads.workload import Segment, Workload

MS = 1_000_000_000
STEP = LinearStepTime(10 * MS, 0, 0)


def engine(chunk: int = 64, seqs: int = 16, *, caching: bool = False, **settings: Any) -> EngineConfig:
    faithful = settings.pop("faithful", False)
    return EngineConfig(
        10_000,
        seqs,
        chunk,
        enable_prefix_caching=caching,
        on_unservable="faithful" if faithful else "reject",
        policy=SglangPolicy(**settings),
    )


def serve(prompts: list[int], outputs: list[int], config: EngineConfig, pages: int, page: int = 1) -> RunLog:
    workload = Workload.from_columns([0] * len(prompts), prompts, outputs)
    return simulate(workload, config, PagedPool(pages, page, null_block=False), STEP, max_steps=20_000)


def times_ms(log: RunLog, column: str) -> list[int]:
    return [time // MS for time in log.request_columns()[column].tolist()]


def test_admission_leaves_room_for_what_running_requests_may_still_need() -> None:
    """Pool 100, page 1, ratio 0.7. Each pass: own tokens + output + a page < what is left?

    Pass 0: A wants 20+40+1 = 61 < 100. That is charged, 39 are left; B wants 10+30+1 = 41: no.
    Pass 1: A holds 20, and 0.7 x 39 = 27.3 are kept for it: 52.7 left. B fits, 11.7 are left; C wants 5+10+1 = 16: no.
    Nobody is considered before a running request leaves: B, after its 29 decodes in steps 2 to 30.
    Pass 31: A holds 49 and may need 10 more at a ratio a little below 0.7: C fits. A and C decode from step 32 on.
    """
    log = serve([20, 10, 5], [40, 30, 10], engine(), 100)
    assert times_ms(log, "first_token_ps") == [10, 20, 320]
    assert times_ms(log, "finish_ps") == [420, 310, 410]
    steps = steps_of(log.replicas[0])
    assert [s["tokens"] for s in steps[:3]] == [20, 10, 2]
    assert [s["decodes"] for s in steps[:3]] == [0, 0, 2]
    assert steps[31]["tokens"] == 5 and steps[31]["decodes"] == 0
    assert {s["head_wait"] for s in steps[:31]} == {2}  # for memory, all the time
    gaps = log.replicas[0].irregular_gaps_ps.tolist()
    assert [gap // MS for gap in gaps] == [20, 20]  # A waits for B's prefill, then for C's


def test_a_retraction_takes_the_longest_prompt_of_those_with_least_output() -> None:
    """Pool 30, little caution (ratio 0.007): B joins A in step 1 (6+12+1 = 19 < 30-8-0.08).

    From step 2 on both grow by a token; 16 are free, so pass 10 finds none. Both have 9 outputs; A has the longer
    prompt and goes, with its 16 tokens, to the queue. The ratio becomes min(1, (9+20)/(12+1)) = 1: A, who wants
    17+3+1 = 21 < 15-2, stays out until B is done (12 outputs after step 12). Step 13 computes A's 17 tokens again
    and gives output 10, steps 14 and 15 the rest.
    """
    log = serve([8, 6], [12, 12], engine(schedule_conservativeness=0.01), 30)
    table = log.request_columns()
    assert times_ms(log, "first_token_ps") == [10, 20]
    assert times_ms(log, "finish_ps") == [160, 130]
    assert table["preemptions"].tolist() == [1, 0]
    assert table["recomputed_tokens"].tolist() == [16, 0]
    steps = steps_of(log.replicas[0])
    assert [s["tokens"] for s in steps] == [8, 6, *[2] * 8, 1, 1, 1, 17, 1, 1]
    assert steps[9]["used_slots"] == 30
    assert steps[10]["used_slots"] == 15 and steps[10]["head_wait"] == 4
    requeues = log.replicas[0].requeue_columns()
    assert (requeues["preempted_ps"] // MS).tolist() == [100]
    assert (requeues["readmitted_ps"] // MS).tolist() == [130]
    gaps = [gap // MS for gap in log.replicas[0].irregular_gaps_ps.tolist()]
    assert sorted(gaps) == [20, 40]  # A in step 2 after B's prefill; A's tenth token, at 140 after 100


def test_where_all_run_to_their_limit_the_order_of_completion_decides() -> None:
    """Pool 70: B wants 20+10+1 = 31, not below 70-41; a pass later it is below 60-20.3, when A decodes.

    But B (10 more) ends before A (30 more), and its 20 come back: 70-11-21 = 38 free, 38-2x10 = 18 > 2 until B ends,
    then 38+20-30 = 28 > 1: both may start at once. Pool 60, lengths exchanged: who has most left is compared in the
    wrong place in the pass in which another one was tried (as on the server), and is let in by the next.
    """
    assert times_ms(serve([10, 20], [30, 10], engine(), 70), "first_token_ps") == [10, 20]
    assert times_ms(serve([10, 20], [30, 10], engine(ignore_eos=True), 70), "first_token_ps") == [10, 10]
    assert times_ms(serve([20, 10], [10, 30], engine(), 60), "first_token_ps") == [10, 110]
    assert times_ms(serve([20, 10], [10, 30], engine(ignore_eos=True), 60), "first_token_ps") == [10, 20]
    # One slot less in the pool than A's need to the end, and 2 to spare: turned away at once.
    assert serve([20], [10], engine(ignore_eos=True), 32).request_columns()["status"].tolist() == [1]
    assert serve([20], [10], engine(ignore_eos=True), 33).request_columns()["status"].tolist() == [0]


def test_one_request_is_in_mid_prefill_and_goes_first() -> None:
    log = serve([150, 30, 40], [2, 2, 2], engine(chunk=64), 1000)
    steps = steps_of(log.replicas[0])
    # 64 + 64, then the last 22 with 30 and 12 of the third request, whose 28 follow.
    assert [s["tokens"] for s in steps] == [64, 64, 64, 28, 3]
    assert [s["sampled"] for s in steps] == [0, 0, 2, 1, 3]
    assert times_ms(log, "first_token_ps") == [30, 30, 40]


def test_max_running_requests() -> None:
    log = serve([5, 5, 5], [3, 3, 3], engine(seqs=2), 1000)
    assert times_ms(log, "finish_ps") == [30, 30, 60]
    assert steps_of(log.replicas[0])[1]["head_wait"] == 1


def test_the_ratio_falls_with_decode_steps_and_starts_anew() -> None:
    ratio = NewTokenRatio(1.0)
    assert (ratio.current, ratio.floor) == (0.7, 0.7 * 0.14)
    ratio.decoded(300)
    assert ratio.current == pytest.approx(0.7 - 0.602 / 2)
    single = NewTokenRatio(1.0)
    for _ in range(300):
        single.decoded(1)
    assert single.current == ratio.current  # to the last bit
    ratio.decoded(10**12)
    assert ratio.current == ratio.floor
    ratio.retracted([5, 9], [20, 30])
    assert ratio.current == 1.0  # at most, of (14 + 2 x 20) / (50 + 1)
    ratio.retracted([5, 9], [200, 300])
    assert ratio.current == 54 / 501
    ratio.retracted([], [])  # nobody is left
    assert ratio.current == 0.0
    ratio.decoded(1)
    assert ratio.current == ratio.floor
    ratio.reset()
    assert ratio.current == 0.7
    assert NewTokenRatio(2.0).initial == 1.0


def test_what_can_never_be_admitted_is_rejected_or_aborts_as_the_last() -> None:
    """The look-ahead ends at 4096 outputs: 50+4096+1 < 4200, but 50+4300 do not fit."""
    turned_away = serve([50], [4300], engine(), 4200)
    assert turned_away.request_columns()["status"].tolist() == [1]
    assert "prompt and output of 4350 tokens" in turned_away.reasons[1]
    aborted = serve([50], [4300], engine(faithful=True), 4200)
    assert aborted.status == "ok"
    assert aborted.request_columns()["status"].tolist() == [1]
    assert "aborted" in aborted.reasons[1]
    waits = serve([50], [4300], engine(faithful=True), 4147)
    assert waits.status == "deadlock"


@pytest.mark.parametrize(
    ("settings", "pool", "words"),
    [
        ({"scheduling_policy": "priority"}, PagedPool(100, 1), "priorities"),
        ({"async_scheduling": True}, PagedPool(100, 1), "overlapped"),
        ({}, ContiguousPool(1000), "contiguous"),
        ({"max_num_batched_tokens": 100}, PagedPool(100, 16), "set max_num_batched_tokens to 112"),
    ],
)
def test_what_is_not_simulated_is_refused(settings: dict[str, Any], pool: PoolConfig, words: str) -> None:
    known = {"max_num_batched_tokens": 64} | settings
    config = EngineConfig(1000, 16, policy=SglangPolicy(), **known)
    with pytest.raises(InputError) as error:
        simulate(Workload.from_columns([0], [5], [5]), config, pool, STEP)
    assert words in str(error.value)


# -- the radix tree and the cache over it -------------------------------------------------------------------------


def lengths(tree: RadixTree) -> dict[str, int]:
    """Stream and start of each node's first token: how many tokens it has."""
    return {f"{n.spans[0][0]}{n.spans[0][1]}": n.tokens for n in tree.nodes()}


def test_insert_split_lock_and_evict() -> None:
    tree = RadixTree()
    _, whole = tree.insert((("a", 0, 10),), 10)
    assert lengths(tree) == {"a0": 10}
    found, upper = tree.match((("a", 0, 6), ("b", 0, 3)), 9)
    assert found == 6 and lengths(tree) == {"a0": 6, "a6": 4}  # split where the match ends
    assert tree.insert((("a", 0, 6), ("b", 0, 3)), 9)[0] == 6
    assert lengths(tree) == {"a0": 6, "a6": 4, "b0": 3}
    assert tree.evictable == 13
    assert tree.lock(upper) == 6 and tree.evictable == 7  # the path to the root; what lies below stays evictable
    assert tree.lock(whole) == 4
    assert tree.evict(1) == 3 and lengths(tree) == {"a0": 6, "a6": 4}  # whole leaves; a6 is locked
    assert tree.evict(1) == 0
    tree.unlock(whole)
    tree.insert((("c", 0, 5),), 5)
    tree.match((("a", 0, 10),), 10)  # a6 is used after c0
    assert tree.evict(6) == 9 and lengths(tree) == {"a0": 6}  # c0 alone is not enough; a0 is locked
    tree.unlock(upper)
    assert tree.evict(100) == 6 and lengths(tree) == {}  # the parent has become a leaf
    tree.check()


def test_pages_are_matched_whole() -> None:
    tree = RadixTree(4)
    tree.insert((("a", 0, 12),), 12)
    assert tree.match((("a", 0, 11),), 11)[0] == 8
    assert tree.match((("a", 0, 3), ("b", 0, 9)), 12)[0] == 0
    assert lengths(tree) == {"a0": 8, "a8": 4}
    assert merged([("a", 0, 3), ("a", 3, 2), ("b", 0, 0), ("a", 6, 1)]) == (("a", 0, 5), ("a", 6, 1))


def conversation(segments: list[tuple[Segment, ...]], outputs: list[int], gap_ms: int) -> Workload:
    prompts = [sum(length for _, _, length in row) for row in segments]
    arrivals = [gap_ms * MS * i for i in range(len(prompts))]
    return Workload.from_columns(arrivals, prompts, outputs, segments=segments)


def test_a_later_turn_finds_the_first_ones_prompt_and_answer_but_for_the_last_token() -> None:
    first: tuple[Segment, ...] = (("s", 0, 20),)
    second: tuple[Segment, ...] = (("s", 0, 20), ("o:0", 0, 5), ("q", 0, 7))
    workload = conversation([first, second, second], [5, 3, 3], 1000)
    for page, hits in ((1, [0, 24, 31]), (4, [0, 24, 28])):  # never the last token of a prompt
        log = simulate(workload, engine(caching=True), PagedPool(400 // page, page, null_block=False), STEP)
        assert log.request_columns()["cached_tokens"].tolist() == hits


def test_who_computes_the_same_at_once_keeps_one_copy() -> None:
    """Two equal prompts of 20 in one batch are both computed; then the tree has them once, and 19 slots are saved."""
    workload = conversation([(("s", 0, 20),)] * 2, [5, 5], 0)
    log = simulate(workload, engine(caching=True), PagedPool(200, 1, null_block=False), STEP)
    steps = steps_of(log.replicas[0])
    assert [s["tokens"] for s in steps] == [40, 2, 2, 2, 2]
    assert [s["used_slots"] for s in steps] == [40, 22, 24, 26, 28]
    assert [s["saved_slots"] for s in steps] == [0, 20, 20, 20, 20]


def test_retracted_kv_is_lost_but_for_what_the_tree_owns() -> None:
    """As without a cache (see above), but A's prompt of 8 stays in the tree: unlocked, and evicted when B grows.

    Pass 10 retracts A: its 8 generated tokens are free at once, its 8 prompt tokens can be evicted. Retraction wants
    20 free tokens for B and evicts them. So A finds nothing when it comes back.
    """
    workload = Workload.from_columns([0, 0], [8, 6], [12, 12])
    config = engine(caching=True, schedule_conservativeness=0.01)
    log = simulate(workload, config, PagedPool(30, 1, null_block=False), STEP)
    assert [s["tokens"] for s in steps_of(log.replicas[0])] == [8, 6, *[2] * 8, 1, 1, 1, 17, 1, 1]
    assert log.request_columns()["recomputed_tokens"].tolist() == [16, 0]


def test_a_page_for_every_decoder_is_made_free_whether_it_needs_one_or_not() -> None:
    workload = conversation([(("s", 0, 12),), (("t", 0, 6),)], [2, 9], 0)
    kv = RadixKv(6, 4, 1000, TokenContent(workload), spare_tokens=4)
    a, b = Request(0, 0, 12, 2), Request(1, 0, 6, 9)
    for request in (a, b):
        assert kv.hit(request, request.prompt_tokens) == 0
        assert kv.admit(request, request.prompt_tokens, request.prompt_tokens, False)
    assert (kv.free_units, kv.private_pages) == (1, 5)
    kv.store(a, 12)
    kv.release(a)
    kv.store(b, 6)  # its half page stays its own
    assert (kv.free_units, kv.free_pages, kv.private_pages) == (4, 1, 1)
    kv.join(b, 6, step=0)
    assert kv.serve(0) and kv.serve(1)  # tokens 7 and 8
    assert (kv.free_pages, kv.evicted_blocks) == (1, 0)
    assert kv.serve(2)  # token 9 takes the free page
    assert (kv.free_units, kv.free_pages) == (3, 0)
    assert kv.serve(3)  # token 10 needs none; the old leaf goes all the same
    assert (kv.free_units, kv.free_pages, kv.evicted_blocks) == (3, 3, 3)
    kv.check()


def test_a_node_ends_with_the_prompt_so_that_the_answer_can_go_alone() -> None:
    workload = conversation([(("s", 0, 8),)], [4], 0)
    kv = RadixKv(30, 1, 1000, TokenContent(workload), spare_tokens=1)
    request = Request(0, 0, 8, 4)
    kv.hit(request, 8)
    assert kv.admit(request, 8, 8, False)
    kv.store(request, 8)
    assert lengths(kv.tree) == {"s0": 8}
    assert kv.extend(request, 11)
    kv.store(request, 11)  # prompt and output but for the last token
    kv.release(request)
    assert lengths(kv.tree) == {"s0": 8, "o:00": 3}
    kv.make_room(20)
    assert lengths(kv.tree) == {"s0": 8}
    kv.check()

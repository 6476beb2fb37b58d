"""The decode side's pass, one at a time: who gets blocks, who runs, and who waits for what."""

from __future__ import annotations

from typing import Any

from simulator.allocators.counting_kv import CountingKv
from simulator.request import Request
from simulator.run_log import HeadWait
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.remote_prefill import RemotePrefill, RemoteRequest


class Side:
    """A scheduler over ``blocks`` usable blocks of 16 tokens, and who asked it for KV."""

    def __init__(self, blocks: int = 100, **engine: Any) -> None:
        values: dict[str, Any] = {"max_model_len": 1024, "max_num_seqs": 4, "max_num_batched_tokens": 32} | engine
        self.kv = CountingKv(
            blocks + 1, 16, 1024, watermark=values.get("watermark", 0.0),
            reserve_full_sequence=values.get("scheduler_reserve_full_isl", True),
        )  # fmt: skip
        self.scheduler = RemotePrefill(EngineConfig(**values), self.kv)
        self.asked: list[int] = []
        self.scheduler.on_reserve = lambda request, now: self.asked.append(request.row)
        self.step = 0

    def arrive(self, row: int, prompt: int, output: int = 50, *, here: bool = False) -> RemoteRequest:
        request = RemoteRequest(row, row, prompt, output, 0 if here else prompt)
        self.scheduler.waiting.add(request)
        return request

    def a_pass(self) -> list[tuple[int, int]]:
        """(row, tokens) of the prefills of one step."""
        plan = self.scheduler.schedule(self.step, self.step)
        chunks = [(request.row, tokens) for request, tokens in plan.chunks]
        if plan.batch.tokens or plan.preempted:
            if not plan.stable:
                self.scheduler.advance(self.step)
            else:
                self.scheduler.decoders.stored_tokens += plan.decodes
            self.step += 1
            for request in self.scheduler.complete(self.step, self.step):
                self.kv.release(request)
        self.scheduler.check(self.step)
        return chunks

    @property
    def head_wait(self) -> HeadWait:
        return HeadWait(self.scheduler.plan.head_wait)


def test_blocks_of_the_prompt_are_taken_before_its_kv_comes_and_one_token_is_computed_after() -> None:
    side = Side()
    request = side.arrive(0, 40)
    assert side.a_pass() == []
    assert side.asked == [0]
    assert side.kv.free_units == 97 and not side.scheduler.running
    assert side.scheduler.away() == [request]
    assert side.scheduler.received(request)
    assert side.a_pass() == [(0, 1)]
    assert (request.computed, request.generated) == (40, 1)
    assert side.kv.free_units == 97 and side.scheduler.away() == []


def test_those_with_kv_go_first_in_the_order_in_which_they_asked() -> None:
    side = Side(max_num_seqs=1)
    first, second, third = (side.arrive(row, 10) for row in range(3))
    side.a_pass()
    side.arrive(3, 10, here=True)
    assert not side.scheduler.received(third) or side.scheduler.waiting.head() is third
    assert side.scheduler.received(first), "it is the head now"
    assert not side.scheduler.received(second)
    assert [r.row for r in side.scheduler.waiting] == [0, 1, 2, 3]
    assert side.a_pass() == [(0, 1)]
    assert side.head_wait == HeadWait.MAX_NUM_SEQS


def test_without_a_place_nobody_asks_for_kv() -> None:
    side = Side(max_num_seqs=1)
    side.arrive(0, 10, here=True)
    side.arrive(1, 10)
    assert side.a_pass() == [(0, 10)]
    assert side.asked == [] and side.head_wait == HeadWait.MAX_NUM_SEQS


def test_without_token_budget_nobody_asks_for_kv_and_nobody_starts() -> None:
    side = Side()
    first = side.arrive(0, 10)
    side.a_pass()
    side.arrive(1, 100, here=True)
    side.arrive(2, 10)
    assert side.a_pass() == [(1, 32)]
    assert side.asked == [0] and side.head_wait == HeadWait.TOKEN_BUDGET
    side.scheduler.received(first)
    assert side.a_pass() == [(1, 32)]
    assert side.head_wait == HeadWait.TOKEN_BUDGET


def test_a_prompt_computed_here_shares_the_budget_with_one_whose_kv_came() -> None:
    side = Side()
    request = side.arrive(0, 10)
    side.a_pass()
    side.arrive(1, 100, here=True)
    side.scheduler.received(request)
    assert side.a_pass() == [(0, 1), (1, 31)]


def test_kv_is_not_asked_for_over_blocks_that_a_running_prefill_still_needs() -> None:
    """A prompt of 96 tokens takes 2 of 8 blocks in its first step and needs 4 more: 2 are left for others."""
    for prompt, asked in ((32, [1]), (33, [])):
        for later in (False, True):  # in the pass that admits the prefill, and in the next one
            side = Side(8, max_num_batched_tokens=64, long_prefill_token_threshold=32, version="2025")
            side.arrive(0, 96, here=True)
            if later:
                assert side.a_pass() == [(0, 32)]
            side.arrive(1, prompt)
            assert side.a_pass() == [(0, 32)]
            assert side.asked == asked
            assert side.head_wait == (HeadWait.NOBODY_WAITS if asked else HeadWait.KV_MEMORY)
            assert side.kv.free_units == 8 - (4 if later else 2) - 2 * len(asked)


def test_the_watermark_holds_for_kv_from_elsewhere() -> None:
    side = Side(10, watermark=0.2)  # 2 of 11 blocks stay free while others run
    side.arrive(0, 10, here=True)
    side.a_pass()
    side.arrive(1, 8 * 16)
    side.a_pass()
    assert side.asked == [] and side.head_wait == HeadWait.KV_MEMORY


def test_the_watermark_holds_beside_what_prefills_need_and_for_kv_that_has_come() -> None:
    """Of 8 blocks a running prefill holds 2 and needs 4 more; one is kept free (0.12 of 9 blocks): 1 is left."""
    for prompt, asked in ((16, [1]), (17, [])):
        side = Side(8, max_num_batched_tokens=64, long_prefill_token_threshold=32, version="2025", watermark=0.12)
        side.arrive(0, 96, here=True)
        side.arrive(1, prompt)
        side.a_pass()
        assert side.asked == asked
    side = Side(4, watermark=0.4)  # 2 of 5 blocks: the second one has all that it needs, and waits for 2 free ones
    first, second = side.arrive(0, 16, 2), side.arrive(1, 16)
    side.a_pass()
    side.scheduler.received(first)
    assert side.a_pass() == [(0, 1)]
    side.scheduler.received(second)
    assert side.a_pass() == []
    assert side.kv.free_units == 3 and not side.scheduler.running  # the first took one more, and has ended
    assert side.a_pass() == [(1, 1)]


def test_a_whole_prompt_that_is_computed_here_waits_for_budget_without_chunks() -> None:
    side = Side(enable_chunked_prefill=False)
    side.arrive(0, 20, here=True)
    side.arrive(1, 20, here=True)
    assert side.a_pass() == [(0, 20)]
    assert side.head_wait == HeadWait.TOKEN_BUDGET


def test_the_chunk_cap_holds_for_prompts_that_are_computed_here() -> None:
    side = Side(long_prefill_token_threshold=7)
    side.arrive(0, 20, here=True)
    side.arrive(1, 20, here=True)
    assert side.a_pass() == [(0, 7), (1, 7)]


def test_held_prefills_hold_prompts_and_not_kv_that_has_come() -> None:
    side = Side(prefill_schedule_interval=4)
    first = side.arrive(0, 10)
    side.a_pass()
    side.scheduler.received(first)
    side.a_pass()
    second = side.arrive(1, 10)
    side.a_pass()
    side.scheduler.received(second)
    side.arrive(2, 10, here=True)
    held = [side.a_pass() for _ in range(4)]
    assert held[0] == [(1, 1)] and [(2, 10)] in held[1:], "it is only held for a while"


def test_who_is_preempted_comes_before_those_who_have_not_run_and_is_computed_here() -> None:
    side = Side(5)
    requests = [side.arrive(row, 31) for row in range(2)]
    side.a_pass()
    for request in requests:
        side.scheduler.received(request)
    side.a_pass()
    side.arrive(2, 31)
    preempted: list[Request] = []
    for _ in range(6):
        side.a_pass()
        preempted += side.scheduler.plan.preempted
        if preempted:
            break
    assert preempted == [requests[1]]
    assert [r.row for r in side.scheduler.waiting] == [1, 2]
    assert requests[1].external_tokens == 0
    assert side.asked == [0, 1]

"""TensorRT-LLM's two schedulers, worked by hand, pass by pass. Every step lasts 10 ms; blocks hold 4 tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.allocators.pools import ContiguousPool, PagedPool, PoolConfig
from simulator.cluster import simulate
from simulator.errors import InputError
from simulator.request import Request, RequestState
from simulator.run_log import HeadWait, RunLog, Status
from simulator.schedulers.arrival_queue import ArrivalQueue
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.context_chunks import micro_batch
from simulator.schedulers.policies import TrtLlmPolicy
from simulator.step_time.linear import LinearStepTime
from tests.expand import steps_of
from tests.policy_cases import paged, policy_cases
from tests.property.test_leaps import run as run_case
from workloads.workload import Workload

MS = 1_000_000_000
FREE, MEMORY, SEQS = HeadWait.NOBODY_WAITS, HeadWait.KV_MEMORY, HeadWait.MAX_NUM_SEQS
BUDGET, PAUSED, BATCH = HeadWait.TOKEN_BUDGET, HeadWait.PREEMPTION, HeadWait.HELD
NO_EVICT = TrtLlmPolicy("guaranteed_no_evict")
MAX_UTILIZATION = TrtLlmPolicy("max_utilization")
STATIC_BATCH = TrtLlmPolicy("static_batch")
STEP = ("tokens", "decodes", "running", "stored_tokens", "used_slots", "head_wait")


def blocks(count: int) -> PagedPool:
    return PagedPool(count, 4, null_block=False)


def run(
    policy: TrtLlmPolicy, pool: PoolConfig, lengths: list[tuple[int, int]], *, budget: int = 64, seqs: int = 8
) -> RunLog:
    """Requests of (prompt, output) tokens that come together, in order, under max_model_len 32."""
    workload = Workload.from_columns([0] * len(lengths), [p for p, _ in lengths], [o for _, o in lengths])
    engine = EngineConfig(32, seqs, budget, policy=policy)
    return simulate(workload, engine, pool, LinearStepTime(10 * MS, 0, 0), max_steps=1000)


def columns(log: RunLog, *names: str) -> list[tuple[int, ...]]:
    return [tuple(step[name] for name in names) for step in steps_of(log.replicas[0])]


def test_no_evict_reserves_prompt_and_output_and_the_first_misfit_ends_the_scan() -> None:
    """6 blocks. A (5 in, 4 out) reserves 3 for its 9 tokens, B (6, 7) would need 4, C (3, 2) 2.

    B does not fit beside A, and C, which would, stays behind it. A stores 8 tokens: its third block is never used.
    """
    log = run(NO_EVICT, blocks(6), [(5, 4), (6, 7), (3, 2)])
    assert columns(log, *STEP) == [
        (5, 0, 1, 5, 8, MEMORY),
        (1, 1, 1, 6, 8, MEMORY),
        (1, 1, 1, 7, 8, MEMORY),
        (1, 1, 1, 8, 8, MEMORY),  # A ends
        (9, 0, 2, 9, 12, FREE),  # B and C: 4 + 2 blocks reserved, 2 + 1 used
        (2, 2, 2, 11, 12, FREE),  # C ends
        (1, 1, 1, 8, 8, FREE),
        (1, 1, 1, 9, 12, FREE),
        (1, 1, 1, 10, 12, FREE),
        (1, 1, 1, 11, 12, FREE),
        (1, 1, 1, 12, 12, FREE),
    ]


def test_max_utilization_pauses_the_last_started_and_it_keeps_its_place() -> None:
    """5 blocks, 2 requests at once. A (7 in, 6 out) and B (8, 6) take 2 each; step 1 gives B its third.

    In step 2 A needs a third: B is paused. Till A ends B needs 3 blocks for its 10 tokens and 2 are free; C (1, 3),
    which needs one, stays behind B.
    """
    log = run(MAX_UTILIZATION, blocks(5), [(7, 6), (8, 6), (1, 3)], seqs=2)
    assert columns(log, *STEP) == [
        (15, 0, 2, 15, 16, SEQS),
        (2, 2, 2, 17, 20, SEQS),
        (1, 1, 1, 9, 12, PAUSED),
        (1, 1, 1, 10, 12, MEMORY),
        (1, 1, 1, 11, 12, MEMORY),
        (1, 1, 1, 12, 12, MEMORY),  # A ends
        (11, 0, 2, 11, 16, FREE),  # B again, 8 + 2 tokens, and C
        (2, 2, 2, 13, 16, FREE),
        (2, 2, 2, 15, 16, FREE),  # C ends
        (1, 1, 1, 13, 16, FREE),
    ]
    table = log.request_columns()
    assert table["preemptions"].tolist() == [0, 1, 0]
    assert table["recomputed_tokens"].tolist() == [0, 9, 0]


def test_no_evict_with_the_same_requests_never_pauses() -> None:
    """A reserves 4 blocks of 5 for 13 tokens, so that B, with 14, waits for its end."""
    log = run(NO_EVICT, blocks(5), [(7, 6), (8, 6), (1, 3)], seqs=2)
    assert columns(log, "decodes", "running", "head_wait")[:7] == [(0, 1, MEMORY)] + [(1, 1, MEMORY)] * 5 + [
        (0, 2, FREE)
    ]
    assert not log.request_columns()["preemptions"].any()


def test_a_static_batch_runs_to_its_end() -> None:
    """2 at once: A (4, 3) and B (4, 2); B ends after step 1, and C (4, 2) waits until A has ended, too."""
    log = run(STATIC_BATCH, blocks(20), [(4, 3), (4, 2), (4, 2)], seqs=2)
    assert columns(log, "tokens", "decodes", "running", "head_wait") == [
        (8, 0, 2, SEQS),
        (2, 2, 2, BATCH),
        (1, 1, 1, BATCH),
        (4, 0, 1, FREE),
        (1, 1, 1, FREE),
    ]


def contexts(*prompts: int) -> list[Request]:
    requests = [Request(row, 0, prompt, 5) for row, prompt in enumerate(prompts)]
    for seq, request in enumerate(requests):
        request.seq = seq
    return requests


def chunks(found: tuple[list[Request], list[tuple[Request, int]]]) -> list[tuple[int, int]]:
    return [(request.row, chunk) for request, chunk in found[1]]


def test_chunks_first_come_first_served_take_all_they_can_in_whole_units() -> None:
    """10 tokens in units of 4. 11 is cut to 8; of 5 not a unit fits into the 2 left; 2 does, as a last chunk."""
    assert chunks(micro_batch(contexts(11, 5, 2), 10, 8, 4, "first_come_first_served")) == [(0, 8), (2, 2)]
    assert chunks(micro_batch(contexts(3, 5, 2), 10, 8, 4, "first_come_first_served")) == [(0, 3), (1, 5), (2, 2)]


def test_chunks_of_equal_progress_get_a_unit_each_in_turn() -> None:
    """10 tokens: 4 + 4 + 2. 18 tokens: 4 + 4 + 2, then 4 + 1, then 3 are left, less than a unit."""
    assert chunks(micro_batch(contexts(11, 5, 2), 10, 8, 4, "equal_progress")) == [(0, 4), (1, 4), (2, 2)]
    assert chunks(micro_batch(contexts(15, 5, 2), 18, 8, 4, "equal_progress")) == [(0, 8), (1, 5), (2, 2)]


def test_without_chunking_a_context_that_does_not_fit_ends_the_scan() -> None:
    assert chunks(micro_batch(contexts(6, 5, 2), 10, 8, None, "first_come_first_served")) == [(0, 6)]


def test_a_decoder_beyond_the_budget_and_the_batch_size_end_the_scan() -> None:
    line = contexts(6, 1, 1, 1)
    for request in line[1:]:
        request.state = RequestState.DECODING
    decodes, chosen = micro_batch(line, 2, 8, 4, "first_come_first_served")
    assert ([request.row for request in decodes], chosen) == ([1, 2], [])
    decodes, chosen = micro_batch(line, 9, 2, 4, "first_come_first_served")
    assert [request.row for request in decodes] == [1]
    assert [(request.row, chunk) for request, chunk in chosen] == [(0, 6)]


def test_who_comes_later_may_start_before_and_stands_behind_all_the_same() -> None:
    """10 tokens a step: A's 11 are cut to 8, B's 5 to none, C's 2 fit. B starts in step 1, and stands before C."""
    log = run(NO_EVICT, blocks(20), [(11, 3), (5, 3), (2, 3)], budget=10)
    assert columns(log, *STEP)[:3] == [
        (10, 0, 2, 10, 16, BUDGET),  # A has its 3 blocks at once
        (1 + 3 + 5, 1, 3, 19, 24, FREE),
        (3, 3, 3, 22, 24, FREE),  # C ends
    ]
    queue = ArrivalQueue()
    line = contexts(1, 1, 1, 1)
    assert [queue.add(request) for request in line] == [True, False, False, False]
    first, second = queue.pop(), queue.pop()
    queue.put_back(second)
    queue.put_back(first)
    assert list(queue) == line


def test_a_contiguous_cache_reserves_the_context_for_each() -> None:
    """64 slots, 32 each: the third waits, under all three policies."""
    for policy in (NO_EVICT, MAX_UTILIZATION, STATIC_BATCH):
        log = run(policy, ContiguousPool(64), [(4, 2)] * 3)
        assert columns(log, "decodes", "running", "used_slots") == [(0, 2, 64), (2, 2, 64), (0, 1, 32), (1, 1, 32)]


def test_what_no_evict_could_never_reserve_is_turned_away_and_max_utilization_serves_it() -> None:
    """9 + 8 tokens reserve 5 blocks of 4; the pool has 4, and they hold the 16 tokens that it ever stores."""
    log = run(NO_EVICT, blocks(4), [(9, 8), (4, 2)])
    table = log.request_columns()
    assert table["status"].tolist() == [Status.REJECTED, Status.FINISHED]
    assert "reserves 5 KV blocks" in log.reasons[table["reason"][0]]
    assert run(MAX_UTILIZATION, blocks(4), [(9, 8), (4, 2)]).request_columns()["status"].tolist() == [0, 0]


def test_a_chunk_smaller_than_a_block_is_refused() -> None:
    with pytest.raises(InputError, match="below a block of 4 tokens"):
        run(NO_EVICT, blocks(4), [(4, 2)], budget=3)


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize(
    "policy", [NO_EVICT, STATIC_BATCH, replace(NO_EVICT, context_chunking_policy="equal_progress")]
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_who_reserves_to_the_end_is_never_paused(policy: TrtLlmPolicy, caching: bool, data: st.DataObject) -> None:
    log = run_case(data.draw(policy_cases(policy, [paged], caching=caching)), stepwise=False)
    assert not log.request_columns()["preemptions"].any()


def shared_prompts(policy: TrtLlmPolicy, prompts: list[tuple[int, int]], *, budget: int = 64) -> RunLog:
    """Prompts of (tokens shared by all, own tokens) with 2 output tokens each, over 20 blocks with reuse."""
    segments = [(("system", 0, shared), (f"own{row}", 0, own)) for row, (shared, own) in enumerate(prompts)]
    workload = Workload.from_columns(
        [0] * len(prompts), [a + b for a, b in prompts], [2] * len(prompts), segments=segments
    )
    engine = EngineConfig(32, 8, budget, enable_prefix_caching=True, policy=policy)
    return simulate(workload, engine, blocks(20), LinearStepTime(10 * MS, 0, 0), max_steps=1000)


@pytest.mark.parametrize("policy", [NO_EVICT, MAX_UTILIZATION])
def test_a_duplicate_waits_a_pass_for_the_blocks_in_the_making_and_reuses_them(policy: TrtLlmPolicy) -> None:
    """A and B share 10 tokens and have 3 of their own; C has none of them.

    B's first new block is A's: B is left out of step 0, and C is not. In step 1 B finds 2 whole blocks, 8 tokens, and
    computes 5. All hold 4 blocks then, B's first 2 being A's: A 14 tokens, B 13, C (13, of other content) 14.
    """
    log = shared_prompts(policy, [(10, 3), (10, 3), (0, 13)])
    assert columns(log, *STEP, "saved_slots") == [
        (26, 0, 2, 26, 32, BATCH, 0),
        (2 + 5, 2, 3, 28 + 13, 40, FREE, 8),  # A and C end
        (1, 1, 1, 14, 16, FREE, 0),
    ]
    assert log.request_columns()["cached_tokens"].tolist() == [0, 8, 0]


def test_a_static_batch_defers_nobody() -> None:
    """A and B are one batch; B finds what A was scheduled to compute just before, and computes the rest."""
    log = shared_prompts(STATIC_BATCH, [(10, 3), (10, 3)])
    assert columns(log, *STEP, "saved_slots") == [(13 + 5, 0, 2, 26, 24, FREE, 8), (2, 2, 2, 28, 24, FREE, 8)]


def test_reused_tokens_take_rounds_of_equal_progress_but_no_budget() -> None:
    """8 tokens of budget, units of 4. A (12) and B (12, 8 of them cached): A 4, B's first unit is free.

    Round 2: A has its 8, and nothing is left, so that B, who is two rounds behind, gets nothing.
    """
    line = contexts(12, 12)
    assert chunks(micro_batch(line, 8, 8, 4, "equal_progress", {1: 8})) == [(0, 8)]
    assert chunks(micro_batch(line, 12, 8, 4, "equal_progress", {1: 8})) == [(0, 12)]
    assert chunks(micro_batch(line, 16, 8, 4, "equal_progress", {1: 8})) == [(0, 12), (1, 4)]
    assert chunks(micro_batch(line, 8, 8, 4, "first_come_first_served", {1: 8})) == [(0, 8)]
    assert chunks(micro_batch(line, 13, 8, 4, "first_come_first_served", {0: 4, 1: 8})) == [(0, 8), (1, 4)]

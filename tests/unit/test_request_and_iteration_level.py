"""FasterTransformer's and Orca's batches, worked by hand, pass by pass. Every step lasts 10 ms."""

from __future__ import annotations

import pytest

from simulator.allocators.pools import ContiguousPool, PagedPool, PoolConfig
from simulator.cluster import simulate
from simulator.run_log import HeadWait, RunLog
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.policies import IterationLevelPolicy, Policy, RequestLevelPolicy
from simulator.step_time.linear import LinearStepTime
from tests.expand import steps_of
from workloads.workload import Workload

MS = 1_000_000_000
FREE, MEMORY, BUDGET, PREEMPTED = HeadWait.NOBODY_WAITS, HeadWait.KV_MEMORY, HeadWait.TOKEN_BUDGET, HeadWait.PREEMPTION


def run(
    policy: Policy,
    pool: PoolConfig,
    lengths: list[tuple[int, int]],
    *,
    budget: int = 1000,
    seqs: int = 8,
    arrivals_ms: list[int] | None = None,
) -> RunLog:
    """Requests of (prompt, output) tokens, in order, under max_model_len 32."""
    workload = Workload.from_columns(
        [ms * MS for ms in arrivals_ms or [0] * len(lengths)], [p for p, _ in lengths], [o for _, o in lengths]
    )
    engine = EngineConfig(32, seqs, budget, policy=policy)
    return simulate(workload, engine, pool, LinearStepTime(10 * MS, 0, 0), max_steps=1000)


def columns(log: RunLog, *names: str) -> list[tuple[int, ...]]:
    return [tuple(step[name] for name in names) for step in steps_of(log.replicas[0])]


def times_ms(log: RunLog, column: str) -> list[float]:
    return [value / MS for value in log.request_columns()[column]]


STEP = ("tokens", "decodes", "running", "stored_tokens", "used_slots", "head_wait")


def test_a_batch_of_faster_transformer_ends_with_its_longest_member() -> None:
    """64 slots, 32 reserved for each: A (4 in, 2 out) and B (6, 5) form a batch, C (3, 1) waits for its end.

    A has its two tokens after step 1; it is returned with B, after step 4, and holds 32 slots and 5 tokens till then.
    """
    log = run(RequestLevelPolicy(), ContiguousPool(64), [(4, 2), (6, 5), (3, 1)])
    assert columns(log, *STEP) == [
        (10, 0, 2, 10, 64, MEMORY),  # prompts of A and B; first tokens
        (2, 2, 2, 12, 64, MEMORY),  # A is done
        (1, 1, 2, 13, 64, MEMORY),
        (1, 1, 2, 14, 64, MEMORY),
        (1, 1, 2, 15, 64, MEMORY),  # B is done: the batch ends
        (3, 0, 1, 3, 32, FREE),  # C alone
    ]
    assert times_ms(log, "first_token_ps") == [10, 10, 60]
    assert times_ms(log, "finish_ps") == [50, 50, 60]
    assert log.replicas[0].holds.tolist()[:2] == [0, 0]
    holds = log.replicas[0].hold_columns()
    assert holds["to_ps"].tolist() == [50 * MS, 50 * MS, 60 * MS]
    assert holds["reserved_slots"].tolist() == [32, 32, 32]


def test_prompts_beyond_the_budget_take_several_steps_and_generation_waits_for_the_last() -> None:
    """8 prompt tokens a step: A's 4 and 4 of B's 6; then 2 of B's, while A, with its first token, waits."""
    log = run(RequestLevelPolicy(), ContiguousPool(64), [(4, 3), (6, 2)], budget=8)
    assert columns(log, *STEP) == [
        (8, 0, 2, 8, 64, FREE),
        (2, 0, 2, 10, 64, FREE),
        (2, 2, 2, 12, 64, FREE),  # B is done
        (1, 1, 2, 13, 64, FREE),  # A is done
    ]
    assert times_ms(log, "first_token_ps") == [10, 20]
    assert times_ms(log, "finish_ps") == [40, 40]
    assert list(log.replicas[0].irregular_gaps_ps) == [20 * MS]  # A's second token


def test_nobody_joins_a_batch_under_way() -> None:
    """There is room for four; B comes while A runs, C while B waits: A is a batch, then B and C."""
    log = run(RequestLevelPolicy(), ContiguousPool(128), [(4, 4), (4, 2), (4, 3)], arrivals_ms=[0, 5, 15])
    assert columns(log, "decodes", "running", "head_wait") == [
        (0, 1, FREE),
        (1, 1, HeadWait.HELD),
        (1, 1, HeadWait.HELD),
        (1, 1, HeadWait.HELD),
        (0, 2, FREE),
        (2, 2, FREE),
        (1, 2, FREE),
    ]
    assert times_ms(log, "finish_ps") == [40, 70, 70]


def test_a_batch_over_blocks_that_run_out_sends_its_last_member_to_the_next() -> None:
    """5 blocks of 4 tokens: A (7, 6) and B (8, 6) take 2 each.

    Step 1 gives B its third block. In step 2 A would need a third one: B leaves, with the two tokens it has.
    """
    log = run(RequestLevelPolicy(), PagedPool(5, 4, null_block=False), [(7, 6), (8, 6)])
    assert columns(log, *STEP) == [
        (15, 0, 2, 15, 16, FREE),
        (2, 2, 2, 17, 20, FREE),  # A 8 tokens in 2 blocks, B 9 in 3
        (1, 1, 1, 9, 12, PREEMPTED),
        (1, 1, 1, 10, 12, HeadWait.HELD),
        (1, 1, 1, 11, 12, HeadWait.HELD),
        (1, 1, 1, 12, 12, HeadWait.HELD),  # A is done, after 6 tokens
        (10, 0, 1, 10, 12, FREE),  # B again: 8 + 2 tokens; its third token
        (1, 1, 1, 11, 12, FREE),
        (1, 1, 1, 12, 12, FREE),
        (1, 1, 1, 13, 16, FREE),
    ]
    table = log.request_columns()
    assert table["preemptions"].tolist() == [0, 1]
    assert table["recomputed_tokens"].tolist() == [0, 9]


def test_orca_lets_whole_prompts_join_at_any_step_in_order() -> None:
    """32 slots in buddies, exact reservations: A (4, 3) holds 8, B (9, 2) 16, C (5, 4) 16, D (2, 2) 4.

    C does not fit beside A and B, and D, which would, waits behind it. B ends after step 1: both join in step 2.
    """
    pool = ContiguousPool(32, "oracle", "buddy")
    log = run(IterationLevelPolicy(), pool, [(4, 3), (9, 2), (5, 4), (2, 2)])
    assert columns(log, *STEP) == [
        (13, 0, 2, 13, 24, MEMORY),  # prompts of A and B
        (2, 2, 2, 15, 24, MEMORY),  # B ends
        (8, 1, 3, 13, 28, FREE),  # A's last token, prompts of C and D
        (2, 2, 2, 9, 20, FREE),  # D ends
        (1, 1, 1, 7, 16, FREE),
        (1, 1, 1, 8, 16, FREE),
    ]
    assert times_ms(log, "first_token_ps") == [10, 10, 30, 30]
    assert times_ms(log, "finish_ps") == [30, 20, 60, 40]


@pytest.mark.parametrize(("reservation", "admitted"), [("max", 1), ("pow2", 2), ("oracle", 3)])
def test_the_three_orcas_differ_in_what_they_reserve(reservation: str, admitted: int) -> None:
    """48 slots, three requests of 3 in and 9 out: max 32 each; pow2 3 + 16 = 19; oracle 12."""
    pool = ContiguousPool(48, reservation)  # type: ignore[arg-type]
    log = run(IterationLevelPolicy(), pool, [(3, 9)] * 3)
    assert columns(log, "running")[0] == (admitted,)


def test_the_budget_limits_the_prompts_of_a_step_but_lets_a_lone_one_through() -> None:
    """10 prompt tokens a step: A (6) alone, as A and B have 12; B (6) and C (4); D (15), longer than the budget."""
    log = run(IterationLevelPolicy(), ContiguousPool(256), [(6, 9), (6, 2), (4, 2), (15, 1)], budget=10)
    assert columns(log, "tokens", "decodes", "head_wait")[:4] == [
        (6, 0, BUDGET),
        (1 + 6 + 4, 1, BUDGET),
        (3 + 15, 3, FREE),
        (1, 1, FREE),
    ]


def test_orca_over_blocks_that_run_out_preempts_the_last_admitted_and_admits_nobody_then() -> None:
    """5 blocks of 4 tokens, A (7, 6) and B (8, 6) as above; B waits for 3 blocks while A runs with 3."""
    log = run(IterationLevelPolicy(), PagedPool(5, 4, null_block=False), [(7, 6), (8, 6)])
    assert columns(log, *STEP)[:7] == [
        (15, 0, 2, 15, 16, FREE),
        (2, 2, 2, 17, 20, FREE),
        (1, 1, 1, 9, 12, PREEMPTED),
        (1, 1, 1, 10, 12, MEMORY),
        (1, 1, 1, 11, 12, MEMORY),
        (1, 1, 1, 12, 12, MEMORY),
        (10, 0, 1, 10, 12, FREE),
    ]

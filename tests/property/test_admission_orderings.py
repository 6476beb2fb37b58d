"""What one admission pass from the same empty cache takes, by layout, with equal usable slots.

For the same fit: let h be the slots that a request holds after the fit's rounding (buddy: the next power of two).
Oracle's h <= Pow2's <= Max's for every request. First and best fit pack an empty pool without holes. So does a
buddy pool as long as nobody leaves: its free blocks then have different lengths, namely the binary digits of what is
free, so that a block of h is there exactly if h slots are free. Hence each fit admits the longest prefix of the
queue whose h sum up to at most the slots it can hand out, and smaller h admit more. Between different fits nothing
of the kind holds (the last test).
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.allocators.contiguous import Reservation
from simulator.allocators.extents import Fit
from simulator.allocators.pools import ContiguousPool, PagedPool, PoolConfig
from simulator.cluster import simulate
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.policies import IterationLevelPolicy
from simulator.step_time.linear import LinearStepTime
from tests.expand import steps_of
from tests.policy_cases import System, paged, policy_cases, systems
from tests.property.test_leaps import run
from workloads.workload import Workload

MS = 1_000_000_000
LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=30)


def admitted(pool: PoolConfig, lengths: list[tuple[int, int]], max_model_len: int = 128) -> int:
    """How many requests that wait together the first pass admits."""
    workload = Workload.from_columns([0] * len(lengths), [p for p, _ in lengths], [o for _, o in lengths])
    engine = EngineConfig(max_model_len, 100, 10_000, policy=IterationLevelPolicy())
    log = simulate(workload, engine, pool, LinearStepTime(MS, 0, 0), max_steps=1)
    steps = steps_of(log.replicas[0])
    return steps[0]["running"] if steps else 0


@pytest.mark.parametrize("fit", get_args(Fit))
@settings(max_examples=15, deadline=None)
@given(LENGTHS, st.integers(128, 1000))
def test_oracle_admits_as_many_as_pow2_and_pow2_as_max(fit: Fit, lengths: list[tuple[int, int]], slots: int) -> None:
    counts = {kind: admitted(ContiguousPool(slots, kind, fit), lengths) for kind in get_args(Reservation)}
    assert counts["oracle"] >= counts["pow2"] >= counts["max"] >= 1


@settings(max_examples=15, deadline=None)
@given(LENGTHS, st.integers(1, 12), st.integers(61, 200), st.integers(0, 50))
def test_blocks_as_long_as_the_context_admit_what_max_reservation_admits(
    lengths: list[tuple[int, int]], blocks: int, context: int, longer: int
) -> None:
    """Equal slots: exactly as many with blocks of the context, and no more with longer ones."""
    whole = admitted(PagedPool(blocks, context, null_block=False), lengths, context)
    assert whole == admitted(ContiguousPool(blocks * context, "max"), lengths, context) == min(blocks, len(lengths))
    size = context + longer
    beyond = admitted(PagedPool(blocks, size, null_block=False), lengths, context)
    assert beyond == whole <= admitted(ContiguousPool(blocks * size, "max"), lengths, context)


@settings(max_examples=15, deadline=None)
@given(LENGTHS, st.integers(128, 1000))
def test_blocks_of_one_token_admit_at_least_what_any_reservation_admits(
    lengths: list[tuple[int, int]], slots: int
) -> None:
    ones = admitted(PagedPool(slots, 1, null_block=False), lengths)
    for kind in get_args(Reservation):
        for fit in get_args(Fit):
            assert ones >= admitted(ContiguousPool(slots, kind, fit), lengths)


@pytest.mark.parametrize("system", [s for s in systems() if s.values[0].pool is paged and not s.values[0].caching])  # type: ignore[attr-defined]
@settings(max_examples=8, deadline=None)
@given(st.data())
def test_blocks_of_one_token_waste_nothing(system: System, data: st.DataObject) -> None:
    """At every step of a run the slots held are the tokens stored, where no prompt takes several steps."""
    case = data.draw(policy_cases(system.policy, [lambda draw: PagedPool(draw(st.integers(60, 250)), 1)]))
    case = replace(case, engine=replace(case.engine, max_num_batched_tokens=10_000))
    log = run(case, stepwise=False)
    for replica in log.replicas:
        assert all(step["used_slots"] == step["stored_tokens"] for step in steps_of(replica))


def test_between_fits_rounding_can_turn_the_order_round() -> None:
    """Context 40: a request of 20 + 13 tokens holds 64 slots of a buddy pool even under oracle, 40 of another's max."""
    lengths = [(20, 13)] * 3
    assert admitted(ContiguousPool(128, "oracle", "buddy"), lengths, 40) == 2
    assert admitted(ContiguousPool(128, "max", "first"), lengths, 40) == 3

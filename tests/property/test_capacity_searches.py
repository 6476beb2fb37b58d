"""The pure searches of a capacity search find what looking at every rate, or every count, would."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simulator.planner.capacity.knee import CLOSE, GUARD, MOST_GUARDS, RANGE, Knee, Verdict, find_knee
from simulator.planner.capacity.rates import STEP, RateGrid
from simulator.planner.capacity.replicas import fewest_replicas

Found = TypeVar("Found")
Judge = Callable[[int], Verdict]
BRACKET = 6
"""Looks that find a passing rate: the first one and strides of 8, 16, 32 and 64 down to 160 below the top."""
HALVINGS = 6
"""A stride is at most 64 steps."""
CLIMB = 2 * 8
"""With a hint: strides of 1, 2, ... up to the top or down to the bottom, and as many halvings."""


def told(search: Generator[int, Verdict, Found], judge: Judge) -> tuple[Found, list[int]]:
    """What a search returns, and what it looked at."""
    looks: list[int] = []
    try:
        index = next(search)
        while True:
            looks.append(index)
            index = search.send(judge(index))
    except StopIteration as end:
        return end.value, looks


def dense(judge: Judge, top: int) -> int | None:
    """The highest rate of the range below which every rate passes: by looking at each."""
    knee = None
    for index in range(top - RANGE, top + 1):
        if not judge(index).passed:
            break
        knee = index
    return knee


def checked(judge: Judge, top: int, hint: int | None) -> tuple[Knee, list[int]]:
    knee, looks = told(find_knee(top, hint), judge)
    assert len(looks) == len(set(looks)), "a rate was looked at twice"
    assert all(top - RANGE <= index <= top for index in looks)
    assert set(knee.tried) == set(looks)
    assert knee.failing == top + 1 or not judge(knee.failing).passed
    if knee.index is not None:
        assert judge(knee.index).passed and knee.failing == knee.index + 1
    return knee, looks


tops = st.integers(-500, 500)
hints = st.none() | st.integers(-300, 300)


@given(tops, st.integers(-RANGE - 20, 5), hints, st.floats(0.0, 1.0))
@example(0, -RANGE, None, 0.0)  # the lowest rate alone passes
@example(0, -RANGE - 1, None, 0.0)  # none does
@example(0, -RANGE - 9, -RANGE - 20, 0.0)  # one below the range would, and the hint points there
@example(0, 5, 3, 1.0)
def test_the_knee_of_monotone_verdicts_is_that_of_the_dense_grid(
    top: int, limit: int, hint: int | None, severity: float
) -> None:
    def judge(index: int) -> Verdict:
        return Verdict(True, severity) if index <= top + limit else Verdict(False, math.inf)

    hint = None if hint is None else top + hint
    knee, looks = checked(judge, top, hint)
    assert knee.index == dense(judge, top)
    guards = MOST_GUARDS if severity > CLOSE else GUARD
    assert len(looks) <= (BRACKET + HALVINGS if hint is None else CLIMB) + guards


def test_a_good_hint_saves_looks() -> None:
    def judge(index: int) -> Verdict:
        return Verdict(index <= -100, 0.5)

    assert len(told(find_knee(0, -100), judge)[1]) == 2 + GUARD
    assert len(told(find_knee(0, -97), judge)[1]) < len(told(find_knee(0), judge)[1])


noisy = st.lists(st.booleans(), min_size=0, max_size=MOST_GUARDS)


@given(tops, st.integers(-120, 0), noisy, hints, st.floats(0.91, 1.0), st.floats(0.0, CLOSE))
def test_near_the_limit_verdicts_may_come_and_go(
    top: int, first: int, noise: list[bool], hint: int | None, close: float, clear: float
) -> None:
    """From ``first`` on verdicts are as drawn, all of them close; beyond them every rate fails."""

    def judge(index: int) -> Verdict:
        place = index - (top + first)
        if place < 0:
            return Verdict(True, clear)
        passed = place < len(noise) and noise[place]
        return Verdict(passed, close if passed else math.inf)

    knee, looks = checked(judge, top, None if hint is None else top + hint)
    assert knee.index == dense(judge, top)
    assert len(looks) <= CLIMB + BRACKET + len(noise) + MOST_GUARDS


@given(tops, hints)
def test_nothing_is_found_where_nothing_passes(top: int, hint: int | None) -> None:
    knee, looks = checked(lambda index: Verdict(False, math.inf), top, None if hint is None else top + hint)
    assert knee.index is None and len(looks) <= CLIMB


def test_a_failure_far_below_a_clear_pass_is_looked_for_in_two_rates_and_no_further() -> None:
    for far, expected in ((1, -12), (2, -13), (3, -10)):
        failing = -10 - far
        knee, _ = told(find_knee(0), lambda index, failing=failing: Verdict(index <= -10 and index != failing, 0.5))
        assert knee.index == expected


def test_below_a_failure_that_was_found_two_more_rates_are_looked_at() -> None:
    knee, _ = told(find_knee(0, -10), lambda index: Verdict(index <= -10 and index not in (-12, -15), 0.5))
    assert knee.index == -16


@given(st.integers(-RANGE, -20), st.integers(-12, 0), hints)
def test_a_pass_by_chance_far_above_the_knee_costs_a_second_search_and_not_a_walk(
    limit: int, chance: int, hint: int | None
) -> None:
    knee, looks = checked(lambda index: Verdict(index <= limit or index == chance, 0.5), 0, hint)
    assert knee.index == limit and len(looks) <= 2 * CLIMB + BRACKET + 2 * GUARD


@given(
    st.lists(st.floats(0.0, 0.08), min_size=RANGE + 1, max_size=RANGE + 1),
    st.floats(1.03, 1.1),
    st.integers(-100, -1),
    st.floats(1.0, 3.0),
    hints,
    hints,
)
def test_a_tighter_limit_never_raises_the_knee(
    noise: list[float], growth: float, at: int, looser: float, hint: int | None, other: int | None
) -> None:
    """The same answers, which rise with the rate but for noise of 8 %, against two limits."""
    values = [growth**-place * (1 + share) for place, share in enumerate(noise)]

    def judge(limit: float) -> Judge:
        def one(index: int) -> Verdict:
            value = values[-index]
            return Verdict(value <= limit, value / limit)

        return one

    strict = growth**at
    tight, _ = checked(judge(strict), 0, hint)
    loose, _ = checked(judge(strict * looser), 0, other)
    assert tight.index == dense(judge(strict), 0)
    assert loose.index == dense(judge(strict * looser), 0)
    assert (-math.inf if tight.index is None else tight.index) <= (-math.inf if loose.index is None else loose.index)


counts = st.integers(1, 400)


@given(counts, counts, counts, counts)
def test_the_fewest_replicas_are_those_of_looking_at_every_count(least: int, guess: int, most: int, need: int) -> None:
    found, looks = told(fewest_replicas(least, guess, most), lambda count: Verdict(count >= need))
    assert found == next((count for count in range(least, most + 1) if count >= need), None)
    assert len(looks) == len(set(looks)) <= 2 * max(1, (max(least, most) - least + 1).bit_length()) + 1
    assert all(least <= count <= most for count in looks)


@given(counts, counts, st.lists(st.booleans(), min_size=1, max_size=400))
def test_of_counts_that_pass_now_and_then_one_is_found_below_which_it_fails(
    least: int, guess: int, passes: list[bool]
) -> None:
    most = least + len(passes) - 1

    def judge(count: int) -> Verdict:
        return Verdict(passes[count - least])

    found, looks = told(fewest_replicas(least, guess, most), judge)
    if found is None:
        assert not passes[-1] and not any(judge(count).passed for count in looks)
    else:
        assert judge(found).passed and (found == least or not judge(found - 1).passed)


@given(counts, counts, counts, counts, st.integers(0, 50))
def test_a_tighter_limit_never_needs_fewer_replicas(least: int, guess: int, most: int, need: int, more: int) -> None:
    loose, _ = told(fewest_replicas(least, guess, most), lambda count: Verdict(count >= need))
    tight, _ = told(fewest_replicas(least, guess, most), lambda count: Verdict(count >= need + more))
    assert (loose or math.inf) <= (tight or math.inf)


@given(st.floats(1e-6, 1e6), st.integers(-400, 400), st.floats(1e-6, 1e6))
def test_the_grid_is_fixed_by_the_rate_that_is_asked_for(anchor: float, index: int, rate: float) -> None:
    grid = RateGrid(anchor)
    assert grid.rate_rps(0) == anchor
    assert grid.rate_rps(index) == pytest.approx(anchor * STEP**index, rel=1e-5)
    assert grid.rate_rps(index) < grid.rate_rps(index + 1)
    at_most = grid.highest_at_most(rate)
    assert grid.rate_rps(at_most) <= rate < grid.rate_rps(at_most + 1)
    assert grid.highest_at_most(grid.rate_rps(index)) == index

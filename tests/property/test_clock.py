"""The inverse of a leap's length, exact for integers of any size."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from simulator.clock import steps_duration, steps_until


@settings(max_examples=500)
@given(st.integers(1, 10**19), st.integers(0, 10**10), st.integers(0, 10**24))
@example(1, 0, 1)
@example(5, 1, 5)
@example(5, 1, 6)
@example(10**12, 3, 10**12 * 1000 + 3 * 499_500)  # exactly 1,000 steps
@example(10**12, 3, 10**12 * 1000 + 3 * 499_500 + 1)
def test_steps_until_is_the_first_boundary_at_or_after_a_time(duration: int, growth: int, wait: int) -> None:
    steps = steps_until(duration, growth, wait)
    assert steps >= 1
    assert steps_duration(duration, growth, steps) >= wait
    assert steps == 1 or steps_duration(duration, growth, steps - 1) < wait


@settings(max_examples=300)
@example(8451316701492243611, 4, 1332471)  # the float root is nine steps too high
@example(75312020614899018, 2, 278958)
@given(st.integers(1, 10**19), st.integers(0, 10**10), st.integers(1, 2_000_000))
def test_a_boundary_is_its_own_first_boundary(duration: int, growth: int, steps: int) -> None:
    """At a boundary the root is whole, where rounding errs to either side."""
    assert steps_until(duration, growth, steps_duration(duration, growth, steps)) == steps


@given(st.integers(1, 10**9), st.integers(0, 10**6), st.integers(0, 300))
def test_the_closed_form_is_the_sum(duration: int, growth: int, steps: int) -> None:
    assert steps_duration(duration, growth, steps) == sum(duration + i * growth for i in range(steps))

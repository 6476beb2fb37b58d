"""Closed forms against each other, against printed values, and Lindley's recursion against a plain queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import theory
from simulator.errors import InputError


def test_closed_forms_agree_with_each_other() -> None:
    rate, service = 8.0, 0.1
    assert theory.md1_mean_wait_s(rate, service) == pytest.approx(theory.mm1_mean_wait_s(rate, service) / 2)
    assert theory.mm1_mean_wait_s(rate, service) == pytest.approx(0.8 * 0.1 / 0.2)
    assert theory.erlang_c(rate, service, 1) == pytest.approx(0.8)
    assert theory.mmc_mean_wait_s(rate, service, 1) == pytest.approx(theory.mm1_mean_wait_s(rate, service))
    wait = theory.mm1_mean_wait_s(rate, service)
    assert theory.little_mean_number(rate, wait) == pytest.approx(0.8**2 / 0.2)  # ρ²/(1−ρ)


@pytest.mark.parametrize(("offered", "servers", "expected"), [(1.0, 2, 1 / 3), (2.0, 3, 4 / 9), (3.0, 4, 0.50943396)])
def test_erlang_c_of_the_textbooks(offered: float, servers: int, expected: float) -> None:
    assert theory.erlang_c(offered, 1.0, servers) == pytest.approx(expected)


@pytest.mark.parametrize(("rate", "service"), [(10, 0.1), (11, 0.1), (-1, 0.1)])
def test_no_steady_state_is_an_error(rate: float, service: float) -> None:
    with pytest.raises(InputError):
        theory.md1_mean_wait_s(rate, service)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=30))
def test_lindley_is_a_first_come_queue(customers: list[tuple[int, int]]) -> None:
    arrivals = [sum(gap for gap, _ in customers[: i + 1]) for i in range(len(customers))]
    services = [service for _, service in customers]
    waits = theory.lindley_waits_ps(arrivals, services)
    for n in range(1, len(waits)):
        assert waits[n] == max(0, waits[n - 1] + services[n - 1] - (arrivals[n] - arrivals[n - 1]))
    assert waits[:1] == [0][: len(waits)]


def test_lindley_wants_as_many_services_as_arrivals() -> None:
    with pytest.raises(InputError):
        theory.lindley_waits_ps([0, 1], [1])

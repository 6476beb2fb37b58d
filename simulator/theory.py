"""Queueing theory that the simulator must agree with: closed forms, and Lindley's recursion in integers.

Rates are per second, times in seconds, unless a name says otherwise. Sources: Kleinrock, Queueing Systems, vol. 1
(1975), sections 3.2, 3.5 and 5.6; Lindley (1952); Little (1961).
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.errors import InputError


def utilization(arrival_rate: float, mean_service_s: float, servers: int = 1) -> float:
    """ρ = λ·E[S]/c. Raises InputError at ρ ≥ 1, where the queue has no steady state, and on negative input."""
    if arrival_rate < 0 or mean_service_s < 0 or servers < 1:
        raise InputError("a rate and a service time are at least 0, and there is a server", where="theory")
    rho = arrival_rate * mean_service_s / servers
    if rho >= 1:
        raise InputError(
            f"the load is {rho:.3g}, so the queue grows without end",
            where="theory",
            remedy="lower the rate, shorten the service or add servers until it is below 1",
        )
    return rho


def mg1_mean_wait_s(arrival_rate: float, mean_service_s: float, service_variance_s2: float) -> float:
    """Pollaczek-Khinchine: W = λ·E[S²] / (2(1−ρ)), with E[S²] = Var[S] + E[S]²."""
    rho = utilization(arrival_rate, mean_service_s)
    return arrival_rate * (service_variance_s2 + mean_service_s**2) / (2 * (1 - rho))


def md1_mean_wait_s(arrival_rate: float, service_s: float) -> float:
    """Constant service: W = ρ·S / (2(1−ρ))."""
    return mg1_mean_wait_s(arrival_rate, service_s, 0.0)


def mm1_mean_wait_s(arrival_rate: float, mean_service_s: float) -> float:
    """Exponential service: W = ρ·E[S] / (1−ρ)."""
    return mg1_mean_wait_s(arrival_rate, mean_service_s, mean_service_s**2)


def erlang_c(arrival_rate: float, mean_service_s: float, servers: int) -> float:
    """The probability that an arrival waits in M/M/c, from Erlang B by recursion.

    With a = λ·E[S]: B(0) = 1, B(k) = a·B(k−1) / (k + a·B(k−1)), and C = B(c) / (1 − ρ(1 − B(c))).
    """
    rho = utilization(arrival_rate, mean_service_s, servers)
    offered = arrival_rate * mean_service_s
    blocked = 1.0
    for k in range(1, servers + 1):
        blocked = offered * blocked / (k + offered * blocked)
    return blocked / (1 - rho * (1 - blocked))


def mmc_mean_wait_s(arrival_rate: float, mean_service_s: float, servers: int) -> float:
    """W = C·E[S] / (c·(1−ρ)), with C from ``erlang_c``."""
    rho = utilization(arrival_rate, mean_service_s, servers)
    return erlang_c(arrival_rate, mean_service_s, servers) * mean_service_s / (servers * (1 - rho))


def lindley_waits_ps(arrivals_ps: Sequence[int], services_ps: Sequence[int]) -> list[int]:
    """The wait of each customer of one first-come server: W₀ = 0, W_n = max(0, W_{n−1} + S_{n−1} − (A_n − A_{n−1})).

    Arrivals are in order; both sequences are integers, ps, so the waits are exact.
    """
    if len(arrivals_ps) != len(services_ps):
        raise InputError(f"{len(arrivals_ps)} arrivals but {len(services_ps)} services", where="theory")
    waits: list[int] = []
    free_at: int | None = None
    for arrival, service in zip(arrivals_ps, services_ps, strict=True):
        start = arrival if free_at is None else max(arrival, free_at)
        waits.append(int(start - arrival))
        free_at = start + service
    return waits


def little_mean_number(arrival_rate: float, mean_time_s: float) -> float:
    """L = λ·W."""
    return arrival_rate * mean_time_s

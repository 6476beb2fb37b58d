"""Queueing theory that the simulator must agree with: closed forms, and Lindley's recursion in integers.

Rates are per second, times in seconds, unless a name says otherwise. Sources: Kleinrock, Queueing Systems, vol. 1
(1975), sections 3.2, 3.5 and 5.6; Lindley (1952); Kiefer and Wolfowitz (1955); Little (1961).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace
from math import log1p

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


def kiefer_wolfowitz_waits_ps(arrivals_ps: Sequence[int], services_ps: Sequence[int], servers: int) -> list[int]:
    """The wait of each customer of several first-come servers behind one queue (Kiefer and Wolfowitz, 1955).

    Each takes the server that is free first. Arrivals are in order; integers, ps, so the waits are exact.
    """
    if len(arrivals_ps) != len(services_ps):
        raise InputError(f"{len(arrivals_ps)} arrivals but {len(services_ps)} services", where="theory")
    free_at = [0] * servers  # a heap
    waits = []
    for arrival, service in zip(arrivals_ps, services_ps, strict=True):
        start = max(int(arrival), free_at[0])
        waits.append(start - int(arrival))
        heapreplace(free_at, start + int(service))
    return waits


def geometric_mmc_bounds_s(arrival_rate: float, mean_steps: float, step_s: float, servers: int) -> tuple[float, float]:
    """Between which the mean wait of M/G/c lies when a service is a geometric number (from 1) of equal steps.

    With success probability p = 1/m the number of steps is the ceiling of an exponential one of rate -ln(1-p), so it is
    stochastically larger than that; and it is new better than used in expectation, so in increasing convex order
    it is smaller than an exponential one of the same mean m. Mean waits of first-come servers are monotone in both
    orders (Stoyan, Comparison Methods for Queues, 1983, chapter 6), so Erlang's formula of both bounds them. The bounds
    are apart by what half a step a service makes in Erlang's formula: 0.5 % at m = 600, ρ = 0.7 and c = 4.
    """
    shorter = step_s / -log1p(-1 / mean_steps)
    low, high = (mmc_mean_wait_s(arrival_rate, s, servers) for s in (shorter, mean_steps * step_s))
    return low, high


def little_mean_number(arrival_rate: float, mean_time_s: float) -> float:
    """L = λ·W."""
    return arrival_rate * mean_time_s

"""Arrival and length laws against mathematics: moments within stated intervals, whole distributions by Kolmogorov.

Each statistic is checked at four fixed seeds against an interval that holds it with probability 0.9999 or so
(z = 3.9); Kolmogorov-Smirnov distances against the 0.1 % point, 1.95/sqrt(n).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.random_streams import Streams
from workloads.arrival_times import arrival_times
from workloads.arrivals import Arrivals, Constant, Diurnal, Gamma, OnOff, Poisson, Ramp, Stage, Stages
from workloads.lengths import Lengths, Lognormal, Uniform, draw_lengths, expected_tokens
from workloads.workload import PS_PER_S

SEEDS = [0, 1, 2, 3]
N = 20_000
Z = 3.9


def gaps_s(law: Arrivals, seed: int, n: int = N) -> NDArray[np.float64]:
    times = arrival_times(law, Streams(seed)("arrivals"), count=n)
    return np.diff(times, prepend=0) / PS_PER_S


def kolmogorov(sample: NDArray[np.float64], cdf: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> float:
    """sup |F_n - F| * sqrt(n)."""
    ordered = np.sort(sample)
    n = len(ordered)
    expected = cdf(ordered)
    above = np.max(np.arange(1, n + 1) / n - expected)
    below = np.max(expected - np.arange(n) / n)
    return float(max(above, below)) * math.sqrt(n)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_gaps_have_mean_1_over_rate_and_squared_cv_1_over_burstiness(burstiness: float, seed: int) -> None:
    rate = 8.0
    gaps = gaps_s(Gamma(rate, burstiness), seed)
    mean_error = math.sqrt(1 / burstiness / N) / rate
    assert abs(gaps.mean() - 1 / rate) < Z * mean_error
    # var(s^2) = (mu4 - sigma^4)/n with mu4 = sigma^4 * (3 + 6/b)
    variance = 1 / (burstiness * rate**2)
    variance_error = variance * math.sqrt((2 + 6 / burstiness) / N)
    assert abs(gaps.var() - variance) < Z * variance_error


@pytest.mark.parametrize("seed", SEEDS)
def test_poisson_gaps_are_exponential_and_independent(seed: int) -> None:
    gaps = gaps_s(Poisson(3.0), seed)
    assert kolmogorov(gaps, lambda x: -np.expm1(-3.0 * x)) < 1.95
    lag_one = np.corrcoef(gaps[:-1], gaps[1:])[0, 1]
    assert abs(lag_one) < Z / math.sqrt(N)


@pytest.mark.parametrize("seed", SEEDS)
def test_gamma_with_shape_two_is_erlang(seed: int) -> None:
    rate = 5.0  # shape 2, scale 1/(2*rate): F(x) = 1 - exp(-2*rate*x) * (1 + 2*rate*x)
    gaps = gaps_s(Gamma(rate, 2.0), seed)
    assert kolmogorov(gaps, lambda x: 1 - np.exp(-2 * rate * x) * (1 + 2 * rate * x)) < 1.95


def test_gamma_with_shape_one_is_poisson_draw_for_draw() -> None:
    assert np.array_equal(gaps_s(Gamma(2.0, 1.0), 0), gaps_s(Poisson(2.0), 0))


VARYING: list[tuple[Arrivals, Callable[[NDArray[np.float64]], NDArray[np.float64]]]] = [
    (
        Diurnal(mean_rps=10, amplitude=1.0, period_s=100, phase=0.25),
        lambda t: 10 * t + 10 * 100 / (2 * np.pi) * (np.cos(np.pi / 2) - np.cos(2 * np.pi * (t / 100 + 0.25))),
    ),
    (Ramp(0, 20, 500), lambda t: np.where(t < 500, 0.5 * 20 / 500 * t**2, 5000 + 20 * (t - 500))),
    (
        Ramp(1, 64, 300, shape="exponential"),
        lambda t: np.where(
            t < 300,
            np.expm1(np.log(64) / 300 * np.minimum(t, 300)) * 300 / np.log(64),
            63 * 300 / np.log(64) + 64 * (t - 300),
        ),
    ),
    (
        OnOff(on_rate_rps=50, on_s=2, off_s=6, off_rate_rps=2),
        lambda t: 112 * np.floor(t / 8) + np.where(t % 8 < 2, 50 * (t % 8), 100 + 2 * (t % 8 - 2)),
    ),
    (
        Stages((Stage(10, 100), Stage(0, 50), Stage(100, 300))),
        lambda t: np.where(t < 100, 10 * t, np.where(t < 150, 1000, 1000 + 100 * (t - 150))),
    ),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("law,cumulated", VARYING, ids=[law.kind for law, _ in VARYING])
def test_varying_rate_is_poisson_after_time_change(
    law: Arrivals, cumulated: Callable[[NDArray[np.float64]], NDArray[np.float64]], seed: int
) -> None:
    """Lambda(t_i) of a Poisson process with rate lambda(t) is a unit Poisson process; Lambda is written out here."""
    times = arrival_times(law, Streams(seed)("arrivals"), count=N) / PS_PER_S
    unit_gaps = np.diff(cumulated(times), prepend=0.0)
    assert kolmogorov(unit_gaps, lambda x: -np.expm1(-x)) < 1.95
    assert abs(unit_gaps.mean() - 1) < Z / math.sqrt(N)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_silent_phase_has_no_arrivals(seed: int) -> None:
    times = arrival_times(OnOff(on_rate_rps=50, on_s=1, off_s=3), Streams(seed)("a"), count=N) / PS_PER_S
    assert np.all(times % 4 <= 1 + 1e-9)
    stages = Stages((Stage(10, 100), Stage(0, 50), Stage(10, 2000)))
    times = arrival_times(stages, Streams(seed)("a"), count=N // 2) / PS_PER_S
    assert not np.any((times > 100 + 1e-9) & (times < 150))


@pytest.mark.parametrize("seed", SEEDS)
def test_exponential_phases_keep_the_mean_rate_and_are_overdispersed(seed: int) -> None:
    law = OnOff(on_rate_rps=40, on_s=2, off_s=2, off_rate_rps=0, phases="exponential")
    times = arrival_times(law, Streams(seed)("a"), duration_s=20_000) / PS_PER_S
    # MMPP: var of the on-time share over T is 2*p^2*q^2*(on+off)/T with p = q = 1/2
    share_error = math.sqrt(2 * 0.0625 * 4 / 20_000)
    error = math.hypot(40 * share_error, math.sqrt(20 / 20_000))
    assert abs(len(times) / 20_000 - 20) < Z * error
    counts = np.bincount((times // 10).astype(int), minlength=2000)
    assert counts.var() / counts.mean() > 10  # fixed phases would give about 4, Poisson 1


@pytest.mark.parametrize("seed", SEEDS)
def test_counts_in_a_fixed_time_are_poisson(seed: int) -> None:
    counts = [len(arrival_times(Poisson(50), Streams(100 * seed + i)("a"), duration_s=2.0)) for i in range(400)]
    assert abs(np.mean(counts) - 100) < Z * math.sqrt(100 / 400)
    assert abs(np.var(counts) / 100 - 1) < Z * math.sqrt(2.01 / 400)


def test_constant_gaps_are_exactly_equal() -> None:
    times = arrival_times(Constant(3.0), Streams(0)("a"), count=1000)
    assert times[0] == 0
    assert set(np.diff(times).tolist()) == {round(PS_PER_S / 3)}


@pytest.mark.parametrize("burstiness", [0.5, 1.0])
def test_rescaling_puts_the_last_arrival_on_n_over_rate(burstiness: float) -> None:
    law = Gamma(4.0, burstiness, rescale_last_arrival=True)
    rescaled = arrival_times(law, Streams(7)("a"), count=1000)
    plain = arrival_times(Gamma(4.0, burstiness), Streams(7)("a"), count=1000)
    assert rescaled[-1] == 250 * PS_PER_S
    assert np.allclose(rescaled / rescaled[-1], plain / plain[-1], rtol=1e-12)
    assert plain[-1] != rescaled[-1]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "law",
    [Lognormal(512, 1.0, max=4096), Lognormal(256, 2.0, min=16, max=1000), Lognormal(40, 0.3), Lognormal(2000, 0.0)],
    ids=str,
)
def test_lognormal_mean_after_clipping(law: Lognormal, seed: int) -> None:
    drawn = draw_lengths(law, Streams(seed)("lengths"), N)
    error = drawn.std() / math.sqrt(N)
    assert abs(drawn.mean() - expected_tokens(law)) < Z * error + 0.01
    assert drawn.min() >= law.min and (law.max is None or drawn.max() <= law.max)


@pytest.mark.parametrize("seed", SEEDS)
def test_lognormal_has_the_mean_and_cv_it_is_asked_for(seed: int) -> None:
    drawn = draw_lengths(Lognormal(5000, 0.5), Streams(seed)("lengths"), N)
    assert abs(drawn.mean() / 5000 - 1) < Z * 0.5 / math.sqrt(N)
    # kurtosis of the lognormal with w = 1 + cv^2: w^4 + 2w^3 + 3w^2 - 3
    w = 1.25
    kurtosis = w**4 + 2 * w**3 + 3 * w**2 - 3
    assert abs(drawn.var() / (2500**2) - 1) < Z * math.sqrt((kurtosis - 1) / N)
    variance = math.log(w)
    median = 5000 / math.sqrt(w)
    logs = np.log(drawn / median) / math.sqrt(variance)
    assert kolmogorov(logs, lambda z: np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in z])) < 1.95


@pytest.mark.parametrize("law", [Uniform(3, 7), Uniform(1, 1)], ids=str)
def test_uniform_takes_both_ends_and_each_equally_often(law: Lengths) -> None:
    assert isinstance(law, Uniform)
    drawn = draw_lengths(law, Streams(5)("lengths"), N)
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == list(range(law.min, law.max + 1))
    p = 1 / len(values)
    assert np.all(np.abs(counts - N * p) <= Z * math.sqrt(N * p * (1 - p)))

"""The engine as a queue: with one request at a time and constant steps it is M/D/1, M/G/1 and Lindley's recursion."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.allocators.pools import PagedPool
from simulator.cluster import simulate
from simulator.metrics import summarize
from simulator.metrics_trend import batch_means_interval
from simulator.run_log import RunLog
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from simulator.theory import lindley_waits_ps, little_mean_number, md1_mean_wait_s, mg1_mean_wait_s, mm1_mean_wait_s
from workloads.workload import PS_PER_S, Workload

STEP_PS = 10_000_000_000
STEP_S = STEP_PS / PS_PER_S
REQUESTS = 20_000


def one_at_a_time(gaps_s: np.ndarray, outputs: np.ndarray, *, stepwise: bool = False) -> RunLog:
    """A server of one request at a time: a request of n output tokens takes n steps, whatever its prompt."""
    arrivals = np.rint(np.cumsum(gaps_s) * PS_PER_S).astype(np.int64)
    work = Workload.from_columns(arrivals, np.full(len(arrivals), 8), outputs)
    engine = EngineConfig(max_model_len=1024, max_num_seqs=1, max_num_batched_tokens=1024)
    return simulate(work, engine, PagedPool(num_gpu_blocks=100), LinearStepTime(STEP_PS, 0, 0), stepwise=stepwise)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("load", [0.3, 0.7])
def test_constant_steps_are_m_d_1(seed: int, load: float) -> None:
    rate = load / (5 * STEP_S)
    gaps = np.random.default_rng(seed).exponential(1 / rate, REQUESTS)
    got = summarize(one_at_a_time(gaps, np.full(REQUESTS, 5)))
    low, high = got["confidence_95"]["mean_queue_ms"]
    expected_s = md1_mean_wait_s(rate, 5 * STEP_S)
    assert low <= 1000 * expected_s <= high
    assert got["mean_queue_ms"] == pytest.approx(1000 * expected_s, rel=0.1)
    assert got["mean_waiting"] == pytest.approx(
        little_mean_number(got["request_throughput"], got["mean_queue_ms"] / 1000)
    )
    assert got["mean_running"] == pytest.approx(got["request_throughput"] * 5 * STEP_S)


def test_random_outputs_are_m_g_1() -> None:
    rng = np.random.default_rng(7)
    outputs = rng.integers(1, 10, REQUESTS)
    rate = 0.6 / (5 * STEP_S)
    got = summarize(one_at_a_time(rng.exponential(1 / rate, REQUESTS), outputs))
    low, high = got["confidence_95"]["mean_queue_ms"]
    variance = (9**2 - 1) / 12 * STEP_S**2  # discrete uniform on 1 .. 9
    assert low <= 1000 * mg1_mean_wait_s(rate, 5 * STEP_S, variance) <= high


@pytest.mark.parametrize("stepwise", [False, True])
def test_every_customer_waits_as_lindley_says(stepwise: bool) -> None:
    rng = np.random.default_rng(11)
    outputs = rng.integers(1, 30, 1000)
    log = one_at_a_time(rng.exponential(0.16, 1000), outputs, stepwise=stepwise)
    table = log.request_columns()
    waits = (table["scheduled_ps"] - table["arrival_ps"]).tolist()
    assert waits == lindley_waits_ps(table["arrival_ps"].tolist(), (outputs * STEP_PS).tolist())
    assert max(waits) > 10 * STEP_PS


@pytest.mark.parametrize("seed", range(2))
def test_geometric_outputs_are_nearly_m_m_1(seed: int) -> None:
    """A geometric number of short steps is nearly an exponential service; the exact law is M/G/1 with its variance."""
    rng = np.random.default_rng(100 + seed)
    mean = 50
    outputs = np.minimum(rng.geometric(1 / mean, REQUESTS), 1000)  # e^-20 are longer
    service_s = mean * STEP_S
    rate = 0.5 / service_s
    got = summarize(one_at_a_time(rng.exponential(1 / rate, REQUESTS), outputs))
    low, high = got["confidence_95"]["mean_queue_ms"]
    exact_s = mg1_mean_wait_s(rate, service_s, (1 - 1 / mean) * service_s**2)
    assert low <= 1000 * exact_s <= high
    assert exact_s == pytest.approx(mm1_mean_wait_s(rate, service_s), rel=1 / mean)


def test_intervals_cover_the_mean_of_correlated_waits_as_often_as_they_say() -> None:
    """Waits by Lindley's recursion, to which the engine is equal: W_n is the cumulated sum less its least so far."""
    hits = 0
    rate, mean, runs, customers = 1.0, 0.5, 200, 10_000
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        services, gaps = rng.exponential(mean, customers), rng.exponential(1 / rate, customers)
        walk = np.cumsum(np.concatenate(([0.0], services[:-1] - gaps[1:])))
        interval = batch_means_interval(walk - np.minimum.accumulate(walk))
        assert interval is not None
        hits += interval[0] <= mm1_mean_wait_s(rate, mean) <= interval[1]
    assert 0.9 <= hits / runs <= 0.99

"""Replicas of one request at a time behind one queue are M/G/c: exactly, and nearly M/M/c."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from simulator.allocators.pools import PagedPool
from simulator.cluster import simulate
from simulator.metrics import summarize
from simulator.routers import ROUTERS
from simulator.run_log import RunLog
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from simulator.theory import geometric_mmc_bounds_s, kiefer_wolfowitz_waits_ps, mmc_mean_wait_s
from workloads.workload import PS_PER_S, Workload

STEP_PS = 10_000_000_000
STEP_S = STEP_PS / PS_PER_S
LONGEST = 20_000


def fleet(gaps_s: np.ndarray, outputs: np.ndarray, servers: int, *, router: str = "central_queue") -> RunLog:
    """Each replica serves one request at a time, n output tokens in n steps."""
    arrivals = np.rint(np.cumsum(gaps_s) * PS_PER_S).astype(np.int64)
    work = Workload.from_columns(arrivals, np.full(len(arrivals), 8), outputs)
    engine = EngineConfig(max_model_len=LONGEST, max_num_seqs=1, max_num_batched_tokens=1024)
    pool = PagedPool(LONGEST // 16 + 2)
    return simulate(work, engine, pool, LinearStepTime(STEP_PS, 0, 0), replicas=servers, router=router)


@pytest.mark.parametrize("servers", [1, 2, 5])
def test_every_customer_waits_as_kiefer_and_wolfowitz_say(servers: int) -> None:
    rng = np.random.default_rng(servers)
    outputs = rng.geometric(1 / 40, 2000)
    log = fleet(rng.exponential(40 * STEP_S / servers / 0.9, 2000), outputs, servers)
    table = log.request_columns()
    waits = (table["scheduled_ps"] - table["arrival_ps"]).tolist()
    assert waits == kiefer_wolfowitz_waits_ps(table["arrival_ps"].tolist(), (outputs * STEP_PS).tolist(), servers)
    assert max(waits) > 20 * STEP_PS
    assert set(table["replica"].tolist()) == set(range(servers))


@pytest.mark.parametrize(("servers", "load"), [(3, 0.6), (4, 0.7)])
def test_geometric_outputs_agree_with_erlang_c(servers: int, load: float) -> None:
    """Mean 600 steps: Erlang C holds within bounds that are less than 0.6 % apart, and chance of a stated size.

    The simulation waits as the recursion says, customer by customer; the recursion runs on until chance is small.
    """
    mean, simulated, customers, runs = 600, 2000, 100_000, 10
    rate = load * servers / (mean * STEP_S)
    low, high = geometric_mmc_bounds_s(rate, mean, STEP_S, servers)
    assert high == mmc_mean_wait_s(rate, mean * STEP_S, servers)
    assert 0 < (high - low) / high < 0.006
    waits = []
    for seed in range(runs):
        rng = np.random.default_rng([seed, servers])
        outputs = np.minimum(rng.geometric(1 / mean, customers), LONGEST - 9)  # e^-33 are longer
        gaps = rng.exponential(1 / rate, customers)
        arrivals = np.rint(np.cumsum(gaps) * PS_PER_S).astype(np.int64)
        expected = kiefer_wolfowitz_waits_ps(arrivals.tolist(), (outputs * STEP_PS).tolist(), servers)
        waits.append(np.mean(expected) / PS_PER_S)
        if seed < 2:
            table = fleet(gaps[:simulated], outputs[:simulated], servers).request_columns()
            assert (table["scheduled_ps"] - table["arrival_ps"]).tolist() == expected[:simulated]
    half = 2.262 * np.std(waits, ddof=1) / np.sqrt(runs)  # 95 %, Student's t with 9 degrees of freedom
    assert half < 0.04 * high
    assert low - half <= np.mean(waits) <= high + half


def test_one_queue_waits_less_than_a_queue_a_replica() -> None:
    rng = np.random.default_rng(5)
    gaps, outputs = rng.exponential(0.4 / 3 / 0.8, 4000), rng.geometric(1 / 40, 4000)
    mean = {
        router: summarize(fleet(gaps, outputs, 3, router=router))["mean_queue_ms"]
        for router in ("central_queue", "least_outstanding", "round_robin", "random")
    }
    assert mean["central_queue"] < mean["least_outstanding"] < mean["round_robin"] < mean["random"]


@pytest.mark.parametrize("router", ROUTERS)
def test_more_replicas_never_lower_the_throughput_in_the_mean(router: str) -> None:
    """A burst of requests in which somebody always waits, over ten replications with common random numbers."""
    engine = EngineConfig(max_model_len=512, max_num_seqs=4, max_num_batched_tokens=64)
    mean = []
    for replicas in range(1, 5):
        found = []
        for seed in range(10):
            rng = np.random.default_rng(seed)
            arrivals = np.sort(rng.integers(0, PS_PER_S, 80))
            work = Workload.from_columns(arrivals, rng.integers(1, 60, 80), rng.integers(1, 60, 80))
            log = simulate(work, engine, PagedPool(41), LinearStepTime(STEP_PS, 0, 0), replicas=replicas, router=router)
            found.append(summarize(log)["output_throughput"])
        mean.append(float(np.mean(found)))
    assert all(more > fewer for fewer, more in pairwise(mean))
    assert mean[-1] > 2 * mean[0]

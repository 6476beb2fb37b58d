"""Closed loops: what N clients can get out of a server, by Little's law and by the interactive response-time law."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.allocators.pools import PagedPool
from simulator.cluster import simulate
from simulator.metrics import summarize
from simulator.run_log import RunLog
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from workloads.workload import PS_PER_S, Workload

STEP_PS = 10_000_000_000
CONSTANT = LinearStepTime(STEP_PS, 0, 0)
GROWING = LinearStepTime(STEP_PS, 100_000_000, 30_000)


def served(work: Workload, step_time: LinearStepTime, seats: int = 64) -> RunLog:
    engine = EngineConfig(max_model_len=1024, max_num_seqs=seats, max_num_batched_tokens=1024)
    return simulate(work, engine, PagedPool(num_gpu_blocks=4000), step_time)


def loop(clients: int, requests: int, seed: int = 0) -> Workload:
    rng = np.random.default_rng(seed)
    prompts, outputs = rng.integers(1, 200, requests), rng.integers(1, 40, requests)
    return Workload.from_columns(np.zeros(requests, np.int64), prompts, outputs, max_concurrency=clients)


@pytest.mark.parametrize("clients", [1, 3, 17])
@pytest.mark.parametrize("seats", [2, 64])
def test_as_many_requests_as_clients_are_inside_until_none_is_left_to_send(clients: int, seats: int) -> None:
    log = served(loop(clients, 400), GROWING, seats)
    table = log.request_columns()
    last_ps = int(table["arrival_ps"].max())
    inside = sum(min(end, last_ps) - start for start, end in zip(*_times(log), strict=True))
    assert inside == clients * last_ps  # exactly: Little's law with N requests inside, always
    assert summarize(log)["max_concurrent_requests"] == clients


def _times(log: RunLog) -> tuple[list[int], list[int]]:
    table = log.request_columns()
    return table["arrival_ps"].tolist(), table["finish_ps"].tolist()


@pytest.mark.parametrize(("clients", "seats"), [(1, 8), (5, 8), (8, 8), (24, 8)])
def test_throughput_with_constant_steps_is_that_of_the_seats_in_use(clients: int, seats: int) -> None:
    # each request takes n steps, whoever is beside it, so that k at once finish k every n steps
    outputs, rounds = 7, 30
    requests = clients * rounds
    work = Workload.from_columns(
        np.zeros(requests, np.int64), np.full(requests, 4), np.full(requests, outputs), max_concurrency=clients
    )
    got = summarize(served(work, CONSTANT, seats))
    in_use = min(clients, seats)
    assert got["request_throughput"] == pytest.approx(in_use / (outputs * STEP_PS / PS_PER_S))
    assert got["mean_running"] == pytest.approx(in_use)
    assert got["mean_waiting"] == pytest.approx(clients - in_use, rel=0.1 if clients > seats else 0, abs=1e-12)


@pytest.mark.parametrize("think_ms", [0, 50, 3000])
def test_sessions_keep_the_interactive_response_time_law(think_ms: int) -> None:
    """X = N/(R + Z): N users who think for Z after each answer that took R. Exact for each session's cycle."""
    users, turns = 12, 40
    rng = np.random.default_rng(think_ms)
    rows = users * turns
    after = [row - users if row >= users else -1 for row in range(rows)]
    think_ps = think_ms * 1_000_000_000
    work = Workload.from_columns(
        np.zeros(rows, np.int64),
        rng.integers(1, 100, rows),
        rng.integers(1, 30, rows),
        after=after,
        think_ps=[think_ps if row >= users else 0 for row in range(rows)],
    )
    log = served(work, GROWING, seats=8)
    arrivals, finishes = _times(log)
    residence = [end - start for start, end in zip(arrivals, finishes, strict=True)]
    for user in range(users):
        assert finishes[rows - users + user] == sum(residence[user::users]) + (turns - 1) * think_ps
    response_s = float(np.mean(residence)) / PS_PER_S
    law = users / (response_s + think_ms / 1000)
    assert summarize(log)["request_throughput"] == pytest.approx(law, rel=0.15)  # users finish at different times

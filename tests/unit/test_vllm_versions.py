"""What older releases of vLLM v1 decide otherwise (SCHEDULERS.md 1.5, 3 and 6)."""

from __future__ import annotations

from dataclasses import replace

from simulator.allocators.pools import PagedPool
from simulator.cluster import simulate
from simulator.pass_recorder import PassRecorder
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from workloads.workload import Workload

MS = 1_000_000_000
ENGINE = EngineConfig(256, 8, 64, long_prefill_token_threshold=10)


def scheduled(engine: EngineConfig, arrivals_ms: list[int]) -> list[list[list[object]]]:
    """(request, tokens) of each pass; prompts of 25 tokens, one output token each."""
    n = len(arrivals_ms)
    workload = Workload.from_columns([ms * MS for ms in arrivals_ms], [25] * n, [1] * n)
    recorder = PassRecorder([str(row) for row in range(n)])
    simulate(workload, engine, PagedPool(64, 16), LinearStepTime(10 * MS, 0, 0), stepwise=True, recorders=[recorder])
    return [row["sched"] for row in recorder.passes]


def test_a_lone_request_is_capped_by_older_releases_alone() -> None:
    assert scheduled(ENGINE, [0]) == [[["0", 25]]]
    assert scheduled(replace(ENGINE, version="2025"), [0]) == [[["0", 10]], [["0", 10]], [["0", 5]]]


def test_two_requests_are_capped_by_both() -> None:
    new, old = (scheduled(replace(ENGINE, version=version), [0, 0]) for version in ("0.33", "2025"))
    assert new[0] == old[0] == [["0", 10], ["1", 10]]

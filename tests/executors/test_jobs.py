"""Jobs of any kind on every executor: those that follow from outcomes, those that fail, those that never come."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from simulator.planner.executors import Executor, make_executor
from simulator.planner.job import Landed, outcome_of


@dataclass(frozen=True)
class Doubling:
    """Twice its number, late; a negative number raises."""

    index: int
    number: int

    def run(self) -> int:
        time.sleep(0.01)
        if self.number < 0:
            raise ValueError("negative\nnumber")
        return 2 * self.number

    def lost(self, message: str) -> str:
        return f"{self.index}: {message}"


@pytest.fixture(params=["serial", "local", "dask"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    if request.param == "dask":
        pytest.importorskip("distributed", reason="needs the extra [dask]")
    found = make_executor(request.param, workers=2, scheduler=None, quiet=True)
    yield found
    found.close()


def test_jobs_that_follow_from_outcomes(executor: Executor) -> None:
    """Two chains, each job of which needs the outcome of the one before."""
    ready = [Doubling(0, 1), Doubling(1, 1000)]
    seen: dict[int, int] = {}

    def jobs() -> Iterator[Doubling | None]:
        while ready or len(seen) < 10:
            yield ready.pop(0) if ready else None

    for found in executor.run(jobs()):
        if found is not None:
            index, outcome = found
            seen[index] = outcome
            if index + 2 < 10:
                ready.append(Doubling(index + 2, outcome))
    assert [seen[i] for i in range(10)] == [2 ** (i // 2 + 1) * (1000 if i % 2 else 1) for i in range(10)]


def test_a_job_that_raises_is_lost_and_the_others_land(executor: Executor) -> None:
    found = dict(each for each in executor.run(Doubling(i, i - 1) for i in range(4)) if each is not None)
    assert found == {0: "0: internal error: ValueError: negative number", 1: 0, 2: 2, 3: 4}


def test_jobs_that_wait_for_nothing_are_a_fault_of_the_caller(executor: Executor) -> None:
    def jobs() -> Iterator[Doubling | None]:
        yield Doubling(0, 1)
        while True:
            yield None

    landed: list[tuple[int, int] | None] = []
    with pytest.raises(RuntimeError, match="no job is ready, none runs, and the jobs have not ended"):
        landed.extend(executor.run(jobs()))
    assert (0, 2) in landed
    assert list(executor.run([])) == []


def test_the_outcome_of_another_kvplan_is_lost() -> None:
    assert outcome_of(Doubling(3, 1), Landed(2, "0.0.9+0")) == "3: a worker with another kvplan ran it: 0.0.9+0"

"""A point of a sweep: what it is called, where it lies, and what came of it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any, Literal

from simulator.errors import KvplanError
from simulator.scenario import Scenario
from workloads.errors import WorkloadError

Status = Literal["ok", "slo_missed", "does_not_fit", "bad_input", "failed"]
STATUSES: tuple[Status, ...] = ("ok", "slo_missed", "does_not_fit", "bad_input", "failed")
EXIT_CODES: dict[Status, int] = {"ok": 0, "slo_missed": 4, "does_not_fit": 3, "bad_input": 2, "failed": 1}
_NAME_LENGTH = 60


@dataclass(frozen=True)
class Point:
    """One row of the table.

    Attributes:
        index: from 0, in the order of the table.
        variant: "" where the scenario has none.
        indices, values: of the axes, in their order.
        replication: from 0, whose seed is the scenario's own.
        key: hash of all that its result follows from; points of the same key run once.
        folder: name of its folder below ``points``.
    """

    index: int
    variant: str
    indices: tuple[int, ...]
    values: tuple[Any, ...]
    replication: int
    seed: int
    key: str
    folder: str


@dataclass(frozen=True)
class Task:
    """The ``Job`` of a point."""

    index: int
    scenario: Scenario
    variant: str | None

    def run(self) -> Outcome:
        """The result of ``kvplan run`` on that scenario, or its error."""
        from simulator.planner.run_point import run_point  # which imports the simulator: the table needs none

        return run_point(self)

    def lost(self, message: str) -> Outcome:
        """The outcome of a point that no worker could run."""
        return Outcome("failed", message, None, 0.0, "")


@dataclass(frozen=True)
class Outcome:
    """What a worker hands back.

    Attributes:
        error: why there is no result, or which SLOs and expectations were missed; one line.
        result: the text of ``result.json``; None where the point failed.
        seconds: wall clock that the worker needed.
        code: ``fingerprint`` of the worker's kvplan.
    """

    status: Status
    error: str | None
    result: str | None
    seconds: float
    code: str


def status_of(error: KvplanError | WorkloadError) -> Status:
    """The status of a point that ended with that error."""
    codes: dict[int, Status] = {2: "bad_input", 3: "does_not_fit"}
    return codes.get(getattr(error, "exit_code", 2), "failed")


def one_line(text: str) -> str:
    """A message without line breaks, for a cell of a table."""
    return " ".join(text.split())


def folder_name(index: int, variant: str, values: list[tuple[str, str]], replication: int | None) -> str:
    """``0007-paged-block_size-16-r1``: the index is what makes it unique."""
    parts = [variant] if variant else []
    parts += [f"{path.rpartition('.')[2]}-{text}" for path, text in values]
    parts += [] if replication is None else [f"r{replication}"]
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(parts)).strip("._-")
    return f"{index:04d}-{name[:_NAME_LENGTH]}".rstrip("._-")


def replication_seed(seed: int, replication: int) -> int:
    """The seed of a replication: the scenario's own for the first, the same at every point (common random numbers)."""
    if replication == 0:
        return seed
    digest = hashlib.sha256(f"replication {replication} of seed {seed}".encode()).digest()
    return int.from_bytes(digest[:4], "little")

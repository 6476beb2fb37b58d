"""What tests of ``kvplan sweep`` share: a short scenario, a runner without processes, what a sweep leaves behind."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from simulator.cli import app
from simulator.planner.point import Outcome, Task
from simulator.planner.run_point import run_point

SCENARIO = """\
# How many chats does it take? Not many.
name: chat
seed: 3
model: llama-3.1-8b
gpu: h100-sxm-80gb
engine: {max_model_len: 4096, num_gpu_blocks_override: 400}
workload:
  num_requests: 40
  arrivals: {kind: poisson, rate_rps: 40}
  prompt_tokens: {kind: lognormal, mean: 200, cv: 1.0, max: 2000}
  output_tokens: {kind: uniform, min: 1, max: 150}
"""


class Inline:
    """An executor in this very process; ``stop_after`` outcomes it raises ``fault``."""

    workers = 1

    def __init__(self, stop_after: int | None = None, fault: BaseException | None = None) -> None:
        self.ran: list[int] = []
        self._stop_after, self._fault = stop_after, fault

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[int, Outcome] | None]:
        for task in tasks:
            if len(self.ran) == self._stop_after and self._fault is not None:
                raise self._fault
            self.ran.append(task.index)
            yield task.index, run_point(task)
            yield None

    def close(self) -> None:
        pass


class Sweeps:
    """Runs ``kvplan sweep`` on SCENARIO (or ``text``) into ``folder / out``, without the report."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.executor = folder, Inline()
        monkeypatch.setattr("simulator.planner.executors.make_executor", lambda *_, **__: self.executor)

    def __call__(self, *options: str, out: str = "out", text: str = SCENARIO, executor: Inline | None = None) -> Result:
        self.executor = executor or Inline()
        path = self.folder / "chat.yaml"
        path.write_text(text, encoding="utf-8")
        return CliRunner().invoke(app, ["sweep", str(path), "--out", str(self.folder / out), "--no-report", *options])

    @property
    def ran(self) -> int:
        return len(self.executor.ran)


def rows_of(out: Path) -> list[dict[str, str]]:
    with (out / "points.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def said_of(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "sweep.json").read_text(encoding="utf-8")))


def contents(out: Path) -> dict[str, bytes]:
    """Every file that must be the same wherever and however often the sweep ran: all but provenance."""
    files = (path for path in sorted(out.rglob("*")) if path.is_file() and path.name != "provenance.json")
    return {str(path.relative_to(out)): path.read_bytes() for path in files}

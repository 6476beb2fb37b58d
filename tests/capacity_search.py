"""What tests of the capacity search share: short scenarios, a search in this very process, and its answers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from simulator.cli import app
from simulator.planner.capacity.answer import answer
from simulator.planner.capacity.ask import Asked, read_question
from simulator.planner.capacity.dialogue import Dialogue
from simulator.planner.capacity.probe import ProbeOutcome
from simulator.planner.capacity.rows import Row, candidate_rows, probe_rows
from simulator.planner.capacity.search import CapacitySearch, Found
from simulator.planner.executors.base import Executor
from simulator.planner.executors.serial_executor import SerialExecutor
from simulator.planner.job import Job, JobQueue, run_job

SCENARIO = """\
# Which GPU for a chat?
name: chat
seed: 3
model: llama-3.1-8b
gpu: h100-sxm-80gb
parallelism: {tensor_parallel_size: 1}
engine: {max_model_len: 4096, num_gpu_blocks_override: 4000, max_num_seqs: 16}
step_time: {kind: linear, base_ms: 6.0, per_token_us: 50.0, per_context_token_ns: 26.0}
workload:
  num_requests: 40
  arrivals: {kind: poisson, rate_rps: 20}
  prompt_tokens: {kind: lognormal, mean: 200, cv: 1.0, max: 2000}
  output_tokens: {kind: uniform, min: 1, max: 60}
slo: {ttft_ms: {p99: 500}, tpot_ms: {p99: 12}}
"""
OVER = "capacity: {over: {engine.max_num_seqs: [4, 16]}}\n"


@dataclass
class Kept:
    """A memory that forgets nothing and counts."""

    outcomes: dict[str, ProbeOutcome] = field(default_factory=dict)
    saved: list[str] = field(default_factory=list)

    def read(self, key: str) -> ProbeOutcome | None:
        return self.outcomes.get(key)

    def save(self, key: str, outcome: ProbeOutcome) -> None:
        self.outcomes[key] = outcome
        self.saved.append(key)


class Shuffled:
    """An executor that takes every job that is ready, and brings their outcomes in an order of its own."""

    workers = 1

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        self.most_at_once = 0

    def run(self, jobs: Iterable[Job | None]) -> Iterator[tuple[int, Any] | None]:
        queue, held = JobQueue(iter(jobs)), list[Job]()
        while True:
            while (job := queue.next()) is not None:
                held.append(job)
            if not held:
                break
            self.most_at_once = max(self.most_at_once, len(held))
            job = held.pop(self._choose(len(held)))
            yield job.index, run_job(job).outcome
            yield None
        queue.check_ended()

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Answer:
    """A search at its end."""

    asked: Asked
    found: Found
    rows: list[Row]
    probes: list[Row]
    said: dict[str, Any]
    dialogue: Dialogue

    @property
    def winner(self) -> Row:
        row = self.said["winner"]
        assert row is not None, self.said["missing"]
        return dict(row)


def asked(text: str = SCENARIO, sets: Iterable[str] = (), **options: Any) -> Asked:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chat.yaml"
        path.write_text(text, encoding="utf-8")
        return read_question(str(path), sets, options.pop("seed", None), **options)


def searched(
    text: str = SCENARIO,
    sets: Iterable[str] = (),
    executor: Executor | None = None,
    memory: Kept | None = None,
    **options: Any,
) -> Answer:
    """Runs a search; options are those of ``read_question``."""
    question = asked(text, sets, **options)
    dialogue = Dialogue(memory or Kept(), executor or SerialExecutor())
    found = CapacitySearch(question.patches, question.settings, dialogue).run(question.candidates)
    rows = candidate_rows(found, question.settings)
    said = answer("chat", None, found, rows, question.settings, {})
    return Answer(question, found, rows, probe_rows(found, question.settings), said, dialogue)


def finite_json(text: str) -> Any:
    """Parses JSON; NaN and infinity are none."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


class Counting(SerialExecutor):
    """Counts the probes that it runs; after ``stop_after`` of them it raises ``fault``."""

    def __init__(self, stop_after: int | None = None, fault: BaseException | None = None) -> None:
        self.ran = 0
        self._stop_after, self._fault = stop_after, fault

    def run(self, jobs: Iterable[Job | None]) -> Iterator[tuple[int, Any] | None]:
        for found in super().run(jobs):
            if self.ran == self._stop_after and self._fault is not None:
                raise self._fault
            self.ran += 1
            yield found


class Capacities:
    """Runs ``kvplan capacity`` on SCENARIO (or ``text``) into ``folder / out``, in this process, without the report."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.executor = folder, Counting()
        monkeypatch.setattr("simulator.planner.executors.make_executor", lambda *_, **__: self.executor)
        monkeypatch.setattr("simulator.planner.warm.warm_up", lambda: None)

    def __call__(
        self, *options: str, out: str = "out", text: str = SCENARIO, executor: Counting | None = None
    ) -> Result:
        self.executor = executor or Counting()
        path = self.folder / "chat.yaml"
        path.write_text(text, encoding="utf-8")
        words = ["capacity", str(path), "--out", str(self.folder / out), "--no-report", *options]
        return CliRunner().invoke(app, words)

    @property
    def ran(self) -> int:
        return self.executor.ran


def contents(out: Path) -> dict[str, bytes]:
    """Every file that must be the same wherever and however often the search ran: all but probes and provenance."""
    files = (path for path in sorted(out.iterdir()) if path.is_file() and path.name != "provenance.json")
    return {path.name: path.read_bytes() for path in files}

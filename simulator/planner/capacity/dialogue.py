"""Runs many searches at once: each asks for probes, and goes on when it has their outcomes.

A search is a generator that yields the questions it needs answered next. What it does depends on nothing but its own
answers, so that its course is the same on any executor, in any order of completion, and after any kill.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from simulator.planner.capacity.probe import Probe, ProbeOutcome
from simulator.planner.executors.base import Executor

Search = Generator["Sequence[Question]", "list[ProbeOutcome]", Any]


class Question(Protocol):
    """What a search wants to know; ``probe`` makes the job that finds it out."""

    def probe(self, index: int) -> Probe:
        """The job. Raises KvplanError where the settings contradict each other."""
        ...


class Memory(Protocol):
    """Where outcomes are kept, by the probe's key."""

    def read(self, key: str) -> ProbeOutcome | None:
        """An outcome that is known."""
        ...

    def save(self, key: str, outcome: ProbeOutcome) -> None:
        """Keeps an outcome."""
        ...


@dataclass
class _Open:
    """A search that waits for answers."""

    number: int
    search: Search
    answers: list[ProbeOutcome | None] = field(default_factory=list)


@dataclass
class Dialogue:
    """The questions of all searches and their answers.

    Attributes:
        known: outcomes by key, of this process.
        on_outcome: called after every answer, and now and then between (told None).
        run: probes that this process ran; ``kept``: those it found on the disk.
    """

    memory: Memory
    executor: Executor
    on_outcome: Callable[[ProbeOutcome | None], None] = lambda outcome: None
    known: dict[str, ProbeOutcome] = field(default_factory=dict)
    run: int = 0
    kept: int = 0
    _next_index: int = 0

    def hold(self, searches: Sequence[Search]) -> list[Any]:
        """Runs the searches to their ends; what each returns, in their order."""
        results: list[Any] = [None] * len(searches)
        ready: deque[Probe] = deque()
        waiting: dict[str, list[tuple[_Open, int]]] = {}
        running: dict[int, tuple[str, Probe]] = {}
        unfinished = 0

        def ask(talk: _Open, answers: list[ProbeOutcome] | None) -> None:
            """Lets a search go on until it waits for something that is not known."""
            nonlocal unfinished
            while True:
                try:
                    questions = talk.search.send(answers)  # type: ignore[arg-type]  # None starts a generator
                except StopIteration as end:
                    results[talk.number] = end.value
                    unfinished -= 1
                    return
                talk.answers = [None] * len(questions)
                for place, question in enumerate(questions):
                    probe = question.probe(self._next_index)
                    key = probe.key
                    found = self._known(key)
                    if found is not None:
                        talk.answers[place] = found
                        continue
                    if key not in waiting:
                        waiting[key] = []
                        running[self._next_index] = (key, probe)
                        ready.append(probe)
                        self._next_index += 1
                    waiting[key].append((talk, place))
                if any(answer is None for answer in talk.answers):
                    return
                answers = [answer for answer in talk.answers if answer is not None]

        def jobs() -> Iterator[Probe | None]:
            while unfinished:
                yield ready.popleft() if ready else None

        unfinished = len(searches)
        for number, search in enumerate(searches):
            ask(_Open(number, search), None)
        if not unfinished:
            return results
        with closing(_generator(self.executor.run(jobs()))) as outcomes:
            for found in outcomes:
                if found is None:
                    self.on_outcome(None)
                    continue
                index, outcome = found
                key, _ = running.pop(index)
                self.memory.save(key, outcome)
                self.known[key] = outcome
                self.run += 1
                self.on_outcome(outcome)
                for talk, place in waiting.pop(key):
                    talk.answers[place] = outcome
                    if all(answer is not None for answer in talk.answers):
                        ask(talk, [answer for answer in talk.answers if answer is not None])
        return results

    def _known(self, key: str) -> ProbeOutcome | None:
        found = self.known.get(key)
        if found is None and (found := self.memory.read(key)) is not None:
            self.known[key] = found
            self.kept += 1
            self.on_outcome(found)
        return found


def _generator(outcomes: Any) -> Any:
    return outcomes if hasattr(outcomes, "close") else (found for found in outcomes)

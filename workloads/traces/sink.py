"""Collects a trace's rows as compact columns, and its broken rows by reason."""

from __future__ import annotations

from array import array

from workloads.errors import WorkloadError
from workloads.measured import Measured
from workloads.traces.client_settings import ClientSettings
from workloads.traces.facts import NAMED_LINES, DroppedRows
from workloads.workload import PS_PER_S, Segment


class BadRowError(Exception):
    """One row that cannot be used: a reason that groups, and what this row says."""

    def __init__(self, reason: str, shown: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.shown = shown


class RowSink:
    """Columns that grow row by row: 8 bytes a number, so that a million rows stay small.

    Times are whole picoseconds of any size (a date counts from year 1), kept as seconds and remainder.
    Invariant: all filled columns have the length of ``lines``; ``hash_ids`` holds sum(hash_counts) entries.
    """

    def __init__(self, path: str, *, limit: int | None, stop_on_bad_row: bool) -> None:
        self.path = path
        self._limit = limit
        self._stop_on_bad_row = stop_on_bad_row
        self.rows_read = 0
        self.lines = array("q")
        self.whole_s = array("q")
        self.rest_ps = array("q")
        self.prompt_tokens = array("q")
        self.output_tokens = array("q")
        self.new_tokens = array("q")
        self.turn = array("q")
        self.hash_ids = array("q")
        self.hash_counts = array("q")
        self.priority = array("q")
        self.class_names: list[str] = []
        self.request_ids: list[str] = []
        self.segments: list[tuple[Segment, ...] | None] = []
        self.notes: list[str] = []
        self.row_name = "line"
        self.client: ClientSettings | None = None
        self.measured: Measured | None = None
        self.left_out = 0  # good rows behind the limit, where the reader knows
        self._dropped: dict[str, tuple[list[int], list[tuple[int, str]]]] = {}

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self._limit is not None and len(self.lines) >= self._limit

    def add(self, line: int, time_ps: int | None, prompt_tokens: int, output_tokens: int) -> None:
        """Keeps one good row."""
        self.lines.append(line)
        if time_ps is not None:
            whole, rest = divmod(time_ps, PS_PER_S)
            self.whole_s.append(whole)
            self.rest_ps.append(rest)
        self.prompt_tokens.append(prompt_tokens)
        self.output_tokens.append(output_tokens)

    def drop(self, line: int, reason: str, shown: str = "") -> None:
        """Counts one broken row and names the first of each reason. Raises WorkloadError where rows must be good."""
        if self._stop_on_bad_row:
            detail = f"{reason}: {shown}" if shown else reason
            where = f"{self.path}:{line}" if self.row_name == "line" else f"{self.path}, {self.row_name} {line}"
            raise WorkloadError(detail, where=where, remedy="mend the row, or set on_bad_row: drop")
        count, examples = self._dropped.setdefault(reason, ([0], []))
        count[0] += 1
        if len(examples) < NAMED_LINES:
            examples.append((line, shown))

    def dropped(self) -> tuple[DroppedRows, ...]:
        """The reasons in the order of their first row."""
        return tuple(
            DroppedRows(reason, count[0], tuple(examples)) for reason, (count, examples) in self._dropped.items()
        )

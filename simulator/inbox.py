"""Arrivals of one replica that are known beforehand: open loop, behind a router that needs no state.

Whoever knows the next arrival can end a leap there at once; requests whose time depends on the run come through
``Replica.deliver`` instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.request import Request
from workloads.workload import IntColumn, Workload

NEVER_PS = (1 << 63) - 1
"""Past the end of the clock: times are 64-bit integers in the log, 106.7 days of picoseconds."""
CHUNK_ROWS = 16_384  # rows turned into Python numbers at a time


def make_request(workload: Workload, row: int, now_ps: int, max_model_len: int) -> Request:
    """The request of a workload row; generation stops at max_model_len tokens in all."""
    prompt = workload.prompt_tokens[row]
    output = capped_output(prompt, workload.output_tokens[row], max_model_len)
    names = workload.request_ids
    return Request(
        row,
        now_ps,
        int(prompt),
        int(output),
        int(workload.priority[row]),
        row if names is None else names[row],
        1 if workload.sequences is None else int(workload.sequences[row]),
        workload.beam is not None and bool(workload.beam[row]),
    )


def capped_output(prompt: IntColumn, output: IntColumn, max_model_len: int) -> IntColumn:
    """Output tokens until max_model_len is reached; a prompt that leaves no room is rejected later."""
    room = max_model_len - prompt
    return np.where((room > 0) & (output > room), room, output)


class Inbox:
    """Rows in order of arrival; ``next_ps`` is the time of the first one left, ``NEVER_PS`` when there is none."""

    def __init__(self, workload: Workload | None, rows: IntColumn, max_model_len: int) -> None:
        self.workload = workload
        self.rows = rows
        self.max_model_len = max_model_len
        self.next_ps = NEVER_PS
        self._read = 0  # rows turned into Python numbers so far
        self._chunk: list[tuple[Any, ...]] = []  # the arguments of Request
        self._at = 0
        self._advance()

    @classmethod
    def empty(cls) -> Inbox:
        """For a replica that is only delivered to."""
        return cls(None, np.empty(0, dtype=np.int64), 0)

    def take(self, now_ps: int) -> list[Request]:
        """All requests that have arrived by now.

        Raises:
            OverflowError: now is past the end of the clock.
        """
        if now_ps >= NEVER_PS:
            raise OverflowError("the simulated clock runs past 106.7 days, the end of 64-bit picoseconds")
        taken = []
        while self.next_ps <= now_ps:
            taken.append(Request(*self._chunk[self._at]))
            self._at = at = self._at + 1
            if at < len(self._chunk):
                self.next_ps = self._chunk[at][1]
            else:
                self._advance()
        return taken

    def wake_ps(self, now_ps: int) -> int:
        """When a replica that is idle now has something to do."""
        return self.next_ps

    def _advance(self) -> None:
        rows = self.rows[self._read : self._read + CHUNK_ROWS]
        self._read += len(rows)
        self._at = 0
        if self.workload is None or not len(rows):
            self._chunk = []
            self.next_ps = NEVER_PS
            return
        prompt, output = self.workload.prompt_tokens[rows], self.workload.output_tokens[rows]
        output = capped_output(prompt, output, self.max_model_len)
        columns = (rows, self.workload.arrival_ps[rows], prompt, output, self.workload.priority[rows])
        names = self.workload.request_ids
        ties = rows.tolist() if names is None else [names[row] for row in rows]
        lists = [*(column.tolist() for column in columns), ties]
        if self.workload.sequences is not None:
            lists.append(self.workload.sequences[rows].tolist())
            lists.append([False] * len(rows) if self.workload.beam is None else self.workload.beam[rows].tolist())
        self._chunk = list(zip(*lists, strict=True))
        self.next_ps = self._chunk[0][1]

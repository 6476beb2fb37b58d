"""What the tokens of a request are, for caches that share by content."""

from __future__ import annotations

from functools import cached_property

from workloads.traces.hash_blocks import HashedSegments
from workloads.workload import Segment, Workload


class TokenContent:
    """Names every token of every row as (stream, position): equal name, equal token.

    A prompt without segments is the private stream ``p:<id>``; the answer of a row is the stream ``o:<id>``.
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def segments(self, row: int) -> tuple[Segment, ...]:
        """(stream, start, length) of a row's prompt and then of its whole answer."""
        workload = self.workload
        name = workload.request_id(row)
        prompt = workload.segments[row] if workload.segments is not None else None
        if prompt is None:
            prompt = ((f"p:{name}", 0, int(workload.prompt_tokens[row])),)
        return (*prompt, (f"o:{name}", 0, int(workload.output_tokens[row])))

    @cached_property
    def answers_are_named(self) -> bool:
        """Whether some prompt holds tokens of an answer (``o:<id>``), as a session's later turns do."""
        rows = self.workload.segments
        if rows is None or isinstance(rows, HashedSegments):  # a hash id names tokens of prompts only
            return False
        return any(stream.startswith("o:") for row in rows if row is not None for stream, _, _ in row)

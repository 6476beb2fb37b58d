"""Sequences of named tokens as runs.

A token is a name (stream, position). Runs are maximal where consecutive positions of a stream meet, so that equal
sequences have equal runs.
"""

from __future__ import annotations

from collections.abc import Iterable

from workloads.workload import Segment

Spans = tuple[Segment, ...]
"""(stream, start, length) in order, adjacent ones of a stream merged."""


def merged(segments: Iterable[Segment]) -> Spans:
    """The same tokens in maximal runs."""
    runs: list[Segment] = []
    for stream, start, length in segments:
        if not length:
            continue
        if runs and runs[-1][0] == stream and sum(runs[-1][1:]) == start:
            stream, start, before = runs.pop()
            length += before
        runs.append((stream, start, length))
    return tuple(runs)


class Reader:
    """A place in a sequence of tokens."""

    __slots__ = ("_at", "_offset", "_spans")

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._at = 0
        self._offset = 0

    @property
    def run(self) -> int:
        """How many tokens the run has from here on; there must be one."""
        return self._spans[self._at][2] - self._offset

    def peek(self, tokens: int) -> Spans:
        """The next ``tokens`` tokens."""
        spans, at, offset = self._spans, self._at, self._offset
        stream, start, length = spans[at]
        if length - offset >= tokens:
            return ((stream, start + offset, tokens),)
        taken = []
        while tokens:
            stream, start, length = spans[at]
            part = min(length - offset, tokens)
            taken.append((stream, start + offset, part))
            tokens -= part
            at, offset = at + 1, 0
        return tuple(taken)

    def skip(self, tokens: int) -> None:
        """Moves on."""
        spans, at, offset = self._spans, self._at, self._offset + tokens
        while at < len(spans) and offset >= spans[at][2]:
            offset -= spans[at][2]
            at += 1
        self._at, self._offset = at, offset

    def shared(self, others: Spans, limit: int) -> int:
        """How many of the next ``limit`` tokens are the first ones of ``others``."""
        spans, at, offset = self._spans, self._at, self._offset
        common = 0
        for stream, start, length in others:
            while length:
                if common == limit:
                    return common
                mine, first, count = spans[at]
                if mine != stream or first + offset != start:
                    return common
                part = min(length, count - offset, limit - common)
                common += part
                length -= part
                start += part
                offset += part
                if offset == count:
                    at, offset = at + 1, 0
        return common

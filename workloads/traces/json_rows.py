"""Rows written as JSON: one object a line, or one array of objects, read piece by piece."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any, TextIO

from workloads.traces.sink import RowSink

_CHUNK = 1 << 20
_SPACE = " \t\r\n"


def json_rows(text: TextIO, sink: RowSink) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each row; what is no object is dropped and counted in ``sink``."""
    start, first_line = text.readline(_CHUNK), 1  # an array may be one line of a gigabyte
    while start and not start.strip():
        first_line += start.endswith("\n")
        start = text.readline(_CHUNK)
    if start.lstrip().startswith("["):
        yield from _of_array(text, start, first_line, sink)
        return
    if not start.endswith("\n"):
        start += text.readline()
    for number, line in enumerate(itertools.chain([start], text), first_line):
        if sink.full:
            return
        if not line.strip():
            continue
        sink.rows_read += 1
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            sink.drop(number, "is not valid JSON", str(error)[:60])
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            sink.drop(number, "is not a JSON object", line.strip()[:40])


def _of_array(text: TextIO, start: str, line: int, sink: RowSink) -> Iterator[tuple[int, dict[str, Any]]]:
    """The elements of one big array; only one piece of the file is in memory.

    A fault in the array's own syntax ends the reading: what follows cannot be told apart. It is counted as one row.
    """
    decoder = json.JSONDecoder()
    buffer, at, ended = start.lstrip(), 1, False
    while not sink.full:
        while at < len(buffer) and buffer[at] in _SPACE + ",":
            line += buffer[at] == "\n"
            at += 1
        if at < len(buffer) and buffer[at] == "]":
            if buffer[at + 1 :].strip() or text.read(_CHUNK).strip():
                sink.rows_read += 1
                sink.drop(line, "holds more after the end of its array; it is not read")
            return
        try:
            if at >= len(buffer):
                raise ValueError("the array does not end")
            value, end = decoder.raw_decode(buffer, at)
            if not ended and end >= len(buffer):
                raise ValueError("may go on in the next piece")
        except (ValueError, RecursionError) as error:
            piece = text.read(_CHUNK)
            if piece:
                buffer, at = buffer[at:] + piece, 0
                continue
            if not ended:
                ended = True
                continue
            sink.rows_read += 1
            sink.drop(line, "is not valid JSON; nothing after it can be read", str(error)[:60])
            return
        sink.rows_read += 1
        if isinstance(value, dict):
            yield line, value
        else:
            sink.drop(line, "is not a JSON object", repr(value)[:40])
        line += buffer.count("\n", at, end)
        at = end
        if at > _CHUNK:
            buffer, at = buffer[at:], 0

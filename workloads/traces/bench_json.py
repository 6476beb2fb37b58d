"""Result files of benchmark tools: whole JSON documents, and single figures in them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, TextIO

import numpy as np

from workloads.errors import WorkloadError
from workloads.measured import FloatColumn

Document = dict[str, Any]


def documents(text: TextIO, path: str) -> list[Document]:
    """The JSON objects of a file: one, several one after another (``--append-result``), or those of one array.

    Raises:
        WorkloadError: the text is no JSON, or holds something else than objects.
    """
    content = text.read()
    decoder, at = json.JSONDecoder(), 0
    found: list[Any] = []
    while at < len(content):
        if content[at].isspace():
            at += 1
            continue
        try:
            value, at = decoder.raw_decode(content, at)
        except ValueError as error:
            ended = getattr(error, "pos", at) >= len(content.rstrip())
            raise WorkloadError(
                "ends in the middle of its JSON: it was cut short" if ended else f"is not JSON: {str(error)[:80]}",
                where=f"{path}:{content.count(chr(10), 0, getattr(error, 'pos', at)) + 1}",
                remedy="copy the file again from where the benchmark ran, once the tool has ended",
            ) from None
        except RecursionError:
            raise WorkloadError("nests too deeply", where=path, remedy="give the file as the tool wrote it") from None
        found += value if isinstance(value, list) else [value]
    if not found or not all(isinstance(value, dict) for value in found):
        raise WorkloadError(
            "holds no result of a benchmark", where=path, remedy="give the JSON file that the tool wrote"
        )
    return found


def the_one(found: list[Document], labels: Iterable[str], index: int | None, path: str) -> tuple[int, Document]:
    """The benchmark that is meant, and its place. Raises WorkloadError where several stand and none is named."""
    if index is None and len(found) == 1:
        return 0, found[0]
    if index is not None and index < len(found):
        return index, found[index]
    names = list(labels)
    listed = ", ".join(f"{i} is {name}" for i, name in enumerate(names[:8])) + (", ..." if len(names) > 8 else "")
    raise WorkloadError(
        f"holds {len(found)} benchmarks" + ("" if index is None else f", and number {index} (from 0) is asked for"),
        where=path,
        remedy=f"set trace.benchmark to one of them: {listed}",
    )


def part(document: Any, *keys: str) -> Document:
    """The object under nested keys; empty where there is none."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def figure(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def finite_column(values: Any) -> FloatColumn | None:
    """A list of finite numbers, or None."""
    try:
        column = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return column if isinstance(values, list) and column.ndim == 1 and np.isfinite(column).all() else None


def positive(value: Any) -> float | None:
    """A finite number above zero, or None: a latency or a rate of 0 was not measured."""
    number = figure(value)
    return number if number is not None and number > 0 else None


def positives(pairs: dict[str, Any]) -> dict[str, float]:
    """Those of the figures that are there."""
    found = {key: positive(value) for key, value in pairs.items()}
    return {key: value for key, value in found.items() if value is not None}


def concurrency(value: Any) -> int | None:
    """A whole number of requests >= 1, or None."""
    number = positive(value)
    return int(number) if number is not None and number == int(number) else None


def rows_word(count: int) -> str:
    """``1 request``, ``5 requests``."""
    return f"{count:,} request" + ("" if count == 1 else "s")

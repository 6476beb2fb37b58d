"""Measured values beside predicted ones, where the workload is the result of a benchmark tool: the rows in words."""

from __future__ import annotations

from typing import Any

from reports.numbers import MISSING, fixed

Result = dict[str, Any]

_PLAIN = {
    "duration": "Benchmark duration (s)",
    "request_throughput": "Request throughput (req/s)",
    "output_throughput": "Output token throughput (tok/s)",
    "total_token_throughput": "Total token throughput (tok/s)",
}
COMPUTED = "*"
"""Stands at a measured value that the tool does not state itself."""


def was_measured(results: list[Result]) -> bool:
    """Whether any of the runs has measured values beside it."""
    return any(result.get("measured") for result in results)


def label(key: str) -> str:
    """``p99_ttft_ms`` as ``P99 TTFT (ms)``."""
    if key in _PLAIN:
        return _PLAIN[key]
    statistic, name = key.removesuffix("_ms").split("_", 1)
    return f"{statistic.capitalize()} {name.upper()} (ms)"


def columns(names: list[str]) -> list[str]:
    """Headings: the metric, its measured value, and of each run the predicted one and its error."""
    return ["metric", "measured", *(f"{name}{word}" for name in _prefixes(names) for word in ("predicted", "error"))]


def _prefixes(names: list[str]) -> list[str]:
    return [""] if len(names) == 1 else [f"{name}: " for name in names]


def rows(results: list[Result]) -> list[list[str]]:
    """A row of cells for each measured key; runs of one scenario stand beside the same measured values."""
    blocks = [result.get("measured") or {} for result in results]
    keys = list(dict.fromkeys(key for block in blocks for key in block))
    computed = {key for result in results for key in (result.get("measured_from") or {}).get("from_details", [])}
    out = []
    for key in keys:
        value = next(block[key]["measured"] for block in blocks if key in block)
        cells = [label(key), fixed(value) + (COMPUTED if key in computed else "")]
        for block in blocks:
            row = block.get(key) or {}
            cells += [fixed(row.get("predicted")), error_words(row.get("error"))]
        out.append(cells)
    return out


def error_words(error: float | None) -> str:
    """``+3.2%``: so much more is predicted than was measured."""
    return MISSING if error is None else f"{error:+.1%}"


def origins(results: list[Result]) -> list[str]:
    """Who measured what, in sentences; each once."""
    said: list[str] = []
    for result in results:
        origin = result.get("measured_from")
        if not origin:
            continue
        model = f", which calls the model {origin['model']}" if origin["model"] else ""
        said.append(
            f"Measured by {origin['tool']} over {origin['requests']:,} requests on a real server{model}; "
            f"the prediction is of {result.get('model_id') or 'this scenario'} on {result.get('gpu') or 'this GPU'}."
        )
        said.append("The simulation reads none of the measured values. Error = predicted / measured - 1.")
        if origin["from_details"]:
            said.append(
                f"{COMPUTED} computed from the request details with vLLM's formulas; the tool does not state it."
            )
        said += [_sentence(text) for text in (*origin["definitions"], *origin["notes"])]
        said += [_sentence(f"another load than the measured one: {text}") for text in origin["differs"]]
    return list(dict.fromkeys(said))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def text_lines(names: list[str], results: list[Result], *, label_width: int, value_width: int) -> list[str]:
    """The section of the terminal's table, without its title; empty where nothing was measured."""
    if not was_measured(results):
        return []
    heads, table = columns(names), rows(results)
    widths = [label_width]
    for place, head in enumerate(heads[1:], 1):
        widths.append(max(value_width, len(head) + 2, *(len(row[place]) + 1 for row in table)))

    def line(cells: list[str]) -> str:
        return cells[0].ljust(widths[0]) + "".join(
            cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)
        )

    lines = [line(["", *heads[1:]]), *(line([row[0] + ":", *row[1:]]) for row in table)]
    if any(row[1].endswith(COMPUTED) for row in table):
        lines.append(f"{COMPUTED} computed from the request details; the tool does not state it")
    return lines

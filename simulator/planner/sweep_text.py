"""A sweep on a terminal: its question, a table of the columns that matter, what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simulator.planner.axes import value_text
from simulator.planner.table import Row

_MOST_ROWS = 40
_COLUMNS = {
    "request_throughput": ("req/s", "{:.2f}"),
    "output_throughput": ("tok/s", "{:,.0f}"),
    "mean_ttft_ms": ("TTFT ms", "{:,.1f}"),
    "p99_ttft_ms": ("p99", "{:,.0f}"),
    "mean_tpot_ms": ("TPOT ms", "{:,.2f}"),
    "preemptions": ("preempt.", "{:,}"),
    "admitted": ("admitted", "{:,}"),
    "used_share": ("used", "{:.1%}"),
    "kv.peak_utilization": ("KV peak", "{:.1%}"),
    "kv.token_share_of_held": ("of held used", "{:.1%}"),
    "binding_limit": ("binds", "{}"),
}


def sweep_text(said: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Plain text, without an end of line."""
    paths = [axis["path"] for axis in said["axes"]]
    lines = [said["question"], ""] if said["question"] else []
    lines += _table(rows, paths, variants=bool(said["variants"]), replications=said["replications"] > 1)
    if len(rows) > _MOST_ROWS:
        lines.append(f"... and {len(rows) - _MOST_ROWS} more points")
    if said["findings"]:
        lines += ["", "Findings", *(f"  - {line}" for line in said["findings"])]
    return "\n".join(lines)


def _table(rows: Sequence[Row], paths: list[str], *, variants: bool, replications: bool) -> list[str]:
    shown = rows[:_MOST_ROWS]
    numbers = [name for name in _COLUMNS if any(row.get(name) is not None for row in rows)]
    head = ["variant"] if variants else []
    head += [path.rpartition(".")[2] for path in paths] + (["rep."] if replications else [])
    head += ["status", *(_COLUMNS[name][0] for name in numbers)]
    cells = [head]
    for row in shown:
        line = [str(row["variant"])] if variants else []
        line += [value_text(row[path]) for path in paths] + ([str(row["replication"])] if replications else [])
        line += [row["status"]]
        for name in numbers:
            value = row.get(name)
            line.append("-" if value is None else _COLUMNS[name][1].format(value))
        cells.append(line)
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    words = (0, len(head) - 1)
    return [
        "  ".join(
            text.ljust(width) if i in words or head[i] == "status" else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]

"""The summary on the terminal: plain ASCII in the style of ``vllm bench serve``, to paste as it stands."""

from __future__ import annotations

import textwrap
from typing import Any

from reports.answer import answer
from reports.measured_rows import text_lines
from reports.tables import filled, runs_of, sections_for

LABEL_WIDTH = 40
VALUE_WIDTH = 10
TEXT_WIDTH = 100


def summary(result: dict[str, Any]) -> str:
    """The answer in two sentences, then the table; variants stand side by side. Takes a whole ``result.json``."""
    runs = runs_of(result)
    names, results = list(runs), list(runs.values())
    width = VALUE_WIDTH if len(names) == 1 else max([VALUE_WIDTH, *(len(name) + 2 for name in names), 14])
    sections = filled(sections_for(results), results)
    line_width = max(LABEL_WIDTH + width * len(names), *(len(title) + 4 for title, _ in sections))
    lines = [*textwrap.wrap(" ".join(answer(result)), TEXT_WIDTH), ""]
    for number, (title, rows) in enumerate(sections):
        lines.append(f" {title} ".center(line_width, "-" if number else "="))
        if number == 0 and len(names) > 1:
            lines.append(" " * LABEL_WIDTH + "".join(name.rjust(width) for name in names))
        lines += [label.ljust(LABEL_WIDTH) + "".join(cell.rjust(width) for cell in cells) for label, cells in rows]
    compared = text_lines(names, results, label_width=LABEL_WIDTH, value_width=VALUE_WIDTH)
    if compared:
        lines += [" Measured beside Predicted ".center(line_width, "-"), *compared]
    lines.append("=" * line_width)
    return "\n".join(lines).encode("ascii", "replace").decode("ascii")

"""A capacity search on the terminal: the answer, the ranked table, why, and the command that serves; plain ASCII."""

from __future__ import annotations

import textwrap
from typing import Any

from reports.capacity_data import Row, limits_of, sentences_of
from reports.capacity_sections import headroom_sentences, knob_sentences, limit_sentence
from reports.capacity_table import UNCONFIRMED, Table, ranked_table, shortened

TEXT_WIDTH = 100
LONGEST_WHY = 110
MARK = " *"
"""Behind the best candidate."""

UNICODE = {"\u2264": "<=", "\u2265": ">=", "\u00d7": "x", "\u2212": "-", "\u2013": "-", "\u2019": "'", "\u2026": "..."}


def capacity_text(answer: dict[str, Any], rows: list[Row]) -> str:
    """Takes ``answer.json`` and the rows of ``candidates.csv`` as values; without an end of line."""
    lines: list[str] = []
    sentences = sentences_of(answer, "sentences")
    if sentences:
        lines += [*textwrap.wrap(" ".join(sentences), TEXT_WIDTH), ""]
    lines += _table(shortened(ranked_table(rows, answer, limits_of([answer.get("slo"), answer.get("classes")]))))
    why = limit_sentence(answer)
    lines += _section("Why", [why] if why else [])
    lines += _section("What would move the limit", knob_sentences(answer))
    lines += _section("More load", headroom_sentences(answer))
    lines += _section("What is missing", sentences_of(answer, "missing"))
    lines += _section("Notes", sentences_of(answer, "notes"))
    if answer.get("command"):
        lines += ["", "Serve it with", *(f"  {line}" for line in str(answer["command"]).splitlines())]
    return ascii_text("\n".join(lines))


def ascii_text(text: str) -> str:
    """Signs that a plain terminal lacks, replaced."""
    for sign, plain in UNICODE.items():
        text = text.replace(sign, plain)
    return text.encode("ascii", "replace").decode("ascii")


def _section(title: str, sentences: list[str]) -> list[str]:
    if not sentences:
        return []
    lines = ["", title]
    for sentence in sentences:
        lines += textwrap.wrap(sentence, TEXT_WIDTH, initial_indent="  - ", subsequent_indent="    ")
    return lines


def _table(table: Table) -> list[str]:
    lines = _aligned(table) if table.rows else []
    lines += textwrap.wrap(table.footnote, TEXT_WIDTH)
    if table.left_out:
        lines.append(f"... and {table.left_out} more candidates in candidates.csv")
    if table.refused:
        lines += [""] * bool(lines) + ["Does not serve"]
        width = max(len(row.name) for row in table.refused)
        lines += [f"  {row.name.ljust(width)}  {_cut(row.why)}" for row in table.refused]
    if table.refused_left_out:
        lines.append(f"  ... and {table.refused_left_out} more in candidates.csv")
    return lines


def _aligned(table: Table) -> list[str]:
    """Heads of two lines, a rule, the rows."""
    kept = [
        place for place in range(len(table.columns)) if any(row.cells[place].value is not None for row in table.rows)
    ]
    heads = [("", ""), ("", "candidate"), *(_head(table.columns[place].brief) for place in kept)]
    cells = [[head[0] for head in heads], [head[1] for head in heads]]
    cells += [
        [
            row.rank,
            row.name + MARK * row.best + UNCONFIRMED * (not row.sure),
            *(row.cells[place].text for place in kept),
        ]
        for row in table.rows
    ]
    left = [False, True, *(table.columns[place].words for place in kept)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(left))]
    lines = [
        "  ".join(
            text.ljust(width) if to_left else text.rjust(width)
            for text, width, to_left in zip(line, widths, left, strict=True)
        ).rstrip()
        for line in cells
    ]
    return [*lines[:2], "-" * max(map(len, lines)), *lines[2:]]


def _head(brief: str) -> tuple[str, str]:
    """``knee req/s`` as two lines, the last word below."""
    above, _, below = brief.rpartition(" ")
    return above, below


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_WHY else text[: LONGEST_WHY - 3].rsplit(" ", 1)[0] + " ..."

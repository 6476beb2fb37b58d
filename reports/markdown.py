"""Markdown that stays what it says: text escaped, tables with one shape."""

from __future__ import annotations

from collections.abc import Sequence


def escaped(text: str) -> str:
    """As text: what Markdown or HTML would read as markup is escaped, and a cell stays in its cell."""
    for sign in "\\*_`<>|[]":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def table_lines(
    heads: Sequence[str], rows: Sequence[Sequence[str]], words: int, bold: Sequence[bool] = ()
) -> list[str]:
    """A table whose first ``words`` columns stand to the left; short rows are filled with empty cells."""
    lines = [table_row([escaped(head) for head in heads])]
    lines.append(table_row([":--"] * words + ["--:"] * (len(heads) - words)))
    for place, row in enumerate(rows):
        marked = bool(bold) and bold[place]
        cells = [f"**{escaped(cell)}**" if marked and cell else escaped(cell) for cell in row]
        lines.append(table_row(cells + [""] * (len(heads) - len(cells))))
    return lines


def table_row(cells: Sequence[str]) -> str:
    """One line."""
    return f"| {' | '.join(cells)} |"

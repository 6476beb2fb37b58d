"""``report.md``: the report of a sweep for a pull request."""

from __future__ import annotations

from reports.plots.sweep_pictures import times_from
from reports.sweep_answer import Judged, sweep_answer
from reports.sweep_reasons import sweep_reasons
from reports.sweep_table import Table, brief_error, first_table


def markdown(judged: Judged, drawings: list[dict[str, str]], warned: list[str]) -> str:
    """The question, the answer, the table, the drawings (as links to their files), then what to know."""
    sweep = judged.sweep
    table = first_table(judged)
    lines = [f"# {_plain(sweep.question or sweep.name)}", "", " ".join(map(_plain, sweep_answer(judged))), ""]
    lines += [*_table(table), ""]
    notes = ["**Bold**: best."]
    if len(judged.best) > 1:
        notes = ["**Bold**: best at its load."]
    if table.left_out:
        notes.append(f"{table.left_out} more points are in `points.csv`.")
    if table.has_any:
        notes.append("any: alike whatever the value.")
    lines += [" ".join([*notes, _plain(times_from(judged))]).strip(), ""]
    for title, sentences in (("Why", [*sweep_reasons(judged), *sweep.findings]), ("Warnings", warned)):
        if sentences:
            lines += [f"## {title}", "", *(f"- {_plain(sentence)}" for sentence in sentences), ""]
    for drawing in drawings:
        lines += [f"![{_alt(drawing)}](plots/{drawing['name']}.svg)", ""]
        lines += [_plain(drawing["caption"]), ""] if drawing["caption"] else []
    if sweep.assumptions:
        lines += ["## Assumptions", "", *(f"- {_plain(sentence)}" for sentence in sweep.assumptions), ""]
    lines.append("These are results of a simulation, not measurements.")
    return "\n".join(lines) + "\n"


def _table(table: Table) -> list[str]:
    settings = len(table.settings)
    lines = [_row([*table.settings, *table.columns])]
    lines.append(_row([":--"] * settings + ["--:"] * len(table.columns)))
    for row in table.rows:
        cells = (
            [*row.settings, *row.cells] if row.error is None else [*row.settings, f"failed: {brief_error(row.error)}"]
        )
        cells += [""] * (settings + len(table.columns) - len(cells))
        lines.append(_row([f"**{_plain(cell)}**" if row.best and cell else _plain(cell) for cell in cells]))
    return lines


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """As text: what Markdown or HTML would read as markup is escaped, and a cell stays in its cell."""
    for sign in "\\*_`<>|[]":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def _alt(drawing: dict[str, str]) -> str:
    return _plain(drawing["title"])

"""``report.md``: the report of a sweep for a pull request."""

from __future__ import annotations

from reports.markdown import escaped, table_row
from reports.plots.sweep_pictures import times_from
from reports.sweep_answer import Judged, sweep_answer
from reports.sweep_reasons import sweep_reasons
from reports.sweep_table import Table, brief_error, first_table


def markdown(judged: Judged, drawings: list[dict[str, str]], warned: list[str]) -> str:
    """The question, the answer, the table, the drawings (as links to their files), then what to know."""
    sweep = judged.sweep
    table = first_table(judged)
    lines = [f"# {escaped(sweep.question or sweep.name)}", "", " ".join(map(escaped, sweep_answer(judged))), ""]
    lines += [*_table(table), ""]
    notes = ["**Bold**: best."]
    if len(judged.best) > 1:
        notes = ["**Bold**: best at its load."]
    if table.left_out:
        notes.append(f"{table.left_out} more points are in `points.csv`.")
    if table.has_any:
        notes.append("any: alike whatever the value.")
    lines += [" ".join([*notes, escaped(times_from(judged))]).strip(), ""]
    for title, sentences in (("Why", [*sweep_reasons(judged), *sweep.findings]), ("Warnings", warned)):
        if sentences:
            lines += [f"## {title}", "", *(f"- {escaped(sentence)}" for sentence in sentences), ""]
    for drawing in drawings:
        lines += [f"![{_alt(drawing)}](plots/{drawing['name']}.svg)", ""]
        lines += [escaped(drawing["caption"]), ""] if drawing["caption"] else []
    if sweep.assumptions:
        lines += ["## Assumptions", "", *(f"- {escaped(sentence)}" for sentence in sweep.assumptions), ""]
    lines.append("These are results of a simulation, not measurements.")
    return "\n".join(lines) + "\n"


def _table(table: Table) -> list[str]:
    settings = len(table.settings)
    lines = [table_row([*table.settings, *table.columns])]
    lines.append(table_row([":--"] * settings + ["--:"] * len(table.columns)))
    for row in table.rows:
        cells = (
            [*row.settings, *row.cells] if row.error is None else [*row.settings, f"failed: {brief_error(row.error)}"]
        )
        cells += [""] * (settings + len(table.columns) - len(cells))
        lines.append(table_row([f"**{escaped(cell)}**" if row.best and cell else escaped(cell) for cell in cells]))
    return lines


def _alt(drawing: dict[str, str]) -> str:
    return escaped(drawing["title"])

"""``report.md``: the report of a capacity search for a pull request."""

from __future__ import annotations

from reports.capacity_data import CapacityData
from reports.capacity_sections import (
    KNOB_COLUMNS,
    headroom_columns,
    headroom_rows,
    knob_rows,
    limit_sentence,
    other_answers,
    serve_commands,
    slo_words,
    trusted,
    without_empty,
)
from reports.capacity_table import UNCONFIRMED, Table, ranked_table, shortened
from reports.markdown import escaped, table_lines


def markdown(data: CapacityData, drawings: list[dict[str, str]]) -> str:
    """The question, the answer, the table, why, the drawings (as links to their files), the commands, what to know."""
    answer = data.answer
    table = shortened(ranked_table(data.rows, answer, data.limits))
    lines = [f"# {escaped(str(answer.get('question') or answer.get('name') or 'Capacity'))}", ""]
    lines += [escaped(" ".join(data.sentences("sentences"))), ""]
    lines += _ranked(table)
    notes = ["**Bold**: the answer."] if any(row.best for row in table.rows) else []
    notes += [f"SLO: {escaped(slo_words(data.limits))}."] if data.limits else []
    lines += [" ".join(notes), ""] if notes else []
    lines += _list("What is missing", data.sentences("missing"))
    lines += _list("Other answers", [f"{title}: {words}" for title, words in other_answers(data)])
    lines += _why(data)
    heads, headroom = without_empty(headroom_columns(data.limits), headroom_rows(answer, data.limits))
    if headroom:
        lines += ["## With more load", "", *table_lines(heads, headroom, 1), ""]
    for drawing in drawings:
        lines += [f"![{escaped(drawing['title'])}](plots/{drawing['name']}.svg)", ""]
        lines += [escaped(drawing["caption"]), ""] if drawing["caption"] else []
    for server, command in serve_commands(answer):
        fence = "`" * 3 if "```" not in command else "`" * 6
        lines += [f"## Serve it with {server}", "", f"{fence}sh", *command.splitlines(), fence, ""]
    lines += _list("To know", data.sentences("notes"))
    lines += _list("What was assumed", data.sentences("assumptions"))
    lines += _list("How far each latency can be trusted", [f"{name}: {text}" for name, text in trusted(answer)])
    lines.append("These are results of a simulation, not measurements.")
    return "\n".join(lines) + "\n"


def _ranked(table: Table) -> list[str]:
    """The candidates that serve, then a line for each of those that do not."""
    heads = ["rank", "candidate", *(column.head for column in table.columns)]
    rows = [
        [row.rank, row.name + UNCONFIRMED * (not row.sure), *(cell.text for cell in row.cells)] for row in table.rows
    ]
    lines = [*table_lines(heads, rows, 2, [row.best for row in table.rows]), ""] if rows else []
    if table.footnote:
        lines += [escaped(table.footnote), ""]
    if table.left_out:
        lines += [f"{table.left_out} more serve; they are in `candidates.csv`.", ""]
    if table.refused:
        refused = [[row.rank, row.name, row.why] for row in table.refused]
        lines += [*table_lines(["rank", "does not serve", "why"], refused, 3), ""]
    if table.refused_left_out:
        lines += [f"{table.refused_left_out} more do not serve; they are in `candidates.csv`.", ""]
    return lines


def _why(data: CapacityData) -> list[str]:
    text = limit_sentence(data.answer)
    heads, knobs = without_empty(KNOB_COLUMNS, knob_rows(data.answer))
    if not text and not knobs:
        return []
    lines = ["## Why", ""]
    lines += [escaped(text), ""] if text else []
    return [*lines, *table_lines(heads, knobs, 1), ""] if knobs else lines


def _list(title: str, sentences: list[str]) -> list[str]:
    return [f"## {title}", "", *(f"- {escaped(sentence)}" for sentence in sentences), ""] if sentences else []

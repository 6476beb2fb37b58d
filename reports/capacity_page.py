"""The report of a capacity search: ``report.html``, ``report.md`` and ``plots/*.svg``, drawn from its files alone."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from reports.capacity_data import CapacityData, Row, read_capacity, serves
from reports.capacity_markdown import markdown
from reports.capacity_sections import (
    KNOB_COLUMNS,
    LONG,
    WORDS,
    headroom_columns,
    headroom_rows,
    knob_rows,
    limit_sentence,
    memory_table,
    other_answers,
    searched,
    serve_commands,
    slo_words,
    trusted,
    without_empty,
)
from reports.capacity_table import ranked_table, shortened
from reports.drawing import Drawable, drawn, remove_old
from reports.numbers import percent, short
from reports.plots.knee import Panel, knee
from reports.plots.memory_stack import memory_stack
from reports.plots.pareto import pareto
from simulator.result_files import write_text

TEMPLATE, SCRIPT = "capacity.html.j2", "capacity.js"
FILES = ("candidates.csv", "probes.csv", "answer.json", "report.md", "winner.yaml", "scenario.yaml", "provenance.json")
"""Beside the page, where they are."""

PLOT_LINKS = {"capacity_pareto": "Pareto", "capacity_knee": "Knee", "capacity_memory": "Memory"}


def write_capacity_report(folder: Path) -> Path:
    """Draws the report of a finished capacity search into its folder; returns the page's path.

    Raises:
        InputError: the folder holds no finished search.
    """
    data = read_capacity(folder)
    drawings = [drawn(picture) for picture in pictures(data)]
    remove_old(folder / "plots", "capacity_*.svg", {f"{drawing['name']}.svg" for drawing in drawings})
    for drawing in drawings:
        write_text(folder / "plots" / f"{drawing['name']}.svg", drawing["svg"])
    write_text(folder / "report.md", markdown(data, drawings))
    page = folder / "report.html"
    write_text(page, _render(data, drawings))
    return page


def pictures(data: CapacityData) -> list[Drawable]:
    """In the order of the page; those that have something to show."""
    best = data.winner["candidate"] if data.winner else None
    first = sorted(data.rows, key=lambda row: (row["candidate"] != best, not serves(row)))  # stable: best first
    panels = [Panel(limit.column, limit.label, limit.limit_ms) for limit in data.limits]
    drawable = [row for row in first if serves(row)] or first
    found = (
        pareto(data.rows, best, serves),
        knee(drawable, data.probes, panels, data.rate_rps),
        memory_stack(drawable, data.answer.get("memory") or {}),
    )
    return [picture for picture in found if picture is not None]


def _render(data: CapacityData, drawings: list[dict[str, str]]) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("reports", "templates")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    script = loader.get_source(environment, SCRIPT)[0]
    whole = ranked_table(data.rows, data.answer, data.limits, _telling(data))
    table = shortened(whole)
    knobs = without_empty(KNOB_COLUMNS, knob_rows(data.answer))
    headroom = without_empty(headroom_columns(data.limits), headroom_rows(data.answer, data.limits))
    names, memory = memory_table(data)
    share = data.answer.get("goodput_share")
    values: dict[str, Any] = {
        "name": str(data.answer.get("name") or "capacity"),
        "question": str(data.answer.get("question") or ""),
        "answer": " ".join(data.sentences("sentences")),
        "caption": caption(data),
        "table": table,
        "whole": whole if table.left_out or table.refused_left_out else None,
        "missing": data.sentences("missing"),
        "notes": data.sentences("notes"),
        "others": other_answers(data),
        "limit_text": limit_sentence(data.answer),
        "winner": data.winner["candidate"] if data.winner else "",
        "knobs": knobs,
        "headroom": headroom,
        "words": WORDS,
        "long": LONG,
        "drawings": [drawing | {"svg": Markup(drawing["svg"])} for drawing in drawings],  # our own SVG
        "memory_names": names,
        "memory": memory,
        "commands": serve_commands(data.answer),
        "reproduce": (data.folder / "winner.yaml").is_file(),
        "assumptions": data.sentences("assumptions"),
        "trust": trusted(data.answer),
        "limits": slo_words(data.limits),
        "goodput": f"at least {percent(share)} of the requests within every limit" if share else "",
        "at_rate": at_rate(data),
        "searched": searched(data),
        "files": [name for name in FILES if name == "report.md" or (data.folder / name).is_file()],
        "script": Markup(script),  # our own
        "script_hash": f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
    }
    values["links"] = _links(values, drawings)
    return environment.get_template(TEMPLATE).render(**values)


def caption(data: CapacityData) -> str:
    """What stands above the table: how many candidates, how many serve, and at which rate."""
    count, good = len(data.rows), len(data.serving)
    words = f"{count} candidate{'' if count == 1 else 's'}, cheapest first; {good} serve{'s' if good == 1 else ''}"
    rate = f" {short(data.rate_rps)} requests/s" if data.rate_rps else ""
    slo = f" within the SLO ({slo_words(data.limits)})" if data.limits else ""
    return f"{words}{rate}{slo}."


def at_rate(data: CapacityData) -> str:
    """At which load latencies and costs of the table are."""
    load = f"the asked rate of {short(data.rate_rps)} requests/s" if data.rate_rps else "the knee"
    guessed = " of those marked ~ at the knee of one replica" if any(not _sure(row) for row in data.serving) else ""
    but = f", latencies and tokens/s per user{guessed}" if guessed and data.rate_rps else ""
    return f"Latencies, tokens/s and costs per token in the table are those at {load}{but}."


def _sure(row: Row) -> bool:
    return row.get("confirmed") is not False


def _telling(data: CapacityData) -> tuple[str, ...]:
    """Swept settings that candidates' names do not say already."""
    return tuple(
        path
        for path in data.swept
        if len({str(row.get(path)) for row in data.rows}) > 1
        and not all(str(row.get(path)) in str(row["candidate"]) for row in data.rows if row.get(path) is not None)
    )


def _links(values: dict[str, Any], drawings: list[dict[str, str]]) -> list[tuple[str, str]]:
    places = [
        ("candidates", "Candidates", True),
        ("missing", "What is missing", values["missing"]),
        ("why", "Why", values["limit_text"] or values["knobs"][1]),
        ("headroom", "More load", values["headroom"][1]),
        *((drawing["name"], PLOT_LINKS[drawing["name"]], True) for drawing in drawings),
        ("serve", "Serve it", values["commands"]),
        ("all", "All candidates", values["whole"]),
        ("assumptions", "Assumptions", True),
        ("trust", "Trust", True),
    ]
    return [(place, words) for place, words, there in places if there]

"""The report of a sweep: ``report.html``, ``report.md`` and ``plots/*.svg``, drawn from its files alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from reports.drawing import drawn, remove_old
from reports.plots.sweep_pictures import pictures, times_from
from reports.sweep_answer import Judged, judge, place_words, sweep_answer, value_words
from reports.sweep_data import SweepData, read_sweep
from reports.sweep_markdown import markdown
from reports.sweep_points import RAN
from reports.sweep_reasons import sweep_reasons
from reports.sweep_table import brief_error, first_table, whole_table
from simulator.result_files import write_text

TEMPLATE = "sweep.html.j2"
FILES = ("points.csv", "summary.csv", "sweep.json", "report.md", "scenario.yaml")
"""Beside the page, where they are."""

FOOTER_COLUMNS = ("seed", "calibration", "schema_version")
MOST_SEEDS = 5
MOST_PLACES = 4


def write_sweep_report(folder: Path) -> Path:
    """Draws the report of a finished sweep into its folder; returns the page's path.

    Raises:
        InputError: the folder holds no finished sweep.
    """
    judged = judge(read_sweep(folder))
    drawings = [drawn(picture) for picture in pictures(judged)]
    remove_old(folder / "plots", "sweep_*.svg", {f"{drawing['name']}.svg" for drawing in drawings})
    for drawing in drawings:
        write_text(folder / "plots" / f"{drawing['name']}.svg", drawing["svg"])
    write_text(folder / "report.md", markdown(judged, drawings, warnings(judged.sweep)))
    page = folder / "report.html"
    write_text(page, _render(judged, drawings))
    return page


def _render(judged: Judged, drawings: list[dict[str, str]]) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    sweep = judged.sweep
    environment = Environment(
        loader=PackageLoader("reports", "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    table, whole = first_table(judged), whole_table(judged)
    return environment.get_template(TEMPLATE).render(
        name=sweep.name,
        subject=" on ".join(", ".join(sweep.only(key)) for key in ("model_id", "gpu") if sweep.only(key)),
        question=sweep.question,
        answer=sweep_answer(judged),
        swept=swept(sweep),
        points=len(judged.points),
        table=table,
        whole=whole if table.left_out else None,
        times=times_from(judged),
        findings=[*sweep_reasons(judged), *sweep.findings],
        warnings=warnings(sweep),
        assumptions=sweep.assumptions,
        drawings=[drawing | {"svg": Markup(drawing["svg"])} for drawing in drawings],  # our own SVG
        files=[name for name in FILES if name == "report.md" or (sweep.folder / name).is_file()],
        facts=_facts(sweep),
        failures=failures(judged),
        brief=brief_error,
        several_best=len(judged.best) > 1,
        with_slo="slo.met" in sweep.columns,
        replications=max(len(point.rows) for point in judged.points),
    )


def warnings(sweep: SweepData) -> list[str]:
    """Those of the points that no finding of the sweep says already."""
    found = " ".join(sweep.findings).lower()
    return [sentence for sentence in sweep.warnings if _clause(sentence) not in found]


def _clause(sentence: str) -> str:
    """``At 3 of 9 points: The backlog grew: latencies ...`` as ``the backlog grew``."""
    return re.sub(r"^At \d+ of \d+ points(, at most)?: ", "", sentence).split(":")[0].lower()


def failures(judged: Judged) -> list[tuple[str, str]]:
    """Each different error in full, behind the points that have it."""
    found: dict[str, list[str]] = {}
    for point in judged.points:
        for row in point.rows:
            if row["status"] not in RAN:
                words = place_words(judged.sweep, point.place) or "the only point"
                found.setdefault(str(row["error"] or row["status"]), []).append(words)
    return [(_some(list(dict.fromkeys(places))), error) for error, places in found.items()]


def _some(places: list[str]) -> str:
    rest = len(places) - MOST_PLACES
    return "; ".join(places[:MOST_PLACES]) + (f" and {rest} more" if rest > 0 else "")


def swept(sweep: SweepData) -> list[tuple[str, str]]:
    """The swept settings with their values, for the reader who did not ask."""
    return [(axis.path, ", ".join(value_words(value) for value in axis.values)) for axis in (*sweep.axes, *sweep.fixed)]


def _facts(sweep: SweepData) -> list[tuple[str, Any]]:
    out = []
    for key in FOOTER_COLUMNS:
        values = sweep.only(key)
        if values:
            more = ", …" if len(values) > MOST_SEEDS else ""
            out.append((key, ", ".join(values[:MOST_SEEDS]) + more))
    return out

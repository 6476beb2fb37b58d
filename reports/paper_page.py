"""``report.html`` of ``kvplan verify paper``: one file that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reports.paper_plots import Drawing, drawings
from reports.style import svg
from simulator.result_files import json_text, write_text
from simulator.verify_paper_explain import EXPLANATIONS

TEMPLATE = "paper.html.j2"
SECTIONS = (
    ("Share of the KV memory (Fig. 2), %", ("share",)),
    ("Mean batched requests (Fig. 13)", ("batch",)),
    ("Rates sustained at a normalised latency, and their ratios (from Fig. 12)", ("max_rate", "ratio")),
    ("Memory saved by sharing within requests (Fig. 15), %", ("saving",)),
    ("Memory (Table 1) and mean lengths (Fig. 11)", ("memory", "length")),
    ("Normalised latency by block size (Fig. 18b, 19b), s a token", ("block_size",)),
    ("Swapping and recomputing 256 tokens (Fig. 19a), ms by block size", ("swap_time",)),
    ("Normalised latency at a rate (Fig. 12, 14), s a token", ("latency",)),
)


def write_paper_report(result: dict[str, Any], folder: Path) -> Path:
    """Writes ``paper.json``, ``plots/*.svg`` and ``report.html`` into a folder; returns the page's path."""
    pictures = [_picture(drawing) for drawing in drawings(result)]
    for picture in pictures:
        write_text(folder / "plots" / f"{picture['name']}.svg", picture["svg"])
    write_text(folder / "paper.json", json_text(result))
    page = folder / "report.html"
    write_text(page, _render(result, pictures))
    return page


def _picture(drawing: Drawing) -> dict[str, str]:
    text = svg(drawing.draw, drawing.size(), drawing.name, drawing.title, drawing.alt_text())
    return {"name": drawing.name, "title": drawing.title, "caption": drawing.caption, "svg": text}


def _render(result: dict[str, Any], pictures: list[dict[str, str]]) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("reports", "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    predicted = [row for row in result["rows"] if row["ours"] is not None]
    reasons = dict.fromkeys(row["why"] for row in result["rows"] if row["ours"] is None)
    columns = ["", "ours", "paper", "off by", "within", "spread of lengths -30 % to +30 %"]
    columns += [f"with {words}" for words in EXPLANATIONS.values()]
    return environment.get_template(TEMPLATE).render(
        answer=answer(result),
        source=result["source"],
        missed=[f"{row['figure']}, {row['label']}: {row['why']}." for row in predicted if row["within"] is False],
        wrong=[
            f"{plot['plot']} at {w['rate_rps']:g} req/s: {w['slower']} is slower than {w['faster']} in the paper only."
            for plot in result["order"]
            for w in plot["wrong"]
        ],
        order=[[plot["plot"], f"{plot['right']} of {plot['compared']}"] for plot in result["order"]],
        explanation=result["explanation"],
        drawings=[picture | {"svg": Markup(picture["svg"])} for picture in pictures],  # our own SVG
        tables=[
            (title, [_cells(row) for row in predicted if row["kind"] in kinds])
            for title, kinds in SECTIONS
            if any(row["kind"] in kinds for row in predicted)
        ],
        left_out=[[str(sum(row["why"] == reason for row in result["rows"])), reason] for reason in reasons],
        assumptions=result["assumptions"],
        quick=result["quick"],
        columns=columns,
    )


def answer(result: dict[str, Any]) -> str:
    """The verdict in a sentence or two."""
    words = f"{result['within']} of {result['checked']} numbers are within the stated tolerances"
    if result["order_compared"]:
        words += (
            f"; the systems are in the paper's order in {result['order_right']} of {result['order_compared']} pairs"
        )
    return words + "."


def _cells(row: dict[str, Any]) -> list[str]:
    band = ""
    if row["ours_narrower_lengths"] is not None:
        band = f"{row['ours_narrower_lengths']:.4g} to {row['ours_wider_lengths']:.4g}"
    other = [f"{row['explained'][name]:.4g}" if name in row["explained"] else "" for name in EXPLANATIONS]
    off = ""
    if row["relative"] is not None:
        off = f"{row['difference']:+.1f}" if row["kind"] == "share" else f"{row['relative']:+.0%}"
    within = {None: "", True: "yes", False: "no"}[row["within"]]
    return [row["label"], f"{row['ours']:.4g}", row["paper_text"] or "-", off, within, band, *other]

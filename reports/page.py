"""``report.html``: one file that needs nothing else, drawn from the files of a result folder alone."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from reports import measured_rows
from reports.answer import answer, reasons
from reports.numbers import at, fixed, gib, milliseconds, percent, whole
from reports.run_data import RunData, load_result, load_runs
from reports.style import svg
from reports.tables import HEADLINE, LATENCY_NAMES, filled, is_admission, sections_for
from simulator.result_files import write_text

TEMPLATE = "report.html.j2"
FOOTER_KEYS = ("seed", "scenario_sha256", "calibration", "schema_version")
INTERVAL_COLUMNS = ("variant", "mean of", "from (ms)", "to (ms)", "half width")
SLO_COLUMNS = ("variant", "class", "limit", "asked", "came out", "met")
CLASS_ROWS = {
    "completed": "served",
    "rejected": "rejected",
    "median_ttft_ms": "median TTFT",
    "p95_ttft_ms": "p95 TTFT",
    "p99_ttft_ms": "p99 TTFT",
    "median_tpot_ms": "median TPOT",
    "p99_tpot_ms": "p99 TPOT",
    "p99_e2el_ms": "p99 end to end",
}


def plots() -> tuple[ModuleType, ...]:
    """The plots of a report, in their order on the page; each has NAME, TITLE, CAPTION, size, alt_text and draw."""
    from reports.plots import latency, memory_split, pool_shares, queue_batch

    return pool_shares, memory_split, latency, queue_batch


def plots_for(runs: list[RunData]) -> tuple[ModuleType, ...]:
    """The plots of served runs, or the one of ``mode: admission``, where a pool had room for a block."""
    from reports.plots import admission

    results = [run.result for run in runs]
    if not is_admission(results):
        from reports.plots import measured

        return (measured, *plots()) if measured.compared(runs) else plots()
    return (admission,) if admission.comparisons(runs) else ()


def write_report(folder: Path) -> Path:
    """Draws ``report.html`` and ``plots/*.svg`` of a finished run into its folder; returns the page's path.

    Raises InputError where the folder holds no finished run.
    """
    result = load_result(folder)
    runs = load_runs(folder, result)
    drawings = [_drawing(plot, runs) for plot in plots_for(runs)]
    for drawing in drawings:
        write_text(folder / "plots" / f"{drawing['name']}.svg", drawing["svg"])
    page = folder / "report.html"
    write_text(page, _render(result, runs, drawings))
    return page


def _drawing(plot: ModuleType, runs: list[RunData]) -> dict[str, str]:
    text = svg(lambda figure: plot.draw(figure, runs), plot.size(runs), plot.NAME, plot.TITLE, plot.alt_text(runs))
    return {"name": plot.NAME, "title": plot.TITLE, "caption": plot.CAPTION, "svg": text}


def _render(result: dict[str, Any], runs: list[RunData], drawings: list[dict[str, str]]) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    results = [run.result for run in runs]
    environment = Environment(
        loader=PackageLoader("reports", "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    admission = is_admission(results)
    tables = filled(sections_for(results), results)
    first = results[0]
    return environment.get_template(TEMPLATE).render(
        name=first.get("name") or "run",
        subject=" on ".join(str(first[key]) for key in ("model_id", "gpu") if first.get(key)),
        answer=answer(result),
        names=[run.name for run in runs],
        several=len(runs) > 1,
        headline=tables[0] if admission else filled((HEADLINE,), results)[0],
        reasons=[(run.name, reasons(run.result)) for run in runs],
        drawings=[drawing | {"svg": Markup(drawing["svg"])} for drawing in drawings],  # our own SVG
        tables=[] if admission else tables,
        **_narrow("slo", SLO_COLUMNS, _slo_rows(runs), ("variant", "class")),
        **_narrow("classes", ("variant", "class", *CLASS_ROWS.values()), _class_rows(runs), ("variant",)),
        memory=_memory_rows(runs),
        measured=measured_rows.rows(results) if measured_rows.was_measured(results) else [],
        measured_columns=measured_rows.columns([run.name for run in runs]),
        measured_origins=measured_rows.origins(results),
        **_narrow("intervals", INTERVAL_COLUMNS, _interval_rows(runs), ("variant",) if len(runs) == 1 else ()),
        warnings=_sentences(runs, "warnings"),
        assumptions=_sentences(runs, "assumptions"),
        facts=[(key, first[key]) for key in FOOTER_KEYS if first.get(key) not in (None, "")],
    )


def _narrow(name: str, columns: tuple[str, ...], rows: list[list[str]], spared: tuple[str, ...]) -> dict[str, Any]:
    """A table as ``name`` and ``name_columns``, less the ``spared`` columns that say the same in each row."""
    kept = [
        place for place, column in enumerate(columns) if column not in spared or len({row[place] for row in rows}) > 1
    ]
    return {name: [[row[i] for i in kept] for row in rows], f"{name}_columns": [columns[i] for i in kept]}


def _slo_rows(runs: list[RunData]) -> list[list[str]]:
    return [
        [
            run.name,
            limit["class"],
            f"{limit['stat']} of {LATENCY_NAMES[limit['metric'].removesuffix('_ms')]}",
            milliseconds(limit["limit"]),
            milliseconds(limit["value"]),
            "yes" if limit["met"] else "no",
        ]
        for run in runs
        for limit in (run.result.get("slo") or {}).get("limits", [])
    ]


def _class_rows(runs: list[RunData]) -> list[list[str]]:
    """Empty where no run has more than one class."""
    if all(len(run.result.get("classes", {})) < 2 for run in runs):
        return []
    return [
        [run.name, name, *(whole(values[key]) if key.isalpha() else fixed(values[key]) for key in CLASS_ROWS)]
        for run in runs
        for name, values in run.result["classes"].items()
    ]


def _interval_rows(runs: list[RunData]) -> list[list[str]]:
    rows = []
    for run in runs:
        for key, interval in run.result.get("confidence_95", {}).items():
            if isinstance(interval, list):
                half = (interval[1] - interval[0]) / 2
                middle = (interval[1] + interval[0]) / 2
                share = percent(half / middle, 0) if middle else "-"
                name = LATENCY_NAMES[key.removeprefix("mean_").removesuffix("_ms")]
                low = max(interval[0], 0.0)  # a few long waits among many of none: the symmetric rule knows no zero
                rows.append([run.name, name, fixed(low), fixed(interval[1]), f"± {share}"])
    return rows


def _memory_rows(runs: list[RunData]) -> list[tuple[str, list[str]]]:
    """What each GPU's memory holds, GiB, a column per run; then what the pool is worth. Empty where nobody knows."""
    tables = [run.result.get("memory") or {} for run in runs]
    sizes = [{row["name"]: row["bytes"] for row in table.get("rows", [])} for table in tables]
    names = list(dict.fromkeys(name for column in sizes for name in column))
    rows = [(name, [gib(column.get(name)) for column in sizes]) for name in names]
    if not rows:
        return []
    rows.append(("total, as nvidia-smi shows it", [gib(sum(column.values()) or None) for column in sizes]))
    rows.append(("KV cache size (tokens)", [whole(at(table, "kv_cache_tokens")) for table in tables]))
    rows.append(("longest request (tokens)", [whole(at(table, "max_model_len")) for table in tables]))
    return [*rows, ("requests of that length that fit at once", [fixed(at(t, "max_concurrency")) for t in tables])]


def _sentences(runs: list[RunData], key: str) -> list[str]:
    """Sentences of all runs; one that holds for every run is said once, the others name theirs."""
    said: dict[str, list[str]] = {}
    for run in runs:
        for sentence in run.result.get(key, []):
            said.setdefault(sentence, []).append(run.name)
    return [
        sentence if len(names) == len(runs) else f"{', '.join(names)}: {sentence}" for sentence, names in said.items()
    ]

"""The verification as plain data for JSON and reports, and as a table for the terminal."""

from __future__ import annotations

from collections import Counter
from typing import Any

from simulator.verify_paper import Verification
from simulator.verify_paper_explain import EXPLANATIONS
from simulator.verify_paper_lengths import DATASETS
from simulator.verify_paper_questions import (
    BatchQuestion,
    BlockSizeQuestion,
    LatencyQuestion,
    MaxRateQuestion,
    SwapTimeQuestion,
)
from simulator.verify_paper_row import Row

SCHEMA_VERSION = 1


def result_dict(verification: Verification, source: str, *, quick: bool) -> dict[str, Any]:
    """What ``--json`` prints and the report is drawn from. ``source``: where the paper's numbers come from."""
    rows = [_row(row) for row in verification.rows]
    checked = [row for row in rows if row["within"] is not None]
    compared = sum(len(found) for found in verification.order.values())
    return {
        "schema_version": SCHEMA_VERSION,
        "name": "paper",
        "source": source,
        "quick": quick,
        "met": not verification.missed,
        "checked": len(checked),
        "within": sum(row["within"] for row in checked),
        "order_compared": compared,
        "order_right": sum(c.right for found in verification.order.values() for c in found),
        "missed": verification.missed,
        "explanation": None
        if verification.overhead_ms is None
        else {"step_overhead_ms": verification.overhead_ms, "from": verification.overhead_from},
        "rows": rows,
        "order": [
            {
                "plot": plot,
                "compared": len(found),
                "right": sum(c.right for c in found),
                "wrong": [
                    {
                        "rate_rps": c.rate_rps,
                        "slower": c.slower,
                        "faster": c.faster,
                        "paper_s": list(c.paper),
                        "ours_s": [None if latency == float("inf") else latency for latency in c.ours],
                    }
                    for c in found
                    if not c.right
                ],
            }
            for plot, found in verification.order.items()
        ],
        "curves": [
            {"model": model, "dataset": dataset, "system": system, "points": [list(point) for point in points]}
            for (model, dataset, system), points in verification.curves.items()
        ],
        "assumptions": verification.assumptions,
    }


def _row(row: Row) -> dict[str, Any]:
    asked, paper, ours = row.asked, row.target, row.ours.value
    exact = paper.low if paper.low == paper.high else None
    return {
        "figure": asked.figure,
        "system": asked.system,
        "model_hw": asked.model_hw,
        "dataset": asked.dataset,
        "metric": asked.metric,
        "x": asked.x,
        "unit": asked.unit,
        "label": label(row),
        "kind": row.question.kind,
        **_place(row),
        "ours": ours,
        "paper": exact,
        "paper_text": paper.text,
        "difference": None if ours is None or exact is None else ours - exact,
        "relative": None if ours is None or not exact else ours / exact - 1,
        "tolerance": row.tolerance,
        "within": row.within,
        "ours_narrower_lengths": None if row.band is None else row.band[0],
        "ours_wider_lengths": None if row.band is None else row.band[1],
        "explained": row.explained,
        "why": why(row) if row.within is False else row.ours.reason,
    }


def _place(row: Row) -> dict[str, Any]:
    """Where a latency or a rate belongs in a plot."""
    question = row.question
    if not isinstance(question, LatencyQuestion | MaxRateQuestion):
        return {}
    sampling = getattr(question, "sampling", None)
    return {
        "plot_model": question.server.model,
        "plot_dataset": question.dataset,
        "rate_rps": getattr(question, "rate_rps", None),
        "sequences": 1 if sampling is None else sampling.sequences,
        "beam": bool(sampling and sampling.beam),
        "prefix_tokens": question.prefix_tokens,
    }


def label(row: Row) -> str:
    """The row in a few words."""
    question, asked = row.question, row.asked
    if isinstance(question, BlockSizeQuestion):
        return f"vLLM, {question.dataset}, {question.preemption_mode}, blocks of {question.block_size}"
    if isinstance(question, SwapTimeQuestion):
        way = question.what if question.what == "recompute" else f"swap {question.what}"
        return f"{way}, blocks of {question.block_size}"
    where = asked.dataset.split("(")[0].strip() or asked.model_hw
    if isinstance(question, LatencyQuestion | MaxRateQuestion | BatchQuestion):
        return ", ".join(part for part in (asked.system, where, f"at {asked.x}") if part)
    return ", ".join(part for part in (asked.system, where, asked.metric.replace("_", " "), asked.x) if part)


def why(row: Row) -> str:
    """What brings a missed row within its tolerance, of the other assumptions that were tried."""
    if row.band is None and not row.explained:
        return "a quick run tries no other step times and lengths"
    tried = dict(zip(("lengths spread 30 % less", "lengths spread 30 % more"), row.band or (), strict=False))
    tried |= {EXPLANATIONS[name]: value for name, value in row.explained.items()}
    helped = [f"{words} ({value:.4g})" for words, value in tried.items() if row.meets(value)]
    if helped:
        return "within the tolerance with " + ", or with ".join(helped)
    words = "outside with every other assumption: " + ", ".join(f"{w} {value:.4g}" for w, value in tried.items())
    return words + _implied_step(row)


def _implied_step(row: Row) -> str:
    """What a batch says of the server's steps, by Little's law: requests = rate · output tokens · step, at least."""
    question, paper, ours = row.question, row.target.low, row.ours.value
    if not isinstance(question, BatchQuestion) or paper is None or ours is None:
        return ""
    tokens_per_s = question.rate_rps * DATASETS[question.dataset].output_mean
    return (
        f". By Little's law {paper:g} requests at {question.rate_rps:g} req/s of "
        f"{DATASETS[question.dataset].output_mean:g} tokens mean steps of {1000 * paper / tokens_per_s:.1f} ms or more "
        f"in the paper; ours take {1000 * ours / tokens_per_s:.1f} ms or more"
    )


def text_table(result: dict[str, Any], *, quiet: bool = False) -> str:
    """The table for a terminal; ``quiet``: the verdict alone."""
    lines: list[str] = []
    if not quiet:
        for title, kinds in _SECTIONS:
            rows = [row for row in result["rows"] if row["kind"] in kinds and row["ours"] is not None]
            if rows:
                lines += [title, _HEAD, *(_line(row) for row in rows), ""]
        lines += _order_lines(result) + _left_out(result) + _explanation(result)
    return "\n".join([*lines, *_verdict(result)])


_SECTIONS = (
    ("Memory (Table 1) and lengths (Fig. 11)", ("memory", "length")),
    ("KV memory split of an overloaded server, % of the slots (Fig. 2)", ("share",)),
    ("Mean batched requests (Fig. 13)", ("batch",)),
    ("Rates sustained at a normalised latency (from Fig. 12)", ("max_rate", "ratio")),
    ("Memory saved by sharing within requests, % (Fig. 15)", ("saving",)),
    ("Normalised latency by block size (Fig. 18b, 19b)", ("block_size",)),
    ("Swapping and recomputing 256 tokens, ms by block size (Fig. 19a)", ("swap_time",)),
    ("Normalised latency at a rate (Fig. 12, 14)", ("latency",)),
)
_HEAD = f"  {'':<62} {'ours':>9} {'paper':>9} {'off by':>9}  {'CV -30 % .. +30 %':<19} within"


def _line(row: dict[str, Any]) -> str:
    off = ""
    if row["relative"] is not None:
        off = f"{row['difference']:+.1f}" if row["kind"] == "share" else f"{row['relative']:+.0%}"
    band = ""
    if row["ours_narrower_lengths"] is not None:
        band = f"{_number(row['ours_narrower_lengths'])} .. {_number(row['ours_wider_lengths'])}"
    within = {None: "", True: "yes", False: "NO"}[row["within"]]
    number = _number(row["ours"])
    return f"  {row['label'][:62]:<62} {number:>9} {row['paper_text'] or '-':>9} {off:>9}  {band:<19} {within}".rstrip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _order_lines(result: dict[str, Any]) -> list[str]:
    if not result["order"]:
        return []
    lines = ["Order of the systems, pair by pair at every rate of the paper's curves where it tells them apart"]
    for plot in result["order"]:
        lines.append(f"  {plot['plot']:<62} {plot['right']} of {plot['compared']} right")
        lines += [f"    wrong at {w['rate_rps']:g} req/s: {w['slower']} against {w['faster']}" for w in plot["wrong"]]
    return [*lines, ""]


def _left_out(result: dict[str, Any]) -> list[str]:
    reasons = Counter(row["why"] for row in result["rows"] if row["ours"] is None)
    if not reasons:
        return []
    return ["Rows without a prediction", *(f"  {count:>4}  {reason}" for reason, count in reasons.items()), ""]


def _explanation(result: dict[str, Any]) -> list[str]:
    found = result["explanation"]
    missed = [row for row in result["rows"] if row["within"] is False]
    lines = [f"  {row['figure']}, {row['label']}: {row['why']}" for row in missed]
    if found is not None:
        lines.append(
            f"  Step time of 2023: {found['from']}; that is {found['step_overhead_ms']:.1f} ms of host overhead a step."
        )
        lines.append("  With it (an explanation, not a prediction; not counted):")
        lines += [
            f"    {row['label']}: {_number(row['ours'])} becomes {_number(row['explained']['step time'])}, "
            f"paper {row['paper_text']}"
            for row in result["rows"]
            if "step time" in row["explained"]
        ]
    return ["Why", *lines, ""] if lines else []


def _verdict(result: dict[str, Any]) -> list[str]:
    lines = [f"within the stated tolerances: {result['within']} of {result['checked']} numbers"]
    if result["order_compared"]:
        lines.append(f"order of the systems: {result['order_right']} of {result['order_compared']} comparisons right")
    if result["quick"]:
        lines.append("quick: short traces; run without --quick for the real comparison")
    return lines

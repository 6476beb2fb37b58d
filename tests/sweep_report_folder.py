"""Folders of sweeps with made-up numbers that follow simple formulas, for tests of reports."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Formula = Callable[[Mapping[str, Any]], Row]
HEAD = ("replication", "seed", "status", "exit_code", "error", "binding_limit", "saturated")
DOES_NOT_FIT = {"status": "does_not_fit", "exit_code": 3, "error": "4,096 tokens | do not fit <b>at all</b>"}


def write_sweep(
    folder: Path,
    axes: Mapping[str, Sequence[Any]],
    formula: Formula,
    *,
    variants: Sequence[str] = ("",),
    replications: int = 1,
    question: str = "Which <i>value</i> is best?",
    findings: Sequence[str] = ("engine.block_size from 64 on does not change anything.",),
) -> Path:
    """Writes ``points.csv``, ``sweep.json`` and every point's ``result.json``; returns the folder.

    Args:
        formula: axis values (and ``variant``, ``replication``) to the columns that differ from an idle server's.
    """
    rows, folders = [], []
    for variant, *values, replication in product(variants, *axes.values(), range(replications)):
        place = {"variant": variant, **dict(zip(axes, values, strict=True)), "replication": replication}
        row: Row = {"point": len(rows), "variant": variant or None, **{path: place[path] for path in axes}}
        row |= {"replication": replication, "seed": 100 + replication, "status": "ok", "exit_code": 0, "error": None}
        row |= {"binding_limit": "kv_memory", "saturated": False}
        found = formula(place)
        row |= found if found.get("exit_code") == 3 else {**IDLE, **row, **found}
        if found.get("exit_code") == 3:
            row |= {"binding_limit": None, "saturated": None}
        folders.append(f"points/{len(rows):04d}")
        _write_result(folder / folders[-1], row)
        rows.append(row)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    columns.sort(key=lambda name: name not in ("point", "variant", *axes, *HEAD))
    with (folder / "points.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    facts = {
        "schema_version": 1,
        "name": "made-up",
        "question": question,
        "axes": [{"path": path, "values": list(values)} for path, values in axes.items()],
        "variants": [name for name in variants if name],
        "replications": replications,
        "findings": list(findings),
        "folders": folders,
    }
    (folder / "sweep.json").write_text(json.dumps(facts), encoding="utf-8")
    return folder


def block_sizes(folder: Path) -> Path:
    """Paged at 1 to 256, beside a contiguous baseline that has no block size; 32 is best, with 16 alike."""
    delivered = {1: 90.0, 2: 92.0, 4: 94.0, 8: 96.0, 16: 99.5, 32: 100.0, 64: 97.0, 128: 80.0, 256: 50.0}

    def formula(place: Mapping[str, Any]) -> Row:
        size = place["engine.block_size"]
        if place["variant"] == "max":
            table = {"kv.block_table_bytes": 0, "kv.mean_block_table_lookups_per_step": 0.0}  # it has none
            shares = {"kv.reserved_share": 0.1, "kv.internal_fragmentation_share": 0.8}
            return {"output_throughput": 10.0, **shares, **table}
        return {
            "output_throughput": delivered[size],
            "mean_running": 40.0,
            "p99_tpot_ms": 80.0 - size / 8,
            "kv.internal_fragmentation_share": size / 400,
            "kv.block_table_bytes": 1 << 20 >> size.bit_length(),
            "kv.mean_block_table_lookups_per_step": 4000.0 / size,
        }

    return write_sweep(folder, {"engine.block_size": list(delivered)}, formula, variants=("paged", "max"))


def grid(folder: Path) -> Path:
    """Two numeric settings, 200 points, an SLO; the last row does not fit. 90 and 6 are best."""

    def formula(place: Mapping[str, Any]) -> Row:
        seqs, budget = place["engine.max_num_seqs"], place["engine.max_num_batched_tokens"]
        if seqs > 190:
            return dict(DOES_NOT_FIT)
        good = 10.0 - abs(seqs - 90) / 20 - abs(budget - 600) / 200
        met = good > 5
        return {
            "request_goodput": max(good, 0.0),
            "p99_ttft_ms": 100.0 + 10 * abs(seqs - 90),
            "slo.met": met,
            "slo.attainment": max(good, 0.0) / 10,
            "binding_limit": "max_num_seqs" if seqs < 90 else "kv_memory",
            "status": "ok" if met else "slo_missed",
            "exit_code": 0 if met else 4,
        }

    seqs = list(range(10, 210, 10))
    budgets = list(range(100, 1100, 100))
    return write_sweep(folder, {"engine.max_num_seqs": seqs, "engine.max_num_batched_tokens": budgets}, formula)


IDLE: Row = {
    "name": "made-up",
    "model_id": "llama-3.1-8b",
    "gpu": "l4",
    "calibration": "default",
    "step_time": "roofline",
    "request_throughput": 1.0,
    "output_throughput": 100.0,
    "median_ttft_ms": 50.0,
    "p99_ttft_ms": 200.0,
    "median_tpot_ms": 20.0,
    "p99_tpot_ms": 40.0,
    "preemptions": 0,
    "mean_running": 8.0,
    "wait_shares.kv_memory": 0.5,
    "kv.peak_utilization": 0.9,
    "kv.token_share": 0.5,
    "kv.reserved_share": 0.0,
    "kv.internal_fragmentation_share": 0.01,
    "kv.external_fragmentation_share": 0.0,
}


def _write_result(folder: Path, row: Row) -> None:
    if row["exit_code"] == 3:
        return
    folder.mkdir(parents=True)
    warnings = [f"{row['point'] + 1:,} preemptions: 5 tokens were computed again."] if row["point"] < 3 else []
    result = {"warnings": warnings, "assumptions": ["linear layers compute in bf16"]}
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")


def _cell(value: Any) -> Any:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else value

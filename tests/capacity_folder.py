"""Folders of capacity searches with made-up numbers that follow simple formulas, for tests of the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from simulator.planner.table import write_csv

Row = dict[str, Any]
GIB = 1 << 30
SWEPT = "engine.max_num_seqs"
CANDIDATE_COLUMNS = (
    *("rank", "candidate", "status", "reason", "gpu", "gpus_per_replica", "tensor_parallel_size"),
    *("pipeline_parallel_size", "weight_dtype", "kv_cache_dtype", SWEPT, "replicas", "gpus", "usd_per_hour"),
    *("usd_per_million_tokens", "usd_per_million_output_tokens", "knee_rps", "knee_rps_per_replica", "max_rps"),
    *("ceiling_rps", "meets_rate", "confirmed", "binding_limit", "limit_text", "headroom_rps"),
    *("tokens_per_s_per_user", "tokens_per_s_per_gpu", "p99_ttft_ms", "p99_tpot_ms", "kv_pool_gib_per_gpu"),
    *("weight_gib_per_gpu", "max_concurrency", "probes"),
)
STATS = ("mean", "median", "p90", "p95", "p99")
LATENCIES = tuple(f"{stat}_{name}_ms" for name in ("ttft", "tpot", "itl", "e2el") for stat in STATS)
PROBE_COLUMNS = (
    *("probe", "candidate", "purpose", "replicas", "rate_rps", "passed", "saturated", "why_not", "requests"),
    *("request_throughput", "output_throughput", "goodput_share", *LATENCIES),
    *("mean_running", "kv.peak_utilization", "binding_limit", "preemptions"),
)
TTFT_LIMIT_MS, TPOT_LIMIT_MS = 400.0, 40.0
TOKENS, OUTPUT_TOKENS = 800.0, 250.0
NO_ROOM = "the weights take 131.4 GiB of 2 GPUs that have 44.5 GiB each <b>here</b> | nothing is left for the KV pool"


@dataclass(frozen=True)
class Gpu:
    """A made-up GPU: USD an hour, GiB, the rate at which one replica's p99 TTFT reaches its limit, TPOT when idle."""

    name: str
    usd: float
    gib: float
    knee_rps: float
    tpot_ms: float


GPUS = (
    Gpu("h100-sxm-80gb", 2.99, 79.6, 14.2, 11.0),
    Gpu("h200-sxm-141gb", 3.79, 139.8, 17.9, 9.2),
    Gpu("a100-sxm-80gb", 1.79, 79.2, 7.6, 17.0),
    Gpu("l40s", 0.99, 44.5, 3.9, 24.0),
    Gpu("b200-sxm-180gb", 5.49, 178.4, 30.0, 6.1),
)


def latencies(gpu: Gpu, tp: int, rate_per_replica: float) -> Row:
    """A latency curve that reaches the TTFT limit at the replica's knee and has no end beyond it."""
    load = rate_per_replica / (gpu.knee_rps * tp)
    ttft = 60.0 + (TTFT_LIMIT_MS - 60.0) * load**6 * (1.0 if load <= 1 else load**12)
    tpot = gpu.tpot_ms / tp**0.8 * (1 + 0.6 * load)
    row: Row = {}
    for stat, factor in (("mean", 0.5), ("median", 0.45), ("p90", 0.75), ("p95", 0.85), ("p99", 1.0)):
        row |= {f"{stat}_ttft_ms": ttft * factor, f"{stat}_tpot_ms": tpot * (0.6 + 0.4 * factor)}
        row |= {f"{stat}_itl_ms": tpot * (0.5 + 0.8 * factor), f"{stat}_e2el_ms": (ttft + 250 * tpot) * factor}
    return row


def served(
    gpu: Gpu,
    tp: int = 1,
    kv: str = "auto",
    *,
    rate_rps: float | None = 20.0,
    max_gpus: int = 16,
    seqs: int | None = None,
) -> Row:
    """The row of a candidate that fits, with as many replicas as the rate needs (one where no rate is asked)."""
    knee = gpu.knee_rps * tp**0.9 * (1.05 if kv == "fp8" else 1.0)
    replicas = -(-int(1000 * (rate_rps or 0.1)) // int(1000 * knee))
    too_many = replicas * tp > max_gpus
    replicas = min(replicas, max_gpus // tp)
    at = rate_rps if rate_rps is not None and not too_many else knee * replicas
    usd = gpu.usd * tp * replicas
    row: Row = {"candidate": name_of(gpu, tp, kv), "status": "ok", "gpu": gpu.name, "gpus_per_replica": tp}
    row |= {"tensor_parallel_size": tp, "pipeline_parallel_size": 1, "weight_dtype": "auto", "kv_cache_dtype": kv}
    row |= {SWEPT: seqs, "replicas": replicas, "gpus": replicas * tp, "usd_per_hour": round(usd, 2)}
    row |= {"usd_per_million_tokens": usd / (at * TOKENS * 3600 / 1e6)}
    row |= {"usd_per_million_output_tokens": usd / (at * OUTPUT_TOKENS * 3600 / 1e6)}
    row |= {"knee_rps": knee * replicas, "knee_rps_per_replica": knee, "max_rps": 1.3 * knee * replicas}
    row |= {"ceiling_rps": 1.9 * knee * replicas, "binding_limit": "bandwidth" if kv == "auto" else "kv_memory"}
    row |= {"limit_text": "steps are as long as reading weights and KV takes", "probes": 9, "confirmed": replicas < 4}
    row |= {"meets_rate": rate_rps is None or not too_many, "headroom_rps": knee * replicas - at}
    row |= latencies(gpu, tp, at / replicas / tp ** (-0.1) if tp > 1 else at / replicas)
    row |= {"tokens_per_s_per_user": 1000 / row["median_tpot_ms"]}
    row |= {"tokens_per_s_per_gpu": at * OUTPUT_TOKENS / (replicas * tp), "weight_gib_per_gpu": 14.96 / tp}
    row |= {"kv_pool_gib_per_gpu": 0.92 * gpu.gib - 14.96 / tp - 1.8, "max_concurrency": 55.9 * tp}
    if rate_rps is not None and too_many:
        row |= {"status": "too_slow", "reason": f"{max_gpus} GPUs serve {at:.1f} requests/s, less than {rate_rps:g}"}
    return {name: row[name] for name in CANDIDATE_COLUMNS if name in row}


def refused(gpu: Gpu, tp: int = 1, status: str = "does_not_fit", reason: str = NO_ROOM, kv: str = "auto") -> Row:
    """The row of a candidate that was never simulated."""
    row: Row = {"candidate": name_of(gpu, tp, kv), "status": status, "reason": reason, "gpu": gpu.name}
    row |= {"gpus_per_replica": tp, "tensor_parallel_size": tp, "pipeline_parallel_size": 1, "weight_dtype": "auto"}
    return row | {"kv_cache_dtype": kv, "probes": 0, "meets_rate": False}


def name_of(gpu: Gpu, tp: int, kv: str) -> str:
    """``h100-sxm-80gb tp1 fp8``."""
    return f"{gpu.name} tp{tp}" + ("" if kv == "auto" else f" kv {kv}")


def probes_of(row: Row, first: int, rate_rps: float | None) -> list[Row]:
    """The probes of one candidate: overload, the knee from both sides, the asked rate, more of it."""
    gpu, tp = _gpu(row), row["tensor_parallel_size"]
    knee, replicas = row["knee_rps_per_replica"], row["replicas"]
    plan = [("saturation", 1, 2.5), *(("knee", 1, share) for share in (0.4, 0.7, 0.85, 0.94, 1.0, 1.03, 1.09))]
    if rate_rps is not None:
        plan += [("confirm", replicas, rate_rps / knee / replicas)]
        plan += [("headroom", replicas, more * rate_rps / knee / replicas) for more in (1.2, 1.5)]
    rows = []
    for place, (purpose, count, load) in enumerate(plan):
        seen = latencies(gpu, tp, load * gpu.knee_rps * tp)
        good = load <= 1.0
        miss = f"p99 of ttft is {seen['p99_ttft_ms']:.0f} ms, above its 400 ms"
        found: Row = {"probe": first + place, "candidate": row["candidate"], "purpose": purpose, "replicas": count}
        found |= {"rate_rps": load * knee * count, "passed": good, "saturated": load > 1.25}
        found |= {"why_not": None if good else miss, "requests": 2000, "request_throughput": load * knee * count}
        found |= {"output_throughput": load * knee * count * OUTPUT_TOKENS, "goodput_share": 1.0 if good else 0.4}
        found |= {**seen, "mean_running": 40 * load, "kv.peak_utilization": min(1.0, 0.7 * load)}
        rows.append(found | {"binding_limit": row["binding_limit"], "preemptions": 0 if good else 12})
    return rows


def write_capacity(folder: Path, rows: Sequence[Row], *, rate_rps: float | None = 20.0, **answer: Any) -> Path:
    """Writes ``candidates.csv``, ``probes.csv`` and ``answer.json``; the first row that meets the rate wins.

    Args:
        answer: keys of ``answer.json`` that differ from the made-up ones.
    """
    order = sorted(rows, key=lambda row: (row["status"] != "ok", row.get("usd_per_hour") or 1e9))
    ranked = [{"rank": place + 1, **row} for place, row in enumerate(order)]
    probes: list[Row] = []
    for row in ranked:
        if row.get("knee_rps"):
            probes += probes_of(row, len(probes), rate_rps)
    write_csv(ranked, CANDIDATE_COLUMNS, folder / "candidates.csv")
    write_csv(probes, PROBE_COLUMNS, folder / "probes.csv")
    winner = next((row for row in ranked if row["status"] == "ok"), None)
    found = _answer(ranked, winner, rate_rps) | {"counts": counts(ranked, probes)} | answer
    (folder / "answer.json").write_text(json.dumps(found), encoding="utf-8")
    return folder


def counts(rows: Sequence[Row], probes: Sequence[Row]) -> Row:
    """How much was searched."""
    return {"candidates": len(rows), "probes": len(probes), "simulated_requests": 2000 * len(probes)}


def chat(folder: Path) -> Path:
    """Twenty-two candidates at 20 requests/s: some too slow, two that do not fit, one never within the SLO."""
    rows = [served(gpu, tp, kv) for gpu, tp, kv in product(GPUS, (1, 2), ("auto", "fp8")) if gpu.name != "l40s"]
    rows += [served(GPUS[3], 2, "auto", max_gpus=4), served(GPUS[3], 1, "fp8", max_gpus=2), refused(GPUS[3])]
    rows += [refused(GPUS[3], 2, kv="fp8")]
    slow = "p99 of tpot is 61.3 ms, above its 40 ms, at the lowest rate tried (0.1 requests/s)"
    rows += [refused(Gpu("l4", 0.71, 22.5, 1.0, 55.0), 1, "slo_unreachable", slow)]
    costs = {"usd_per_hour": 43.92, "replicas": 1, "gpus": 8}
    rows += [refused(GPUS[4], 8, "over_budget", "43.92 USD/h are more than the budget of 20 USD/h") | costs]
    return write_capacity(folder, rows, budget_usd_per_hour=20.0)


def many(folder: Path, count: int = 300) -> Path:
    """Hundreds of candidates, all of which serve."""
    rows = []
    for place in range(count):
        base = GPUS[place % len(GPUS)]
        scale = 0.5 + (place * 37 % count) / count
        gpu = Gpu(base.name, base.usd * scale, base.gib, base.knee_rps * scale**0.5, base.tpot_ms / scale**0.3)
        row = served(gpu, 1 + place % 2, seqs=64 + place)
        rows.append(row | {"candidate": f"{row['candidate']} seqs{64 + place}"})
    return write_capacity(folder, rows)


def nobody(folder: Path) -> Path:
    """No candidate serves."""
    rows = [refused(gpu) for gpu in GPUS[:3]] + [served(GPUS[3], 1, max_gpus=2)]
    missing = ["the nearest is l40s tp1: 2 GPUs serve 7.8 of 20 requests/s; 6 would serve them", "or allow max_gpus: 6"]
    sentences = ["No candidate serves 20 requests/s.", "The nearest is l40s tp1, with 7.8."]
    return write_capacity(folder, rows, missing=missing, sentences=sentences)


def no_rate(folder: Path) -> Path:
    """The largest rate of given deployments: no rate is asked."""
    rows = [served(gpu, rate_rps=None) for gpu in GPUS[:3]]
    return write_capacity(folder, rows, rate_rps=None, headroom=[])


def single(folder: Path) -> Path:
    """One candidate, and an answer that says little."""
    row = served(GPUS[0])
    left_out: Row = {"limits": None, "headroom": [], "memory": {}, "commands": {}, "trust": [], "assumptions": []}
    return write_capacity(folder, [row], rate_rps=20.0, **left_out)


def _gpu(row: Row) -> Gpu:
    base = next((gpu for gpu in GPUS if gpu.name == row["gpu"]), GPUS[0])
    tp = row["tensor_parallel_size"]
    return Gpu(base.name, base.usd, base.gib, row["knee_rps_per_replica"] / tp, row["p99_tpot_ms"] * tp**0.8 / 1.6)


def _answer(rows: list[Row], winner: Row | None, rate_rps: float | None) -> Row:
    top = [row for row in rows if row["status"] == "ok"][:4]
    command = "vllm serve meta-llama/Llama-3.1-8B-Instruct \\\n  --gpu-memory-utilization 0.92 --max-num-seqs 256"
    name = winner["candidate"] if winner else "nothing"
    return {
        "schema_version": 1,
        "name": "capacity-chat",
        "question": "Which GPUs serve chat on <i>Llama-3.1-8B</i> at 20 requests/s?",
        "sentences": [f"{name} serves the load for the least money.", "Bandwidth binds & more of it would help."],
        "rate_rps": rate_rps,
        "budget_usd_per_hour": None,
        "slo": {"ttft_ms": {"p99": TTFT_LIMIT_MS}, "tpot_ms": {"p99": TPOT_LIMIT_MS}},
        "goodput_share": None,
        "grid": {"step": 1.03, "anchor_rps": 1.0},
        "winner": winner,
        "within_budget": winner,
        "largest": max(top, key=lambda row: float(row["knee_rps"]), default=None),
        "headroom": _headroom(winner, rate_rps),
        "limits": _limits(winner),
        "memory": {row["candidate"]: {"rows": _memory(row)} for row in top},
        "command": command if winner else None,
        "commands": {"vllm": command, "sglang": "python -m sglang.launch_server --model x"} if winner else {},
        "notes": ["Latencies of replicas behind a router are those of the router that was asked for."],
        "assumptions": ["kv_cache_dtype = bfloat16 (as the model computes)", "prices are the catalogue's examples"],
        "trust": [{"metric": "ttft", "text": "off by 10 to 20 % where nobody calibrated"}],
        "missing": [],
    }


def _headroom(winner: Row | None, rate_rps: float | None) -> list[Row]:
    if winner is None or rate_rps is None:
        return []
    out = []
    for more in (1.2, 1.5):
        seen = latencies(_gpu(winner), 1, more * rate_rps / winner["replicas"])
        good = more * rate_rps <= winner["knee_rps"]
        miss = None if good else f"p99 of ttft is {seen['p99_ttft_ms']:.0f} ms, above its 400 ms"
        row = {"at": more, "rate_rps": more * rate_rps, "passed": good, "why_not": miss}
        row |= {"latencies": {name: seen[name] for name in ("p99_ttft_ms", "p99_tpot_ms")}}
        needed = winner["replicas"] + (0 if good else 1)
        row |= {"replicas_needed": needed, "usd_per_hour": winner["usd_per_hour"] / winner["replicas"] * needed}
        out.append(row)
    return out


def _limits(winner: Row | None) -> Row | None:
    if winner is None:
        return None
    knee = winner["knee_rps_per_replica"]
    tried = (
        ("engine.kv_cache_dtype: fp8", 0.12, 0.0, "changes what the model answers"),
        ("engine.max_num_batched_tokens: 16384", 0.03, 1.29, ""),
        ("engine.max_num_seqs: 512", 0.0, 0.0, None),
    )
    knobs = [
        {"change": change, "knee_rps": (1 + gain) * knee, "knee_gain": gain, "knee_gain_per_gpu": gain, "note": note}
        | {"pool_gib_change": -gib, "activation_gib_change": gib, "weight_gib_change": 0.0}
        for change, gain, gib, note in tried
    ]
    return {"binding_limit": "bandwidth", "text": "at 7.83 req/s: p99 of TTFT is 477 ms, above 400 ms", "knobs": knobs}


def _memory(row: Row) -> list[Row]:
    total = next(gpu.gib for gpu in GPUS if gpu.name == row["gpu"])
    parts = {"kept by the driver": (0.47, "exact"), "weights": (row["weight_gib_per_gpu"], "exact")}
    parts |= {"activation peak": (1.29, "estimated"), "runtime buffers (cuBLAS, NCCL)": (0.14, "assumed")}
    parts |= {"CUDA graphs": (0.55, "assumed"), "KV pool": (row["kv_pool_gib_per_gpu"], "estimated")}
    left = total - sum(size for size, _ in parts.values())
    parts |= {"left outside the fraction": (left, "exact")}
    return [{"name": name, "bytes": int(size * GIB), "basis": basis} for name, (size, basis) in parts.items()]

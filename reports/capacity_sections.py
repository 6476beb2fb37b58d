"""What stands below the table of a capacity search: what binds and what moves it, more load, memory, other answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.capacity_data import LATENCY_WORDS, CapacityData, Limited, Row, limits_of, row_of
from reports.capacity_table import money
from reports.numbers import GIB, MISSING, fixed, milliseconds, percent, short, whole
from reports.tables import limit_name

WORDS = ("change", "load", "within the SLO", "why not", "to know")
LONG = ("why not", "to know")
"""Columns of words, and those of whole sentences."""

KNOB_COLUMNS = (
    *("change", "knee of one replica (req/s)", "gain", "gain per GPU", "KV pool (GiB/GPU)"),
    *("activations (GiB/GPU)", "weights (GiB/GPU)", "to know"),
)
MEMORY_COLUMNS = 5
"""Candidates beside each other in the table of memory."""

LEAST_GIB = 0.005
"""A smaller change of memory is none."""

PRICES = (
    ("pool_gib_change", "KV pool"),
    ("activation_gib_change", "activations"),
    ("weight_gib_change", "weights"),
)


def limit_sentence(answer: Row) -> str:
    """``Beyond the knee KV memory binds: at 12.5 req/s: p99 of TTFT is ...``; empty where nothing is known to bind."""
    limits = answer.get("limits") or {}
    limit, text = limits.get("binding_limit"), str(limits.get("text") or "")
    if not limit:
        return text
    named = limit_name(str(limit))
    words = {"arrivals": "the latency of the steps alone", "token_budget": f"the {named}"}.get(str(limit), named)
    return f"Beyond the knee {words} binds: {text}" if text else f"Beyond the knee {words} binds."


def knob_rows(answer: Row) -> list[list[str]]:
    """Each change that was tried at the winner: what it gains and what it costs in memory."""
    return [
        [
            str(knob.get("change") or MISSING),
            short(knob.get("knee_rps")),
            gain_text(knob_gain(answer, knob)),
            gain_text(knob.get("knee_gain_per_gpu")),
            *(signed_gib(knob.get(key)) for key, _ in PRICES),
            str(knob.get("note") or ""),
        ]
        for knob in _knobs(answer)
    ]


def without_empty(columns: Sequence[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The table less the columns in which no row says anything."""
    kept = [place for place in range(len(columns)) if any(row[place] not in ("", MISSING) for row in rows)]
    return [columns[place] for place in kept], [[row[place] for place in kept] for row in rows]


def knob_sentences(answer: Row) -> list[str]:
    """``engine.kv_cache_dtype: fp8: a replica's knee 25.5 req/s (+12 %), KV pool +6.5 GiB per GPU; NOTE``."""
    out = []
    for knob in _knobs(answer):
        gain, each = gain_text(knob_gain(answer, knob)), gain_text(knob.get("knee_gain_per_gpu"))
        per_gpu = "" if each in (gain, MISSING) else f", {each} per GPU"
        words = f"{knob.get('change')}: a replica's knee {short(knob.get('knee_rps'))} req/s ({gain}{per_gpu})"
        parts = [f"{name} {signed_gib(knob[key])}" for key, name in PRICES if abs(knob.get(key) or 0.0) >= LEAST_GIB]
        words += f"; {', '.join(parts)} GiB per GPU" if parts else ""
        out.append(words + (f"; {knob['note']}" if knob.get("note") else ""))
    return out


def knob_gain(answer: Row, knob: Mapping[str, Any]) -> float | None:
    """The share by which a change raises the knee."""
    gain = knob.get("knee_gain")
    if gain is not None:
        return float(gain)
    base, knee = (answer.get("winner") or {}).get("knee_rps_per_replica"), knob.get("knee_rps")
    return knee / base - 1 if knee is not None and base else None


def gain_text(gain: float | None) -> str:
    """``+12 %``, ``-3 %``, ``none``."""
    if gain is None:
        return MISSING
    if abs(gain) < 0.0005:
        return "none"
    return f"{gain * 100:+.1f} %" if abs(gain) < 0.1 else f"{gain * 100:+.0f} %"


def signed_gib(value: float | None) -> str:
    """``+1.29``, ``-1.29``, ``0``."""
    if value is None:
        return MISSING
    return "0" if abs(value) < LEAST_GIB else f"{value:+,.2f}"


def headroom_columns(limits: tuple[Limited, ...]) -> list[str]:
    """Heads of ``headroom_rows``."""
    heads = ["load", "rate (req/s)", "within the SLO", *(f"{limit.label} (ms)" for limit in limits)]
    return [*heads, "why not", "replicas needed", "USD per hour"]


def headroom_rows(answer: Row, limits: tuple[Limited, ...]) -> list[list[str]]:
    """What happens with more load than asked."""
    rows = []
    for step in answer.get("headroom") or []:
        seen = step.get("latencies") or {}
        cells = [more_text(step.get("at")), short(step.get("rate_rps")), _yes_no(step.get("passed"))]
        cells += [short(seen.get(limit.column)) for limit in limits]
        cells += [str(step.get("why_not") or ""), whole(step.get("replicas_needed")), fixed(step.get("usd_per_hour"))]
        rows.append(cells)
    return rows


def headroom_sentences(answer: Row) -> list[str]:
    """``+20 % (24 req/s): within the SLO, p99 TTFT 312 ms``; what is missed names the replicas that would do."""
    limits, out = limits_of([answer.get("slo"), answer.get("classes")]), []
    for step in answer.get("headroom") or []:
        words = f"{more_text(step.get('at'))} ({short(step.get('rate_rps'))} req/s): "
        if step.get("passed"):
            seen = step.get("latencies") or {}
            parts = [
                f"{limit.label} {milliseconds(seen.get(limit.column))}" for limit in limits if limit.column in seen
            ]
            words += ", ".join(["within the SLO", *parts])
        else:
            words += f"misses the SLO ({step.get('why_not') or 'too much'})"
            if step.get("replicas_needed"):
                words += (
                    f"; {whole(step['replicas_needed'])} replicas would do, {money(step.get('usd_per_hour'))} USD/h"
                )
        out.append(words)
    return out


def more_text(at: float | None) -> str:
    """1.2 as ``+20 %``."""
    return MISSING if at is None else f"{(at - 1) * 100:+.0f} %"


def other_answers(data: CapacityData) -> list[tuple[str, str]]:
    """The answers to the questions beside the main one: within the budget, the largest rate."""
    out = []
    budget = data.answer.get("budget_usd_per_hour")
    asked = (
        ("within_budget", f"Best within {money(budget)} USD per hour" if budget else "Best within the budget"),
        ("largest", "Largest rate within the SLO"),
    )
    for key, title in asked:
        named = data.answer.get(key)
        row = row_of(data.rows, named)
        if row is not None and isinstance(named, dict):  # of another size than in the table, perhaps
            row = row | {name: value for name, value in named.items() if value is not None}
        if row is not None and row.get("knee_rps") is not None:
            words = f"{row['candidate']}: {short(row['knee_rps'])} requests/s"
            if row.get("gpus"):
                words += f" on {whole(row['gpus'])} GPU{'' if row['gpus'] == 1 else 's'}"
            if row.get("usd_per_hour") is not None:
                words += f" for {money(row['usd_per_hour'])} USD per hour"
            out.append((title, words))
    return out


def memory_table(data: CapacityData) -> tuple[list[str], list[tuple[str, str, list[str]]]]:
    """(candidates, rows of (part, how sure, GiB of each candidate)); the last row is the total."""
    known = {str(name): part.get("rows") or [] for name, part in (data.answer.get("memory") or {}).items()}
    order = [row["candidate"] for row in data.rows if known.get(row["candidate"])][:MEMORY_COLUMNS]
    sizes = [{row["name"]: row["bytes"] for row in known[name]} for name in order]
    sure: dict[str, list[str]] = {}
    for name in order:
        for row in known[name]:
            sure.setdefault(row["name"], []).append(str(row.get("basis") or ""))
    rows = [
        (part, ", ".join(dict.fromkeys(filter(None, basis))), [_gib(size.get(part)) for size in sizes])
        for part, basis in sure.items()
    ]
    if rows:
        rows.append(("total, as nvidia-smi shows it", "", [_gib(sum(size.values())) for size in sizes]))
    return order, rows


def searched(data: CapacityData) -> str:
    """``22 candidates, 184 probes, 368,000 simulated requests; rates in steps of 3 %``."""
    counts = data.answer.get("counts") or {}
    names = (("candidates", "candidates"), ("probes", "probes"), ("simulated_requests", "simulated requests"))
    parts = [f"{whole(counts[key])} {name}" for key, name in names if isinstance(counts.get(key), int)]
    step = (data.answer.get("grid") or {}).get("step")
    return ", ".join(parts) + (f"; rates in steps of {percent(step - 1, 0)}" if step and parts else "")


SERVERS = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}


def serve_commands(answer: Row) -> list[tuple[str, str]]:
    """(server, command) of the winner, the server that was simulated first."""
    own, found = answer.get("command"), answer.get("commands") or {}
    order = sorted(found.items(), key=lambda pair: pair[1] != own)  # stable
    out = [(SERVERS.get(name, name), str(text)) for name, text in order if text]
    return out or ([("the simulated server", str(own))] if own else [])


def slo_words(limits: tuple[Limited, ...]) -> str:
    """``p99 TTFT at most 400 ms, p99 TPOT at most 40.0 ms``."""
    return ", ".join(f"{limit.label} at most {milliseconds(limit.limit_ms)}" for limit in limits)


def trusted(answer: Row) -> list[tuple[str, str]]:
    """(latency, how far to trust it)."""
    found = [(str(one.get("metric") or ""), str(one.get("text") or "")) for one in answer.get("trust") or []]
    return [(LATENCY_WORDS.get(name, name), text) for name, text in found if text]


def _knobs(answer: Row) -> list[Row]:
    return [knob for knob in (answer.get("limits") or {}).get("knobs") or [] if isinstance(knob, dict)]


def _yes_no(value: bool | None) -> str:
    return MISSING if value is None else "yes" if value else "no"


def _gib(size: float | None) -> str:
    return MISSING if size is None else f"{size / GIB:,.2f}"

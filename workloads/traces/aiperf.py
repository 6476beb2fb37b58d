"""aiperf: ``profile_export.jsonl`` (one record a request) and, beside it, ``profile_export_aiperf.json`` (totals).

A record is ``{"metadata": {...}, "metrics": {"time_to_first_token": {"value", "unit"}, ...}, "error"}``. Either file
may be named: the other one is looked for beside it. Where both stand, the totals give the tool's own figures and the
client's settings. aiperf's inter-token latency, (latency - TTFT) / (tokens - 1) of each request, is vLLM's TPOT; its
inter-chunk latency is vLLM's ITL. Source: ai-dynamo/aiperf, docs/tutorials/working-with-profile-exports.md.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, TextIO

from workloads.arrivals import Arrivals, ClosedLoop, Constant, Gamma, Poisson
from workloads.errors import WorkloadError
from workloads.measured import LATENCIES, STATISTICS, Measured, combined, statistics
from workloads.traces.bench_json import Document, concurrency, documents, figure, part, positive, positives, rows_word
from workloads.traces.client_settings import ClientSettings
from workloads.traces.config import TraceConfig
from workloads.traces.json_rows import json_rows
from workloads.traces.opening import open_trace
from workloads.traces.sink import BadRowError, RowSink
from workloads.traces.values import time_ps, token_count
from workloads.workload import PS_PER_S

TOOL = "aiperf"
_NAMES = {
    "ttft": ("time_to_first_token", "ttft"),  # the second name is that of the first versions
    "tpot": ("inter_token_latency",),
    "itl": ("inter_chunk_latency",),
    "e2el": ("request_latency",),
}
_STATISTICS = {"mean": "avg", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_TOTALS = {
    "duration": "benchmark_duration",
    "request_throughput": "request_throughput",
    "output_throughput": "output_token_throughput",
    "total_token_throughput": "total_token_throughput",
}
_UNIT_MS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "ns": 1e-6}
_TOTALS_SUFFIX = "_aiperf.json"


def read(text: TextIO, sink: RowSink, config: TraceConfig) -> None:
    """Reads the records into ``sink``, with the client's settings and what the tool measured."""
    path = Path(sink.path)
    name = path.name.removesuffix(".gz")
    if name.endswith(".json"):
        content = text.read()
        totals = _totals(io.StringIO(content), sink.path)
        if totals is None:  # records under a name of totals
            _read(io.StringIO(content), sink, config, {})
            return
        records = path.with_name(name.removesuffix(_TOTALS_SUFFIX).removesuffix(".json") + ".jsonl")
        if not records.is_file():
            raise WorkloadError(
                f"holds totals alone, and there is no {records.name} with the requests beside it",
                where=sink.path,
                remedy="give aiperf's profile_export.jsonl (written with --export-level records)",
            )
        sink.path = str(records)
        with open_trace(records, sink.path) as lines:
            _read(lines, sink, config, totals)
        return
    beside = path.with_name(name.removesuffix(".jsonl") + _TOTALS_SUFFIX)
    totals = {}
    if beside.is_file():
        with open_trace(beside, str(beside)) as other:
            totals = _totals(other, str(beside)) or {}
    else:
        sink.notes.append(f"no {beside.name} lies beside the records: the client's settings are not known")
    _read(text, sink, config, totals)


def _totals(text: TextIO, path: str) -> Document | None:
    """The totals; None where the text holds records. Raises WorkloadError where it holds something else."""
    found = documents(text, path)[0]
    if {"metadata", "metrics"} <= found.keys():
        return None
    if not {"input_config", "request_latency", "request_throughput", "aiperf_version"} & found.keys():
        raise WorkloadError(
            f"is no result of aiperf: it has {', '.join(list(found)[:8]) or 'nothing'}",
            where=path,
            remedy="give profile_export.jsonl or profile_export_aiperf.json, or set another format",
        )
    return found


def _read(text: TextIO, sink: RowSink, config: TraceConfig, totals: Document) -> None:
    sink.client, recorded = _client(totals, sink.notes)
    rows: list[tuple[int, int, int, int, str]] = []
    columns: dict[str, list[float]] = {name: [] for name in LATENCIES}
    ends: list[int] = []
    later_turns = failed = 0
    for number, record in json_rows(text, sink):
        metadata, metrics = part(record, "metadata"), part(record, "metrics")
        try:
            start, prompt, output = _request(record, metadata, metrics)
        except BadRowError as bad:
            sink.drop(number, bad.reason, bad.shown)
            failed += metadata.get("benchmark_phase") in (None, "profiling")
            continue
        rows.append((start, number, prompt, output, str(metadata.get("x_request_id") or "")))
        later_turns += bool(metadata.get("turn_index"))
        _measure(metrics, columns)
        end = metadata.get("request_end_ns")
        ends += [end] if type(end) is int else []
    rows.sort()  # records stand in the order in which requests ended
    kept = rows if config.limit is None else rows[: config.limit]
    for start, number, prompt, output, _ in kept:
        sink.add(number, start if recorded else None, prompt, output)
    sink.request_ids += [name for *_, name in kept if name] if all(name for *_, name in kept) else []
    sink.left_out = len(rows) - len(kept)
    if later_turns:
        sink.notes.append(
            f"{rows_word(later_turns)} continue a conversation; each counts as a request of its own, whose prompt "
            "shares nothing with the turn before"
        )
    computed = {key: v for name, column in columns.items() for key, v in statistics(name, column).items()}
    computed |= _throughputs(rows, ends)
    values, from_details = combined(_stated(totals), computed)
    if rows:
        sink.measured = Measured(TOOL, values, from_details, len(rows), failed, _model(totals))


def _request(record: Document, metadata: Document, metrics: Document) -> tuple[int, int, int]:
    """(start in picoseconds, prompt, output). Raises BadRowError for a record that was not served, or is no record."""
    if not metadata:
        raise BadRowError("is no record of aiperf", ", ".join(record)[:40])
    if metadata.get("benchmark_phase") not in (None, "profiling"):
        raise BadRowError(f"belongs to the phase {metadata['benchmark_phase']!r}"[:60])
    if metadata.get("was_cancelled"):
        raise BadRowError("the request was cancelled")
    if record.get("error"):
        raise BadRowError("the request failed", str(part(record, "error").get("message", record["error"]))[:60])
    prompt = token_count(_value(metrics, "input_sequence_length"), "input_sequence_length")
    output = token_count(_value(metrics, "output_sequence_length"), "output_sequence_length")
    return time_ps(metadata.get("request_start_ns"), "request_start_ns", PS_PER_S // 10**9), prompt, output


def _value(metrics: Document, name: str) -> Any:
    """A metric's value, without its unit."""
    found = metrics.get(name)
    return found.get("value") if isinstance(found, dict) else found


def _measure(metrics: Document, columns: dict[str, list[float]]) -> None:
    """Adds a record's latencies, ms."""
    for name, spellings in _NAMES.items():
        own = next((one for one in spellings if one in metrics), spellings[0])
        value = _value(metrics, own)
        unit = _UNIT_MS.get(str(part(metrics, own).get("unit", "ms")))
        numbers = [figure(one) for one in (value if isinstance(value, list) else [value])]
        if unit is not None:
            columns[name] += [number * unit for number in numbers if number is not None]


def _throughputs(rows: list[tuple[int, int, int, int, str]], ends_ns: list[int]) -> dict[str, float]:
    """Over the time from the first request's start to the last one's end."""
    if not rows or len(ends_ns) < len(rows):
        return {}
    seconds = max(ends_ns) / 1e9 - rows[0][0] / PS_PER_S
    inputs, outputs = sum(row[2] for row in rows), sum(row[3] for row in rows)
    if not seconds > 0:
        return {}
    return {
        "duration": seconds,
        "request_throughput": len(rows) / seconds,
        "output_throughput": outputs / seconds,
        "total_token_throughput": (inputs + outputs) / seconds,
    }


def _stated(totals: Document) -> dict[str, float]:
    """The tool's own figures, ms."""
    found: dict[str, Any] = {key: part(totals, own).get("avg") for key, own in _TOTALS.items()}
    for name, spellings in _NAMES.items():
        metric = next((part(totals, own) for own in spellings if own in totals), {})
        unit = _UNIT_MS.get(str(metric.get("unit", "ms")))
        for statistic in STATISTICS:
            value = positive(metric.get(_STATISTICS[statistic]))
            found[f"{statistic}_{name}_ms"] = None if value is None or unit is None else value * unit
    return positives(found)


def _client(totals: Document, notes: list[str]) -> tuple[ClientSettings, bool]:
    """How the requests were sent, and whether the recorded times say when each was due."""
    settings = part(totals, "input_config")
    phases = [phase for phase in settings.get("phases") or [] if isinstance(phase, dict)]
    phase = next((one for one in phases if one.get("name") == "profiling"), phases[-1] if phases else {})
    phase = phase or part(settings, "loadgen")
    most = concurrency(phase.get("concurrency"))
    rate = positive(phase.get("rate", phase.get("request_rate")))
    if totals and most is not None and rate is None and not str(phase.get("type", "")).startswith("fixed"):
        notes.append(
            f"arrivals: a closed loop of {most}, as the benchmark's concurrency says; the recorded times of sending "
            "are not used, for they tell how fast the measured server was"
        )
        return ClientSettings(ClosedLoop(most)), False
    law = _law(phase, rate)
    if most is not None and law is not None:
        notes.append(
            f"arrivals: drawn anew at {rate:g} requests/s ({law.kind}), as the benchmark's settings say (the recorded "
            f"times include waiting for one of {most} places, which depends on the measured server)"
        )
        return ClientSettings(law, most), False
    notes.append("arrivals: the recorded times of sending")
    if not totals:
        notes.append(
            "if the client held a number of requests in flight (--concurrency), set workload.arrivals: "
            "{kind: closed_loop, max_concurrency: N}: its times of sending then follow from the measured server's speed"
        )
    return ClientSettings(law), True


def _law(phase: Document, rate: float | None) -> Arrivals | None:
    if rate is None:
        return None
    kind = str(phase.get("arrival_pattern") or phase.get("request_rate_mode") or phase.get("type") or "")
    if "constant" in kind:
        return Constant(rate)
    if "gamma" in kind:
        return Gamma(rate, positive(phase.get("arrival_smoothness", phase.get("smoothness"))) or 1.0)
    return Poisson(rate)


def _model(totals: Document) -> str:
    settings = part(totals, "input_config")
    items = part(settings, "models").get("items")
    names = items if isinstance(items, list) else part(settings, "endpoint").get("model_names")
    first = names[0] if isinstance(names, list) and names else ""
    return str(first.get("name", "") if isinstance(first, dict) else first)

"""guidellm's ``benchmarks.json``: one benchmark a rate, each with its totals and its requests.

Read are the layout from version 0.4 on (``config.strategy``; requests with ``request_start_time`` and computed fields)
and the older one (``args.strategy``; ``start_time``, ``first_token_time``, ``last_token_time``). guidellm's inter-token
latency is a mean per request, weighted by its gaps. Its "time per output token" counts the first token in, unlike
all other tools, and is not read: TPOT is computed from the requests. Source: vllm-project/guidellm.
"""

from __future__ import annotations

from typing import Any, TextIO

from workloads.arrivals import AllAtOnce, Arrivals, ClosedLoop, Constant, Poisson
from workloads.errors import WorkloadError
from workloads.measured import STATISTICS, Measured, combined, statistics
from workloads.traces.bench_json import Document, concurrency, documents, figure, part, positives, rows_word, the_one
from workloads.traces.client_settings import ClientSettings
from workloads.traces.config import TraceConfig
from workloads.traces.sink import BadRowError, RowSink
from workloads.traces.values import time_ps, token_count
from workloads.workload import PS_PER_S

TOOL = "guidellm"
_LATENCIES = {"ttft": "time_to_first_token_ms", "itl": "inter_token_latency_ms", "e2el": "request_latency"}
_RATES = {
    "request_throughput": "requests_per_second",
    "output_throughput": "output_tokens_per_second",
    "total_token_throughput": "tokens_per_second",
}
_OPEN = {"constant": Constant, "poisson": Poisson}


def read(text: TextIO, sink: RowSink, config: TraceConfig) -> None:
    """Reads the successful requests of one benchmark into ``sink``, with its settings and what it measured."""
    sink.row_name = "request"
    found = _benchmarks(documents(text, sink.path)[0], sink.path)
    _, benchmark = the_one(found, (_label(one) for one in found), config.benchmark, sink.path)
    requests = part(benchmark, "requests")
    listed = requests.get("successful")
    if not isinstance(listed, list):
        raise WorkloadError(
            "holds totals alone, not the requests behind them",
            where=f"{sink.path}: benchmarks",
            remedy="run guidellm again with --output-path benchmarks.json and without --sample-requests 0",
        )
    sink.client, recorded = _client(benchmark, sink.notes)
    rows = []
    for number, request in enumerate(listed, 1):
        try:
            rows.append((*_request(request), number))
        except BadRowError as bad:
            sink.drop(number, bad.reason, bad.shown)
    sink.rows_read = len(listed)
    for reason, name in (("the request failed", "errored"), ("was cut off when the benchmark ended", "incomplete")):
        others = requests.get(name)
        for number, request in enumerate(others if isinstance(others, list) else [], sink.rows_read + 1):
            sink.rows_read += 1
            sink.drop(number, reason, _error(request))
    rows.sort(key=lambda row: (row[0], row[-1]))
    for start, prompt, output, _, number in rows if config.limit is None else rows[: config.limit]:
        sink.add(number, start if recorded else None, prompt, output)
    sink.left_out = len(rows) - len(sink.lines)
    sink.measured = _measured(benchmark, rows, sink.rows_read - len(rows))


def _benchmarks(document: Document, path: str) -> list[Document]:
    found = document.get("benchmarks")
    if not isinstance(found, list) or not found or not all(isinstance(one, dict) for one in found):
        raise WorkloadError(
            f"is no result of guidellm: it has {', '.join(list(document)[:8]) or 'nothing'}"
            if "benchmarks" not in document
            else "holds no benchmark",
            where=path,
            remedy="give the benchmarks.json that guidellm writes, or set another format",
        )
    return found


def _strategy(benchmark: Document) -> Document:
    return part(benchmark, "config", "strategy") or part(benchmark, "args", "strategy")


def _label(benchmark: Document) -> str:
    strategy = _strategy(benchmark)
    level = strategy.get("rate", strategy.get("streams"))
    return str(strategy.get("type_", "?")) + ("" if level is None else f" {level:g}" if figure(level) else f" {level}")


def _request(request: Any) -> tuple[int, int, int, dict[str, float]]:
    """(start in picoseconds, prompt, output, latencies in ms). Raises BadRowError for one that cannot be used."""
    if not isinstance(request, dict):
        raise BadRowError("is not a JSON object", repr(request)[:40])
    timings = part(request, "info", "timings")

    def time(*names: str) -> Any:
        return next((v for name in names for v in (request.get(name), timings.get(name)) if v is not None), None)

    start = time("request_start_time", "start_time", "request_start")
    prompt = token_count(_tokens(request, "prompt_tokens", "input_metrics"), "prompt_tokens")
    output = token_count(_tokens(request, "output_tokens", "output_metrics"), "output_tokens")
    first, last = (
        figure(time("first_token_time", "first_token_iteration")),
        figure(time("last_token_time", "last_token_iteration")),
    )
    end, sent = figure(time("request_end_time", "end_time", "request_end")), figure(start)
    latencies: dict[str, float] = {}
    if sent is not None and end is not None:
        latencies["e2el"] = 1000 * (end - sent)
    if sent is not None and first is not None:
        latencies["ttft"] = 1000 * (first - sent)
    if first is not None and last is not None and output > 1:
        latencies["tpot"] = 1000 * (last - first) / (output - 1)
    for name, own, scale in (
        ("e2el", "request_latency", 1000),
        ("ttft", "time_to_first_token_ms", 1),
        ("tpot", "inter_token_latency_ms", 1),
    ):
        value = figure(request.get(own))
        if value is not None and (name != "tpot" or output > 1):
            latencies[name] = scale * value
    return time_ps(start, "start_time", PS_PER_S), prompt, output, latencies


def _tokens(request: Document, own: str, usage: str) -> Any:
    """A count of tokens: computed by guidellm, or as the server's usage says it."""
    value = request.get(own)
    if value is not None:
        return value
    found = part(request, usage)
    return found.get("total_tokens", found.get("text_tokens"))


def _error(request: Any) -> str:
    error = request.get("error") if isinstance(request, dict) else None
    return str(error or part(request, "info").get("error") or "")[:60]


def _client(benchmark: Document, notes: list[str]) -> tuple[ClientSettings, bool]:
    """How the requests were sent, and whether the recorded times say when each was due."""
    strategy = _strategy(benchmark)
    kind = str(strategy.get("type_", ""))
    most = concurrency(strategy.get("streams")) or concurrency(strategy.get("max_concurrency"))
    closed = 1 if kind == "synchronous" else most if kind in ("concurrent", "throughput") else None
    if closed is not None:
        notes.append(
            f"arrivals: a closed loop of {closed}, as guidellm's strategy {kind} says; the recorded times of sending "
            "are not used, for they tell how fast the measured server was"
        )
        return ClientSettings(ClosedLoop(closed)), False
    rate = figure(strategy.get("rate"))
    law: Arrivals | None = AllAtOnce() if kind == "throughput" else None
    if rate is not None and rate > 0 and kind in _OPEN:
        law = _OPEN[kind](rate)
    notes.append("arrivals: the recorded times of sending")
    return ClientSettings(law), True


def _measured(benchmark: Document, rows: list[tuple[int, int, int, dict[str, float], int]], others: int) -> Measured:
    metrics = part(benchmark, "metrics")
    stated: dict[str, Any] = {key: part(metrics, own, "successful").get("mean") for key, own in _RATES.items()}
    stated["duration"] = benchmark.get("duration")
    for name, own in _LATENCIES.items():
        summary = part(metrics, own, "successful")
        scale = 1000 if name == "e2el" else 1
        for statistic, percent in STATISTICS.items():
            value = summary.get(statistic) if percent in (None, 50.0) else part(summary, "percentiles").get(statistic)
            number = figure(value)
            stated[f"{statistic}_{name}_ms"] = None if number is None else scale * number
    computed: dict[str, float] = {}
    for name in ("ttft", "tpot", "e2el"):
        computed |= statistics(name, [latencies[name] for *_, latencies, _ in rows if name in latencies])
    values, from_details = combined(positives(stated), computed)
    return Measured(
        TOOL, values, from_details, len(rows), others, _model(benchmark), itl="request_means", **_counted(metrics, rows)
    )


def _counted(metrics: Document, rows: list[Any]) -> dict[str, Any]:
    """Totals that are of other requests than the listed ones: a sample is listed, or a warm-up is left out."""
    total = part(metrics, "request_totals").get("successful")
    if type(total) is not int or total == len(rows):
        return {}
    return {"differs": (f"guidellm's totals are of {rows_word(total)}, and the file lists {len(rows):,}",)}


def _model(benchmark: Document) -> str:
    for keys in (("config", "backend"), ("worker",), ("benchmarker", "backend")):
        found = part(benchmark, *keys)
        if name := found.get("model", found.get("backend_model")):
            return str(name)
    return ""

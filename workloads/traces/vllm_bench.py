"""``vllm bench serve --save-result --save-detailed``: totals, and arrays with one entry a request.

``input_lens``, ``output_lens`` (tokens), ``ttfts``, ``start_times`` (seconds, of any clock), ``itls`` (a list of gaps
in seconds each), ``errors`` (empty for a success), ``generated_texts`` (not read), and from 2026 on ``latencies`` and
``queue_times`` (the time that a request waited in the client). A request that failed has no output tokens.
Source: vllm-project/vllm, vllm/benchmarks/serve.py.
"""

from __future__ import annotations

from typing import Any, TextIO

import numpy as np

from workloads.arrivals import AllAtOnce, Arrivals, ClosedLoop, Constant, Gamma
from workloads.errors import WorkloadError
from workloads.measured import KEYS, LATENCIES, FloatColumn, Measured, combined, statistics
from workloads.traces.bench_json import (
    Document,
    concurrency,
    documents,
    figure,
    finite_column,
    positive,
    positives,
    rows_word,
    the_one,
)
from workloads.traces.client_settings import ClientSettings
from workloads.traces.config import TraceConfig
from workloads.traces.sink import BadRowError, RowSink
from workloads.traces.values import time_ps, token_count
from workloads.workload import PS_PER_S

TOOL = "vllm bench serve"
_QUEUE = "start_times include the wait in the client, which depends on the measured server, and queue_times is missing"
_ARRAYS = ("input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "queue_times", "errors")


def read(text: TextIO, sink: RowSink, config: TraceConfig) -> None:
    """Reads the requests into ``sink``, with the client's settings and what the tool measured."""
    sink.row_name = "request"
    found = documents(text, sink.path)
    place, result = the_one(found, (_label(one) for one in found), config.benchmark, sink.path)
    arrays = _arrays(result, sink.path if len(found) == 1 else f"{sink.path}, benchmark {place}")
    sink.client, recorded = _client(result, arrays, sink.notes)
    good: list[int] = []
    rows: list[tuple[int, int | None, int, int]] = []
    for row in range(len(arrays["input_lens"])):
        try:
            rows.append((row, *_request(arrays, row, recorded)))
        except BadRowError as bad:
            sink.drop(row + 1, bad.reason, bad.shown)
        else:
            good.append(row)
    zero = min((sent for _, sent, _, _ in rows if sent is not None), default=0)  # the clock is of any start
    for row, sent, prompt, output in rows if config.limit is None else rows[: config.limit]:
        sink.add(row + 1, None if sent is None else sent - zero, prompt, output)
        sink.request_ids.append(str(row))
    sink.rows_read = len(arrays["input_lens"])
    sink.left_out = len(rows) - len(sink.lines)
    sink.measured = _measured(result, arrays, good)


def _label(result: Document) -> str:
    rate, most = result.get("request_rate", "?"), result.get("max_concurrency")
    return f"request_rate {rate}" + (f", max_concurrency {most}" if most is not None else "")


def _arrays(result: Document, where: str) -> dict[str, list[Any]]:
    """The arrays of details that are there. Raises WorkloadError without lengths, or where lengths disagree."""
    found = {name: result[name] for name in _ARRAYS if isinstance(result.get(name), list)}
    for name in ("input_lens", "output_lens"):
        if name not in found:
            known = "input_lens" in found or "output_lens" in found or "request_throughput" in result
            raise WorkloadError(
                f"has no {name}: it holds totals alone, not the requests behind them"
                if known
                else f"is no result of {TOOL}: it has {', '.join(list(result)[:8]) or 'nothing'}",
                where=where,
                remedy="run the benchmark again with --save-result --save-detailed"
                if known
                else "give the JSON file that --save-result --save-detailed writes, or set another format",
            )
    count = len(found["input_lens"])
    for name, values in found.items():
        if len(values) != count:
            raise WorkloadError(
                f"{name} has {len(values)} entries and input_lens {count}: the file is damaged",
                where=where,
                remedy=f"leave out {name}, or run the benchmark again with --save-result --save-detailed"
                if name not in ("output_lens", "errors")
                else "run the benchmark again with --save-result --save-detailed",
            )
    return found


def _request(arrays: dict[str, list[Any]], row: int, recorded: bool) -> tuple[int | None, int, int]:
    """(picosecond of sending or None, prompt, output) of one request. Raises BadRowError for one that failed."""
    output = arrays["output_lens"][row]
    error = arrays["errors"][row] if "errors" in arrays else ""
    if error or (type(output) is int and output == 0):
        raise BadRowError("the request failed", str(error).strip().split("\n")[-1][-60:])
    prompt = token_count(arrays["input_lens"][row], "input_lens")
    output = token_count(output, "output_lens")
    if not recorded:
        return None, prompt, output
    sent = time_ps(arrays["start_times"][row], "start_times", PS_PER_S)
    waited = time_ps(arrays["queue_times"][row], "queue_times", PS_PER_S) if "queue_times" in arrays else 0
    return sent - waited, prompt, output


def _client(result: Document, arrays: dict[str, list[Any]], notes: list[str]) -> tuple[ClientSettings, bool]:
    """How the requests were sent, and whether the recorded times say when each was due."""
    most = concurrency(result.get("max_concurrency"))
    rate = positive(result.get("request_rate"))
    at_once = result.get("request_rate") in ("inf", float("inf"))
    if most is not None and not at_once and rate is None:
        at_once = True
        notes.append("the file states no usable request_rate: taken as inf, the tool's default")
    ramp = result.get("ramp_up_strategy") is not None
    burstiness = positive(result.get("burstiness")) or 1.0
    law: Arrivals | None = None
    if not ramp and rate is not None:
        regular = result.get("burstiness") in ("inf", float("inf"))
        law = Constant(rate) if regular else Gamma(rate, burstiness, rescale_last_arrival=True)
    elif not ramp and at_once:
        law = AllAtOnce() if most is None else ClosedLoop(most)
    if isinstance(law, ClosedLoop):
        notes.append(
            f"arrivals: a closed loop of {law.max_concurrency}, as the benchmark's max_concurrency says; the recorded "
            "times of sending are not used, for they tell how fast the measured server was"
        )
        return ClientSettings(law), False
    recorded = "start_times" in arrays and (most is None or "queue_times" in arrays)
    if recorded:
        notes.append("arrivals: the recorded times of sending" + ("" if most is None else ", less the client's queue"))
    elif law is not None:
        drawn = "all at once" if rate is None else f"drawn anew at {rate:g} requests/s, {law.kind}"
        drawn += f" with burstiness {burstiness:g}" if isinstance(law, Gamma) else ""
        why = _QUEUE if "start_times" in arrays else "the file records no start_times"
        notes.append(f"arrivals: {drawn}, as the benchmark's settings say ({why})")
    return ClientSettings(law, most), recorded


def _measured(result: Document, arrays: dict[str, list[Any]], good: list[int]) -> Measured:
    """The tool's own figures, and those that follow from the details of the successful requests."""
    stated = {key: result.get(key) for key in KEYS}
    for name in LATENCIES:
        stated[f"median_{name}_ms"] = result.get(f"median_{name}_ms", result.get(f"p50_{name}_ms"))
    computed, notes = _computed(arrays, good)
    values, from_details = combined(positives(stated), computed)
    failed = len(arrays["input_lens"]) - len(good)
    model = str(result.get("model_id") or "")
    return Measured(TOOL, values, from_details, len(good), failed, model, notes=(*notes, *_pieces(arrays, good)))


def _computed(arrays: dict[str, list[Any]], good: list[int]) -> tuple[dict[str, float], list[str]]:
    """Statistics by vLLM's formulas from the arrays that are there, ms; and what is wrong with them."""
    columns: dict[str, list[float]] = {name: [] for name in ("ttft", "tpot", "e2el")}
    pooled: list[FloatColumn] = []
    broken = 0
    for row in good:
        ttft = figure(arrays["ttfts"][row]) if "ttfts" in arrays else None
        gaps = finite_column(arrays["itls"][row]) if "itls" in arrays else None
        broken += ("ttfts" in arrays and ttft is None) or ("itls" in arrays and gaps is None)
        latency = figure(arrays["latencies"][row]) if "latencies" in arrays else None
        if gaps is not None:
            pooled.append(1000 * gaps)
            if latency is None and ttft is not None:
                latency = ttft + float(gaps.sum())
        if ttft is not None:
            columns["ttft"].append(1000 * ttft)
        if latency is not None:
            columns["e2el"].append(1000 * latency)
            if ttft is not None and (output := int(arrays["output_lens"][row])) > 1:
                columns["tpot"].append(1000 * (latency - ttft) / (output - 1))
    found = {key: value for name, column in columns.items() for key, value in statistics(name, column).items()}
    if pooled:
        found |= statistics("itl", np.concatenate(pooled))
    notes = [f"{rows_word(broken)} with a latency that is not a number: left out of the measured latencies"]
    return found, notes if broken else []


def _pieces(arrays: dict[str, list[Any]], good: list[int]) -> list[str]:
    """Said where a server sent several tokens at once: then a gap is not one between tokens."""
    gaps = [len(arrays["itls"][row]) + 1 for row in good if "itls" in arrays and isinstance(arrays["itls"][row], list)]
    tokens = sum(int(arrays["output_lens"][row]) for row in good)
    if not gaps or sum(gaps) >= 0.99 * tokens:
        return []
    return [
        f"the measured server sent {tokens:,} tokens in {sum(gaps):,} pieces: the measured inter-token latency is one "
        "between pieces, the predicted one between tokens"
    ]

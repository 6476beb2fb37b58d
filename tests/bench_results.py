"""Result files of benchmark tools, as the tools write them, from a list of requests that a test works out by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NS = 10**9
EPOCH_S = 1_759_813_207


@dataclass(frozen=True)
class Served:
    """One request: seconds of sending, tokens, and seconds to the first token and between tokens."""

    sent_s: float
    prompt: int
    output: int
    ttft_s: float
    gap_s: float = 0.01
    error: str = ""

    @property
    def gaps_s(self) -> list[float]:
        return [self.gap_s] * (self.output - 1)

    @property
    def latency_s(self) -> float:
        return self.ttft_s + sum(self.gaps_s)


def vllm_result(served: list[Served], *, clock_s: float = 27_536.5, **changes: Any) -> dict[str, Any]:
    """``vllm bench serve --save-detailed`` (its field order), with p99 and no e2el, as by default. None drops a key."""
    good = [one for one in served if not one.error]
    result: dict[str, Any] = {
        "date": "20261129-200000",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": "meta-llama/Llama-3.1-8B-Instruct",
        "tokenizer_id": "meta-llama/Llama-3.1-8B-Instruct",
        "num_prompts": len(served),
        "request_rate": 4.0,
        "burstiness": 1.0,
        "max_concurrency": None,
        "duration": 10.0,
        "completed": len(good),
        "failed": len(served) - len(good),
        "total_input_tokens": sum(one.prompt for one in good),
        "total_output_tokens": sum(one.output for one in good),
        "request_throughput": len(good) / 10.0,
        "request_goodput": None,
        "output_throughput": sum(one.output for one in good) / 10.0,
        "total_token_throughput": sum(one.prompt + one.output for one in good) / 10.0,
        "input_lens": [one.prompt for one in served],
        "output_lens": [0 if one.error else one.output for one in served],
        "ttfts": [0.0 if one.error else one.ttft_s for one in served],
        "itls": [[] if one.error else one.gaps_s for one in served],
        "start_times": [clock_s + one.sent_s for one in served],
        "generated_texts": ["" if one.error else "text" for one in served],
        "errors": [one.error for one in served],
        "mean_ttft_ms": 123.0,
        "median_ttft_ms": 120.0,
        "std_ttft_ms": 1.0,
        "p99_ttft_ms": 150.0,
    }
    result |= changes
    return {key: value for key, value in result.items() if value is not None or key in ("label", "max_concurrency")}


def aiperf_records(served: list[Served]) -> list[dict[str, Any]]:
    """``profile_export.jsonl``: in the order in which requests end."""
    rows = []
    for number, one in enumerate(served):
        start = EPOCH_S * NS + round(one.sent_s * NS)
        metadata: dict[str, Any] = {
            "session_num": number,
            "x_request_id": f"request-{number}",
            "conversation_id": f"conversation-{number}",
            "turn_index": 0,
            "request_start_ns": start,
            "request_ack_ns": start + 1,
            "request_end_ns": start + round(one.latency_s * NS),
            "benchmark_phase": "profiling",
            "was_cancelled": False,
        }
        if one.error:
            failed = {"code": 500, "type": "InternalServerError", "message": one.error}
            metrics: dict[str, Any] = {"error_isl": {"value": one.prompt, "unit": "tokens"}}
            rows.append({"metadata": metadata, "metrics": metrics, "error": failed})
            continue
        metrics = {
            "input_sequence_length": {"value": one.prompt, "unit": "tokens"},
            "output_sequence_length": {"value": one.output, "unit": "tokens"},
            "time_to_first_token": {"value": 1000 * one.ttft_s, "unit": "ms"},
            "request_latency": {"value": 1000 * one.latency_s, "unit": "ms"},
            "inter_chunk_latency": {"value": [1000 * gap for gap in one.gaps_s], "unit": "ms"},
        }
        if one.output > 1:
            metrics["inter_token_latency"] = {"value": 1000 * one.gap_s, "unit": "ms"}
        rows.append({"metadata": metadata, "metrics": metrics, "error": None})
    return sorted(rows, key=lambda row: int(row["metadata"]["request_end_ns"]))


def aiperf_totals(*, phase: dict[str, Any], **metrics: dict[str, Any]) -> dict[str, Any]:
    """``profile_export_aiperf.json`` of version 0.10."""
    return {
        "schema_version": "1.3",
        "aiperf_version": "0.10.0",
        "request_throughput": {"unit": "requests/sec", "avg": 2.5},
        "request_latency": {"unit": "ms", "avg": 700.0, "p50": 650.0, "p90": 900.0, "p95": 950.0, "p99": 990.0},
        **metrics,
        "input_config": {
            "models": {"items": [{"name": "llama"}]},
            "phases": [
                {"name": "warmup", "type": "concurrency", "concurrency": 99, "exclude_from_results": True},
                {"name": "profiling", "requests": 3, **phase},
            ],
        },
    }


def guidellm_result(
    served: list[Served], strategy: dict[str, Any], *, incomplete: int = 0, older: bool = False, **metrics: Any
) -> dict[str, Any]:
    """``benchmarks.json``: of version 0.6, or of one before 0.4."""
    good = [one for one in served if not one.error]
    benchmark: dict[str, Any] = {
        "type_": "generative_benchmark",
        ("args" if older else "config"): {"strategy": strategy},
        "metrics": {"request_totals": {"successful": len(good)}, **metrics},
        "requests": {
            "successful": [_older(one) if older else _newer(one) for one in good],
            "incomplete": [{"info": {"status": "cancelled"}}] * incomplete,
            "errored": [{"error": one.error} for one in served if one.error],
        },
        "duration": 10.0,
    }
    return {"metadata": {"version": 1, "guidellm_version": "0.6.0"}, "benchmarks": [benchmark]}


def _newer(one: Served) -> dict[str, Any]:
    start, first = EPOCH_S + one.sent_s, EPOCH_S + one.sent_s + one.ttft_s
    return {
        "type_": "generative_request_stats",
        "request_id": f"r{one.sent_s}",
        "info": {"timings": {"request_start": start, "first_token_iteration": first}},
        "input_metrics": {"text_tokens": one.prompt},
        "output_metrics": {"text_tokens": one.output},
        "request_start_time": start,
        "request_end_time": start + one.latency_s,
        "request_latency": one.latency_s,
        "prompt_tokens": one.prompt,
        "output_tokens": one.output,
        "time_to_first_token_ms": 1000 * one.ttft_s,
        "time_per_output_token_ms": 1000 * one.latency_s / one.output,
        "inter_token_latency_ms": 1000 * one.gap_s if one.output > 1 else None,
    }


def _older(one: Served) -> dict[str, Any]:
    start = EPOCH_S + one.sent_s
    return {
        "type_": "generative_text_response",
        "request_id": "r",
        "prompt": "text",
        "output": "text",
        "prompt_tokens": one.prompt,
        "output_tokens": one.output,
        "start_time": start,
        "end_time": start + one.latency_s,
        "first_token_time": start + one.ttft_s,
        "last_token_time": start + one.latency_s,
    }

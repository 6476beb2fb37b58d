"""What a workload holds: the numbers of ``kvplan workload``, as a dict of plain values."""

from __future__ import annotations

from typing import Any

import numpy as np

from workloads.prefix_reuse import prefix_reuse
from workloads.workload import PS_PER_S, IntColumn, Workload

_WINDOWS_S = (1, 10, 60, 600, 3600)
_FEWEST_WINDOWS = 10
_BLOCK_SIZE = 16


def describe(workload: Workload, *, max_model_len: int | None = None, block_size: int | None = None) -> dict[str, Any]:
    """All facts about ``workload``; None stands where one does not apply or cannot be known.

    Args:
        max_model_len: tells how many prompts, and prompts with their outputs, are longer.
        block_size: of the prefix cache; default: the trace's own hash blocks, else 16 tokens.
    """
    trace = workload.trace
    prompt, output = workload.prompt_tokens, workload.output_tokens
    size = block_size or (trace.block_size if trace is not None else None) or _BLOCK_SIZE
    return {
        "rows": len(workload),
        "rows_read": None if trace is None else trace.rows_read,
        "rows_dropped": 0 if trace is None else trace.rows_dropped,
        "dropped": [] if trace is None else _dropped(workload),
        "path": None if trace is None else trace.path,
        "format": None if trace is None else trace.format,
        "prompt_tokens": length_statistics(prompt),
        "output_tokens": length_statistics(output),
        "total_tokens": length_statistics(prompt + output),
        "length_correlation": _correlation(prompt, output),
        "length_rank_correlation": _correlation(_ranks(prompt), _ranks(output)),
        "arrivals": arrival_statistics(workload),
        **_reuse(workload, size),
        "sessions": _sessions(workload),
        "classes": _classes(workload),
        "over_limit": None if max_model_len is None else _over(workload, max_model_len),
        "notes": list(workload.notes),
    }


def length_statistics(tokens: IntColumn) -> dict[str, float | int]:
    """Tokens: total, mean, standard deviation / mean (``cv``), percentiles (linear), extremes."""
    mean = float(tokens.mean())
    p50, p90, p95, p99 = np.percentile(tokens, [50, 90, 95, 99]).tolist()
    ends = {"min": int(tokens.min()), "max": int(tokens.max()), "total": int(tokens.sum())}
    return {"mean": mean, "cv": float(tokens.std()) / mean, "p50": p50, "p90": p90, "p95": p95, "p99": p99, **ends}


def arrival_statistics(workload: Workload) -> dict[str, Any]:
    """Rates and burstiness of the arrivals that are known beforehand (not of later turns).

    ``mean_rate_rps`` = (n - 1) / (last - first). ``gap_cv``: standard deviation / mean of the gaps, 1 for Poisson.
    ``index_of_dispersion``: variance / mean of the counts in whole windows, 1 for Poisson at any width; given for
    the widths that the span holds at least ten times. ``peak_rate_rps``: the fullest window.
    """
    times = workload.arrival_ps[workload.after < 0]
    span_ps = int(times[-1] - times[0])
    result: dict[str, Any] = {
        "arrivals": len(times),
        "span_s": span_ps / PS_PER_S,
        "requested_rate_rps": workload.requested_rate_rps,
        "requested_burstiness": workload.burstiness,
        "max_concurrency": workload.max_concurrency,
        "mean_rate_rps": None,
        "gap_mean_s": None,
        "gap_cv": None,
        "peak_rate_rps": {},
        "index_of_dispersion": {},
    }
    if span_ps == 0:
        return result
    gaps = np.diff(times)
    mean_ps = span_ps / len(gaps)
    result["mean_rate_rps"] = len(gaps) / (span_ps / PS_PER_S)
    result["gap_mean_s"] = mean_ps / PS_PER_S
    result["gap_cv"] = float(gaps.std()) / mean_ps
    for window_s in _WINDOWS_S:
        whole = span_ps // (window_s * PS_PER_S)
        counts = np.bincount((times - times[0]) // (window_s * PS_PER_S))
        if whole >= 1:
            result["peak_rate_rps"][f"{window_s}s"] = int(counts.max()) / window_s
        if whole >= _FEWEST_WINDOWS:
            full = counts[:whole]
            result["index_of_dispersion"][f"{window_s}s"] = float(full.var() / full.mean())
    return result


def _dropped(workload: Workload) -> list[dict[str, Any]]:
    assert workload.trace is not None
    return [
        {
            "reason": dropped.reason,
            "count": dropped.count,
            "examples": [{"line": line, "shown": shown} for line, shown in dropped.examples],
        }
        for dropped in workload.trace.dropped
    ]


def _reuse(workload: Workload, block_size: int) -> dict[str, Any]:
    """Prefix reuse. Without token identities it is 0 where we made the prompts, and unknown where a trace did."""
    full = int(np.sum(workload.prompt_tokens >= block_size))
    blocks = int(np.sum(-(-workload.prompt_tokens // block_size)))
    result: dict[str, Any] = {
        "ideal_prefix_hit_rate": None if workload.trace is not None else 0.0,
        "ideal_cached_token_share": None if workload.trace is not None else 0.0,
        "rows_sharing_a_prefix": None if workload.trace is not None else 0,
        "prefix_block_size": block_size,
        "prompt_blocks": blocks,
        "share_of_prompts_with_a_full_block": full / len(workload),
    }
    if workload.segments is not None:
        reuse = prefix_reuse(workload, block_size)
        result["ideal_prefix_hit_rate"] = reuse.hit_rate
        result["ideal_cached_token_share"] = reuse.cached_tokens / reuse.prompt_tokens
        result["rows_sharing_a_prefix"] = reuse.rows_with_a_hit
    return result


def _sessions(workload: Workload) -> dict[str, Any] | None:
    later = int(np.sum(workload.after >= 0))
    if not later:
        return None
    sessions = len(workload) - later
    think = workload.think_ps[workload.after >= 0]
    return {
        "sessions": sessions,
        "mean_turns": len(workload) / sessions,
        "mean_think_s": float(think.mean()) / PS_PER_S,
    }


def _classes(workload: Workload) -> dict[str, Any]:
    result = {}
    for i, request_class in enumerate(workload.classes):
        mine = workload.class_index == i
        n = int(mine.sum())
        result[request_class.name] = {
            "rows": n,
            "share": n / len(workload),
            "mean_prompt_tokens": float(workload.prompt_tokens[mine].mean()) if n else None,
            "mean_output_tokens": float(workload.output_tokens[mine].mean()) if n else None,
            "slo": request_class.slo,
        }
    return result


def _over(workload: Workload, max_model_len: int) -> dict[str, Any]:
    """Rows that a server with this context refuses (no room for one output token) or cuts short."""
    prompts = int(np.sum(workload.prompt_tokens >= max_model_len))
    totals = int(np.sum(workload.prompt_tokens + workload.output_tokens > max_model_len))
    return {
        "max_model_len": max_model_len,
        "prompts_too_long": prompts,
        "prompts_too_long_share": prompts / len(workload),
        "rows_too_long": totals,
        "rows_too_long_share": totals / len(workload),
    }


def _ranks(values: IntColumn) -> IntColumn:
    """Twice the average rank, so that ties stay whole numbers."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    twice: IntColumn = 2 * np.cumsum(counts) - counts
    return twice[inverse]


def _correlation(x: IntColumn, y: IntColumn) -> float | None:
    """Pearson's r; None where one of the two does not vary."""
    if len(x) < 2 or x.min() == x.max() or y.min() == y.max():
        return None
    return float(np.corrcoef(x, y)[0, 1])

"""What is known of a deployment without a clock: the least that a latency can be, and the most that it can serve.

Both are true bounds, so that what they rule out need not be simulated:

- *Floors.* A request alone on an idle server runs its prompt in as few chunks as the token budget allows and then one
  token a step. No load makes any step of it shorter, so no percentile of a latency is below that of these times.
- *Ceiling.* A token of a prompt or an answer costs at least its share of a full step of ``max_num_batched_tokens``
  rows (a fuller step reads the weights for more rows), and a token of an answer also reads its context:

      rate <= 1 / mean over requests of ((prompt + output - 1) * step(T)/T + per_context * sum of contexts).

Where prompts share what a prefix cache may hold, prompts count as free, and floors of the first token do not hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.deployment import Deployment
from simulator.metrics_requests import FloatColumn, statistics
from simulator.step_time.base import Batch, StepTimeModel
from workloads.workload import PS_PER_S, Workload

PS_PER_MS = PS_PER_S // 1000
_SLACK = 1.0 - 1e-6
"""Rounding of picoseconds must not make a bound false."""


@dataclass(frozen=True)
class Bounds:
    """Of one replica.

    Attributes:
        ceiling_rps: requests a second that it can never pass; None where no bound is known.
        floors: statistic of ``result.json`` (``p99_ttft_ms``) to the least that it can be.
    """

    ceiling_rps: float | None
    floors: dict[str, float]


def bounds_of(deployment: Deployment, workload: Workload) -> Bounds:
    """Bounds of one replica of a deployment."""
    step_time = deployment.step_time
    if step_time is None or workload.sequences is not None or hasattr(step_time, "stages"):
        return Bounds(None, {})
    shared = workload.segments is not None and deployment.engine.enable_prefix_caching
    lengths = _Lengths.of(workload, deployment.engine.max_model_len)
    if not len(lengths.prompt):
        return Bounds(None, {})
    budget = max(1, deployment.engine.max_num_batched_tokens)
    floors = {} if shared else _floors(step_time, lengths, budget)
    return Bounds(_ceiling_rps(step_time, lengths, budget, free_prompts=shared), floors)


@dataclass(frozen=True)
class _Lengths:
    """Of the requests that the context takes."""

    prompt: np.ndarray
    output: np.ndarray
    heads: float

    @classmethod
    def of(cls, workload: Workload, max_model_len: int) -> _Lengths:
        short = workload.prompt_tokens < max_model_len
        prompt, output = workload.prompt_tokens[short], workload.output_tokens[short]
        heads = float((workload.after < 0).sum()) / max(1, len(workload))
        return cls(prompt, np.minimum(output, max_model_len - prompt), heads)


def _ceiling_rps(step_time: StepTimeModel, lengths: _Lengths, budget: int, *, free_prompts: bool) -> float | None:
    full = step_time.segment(Batch(tokens=budget, windowed=_no_windows(step_time))).duration_ps
    decode = Batch(1, 1, 1, 1, 1, 1, windowed=_no_windows(step_time))
    per_context_ps = step_time.segment(decode).growth_ps
    prompt, output = lengths.prompt.astype(float), lengths.output.astype(float)
    rows = (0.0 if free_prompts else prompt) + output - 1.0
    contexts = (output - 1.0) * prompt + output * (output - 1.0) / 2.0
    work_ps = float((rows * (full / budget) + contexts * per_context_ps).mean())
    return lengths.heads * PS_PER_S / (work_ps * _SLACK) if work_ps > 0 else None


def _floors(step_time: StepTimeModel, lengths: _Lengths, budget: int) -> dict[str, float]:
    prompts, where = np.unique(lengths.prompt, return_inverse=True)
    first_ps = np.array([_prefill_ps(step_time, int(tokens), budget) for tokens in prompts], dtype=float)[where]
    later = lengths.output - 1
    starts = lengths.prompt + 1
    begin = _decode_ps(step_time, starts)
    end = _decode_ps(step_time, np.maximum(starts + later - 1, starts))
    tpot_ps = np.minimum(begin, (begin + end) / 2.0)  # contexts grow, and a step's time with them
    e2el = first_ps + tpot_ps * later
    latencies: dict[str, FloatColumn] = {
        "ttft": first_ps / PS_PER_MS,
        "tpot": np.where(later > 0, tpot_ps / PS_PER_MS, np.nan),
        "e2el": e2el / PS_PER_MS,
    }
    floors: dict[str, float] = {}
    for name, values in latencies.items():
        least = statistics(name, values * _SLACK)
        floors |= {key: value for key, value in least.items() if value is not None and not key.startswith("std")}
    return floors


def _prefill_ps(step_time: StepTimeModel, prompt: int, budget: int) -> int:
    total, done = 0, 0
    while done < prompt:
        chunk = min(budget, prompt - done)
        done += chunk
        batch = Batch(
            tokens=chunk, requests=1, sampled=int(done == prompt), context=done, windowed=_no_windows(step_time)
        )
        if chunk > 1:
            batch.prefills = [(chunk, done)]
        else:
            batch.decodes, batch.decode_context = 1, done
        total += step_time.segment(batch).duration_ps
    return total


def _decode_ps(step_time: StepTimeModel, contexts: np.ndarray) -> FloatColumn:
    """Of a step of one decode at each context; layers with windows count as if they read nothing."""
    batch = Batch(1, 1, 1, 1, 1, 1, windowed=_no_windows(step_time))
    at_one = step_time.segment(batch)
    return at_one.duration_ps + at_one.growth_ps * (contexts.astype(float) - 1.0)


def _no_windows(step_time: StepTimeModel) -> tuple[tuple[int, int], ...]:
    return tuple((0, 0) for _ in step_time.windows)

"""What is known of a deployment without a clock: the least that a latency can be, and the most that it can serve.

Both are true bounds, so that what they rule out need not be simulated:

- *Floors.* A request alone on an idle server runs its prompt in as few chunks as the token budget allows and then one
  token a step. No load makes any step of it shorter, so no percentile of a latency is below that of these times.
- *Ceiling.* A token of a prompt or an answer costs at least its share of a full step of ``max_num_batched_tokens``
  rows (a fuller step reads the weights for more rows), and a token of an answer also reads its context:

      rate <= 1 / mean over requests of ((prompt + output - 1) * step(T)/T + per_context * sum of contexts).

Both are of the requests that are served: what the KV pool, the context or the token budget turns away counts in
neither. Where prompts share what a prefix cache may hold, prompts count as free, and floors of the first token do not
hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.allocators.content import TokenContent
from simulator.allocators.pools import make_cache
from simulator.deployment import Deployment
from simulator.metrics_requests import FloatColumn, statistics
from simulator.request import Request
from simulator.schedulers.servable import Servable
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
    """Bounds of one replica of a deployment. Raises KvplanError where its pool holds nothing."""
    step_time = deployment.step_time
    if step_time is None or workload.sequences is not None or hasattr(step_time, "stages"):
        return Bounds(None, {})
    shared = workload.segments is not None and deployment.engine.enable_prefix_caching
    lengths = _Lengths.of(workload, deployment)
    if not len(lengths.prompt):
        return Bounds(None, {})
    budget = _most_tokens(deployment, lengths)
    floors = {} if shared else _floors(step_time, lengths, budget)
    return Bounds(_ceiling_rps(step_time, lengths, budget, free_prompts=shared), floors)


@dataclass(frozen=True)
class _Lengths:
    """Of the requests that are served.

    Attributes:
        arrivals: how many requests that follow no other arrive, for each one that is served.
    """

    prompt: np.ndarray
    output: np.ndarray
    arrivals: float

    @classmethod
    def of(cls, workload: Workload, deployment: Deployment) -> _Lengths:
        served = _served(workload, deployment)
        prompt, output = workload.prompt_tokens[served], workload.output_tokens[served]
        arrivals = float((workload.after < 0).sum()) / max(1, int(served.sum()))
        return cls(prompt, np.minimum(output, deployment.engine.max_model_len - prompt), arrivals)


def _served(workload: Workload, deployment: Deployment) -> np.ndarray:
    """Which rows a replica does not turn away, by its own rule."""
    engine = deployment.engine
    servable = Servable(engine, make_cache(deployment.pool, engine, TokenContent(workload)))
    served = workload.prompt_tokens < engine.max_model_len
    output = np.minimum(workload.output_tokens, engine.max_model_len - workload.prompt_tokens)
    unsure = served & (workload.prompt_tokens + output - 1 > servable.surely_tokens)
    for row in np.nonzero(unsure)[0].tolist():
        request = Request(row, 0, int(workload.prompt_tokens[row]), int(output[row]))
        served[row] = servable.reason_against(request) is None
    return served


def _most_tokens(deployment: Deployment, lengths: _Lengths) -> int:
    """Rows that a step can have: vLLM v1's budget holds for all of them, others' for prompts, or not for the first."""
    engine = deployment.engine
    if engine.policy.kind == "vllm-v1":
        return max(1, engine.max_num_batched_tokens)
    return max(engine.max_num_batched_tokens, int(lengths.prompt.max())) + engine.max_num_seqs


def _ceiling_rps(step_time: StepTimeModel, lengths: _Lengths, budget: int, *, free_prompts: bool) -> float | None:
    full = step_time.segment(Batch(tokens=budget, windowed=_no_windows(step_time))).duration_ps
    decode = Batch(1, 1, 1, 1, 1, 1, windowed=_no_windows(step_time))
    per_context_ps = step_time.segment(decode).growth_ps
    prompt, output = lengths.prompt.astype(float), lengths.output.astype(float)
    rows = (0.0 if free_prompts else prompt) + output - 1.0
    contexts = (output - 1.0) * prompt + output * (output - 1.0) / 2.0
    work_ps = float((rows * (full / budget) + contexts * per_context_ps).mean())
    return lengths.arrivals * PS_PER_S / (work_ps * _SLACK) if work_ps > 0 else None


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

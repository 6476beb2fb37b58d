"""How busy the stages of pipelined replicas were.

Over all replicas with stages, and over the time in which they had a batch in flight (``active``):

    stage_busy_share[s] = Σ time that stage s worked / Σ active        (replicas that have a stage s)
    bubble_share        = 1 − Σ_s time that stage s worked / Σ stages · active
    mean_batches_in_flight = Σ over batches of (end − pass) / Σ active
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.metrics_exact import ratio
from simulator.run_log import RunLog

WAITING_STAGES = 0.25
"""From this share of idle time on a reader is told."""


def pipeline_block(log: RunLog) -> dict[str, Any]:
    """The key ``pipeline`` of ``result.json``; nothing where no replica has stages."""
    busy: list[int] = []
    active: list[int] = []
    in_flight = 0
    for replica in log.replicas:
        facts = replica.pipeline
        if facts is None:
            continue
        time_ps = int(replica.segment_columns()["duration_ps"].sum())  # rows of one step, one after the other
        for stage, busy_ps in enumerate(facts.stage_busy_ps):
            if stage == len(busy):
                busy.append(0)
                active.append(0)
            busy[stage] += busy_ps
            active[stage] += time_ps
        in_flight += facts.in_flight_ps
    if not busy:
        return {}
    found = {
        "stage_busy_share": [ratio(mine, time_ps) for mine, time_ps in zip(busy, active, strict=True)],
        "bubble_share": ratio(sum(active) - sum(busy), sum(active)),
        "mean_batches_in_flight": ratio(in_flight, active[0]),
    }
    return {"pipeline": found}


def pipeline_warnings(metrics: Mapping[str, Any]) -> list[str]:
    """A sentence where the stages often wait."""
    found = metrics.get("pipeline")
    if found is None or found["bubble_share"] < WAITING_STAGES:
        return []
    return [
        f"Pipeline stages stood idle {found['bubble_share']:.0%} of the time in which a batch was under way "
        f"({found['mean_batches_in_flight']:.1f} batches in flight): as in vLLM v1, requests that were batched "
        "together go on together, and only a pass that cannot take all begins another batch. A smaller "
        "max_num_batched_tokens splits them; tensor_parallel_size lets all GPUs work on one batch."
    ]

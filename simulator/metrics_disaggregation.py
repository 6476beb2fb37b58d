"""The ``disaggregation`` block of ``result.json``: what went over the links, and how busy each pool was.

Of a handover with prefill end e, blocks at the decode replica from r on, KV there at l and admission at a:

    handover wait = r − e,   transfer = l − r (its turn at the link, its bytes, the latency),   admission wait = a − l,

and link utilization = Σ time on the wire / (links · duration). A pool's busy share is the time of its steps over
replicas · time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.metrics_exact import ratio, sum_of_products
from simulator.metrics_occupancy import Occupancy, occupancy_of
from simulator.metrics_requests import PS_PER_MS, percentile
from simulator.run_log import NOT_YET, IntColumn, ReplicaLog, RunLog


def disaggregation_block(log: RunLog, use: Occupancy) -> dict[str, Any]:
    """``{"disaggregation": {...}}`` of a run with two pools, else nothing."""
    if not log.prefill_replicas:
        return {}
    moved = log.handover_columns()
    there = moved["loaded_ps"] != NOT_YET
    tokens = int(moved["tokens"][there].sum())
    links = log.prefill_replicas
    return {
        "disaggregation": {
            "transfers": int(there.sum()),
            "transferred_tokens": tokens,
            "transferred_bytes": tokens * log.link_bytes_per_token,
            "prompts_computed_again": int((moved["tokens"] == 0).sum()),
            **_statistics("handover_wait", moved["prefilled_ps"], moved["reserved_ps"]),
            **_statistics("transfer", moved["reserved_ps"], moved["loaded_ps"]),
            **_statistics("admission_wait", moved["loaded_ps"], moved["admitted_ps"]),
            "mean_transferring": ratio(use.transferring, use.duration_ps),
            "links": links,
            "link_utilization": ratio(sum_of_products(moved["wire_ps"][there]), links * use.duration_ps),
            "prefill": _pool(log, log.replicas[:links], use),
            "decode": _pool(log, log.replicas[links:], use),
        }
    }


def _statistics(name: str, begin_ps: IntColumn, end_ps: IntColumn) -> dict[str, float | None]:
    """Mean and 99th percentile in ms of what has both begun and ended."""
    known = (begin_ps != NOT_YET) & (end_ps != NOT_YET)
    spans = np.sort((end_ps - begin_ps)[known])
    if len(spans) == 0:
        return {f"mean_{name}_ms": None, f"p99_{name}_ms": None}
    mean = ratio(sum_of_products(spans), len(spans) * PS_PER_MS)
    return {f"mean_{name}_ms": mean, f"p99_{name}_ms": percentile(spans / PS_PER_MS, 99)}


def _pool(log: RunLog, replicas: list[ReplicaLog], use: Occupancy) -> dict[str, Any]:
    own = occupancy_of(replicas, use.first_ps, log.end_ps)
    return {
        "replicas": len(replicas),
        "gpus": sum(replica.gpus for replica in replicas),
        "busy_share": ratio(own.busy_ps, own.replica_ps),
        "mean_running": ratio(own.running, own.duration_ps),
        "mean_kv_utilization": ratio(own.held, own.total),
        "peak_kv_utilization": own.peak_utilization,
    }

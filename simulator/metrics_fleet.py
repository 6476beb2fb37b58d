"""The ``kv`` block of ``result.json``, and what is said of each group of a fleet whose replicas differ.

Replicas are alike when they have the same group and the same KV pool. Where they are not, each kind is measured on its
own, and ``kv`` gives None for sizes that differ, the highest peak, and shares of all pools together, in which each
counts with its slots · time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simulator.fleet_log import FleetLog
from simulator.metrics_exact import ratio
from simulator.metrics_occupancy import Occupancy, occupancy_of, uptime_ps
from simulator.metrics_requests import RequestFacts
from simulator.run_log import PoolFacts, ReplicaLog, RunLog
from workloads.workload import PS_PER_S

MAX_CHANGES = 1000
"""At most so many entries of ``fleet.scaling``; of more, every second, third, ... is shown."""
PS_PER_HOUR = 3600 * PS_PER_S

_INT32_BYTES = 4
_COUNTS = ("evicted_blocks", "swapped_out_blocks", "swapped_in_blocks", "swap_fallbacks")


def kv_block(log: RunLog, use: Occupancy) -> dict[str, Any]:
    """The pool of one replica, and the use of all of them; the peak is that of the fullest replica."""
    pools = list(dict.fromkeys(replica.pool for replica in log.replicas))
    if len(pools) == 1:
        return _kv(log, log.replicas, use)
    parts = [[replica for replica in log.replicas if replica.pool == pool] for pool in pools]
    uses = [occupancy_of(part, use.first_ps, log.end_ps) for part in parts]
    blocks = [_kv(log, part, own) for part, own in zip(parts, uses, strict=True)]
    return {key: _together(key, [block[key] for block in blocks], uses) for key in blocks[0]}


def groups_block(log: RunLog, facts: RequestFacts, use: Occupancy) -> list[dict[str, Any]]:
    """What each kind of replica did, in the order of their numbers; empty where all are alike and have no name."""
    by_kind: dict[tuple[str, PoolFacts], list[ReplicaLog]] = {}
    for replica in log.replicas:
        by_kind.setdefault((replica.group, replica.pool), []).append(replica)
    if len(by_kind) == 1 and not log.replicas[0].group:
        return []
    table = facts.columns
    found = []
    for (name, _), replicas in by_kind.items():
        own = occupancy_of(replicas, use.first_ps, log.end_ps)
        numbers = sorted({replica.replica for replica in replicas})
        ended = facts.finished & [number in numbers for number in table["replica"].tolist()]
        found.append(
            {
                "name": name,
                "replicas": len(numbers),
                "gpus_per_replica": replicas[0].gpus,
                "completed": int(ended.sum()),
                "output_tokens": int(table["generated_tokens"][ended].sum()),
                "engine_steps": own.engine_steps,
                "busy_share": ratio(own.busy_ps, own.replica_ps),
                "mean_running": ratio(own.running, own.duration_ps),
                "kv": _kv(log, replicas, own),
            }
        )
    return found


def fleet_block(log: RunLog, facts: RequestFacts, use: Occupancy) -> dict[str, Any]:
    """``fleet`` of result.json, where replicas may fail, start or stop, or differ; else nothing.

    Hours are those of the run, [first arrival, end], in which a replica was up or an autoscaler's start-up was under
    way.
    """
    groups = [] if log.prefill_replicas else groups_block(log, facts, use)
    if log.fleet is None and not groups:
        return {}
    happened = log.fleet or FleetLog()
    starts_ps = sum(_within(since, until, use.first_ps, log.end_ps) for since, until in happened.starts)
    shown = happened.scaling[:: -(-len(happened.scaling) // MAX_CHANGES) or 1]
    block: dict[str, Any] = {
        "replicas": len({replica.replica for replica in log.replicas}),
        "mean_replicas": ratio(use.replica_ps, use.duration_ps),
        "failures": happened.failures,
        "rerouted": happened.rerouted,
        "interrupted": happened.interrupted,
        "lost_kv_tokens": happened.lost_kv_tokens,
        "held_at_router": happened.held,
        "replica_hours": (use.replica_ps + starts_ps) / PS_PER_HOUR,
        "gpu_hours": sum(gpu_ps_by_group(log, use.first_ps).values()) / PS_PER_HOUR,
        "groups": groups,
        "scaling": [
            {"time_s": time / PS_PER_S, "up": up, "starting": starting, "draining": draining}
            for time, up, starting, draining in shown
        ],
    }
    return {"fleet": block}


def fleet_warnings(metrics: Mapping[str, Any]) -> list[str]:
    """What failures cost, and whether nobody was left."""
    fleet = metrics.get("fleet")
    if fleet is None:
        return []
    found = []
    if fleet["failures"]:
        found.append(
            f"{fleet['failures']:,} failures of replicas: {fleet['rerouted']:,} requests went on elsewhere, "
            f"{fleet['interrupted']:,} of them had begun and lost the KV of {fleet['lost_kv_tokens']:,} tokens."
        )
    if nobody_left(metrics):
        found.append(
            f"At the end no replica was up any more, and {metrics['unfinished']:,} requests still waited at the router "
            "(fleet.events): start one again, or give its failure restart_after_s."
        )
    return found


def nobody_left(metrics: Mapping[str, Any]) -> bool:
    """Whether requests wait that no replica is there to take, and none will come."""
    scaling = (metrics.get("fleet") or {}).get("scaling")
    return bool(metrics["unfinished"] and scaling and not scaling[-1]["up"])


def gpu_ps_by_group(log: RunLog, first_ps: int) -> dict[str, int]:
    """GPU time of each group, ps, of replicas that were up or that an autoscaler was starting."""
    found: dict[str, int] = {}
    for replica in log.replicas:
        up_ps = uptime_ps(replica, first_ps, log.end_ps)
        found[replica.group] = found.get(replica.group, 0) + replica.gpus * up_ps
    if log.fleet is not None and log.fleet.starts:  # an autoscaler's replicas are of one kind
        kind = log.replicas[0]
        found[kind.group] += kind.gpus * sum(_within(*start, first_ps, log.end_ps) for start in log.fleet.starts)
    return found


def _within(since: int, until: int, first_ps: int, end_ps: int) -> int:
    return max(min(until, end_ps) - max(since, first_ps), 0)


def _kv(log: RunLog, replicas: Sequence[ReplicaLog], use: Occupancy) -> dict[str, Any]:
    """Of replicas that have the same pool."""
    pool = replicas[0].pool
    slots = pool.num_blocks * (pool.block_size if pool.kind == "paged" else 1)
    return {
        "kind": pool.kind,
        "pool_bytes": slots * pool.bytes_per_token,
        "num_gpu_blocks": pool.num_blocks,
        "block_size": pool.block_size,
        "bytes_per_token": pool.bytes_per_token,
        "total_slots": pool.total_slots,
        "peak_utilization": use.peak_utilization,
        "mean_utilization": ratio(use.held, use.total),
        **use.shares(pool.kind == "contiguous"),
        "block_table_bytes": _table_bytes(log, pool),
        "mean_block_table_lookups_per_step": ratio(use.table_slots, use.engine_steps * max(pool.block_size, 1)),
        **{name: sum(getattr(replica, name) for replica in replicas) for name in _COUNTS},
    }


def _table_bytes(log: RunLog, pool: PoolFacts) -> int:
    """Bytes of a replica's block table: int32 [max_num_seqs, ⌈max_model_len / B⌉] as in vLLM; 0 if contiguous."""
    if pool.kind != "paged" or not log.limits:
        return 0
    return _INT32_BYTES * log.limits["max_num_seqs"] * -(-log.limits["max_model_len"] // pool.block_size)


def _together(key: str, values: list[Any], uses: list[Occupancy]) -> Any:
    """One number of several pools."""
    if key in _COUNTS:
        return sum(values)
    if key == "peak_utilization":
        return max(values)
    weights = {
        "token_share_of_held": [use.held for use in uses],
        "saved_by_sharing_share": [use.held + use.saved for use in uses],
        "mean_block_table_lookups_per_step": [use.engine_steps for use in uses],
    }.get(key, [use.total for use in uses])
    if key == "mean_utilization" or key.endswith(("_share", "_of_held", "_per_step")):
        return sum(value * weight for value, weight in zip(values, weights, strict=True)) / max(sum(weights), 1)
    return values[0] if len(set(values)) == 1 else None

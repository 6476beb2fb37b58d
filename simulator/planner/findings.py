"""What a reader of a sweep's table must know first: above all, which knob changed nothing, and what binds instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from simulator.planner.axes import value_text
from simulator.planner.table import Row

_SEEN = (
    *("duration", "completed", "rejected", "preemptions", "request_throughput", "output_throughput"),
    *("mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms", "mean_e2el_ms", "p99_e2el_ms"),
    *("admitted",),
)
"""What the users of the server notice."""
_INSIDE = (
    *("kv.mean_utilization", "kv.peak_utilization", "kv.token_share_of_held", "kv.internal_fragmentation_share"),
    *("kv.reserved_share", "kv.external_fragmentation_share", "engine_steps", "usd_per_hour", "used_share"),
)
"""What only the operator does."""
_INSTEAD = {
    "arrivals": "no limit binds, requests arrive too slowly for one (raise workload.arrivals.rate_rps)",
    "kv_memory": "KV memory binds (more of it, or fewer bytes a token, would show more)",
    "max_num_seqs": "max_num_seqs binds (raise engine.max_num_seqs)",
    "token_budget": "the token budget binds (raise engine.max_num_batched_tokens)",
    "compute": "the GPU's arithmetic binds (a faster GPU, or more of them)",
    "bandwidth": "the GPU's memory bandwidth binds (a faster GPU, or more of them)",
    "kv_transfer": "the links between prefill and decode bind (a faster disaggregation.link)",
    "requests": "all requests fit, so nothing binds (raise workload.num_requests)",
}
_FEW = 4

AxisValues = tuple[str, list[Any]]


def findings(rows: Sequence[Row], axes: Sequence[AxisValues]) -> list[str]:
    """Sentences, the most important first."""
    found = []
    for axis in axes:
        found += _without_effect(rows, axis, [path for path, _ in axes])
        if axis[0].endswith("block_size"):
            found += _no_waste(rows, axis)
    return found + _failures(rows) + _saturated(rows)


def _has_numbers(row: Row) -> bool:
    return row["status"] in ("ok", "slo_missed")


def _without_effect(rows: Sequence[Row], axis: AxisValues, paths: list[str]) -> list[str]:
    """For each variant, whether the knob, or its last values, changed nothing."""
    path, values = axis
    if len(values) < 2:
        return []
    by_variant: dict[Any, list[Row]] = {}
    for row in rows:
        by_variant.setdefault(row["variant"], []).append(row)
    said: dict[str, list[str]] = {}
    for variant, members in by_variant.items():
        sentence = _effect(members, axis, [other for other in paths if other != path])
        if sentence:
            said.setdefault(sentence, []).append(variant or "")
    return [
        sentence if len(names) == len(by_variant) else f"{', '.join(names)}: {sentence}"
        for sentence, names in said.items()
    ]


def _effect(rows: list[Row], axis: AxisValues, others: list[str]) -> str | None:
    path, values = axis
    position = {_shown(value): i for i, value in enumerate(values)}
    groups: dict[tuple[Any, ...], dict[int, Row]] = {}
    for row in rows:
        if _has_numbers(row):
            group = (*(_shown(row[other]) for other in others), row["replication"])
            groups.setdefault(group, {})[position[_shown(row[path])]] = row
    present = [sorted(group) for group in groups.values() if len(group) > 1]
    if not present:
        return None
    # the first value from which on nothing changes, in every group
    start = max(_plateau(group) for group in groups.values() if len(group) > 1)
    if start > len(values) - 2:
        return None
    flat = [row for group in groups.values() for i, row in group.items() if i >= start]
    same_inside = start == 0 and all(_equal(list(group.values()), _INSIDE) for group in groups.values())
    listed = _listed(values[start:])
    what = "anything at all" if same_inside else "throughput, latency or preemptions"
    if flat[0].get("mode") == "admission":
        what = "how many requests are admitted"
    if same_inside and path.endswith("block_size") and all(row.get("labels.allocator") == "contiguous" for row in flat):
        return f"{path} does not change {what}: a contiguous cache has no blocks."
    scope = (
        f"{path} does not change {what} ({listed})"
        if start == 0
        else (f"{path} from {value_text(values[start])} on ({listed}) does not change {what}")
    )
    return f"{scope}: {_instead(flat)}."


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else value_text(value)


def _plateau(group: dict[int, Row]) -> int:
    """The first position from which on all rows are alike."""
    order = sorted(group)
    start = order[-1]
    for i in reversed(order[:-1]):
        if not _equal([group[i], group[order[-1]]], _SEEN):
            break
        start = i
    return start


def _equal(rows: list[Row], names: Iterable[str]) -> bool:
    return all(row.get(name) == rows[0].get(name) for name in names for row in rows)


def _listed(values: list[Any]) -> str:
    texts = [value_text(value) for value in values]
    return ", ".join(texts if len(texts) <= _FEW else [*texts[:2], "...", texts[-1]])


def _instead(rows: list[Row]) -> str:
    limits: dict[str, int] = {}
    for row in rows:
        limits[str(row["binding_limit"])] = limits.get(str(row["binding_limit"]), 0) + 1
    return "; ".join(_INSTEAD.get(limit, f"{limit} binds") for limit in sorted(limits, key=lambda k: (-limits[k], k)))


def _no_waste(rows: Sequence[Row], axis: AxisValues) -> list[str]:
    path, _ = axis
    large = [
        row
        for row in rows
        if _has_numbers(row) and row.get("labels.allocator") == "paged" and isinstance(row[path], int) and row[path] > 1
    ]
    wasted = [row.get("kv.internal_fragmentation_share", row.get("wasted_slots")) for row in large]
    if len({row[path] for row in large}) < 2 or any(waste != 0 for waste in wasted):
        return []
    return [
        f"Every {path} divides every length of this workload, so no block has an unused end, by construction: draw "
        "lengths from a law such as lognormal, or take a trace."
    ]


def _failures(rows: Sequence[Row]) -> list[str]:
    words = {
        "does_not_fit": "do not fit in memory",
        "bad_input": "have settings that contradict each other",
        "failed": "failed",
        "slo_missed": "miss an SLO or an expectation",
    }
    found = []
    for status, words_of in words.items():
        members = [row for row in rows if row["status"] == status]
        if members:
            example = f"; the first: {members[0]['error']}" if status != "slo_missed" else ""
            found.append(f"{len(members)} of {len(rows)} points {words_of}{example}.")
    return found


def _saturated(rows: Sequence[Row]) -> list[str]:
    count = sum(row["saturated"] is True for row in rows)
    if not count:
        return []
    return [
        f"In {count} of {len(rows)} points the backlog grew while requests arrived: latencies there depend on how long "
        "the run is."
    ]

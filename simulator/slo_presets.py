"""Named latency limits: ``slo: chat`` or ``slo: {preset: chat, ttft_ms: {p99: 400}}``, written out before binding.

What a scenario is bound to, its resolved file and its result hold the numbers alone; a note says where they came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.document import Document, Steps, dotted, kind_of
from simulator.errors import InputError
from simulator.suggestions import did_you_mean

Limits = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class SloPreset:
    """Latency limits, metric to statistic to limit (ms), and where they come from."""

    limits: Limits
    source: str

    def text(self) -> str:
        """The limits in words."""
        parts = [
            f"{metric.removesuffix('_ms')} {statistic} {limit:g} ms"
            for metric, limits in self.limits.items()
            for statistic, limit in limits.items()
        ]
        return ", ".join(parts) or "no latency limit: it must only keep up with the requests"


_MLPERF = "MLPerf Inference's limits at p99: constants.py of the submission checker in mlcommons/inference"
_DISTSERVE = "DistServe (OSDI 2024), table 1, there for 90% of the requests [from memory, not verified]"


def _mlperf(ttft_ms: float, tpot_ms: float, source: str = _MLPERF) -> SloPreset:
    return SloPreset({"ttft_ms": {"p99": ttft_ms}, "tpot_ms": {"p99": tpot_ms}}, source)


SLO_PRESETS: dict[str, SloPreset] = {
    "chat": SloPreset(
        {"ttft_ms": {"p99": 500}, "tpot_ms": {"p99": 50}},
        "assumed: an answer starts within half a second and then runs at 20 tokens/s, faster than people read",
    ),
    "code-completion": SloPreset({"ttft_ms": {"p90": 125}, "tpot_ms": {"p90": 200}}, _DISTSERVE),
    "summarization": SloPreset({"ttft_ms": {"p90": 15000}, "tpot_ms": {"p90": 150}}, _DISTSERVE),
    "batch": SloPreset({}, "assumed: nobody waits for a single answer"),
    "mlperf-llama-3.1-8b-server": _mlperf(2000, 100),
    "mlperf-llama-3.1-8b-interactive": _mlperf(500, 30),
    "mlperf-llama-2-70b-server": _mlperf(2000, 200),
    "mlperf-llama-2-70b-interactive": _mlperf(450, 40),
    "mlperf-llama-3.1-405b-server": _mlperf(6000, 175),
    "mlperf-llama-3.1-405b-interactive": _mlperf(4500, 80),
    "mlperf-mixtral-8x7b-server": _mlperf(2000, 200),
    "mlperf-deepseek-r1-server": _mlperf(2000, 80),
    "mlperf-deepseek-r1-interactive": _mlperf(1500, 15),
    "mlperf-gpt-oss-120b-server": _mlperf(3000, 80),
    "mlperf-gpt-oss-120b-interactive": _mlperf(
        2000,
        20,
        "MLPerf Inference's rules: inference_rules.adoc in mlcommons/inference_policies; an older checker held 15 ms",
    ),
}
"""By name; a scenario may tighten or loosen each limit."""


def name_presets(document: Document) -> None:
    """``slo: chat`` as ``slo: {preset: chat}``, so that a patch can set single limits beside it."""
    for steps in _places(document):
        value = document.part(steps)
        if isinstance(value, str):
            document.part(steps[:-1])[steps[-1]] = {"preset": value}
            document.values[(*steps, "preset")] = document.place(steps)
            document.keys[(*steps, "preset")] = document.place(steps)


def expand_presets(document: Document) -> list[str]:
    """Writes the limits of each named preset out in place; a note for each.

    A metric that the scenario states itself replaces the preset's limits on it; null drops them.

    Raises:
        InputError: no preset has that name; a class without limits stands in a scenario with limits.
    """
    name_presets(document)
    notes = []
    for steps in _places(document):
        table = document.part(steps)
        if not isinstance(table, dict) or "preset" not in table:
            continue
        name = table["preset"]
        preset = _found(document, (*steps, "preset"), name)
        own = {key: value for key, value in table.items() if key != "preset"}
        merged = {metric: dict(limits) for metric, limits in preset.limits.items()} | own
        left = {
            metric: limits for metric, limits in merged.items() if limits is not None or metric not in preset.limits
        }
        if not left and steps[0] == "workload":
            _refuse_inherited(document, steps)
        document.part(steps[:-1])[steps[-1]] = left
        changed = [metric for metric in own if metric in preset.limits]
        stated = f"; the scenario states {' and '.join(changed)} itself" if changed else ""
        notes.append(f"{dotted(steps)} = preset {name}: {preset.text()} ({preset.source}){stated}")
    return notes


def _found(document: Document, steps: Steps, name: Any) -> SloPreset:
    if isinstance(name, str) and name in SLO_PRESETS:
        return SLO_PRESETS[name]
    slo, where = dotted(steps[:-1]), document.place(steps)
    if not isinstance(name, str):
        what = f"{dotted(steps)} must be the name of a preset, not {kind_of(name)}"
        raise InputError(what, where=where, remedy=f"write {slo}: {{preset: chat}}, or delete the key")
    near = did_you_mean(name, SLO_PRESETS)
    remedy = f"{near}, or state limits: {slo}: {{ttft_ms: {{p99: 500}}}}"
    raise InputError(f"{slo}: {name!r} is not a preset of latency limits", where=where, remedy=remedy)


def _refuse_inherited(document: Document, steps: Steps) -> None:
    """A class without limits takes those of the scenario, which is the opposite of what its preset says."""
    if document.data.get("slo"):
        raise InputError(
            f"{dotted(steps)} sets no limit, and a class without limits takes those of the scenario",
            where=document.place(steps),
            remedy="move the scenario's slo into the classes that it is meant for",
        )


def _places(document: Document) -> list[Steps]:
    """Where limits stand: of the whole scenario, and of each class of its workload."""
    data = document.data
    found: list[Steps] = [("slo",)] if data.get("slo") is not None else []
    workload = data.get("workload")
    classes = workload.get("classes") if isinstance(workload, dict) else None
    for i, part in enumerate(classes if isinstance(classes, list) else []):
        if isinstance(part, dict) and part.get("slo") is not None:
            found.append(("workload", "classes", i, "slo"))
    return found

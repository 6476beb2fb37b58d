"""Whether a probe passes: every limit met, no backlog that grows, and a rate that can be kept up for ever."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from simulator.capacity_settings import CapacitySettings
from simulator.planner.capacity.knee import Verdict
from simulator.planner.capacity.probe import ProbeOutcome
from simulator.planner.capacity.rates import rate_text


def why_not(
    outcome: ProbeOutcome, rate_rps: float | None, stable_rps: float | None, settings: CapacitySettings
) -> list[str]:
    """What a probe misses, one line each; empty where it passes.

    Args:
        stable_rps: what the deployment sustains; a rate above it is saturated, however short the run.
    """
    if outcome.status != "ok":
        return [outcome.error or outcome.status]
    facts = outcome.facts
    missed = []
    if facts["status"] != "ok":
        missed.append(f"the run ends in a {facts['status']}")
    if stable_rps is not None and rate_rps is not None and rate_rps > stable_rps:
        missed.append(f"saturated: it sustains {rate_text(stable_rps)} req/s")
    elif facts["saturated"]:
        missed.append("saturated: the backlog grows while requests arrive")
    missed += _missed_limits(facts, settings)
    share = facts["rejected"] / facts["num_prompts"]
    if share > settings.max_rejected_share:
        missed.append(f"{share:.1%} of the requests can never be served")
    return missed


def _missed_limits(facts: Mapping[str, Any], settings: CapacitySettings) -> list[str]:
    slo = facts["slo"]
    if not slo:
        return []
    missed = [limit_text(limit) for limit in slo["limits"] if not limit["met"]]
    wanted = settings.goodput_share
    if wanted is not None and slo["attainment"] < wanted:
        missed.append(f"{slo['attainment']:.1%} of the requests are within every limit, fewer than {wanted:.1%}")
    return missed


def limit_text(limit: Mapping[str, Any]) -> str:
    """``p99 of TTFT is 612.4 ms, above 500 ms``."""
    metric = limit["metric"].removesuffix("_ms").upper()
    of = "" if limit["class"] == "default" else f"{limit['class']}: "
    than = "within" if limit["met"] else "above"
    return f"{of}{limit['stat']} of {metric} is {limit['value']:,.1f} ms, {than} {limit['limit']:,g} ms"


def verdict(outcome: ProbeOutcome, rate_rps: float, stable_rps: float | None, settings: CapacitySettings) -> Verdict:
    """The verdict that a search over rates or counts wants."""
    passed = not why_not(outcome, rate_rps, stable_rps, settings)
    return Verdict(passed, severity(outcome.facts, settings) if passed else math.inf)


def severity(facts: Mapping[str, Any], settings: CapacitySettings) -> float:
    """The largest share of a limit that is used up."""
    slo = facts.get("slo")
    if not slo:
        return 0.0
    used = [limit["value"] / limit["limit"] for limit in slo["limits"] if limit["value"] is not None]
    if settings.goodput_share is not None and settings.goodput_share < 1:
        used.append((1.0 - slo["attainment"]) / (1.0 - settings.goodput_share))
    return max(used, default=0.0)

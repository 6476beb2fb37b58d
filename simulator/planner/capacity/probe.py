"""A probe: one deployment at one rate, simulated; and what is kept of it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from simulator import run_scenario
from simulator.errors import KvplanError
from simulator.metrics_requests import RequestFacts
from simulator.planner.fingerprint import fingerprint
from simulator.planner.point import Status, one_line, status_of
from simulator.run_log import NOT_YET, RunLog
from simulator.scenario import Scenario
from simulator.scenario_resolved import plain, scenario_sha256
from simulator.unserved import serves_nobody, unserved_error
from workloads.errors import WorkloadError
from workloads.workload import PS_PER_S

Purpose = Literal["saturation", "knee", "confirm", "headroom", "knob"]
AT_ONCE_RPS = 1e9
"""The rate of a saturation probe: all arrive within a few microseconds, in their order."""

_LOOKS = 51

STATISTICS = ("mean", "median", "p90", "p95", "p99")
LATENCIES = ("ttft", "tpot", "itl", "e2el", "queue")
_KEPT = (
    *("status", "num_prompts", "completed", "rejected", "reject_reasons", "request_rate", "duration"),
    *("request_throughput", "request_goodput", "output_throughput", "total_token_throughput"),
    *(f"{statistic}_{metric}_ms" for metric in LATENCIES for statistic in STATISTICS),
    *("max_concurrent_requests", "preemptions", "recomputed_tokens", "prefix_cache_hit_rate"),
    *("mean_running", "mean_waiting", "binding_limit", "wait_shares", "saturated", "slo", "confidence_95", "warnings"),
)
_KEPT_OF_KV = ("peak_utilization", "mean_utilization")


@dataclass(frozen=True)
class ProbeOutcome:
    """What a worker hands back: the kept part of a result, or why there is none."""

    status: Status
    error: str | None
    facts: dict[str, Any]
    seconds: float


@dataclass(frozen=True)
class Probe:
    """A job of an executor.

    Attributes:
        scenario: with its rate and its replicas.
        sustained: whether to measure what the deployment sustains (arrivals are all at once).
    """

    index: int
    scenario: Scenario
    variant: str | None
    sustained: bool

    @property
    def key(self) -> str:
        """Hash of all that the outcome follows from."""
        facts = (
            fingerprint(),
            scenario_sha256(plain(self.scenario.settings)),
            list(self.scenario.notes),
            self.variant,
            self.sustained,
        )
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:40]

    def run(self) -> ProbeOutcome:
        """Simulates. An error of the scenario is an outcome too."""
        start = time.perf_counter()
        try:
            facts = self._facts()
        except (KvplanError, WorkloadError) as error:
            return ProbeOutcome(status_of(error), one_line(str(error)), {}, time.perf_counter() - start)
        return ProbeOutcome("ok", None, facts, time.perf_counter() - start)

    def lost(self, message: str) -> ProbeOutcome:
        """The outcome where no worker could run it."""
        return ProbeOutcome("failed", message, {}, 0.0)

    def _facts(self) -> dict[str, Any]:
        built = run_scenario.build(self.scenario)
        try:
            log = run_scenario.run(built)
            result = run_scenario.result(built, log, self.variant)
        except KvplanError as error:
            raise self.scenario.located(error) from None
        if serves_nobody(result):
            raise self.scenario.located(unserved_error(built.deployment, built.workload))
        facts = kept(result)
        if self.sustained:
            facts["sustained_rps"] = sustained_rps(log)
        return facts


def kept(result: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a ``result.json`` that a search looks at or reports."""
    return {name: result[name] for name in _KEPT} | {f"kv.{name}": result["kv"][name] for name in _KEPT_OF_KV}


def sustained_rps(log: RunLog) -> float:
    """Arrivals a second that the deployment gets through while requests wait: the rate above which its backlog grows.

    With all requests there at time 0, F(t) counts what was done by t, the half-done by their share of time in the
    batch: Σ over requests of w · clip((t - scheduled) / (finish - scheduled), 0, 1), where w is output tokens / their
    mean (as a count of requests it would be too large by up to half: of a batch that is filled at once the short ones
    end first). The rate is F(q)/q, q being the last admission; F(end)/end, the whole run's throughput, is a rate that
    was kept up too, and may be larger where the run is too short to fill the batch. Sessions (whose later turns are
    admitted one by one to the very end) take the largest F(t)/t since half of the requests were admitted. Turns that
    follow another count with their session, as they do in ``workload.rate_rps``.
    """
    facts = RequestFacts.of(log)
    done = facts.finished & (facts.columns["scheduled_ps"] != NOT_YET)
    if not done.any():
        return 0.0
    first = int(facts.columns["arrival_ps"].min())
    begin = (facts.columns["scheduled_ps"][done] - first).astype(np.float64)
    end = (facts.columns["finish_ps"][done] - first).astype(np.float64)
    follows = log.workload.after >= 0
    times = [float(end.max()), float(begin.max())]
    if follows.any():
        times += np.quantile(begin, np.linspace(0.5, 1.0, _LOOKS)).tolist()
    lasting = np.maximum(end - begin, 1.0)
    tokens = facts.columns["generated_tokens"][done].astype(np.float64)
    weight = tokens / max(1.0, float(tokens.mean()))
    rates = [float((weight * np.clip((t - begin) / lasting, 0.0, 1.0)).sum()) / t for t in times if t > 0]
    heads = float((~follows).sum()) / len(follows)
    return max(rates, default=0.0) * heads * PS_PER_S

"""What is known of each candidate before anything is simulated: whether it fits, its price, and its bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simulator.capacity_settings import CapacitySettings
from simulator.errors import KvplanError
from simulator.planner.capacity.bounds import Bounds, bounds_of
from simulator.planner.capacity.candidates import Candidate, Patches
from simulator.planner.point import one_line, status_of
from simulator.run_scenario import Built, build
from workloads.errors import WorkloadError
from workloads.pace import own_rate_rps
from workloads.workload import PS_PER_S

GIB = 1 << 30


@dataclass(frozen=True)
class CandidateFacts:
    """A candidate that can be built, or why it cannot.

    Attributes:
        status: ok, does_not_fit, bad_input, slo_unreachable or failed; ``reason`` says why, on one line.
        built: one replica; None where it cannot be built.
        own_rate_rps: of the workload as the scenario states it.
        requests: of a probe of one replica.
        can_grow: whether a probe of several replicas can have more requests.
    """

    candidate: Candidate
    status: str
    reason: str | None = None
    built: Built | None = None
    bounds: Bounds = field(default_factory=lambda: Bounds(None, {}))
    usd_per_gpu_hour: float | None = None
    own_rate_rps: float | None = None
    requests: int = 0
    can_grow: bool = False

    @property
    def turns(self) -> float:
        """Requests of a session; 1 where there are none."""
        assert self.built is not None
        after = self.built.workload.after
        return len(after) / max(1, int((after < 0).sum()))

    @property
    def pauses_s(self) -> float:
        """Think time of a whole session."""
        assert self.built is not None
        workload = self.built.workload
        follows = workload.after >= 0
        return float(workload.think_ps[follows].sum()) / max(1, int((~follows).sum())) / PS_PER_S

    @property
    def gpus_per_replica(self) -> int:
        """GPUs of one replica."""
        assert self.built is not None
        return self.built.deployment.parallelism.gpus_per_replica

    def usd_per_hour(self, replicas: int) -> float | None:
        """The price of a deployment; None where the GPU's is not known."""
        if self.usd_per_gpu_hour is None:
            return None
        return self.usd_per_gpu_hour * self.gpus_per_replica * replicas

    def memory(self) -> dict[str, Any]:
        """Columns of ``candidates.csv`` that say what memory holds."""
        assert self.built is not None
        found = self.built.deployment.memory
        if found is None:
            return {"kv_pool_gib_per_gpu": None, "weight_gib_per_gpu": None, "max_concurrency": None}
        return {
            "kv_pool_gib_per_gpu": found.kv_pool_bytes_per_gpu / GIB,
            "weight_gib_per_gpu": found.weight_bytes_per_gpu / GIB,
            "max_concurrency": found.max_concurrency,
        }


def facts_of(candidates: list[Candidate], patches: Patches, settings: CapacitySettings) -> list[CandidateFacts]:
    """Builds one replica of each candidate."""
    return [_facts(candidate, patches, settings) for candidate in candidates]


def _facts(candidate: Candidate, patches: Patches, settings: CapacitySettings) -> CandidateFacts:
    try:
        scenario = patches.bound(candidate, candidate.replicas or 1, None, patches.requests)
        built = build(scenario)
        bounds = bounds_of(built.deployment, built.workload)
    except (KvplanError, WorkloadError) as error:
        return CandidateFacts(candidate, status_of(error), one_line(str(error)))
    deployment = built.deployment
    too_many = _more_than_allowed(built, settings)
    reason = too_many or _beyond_reach(bounds, built)
    status = "does_not_fit" if too_many else "slo_unreachable" if reason else "ok"
    stated = deployment.settings.workload
    return CandidateFacts(
        candidate,
        status,
        reason,
        built,
        bounds,
        _price(candidate, built, settings),
        own_rate_rps(built.workload),
        len(built.workload),
        stated.trace is None and stated.num_requests is not None and not any(c.num_requests for c in stated.classes),
    )


def _price(candidate: Candidate, built: Built, settings: CapacitySettings) -> float | None:
    """Of one GPU and hour: the capacity section's, the scenario's where the GPU is its own, the catalogue's."""
    gpu = built.deployment.gpu
    named = str(candidate.changes.get("gpu", candidate.document.data.get("gpu")))
    for name in (named, gpu.name if gpu else ""):
        if name in settings.usd_per_gpu_hour:
            return settings.usd_per_gpu_hour[name]
    if "gpu" in candidate.changes and gpu is not None:
        return gpu.usd_per_hour
    return built.deployment.usd_per_gpu_hour


def _more_than_allowed(built: Built, settings: CapacitySettings) -> str | None:
    """Why the smallest deployment of a kind has more GPUs than are allowed; with stated replicas, the only one."""
    gpus = built.deployment.parallelism.gpus
    return f"{gpus} GPUs, and max_gpus is {settings.max_gpus}" if gpus > settings.max_gpus else None


def _beyond_reach(bounds: Bounds, built: Built) -> str | None:
    """Which limit not even a request alone can meet."""
    classes = built.workload.classes
    if len(classes) > 1 or (built.workload.class_index != 0).any():
        return None  # floors are of all requests together
    slo = classes[0].slo or built.deployment.settings.slo
    for metric, limits in slo.items():
        for statistic, limit in limits.items():
            name = f"{'median' if statistic == 'p50' else statistic}_{metric}"
            floor = bounds.floors.get(name)
            if floor is not None and floor > limit:
                label = metric.removesuffix("_ms").upper()
                return f"{statistic} of {label} is {floor:,.1f} ms even without load, above the limit of {limit:,g} ms"
    return None

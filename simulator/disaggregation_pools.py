"""From the ``disaggregation`` section to the two pools: each is a deployment of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from simulator.allocators.pools import PagedPool
from simulator.catalog.link_files import find_link
from simulator.cluster import Progress
from simulator.deployment import Deployment, build_deployment
from simulator.disaggregation import Routers, check_pools, check_router, simulate_disaggregated
from simulator.disaggregation_settings import DisaggregationSettings, InlineLink, PoolSettings
from simulator.errors import InputError, KvplanError
from simulator.link_spec import LinkSpec
from simulator.run_log import RunLog
from simulator.scenario_resolved import plain_section
from simulator.scenario_settings import ScenarioSettings
from simulator.settings_patch import patched
from workloads.workload import Workload

_BYTES_PER_GB = 1e9
_PS_PER_US = 1_000_000
_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class DisaggregatedDeployment:
    """Two deployments and what joins them.

    Attributes:
        face: the decode pool's deployment under the scenario's own settings, in which each pool's section is written
            out whole: for whoever asks for the model, the context or the memory of "the" deployment.
    """

    prefill: Deployment
    decode: Deployment
    link: LinkSpec
    routers: Routers
    face: Deployment

    @property
    def gpus(self) -> int:
        """Of both pools."""
        return self.prefill.parallelism.gpus + self.decode.parallelism.gpus

    @property
    def kv_bytes_per_token(self) -> int:
        """Over all ranks of a decode replica: each fetches its own share."""
        pool = self.decode.pool
        assert isinstance(pool, PagedPool)
        return pool.bytes_per_token * self.decode.parallelism.gpus_per_replica

    def simulate(self, workload: Workload, *, stepwise: bool, progress: Progress | None) -> RunLog:
        return simulate_disaggregated(
            workload,
            self.prefill.members(),
            self.decode.members(),
            self.link,
            kv_bytes_per_token=self.kv_bytes_per_token,
            routers=self.routers,
            seed=self.face.settings.seed,
            stepwise=stepwise,
            progress=progress,
        )

    def describe(self, result: dict[str, Any]) -> None:
        """Adds to a ``result.json`` what the log does not know: the link, the GPUs and their price."""
        block = result["disaggregation"]
        block["link"] = self.link_facts()
        for name, pool in (("prefill", self.prefill), ("decode", self.decode)):
            block[name]["gpu"] = pool.gpu.name if pool.gpu else ""
        dollars, throughput = self.usd_per_hour(), result["output_throughput"]
        per_token = dollars / (throughput * _SECONDS_PER_HOUR) if dollars is not None and throughput else None
        result["usd_per_hour"] = dollars
        result["usd_per_million_output_tokens"] = None if per_token is None else per_token * 1e6

    def usd_per_hour(self) -> float | None:
        """Of the GPUs of both pools; None where a price is not known."""
        prefill, decode = self.prefill.usd_per_gpu_hour, self.decode.usd_per_gpu_hour
        if prefill is None or decode is None:
            return None
        return prefill * self.prefill.parallelism.gpus + decode * self.decode.parallelism.gpus

    def link_facts(self) -> dict[str, Any]:
        """The link as ``result.json`` names it."""
        return {
            "name": self.link.name,
            "gb_per_s": self.link.bytes_per_s / _BYTES_PER_GB,
            "latency_us": self.link.latency_ps / _PS_PER_US,
            "source": self.link.source,
        }


def build_disaggregated(settings: ScenarioSettings) -> DisaggregatedDeployment:
    """Both pools of a scenario with a ``disaggregation`` section.

    Raises:
        InputError: with the dotted path of the setting that is wrong.
        DoesNotFitError: the model does not fit the GPUs of a pool.
    """
    asked = settings.disaggregation
    assert asked is not None
    _refuse(settings)
    prefill, decode = _pool(settings, "prefill", asked.prefill), _pool(settings, "decode", asked.decode)
    link = _link(asked.link)
    check_pools(prefill.members()[:1], decode.members()[:1])
    routers = Routers(*(_router(settings, name, pool) for name, pool in _named(asked)))
    sections = replace(asked, prefill=_written(asked.prefill, prefill), decode=_written(asked.decode, decode))
    whole = replace(settings, disaggregation=sections)
    face = replace(
        decode,
        settings=whole,
        assumptions=(*_told_apart(prefill.assumptions, decode.assumptions), *_rules(link)),
        warnings=_told_apart(prefill.warnings, decode.warnings),
    )
    return DisaggregatedDeployment(prefill, decode, link, routers, face)


def _named(asked: DisaggregationSettings) -> list[tuple[str, PoolSettings]]:
    return [("prefill", asked.prefill), ("decode", asked.decode)]


def _refuse(settings: ScenarioSettings) -> None:
    if settings.mode != "serve":
        raise InputError(
            "mode admission has no clock, and so no transfers", where="disaggregation", remedy="delete the section"
        )
    if settings.fleet is not None:
        raise InputError(
            "groups, events and an autoscaler are not simulated together with prefill/decode disaggregation",
            where="fleet",
            remedy="delete fleet or disaggregation",
        )
    if settings.parallelism.replicas != 1:
        raise InputError(
            "parallelism.replicas means nothing beside disaggregation, whose pools count their own",
            where="parallelism.replicas",
            remedy="delete it, and set disaggregation.prefill.replicas and disaggregation.decode.replicas",
        )


def _pool(settings: ScenarioSettings, name: str, pool: PoolSettings) -> Deployment:
    where = f"disaggregation.{name}"
    engine = dict(pool.engine)
    if name == "decode":
        engine.setdefault("enable_prefix_caching", False)
    if "replicas" in pool.parallelism:
        raise InputError(
            f"{where}.parallelism.replicas stands elsewhere",
            where=f"{where}.parallelism.replicas",
            remedy=f"write {where}.replicas",
        )
    parallelism = pool.parallelism | {"replicas": pool.replicas}
    own = patched(settings, where, gpu=pool.gpu, parallelism=parallelism, engine=engine)
    try:
        return build_deployment(replace(own, disaggregation=None))
    except KvplanError as error:
        section = (error.where or "").split(".")[0]
        if section in ("gpu", "parallelism", "engine"):
            error.where = f"{where}.{error.where}" if _says(pool, error.where or "") else error.where
        error.what = f"{name} pool: {error.what}"
        raise


def _says(pool: PoolSettings, path: str) -> bool:
    """Whether the pool itself gives the setting of that path, and not the scenario."""
    section, _, key = path.partition(".")
    given = getattr(pool, section)
    return given is not None if section == "gpu" else key.split(".")[0] in given


def _router(settings: ScenarioSettings, name: str, pool: PoolSettings) -> str:
    found, where = pool.router or settings.router, f"disaggregation.{name}.router" if pool.router else "router"
    check_router(found, where)
    return found


def _link(link: str | InlineLink) -> LinkSpec:
    if isinstance(link, InlineLink):
        speed, latency = link.gb_per_s * _BYTES_PER_GB, round(link.latency_us * _PS_PER_US)
        return LinkSpec("inline", speed, latency, "inline in the scenario")
    try:
        return find_link(link)
    except InputError as error:
        raise InputError(error.what, where="disaggregation.link", remedy=error.remedy) from None


def _written(pool: PoolSettings, deployment: Deployment) -> PoolSettings:
    """A pool with every default written out, so that the file of the run repeats it."""
    parallelism = plain_section(deployment.settings.parallelism)
    del parallelism["replicas"]
    return replace(pool, parallelism=parallelism, engine=plain_section(deployment.settings.engine))


def _told_apart(prefill: tuple[str, ...], decode: tuple[str, ...]) -> tuple[str, ...]:
    """Lines of both pools: once where they are the same, else with the pool's name."""
    lines = [line if line in decode else f"prefill pool: {line}" for line in prefill]
    lines += [line if line in prefill else f"decode pool: {line}" for line in decode]
    return tuple(dict.fromkeys(lines))


def _rules(link: LinkSpec) -> tuple[str, ...]:
    """What the two pools rest on."""
    speed, latency = link.bytes_per_s / _BYTES_PER_GB, link.latency_ps / _PS_PER_US
    return (
        f"KV goes from prefill to decode over {link.name} at {speed:g} GB/s and {latency:g} us ({link.source}), one "
        "link a prefill replica for all its GPUs, one transfer after the other; whoever receives is no bottleneck",
        "a decode replica computes the last prompt token again and samples the first token (vLLM with the NIXL "
        "connector); who is preempted there is computed again there; it shares no prefixes, and fetches whole prompts",
    )

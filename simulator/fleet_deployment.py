"""From the ``fleet`` section to replicas: each group is a deployment of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from simulator.cluster import Progress, simulate_fleet
from simulator.deployment import Deployment, build_deployment
from simulator.errors import InputError, KvplanError
from simulator.fleet_events import Autoscaler, Fail, FleetEvent, Start, Stop, check_events
from simulator.fleet_settings import AutoscalerSettings, FailEvent, FleetSettings, GroupSettings, StartEvent, StopEvent
from simulator.members import Member
from simulator.routers import largest_share
from simulator.run_log import RunLog
from simulator.scenario_resolved import plain_section
from simulator.scenario_settings import ScenarioSettings
from simulator.settings_patch import patched
from workloads.workload import PS_PER_S, Workload

CROWDED = 2.0
"""One prefix for more than so many replicas' shares of the requests is worth a warning."""


@dataclass(frozen=True)
class FleetDeployment:
    """The replicas of a scenario with a ``fleet`` section.

    Attributes:
        groups: (name, deployment) by number of replica; one without a name where the section has no groups.
        face: the deployment of the longest context under the scenario's own settings, in which each group is written
            out whole: for whoever asks for the model, the context or the memory of "the" deployment.
    """

    groups: tuple[tuple[str, Deployment], ...]
    events: tuple[FleetEvent, ...]
    autoscaler: Autoscaler | None
    face: Deployment

    @property
    def changes(self) -> bool:
        """Whether replicas may come and go."""
        return bool(self.events) or self.autoscaler is not None

    def members(self) -> list[Member]:
        """The replicas, by number; those that an autoscaler begins with."""
        return [member for name, deployment in self.groups for member in deployment.members(name)]

    def simulate(self, workload: Workload, *, stepwise: bool, progress: Progress | None) -> RunLog:
        return simulate_fleet(
            workload,
            self.members(),
            router=self.face.settings.router,
            seed=self.face.settings.seed,
            stepwise=stepwise,
            progress=progress,
            events=self.events,
            autoscaler=self.autoscaler,
        )

    @property
    def replicas(self) -> int:
        """How many there are, or at the beginning, where an autoscaler changes that."""
        return sum(deployment.parallelism.replicas for _, deployment in self.groups)

    def prices(self) -> dict[str, float | None]:
        """Dollars per GPU and hour of each group; None where no price is known."""
        return {name: deployment.usd_per_gpu_hour for name, deployment in self.groups}

    def describe(self, result: dict[str, Any]) -> None:
        """Adds to a ``result.json`` what the log does not know: the groups' GPUs."""
        gpus = {name: deployment.gpu.name if deployment.gpu else "" for name, deployment in self.groups}
        for group in result.get("fleet", {}).get("groups", []):
            group["gpu"] = gpus[group["name"]]


def build_fleet(settings: ScenarioSettings) -> FleetDeployment:
    """All groups of a scenario with a ``fleet`` section.

    Raises:
        InputError: with the dotted path of the setting that is wrong.
        DoesNotFitError: the model does not fit the GPUs of a group.
    """
    asked = settings.fleet
    assert asked is not None
    _refuse(settings, asked)
    if asked.groups is None:
        groups = [("", build_deployment(replace(settings, fleet=None)))]
    else:
        groups = [(group.name, _group(settings, i, group)) for i, group in enumerate(asked.groups)]
    autoscaler = _autoscaler(settings, asked)
    events = tuple(_event(event) for event in asked.events)
    replicas = sum(deployment.parallelism.replicas for _, deployment in groups)
    check_events(events, replicas if autoscaler is None else max(replicas, autoscaler.max_replicas), autoscaler)
    longest = max((deployment for _, deployment in groups), key=lambda deployment: deployment.engine.max_model_len)
    if asked.groups is None:
        face = replace(longest, settings=replace(longest.settings, fleet=asked))
    else:
        written = tuple(_written(group, own) for group, (_, own) in zip(asked.groups, groups, strict=True))
        face = replace(
            longest,
            settings=replace(settings, fleet=replace(asked, groups=written)),
            assumptions=_told_apart([(name, own.assumptions) for name, own in groups]),
            warnings=_told_apart([(name, own.warnings) for name, own in groups]),
        )
    face = replace(face, assumptions=(*face.assumptions, *_rules(asked)))
    return FleetDeployment(tuple(groups), events, autoscaler, face)


def routing_warnings(router: str, workload: Workload, replicas: int) -> tuple[str, ...]:
    """Said where requests that must stay together are too many for one replica."""
    if router != "prefix_affine" or replicas == 1:
        return ()
    share, name = largest_share(workload)
    if share * replicas <= CROWDED:
        return ()
    return (
        f"router prefix_affine sends {share:.0%} of the requests to one of {replicas} replicas, for their prompts "
        f"begin with the same prefix ({name}); router: least_outstanding spreads them",
    )


def _refuse(settings: ScenarioSettings, asked: FleetSettings) -> None:
    if settings.mode != "serve":
        raise InputError("mode admission has no clock", where="fleet", remedy="delete the section")
    if settings.disaggregation is not None:
        raise InputError(
            "fleet and disaggregation are not simulated together in this version",
            where="fleet",
            remedy="delete one of the two sections",
        )
    if asked.groups is None:
        return
    if settings.parallelism.replicas != 1:
        raise InputError(
            "parallelism.replicas means nothing beside fleet.groups, which count their own",
            where="parallelism.replicas",
            remedy="delete it, and set replicas of each group",
        )
    names = [group.name for group in asked.groups]
    for i, group in enumerate(asked.groups):
        where = f"fleet.groups.{i}"
        if group.name in names[:i]:
            raise InputError(f"{group.name!r} is the name of two groups", where=f"{where}.name", remedy="rename one")
        if "replicas" in group.parallelism:
            raise InputError(
                f"{where}.parallelism.replicas stands elsewhere",
                where=f"{where}.parallelism.replicas",
                remedy=f"write {where}.replicas",
            )


def _group(settings: ScenarioSettings, index: int, group: GroupSettings) -> Deployment:
    where = f"fleet.groups.{index}"
    parallelism = group.parallelism | {"replicas": group.replicas}
    own = patched(settings, where, gpu=group.gpu, parallelism=parallelism, engine=group.engine)
    try:
        return build_deployment(replace(own, fleet=None))
    except KvplanError as error:
        section, _, key = (error.where or "").partition(".")
        given = group.gpu is not None if section == "gpu" else key.split(".")[0] in getattr(group, section, {})
        if section in ("gpu", "parallelism", "engine") and given:
            error.where = f"{where}.{error.where}"
        error.what = f"group {group.name}: {error.what}"
        raise


def _written(group: GroupSettings, deployment: Deployment) -> GroupSettings:
    """A group with every default written out, so that the file of the run repeats it."""
    parallelism = plain_section(deployment.settings.parallelism)
    del parallelism["replicas"]
    return replace(group, parallelism=parallelism, engine=plain_section(deployment.settings.engine))


def _told_apart(lines: list[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """Lines of all groups: once where all say the same, else with the group's name."""
    found = []
    for name, own in lines:
        for line in own:
            everywhere = all(line in others for _, others in lines)
            found.append(line if everywhere else f"group {name}: {line}")
    return tuple(dict.fromkeys(found))


def _event(event: FailEvent | StartEvent | StopEvent) -> FleetEvent:
    at_ps = _ps(event.at_s)
    if isinstance(event, FailEvent):
        after = None if event.restart_after_s is None else _ps(event.restart_after_s)
        return Fail(at_ps, event.replica, after)
    return Start(at_ps, event.replica) if isinstance(event, StartEvent) else Stop(at_ps, event.replica)


def _autoscaler(settings: ScenarioSettings, asked: FleetSettings) -> Autoscaler | None:
    scaler = asked.autoscaler
    if scaler is None:
        return None
    where = "fleet.autoscaler"
    if asked.groups is not None and len(asked.groups) > 1:
        raise InputError(
            "an autoscaler starts and stops replicas of one kind, and there are several groups",
            where=where,
            remedy="delete fleet.groups or fleet.autoscaler",
        )
    _check_limits(scaler, asked.groups[0].replicas if asked.groups else settings.parallelism.replicas)
    return Autoscaler(
        scaler.metric,
        scaler.target,
        scaler.min_replicas,
        scaler.max_replicas,
        _ps(scaler.interval_s),
        _ps(asked.startup_s),
    )


def _check_limits(scaler: AutoscalerSettings, replicas: int) -> None:
    where = "fleet.autoscaler"
    if scaler.min_replicas > scaler.max_replicas:
        what = f"min_replicas ({scaler.min_replicas}) is above max_replicas ({scaler.max_replicas})"
        raise InputError(what, where=f"{where}.min_replicas", remedy=f"set {scaler.max_replicas} or less")
    if replicas > scaler.max_replicas:
        what = f"the fleet begins with {replicas} replicas, more than max_replicas ({scaler.max_replicas})"
        raise InputError(what, where=f"{where}.max_replicas", remedy=f"set {replicas} or more, or begin with fewer")
    if scaler.metric == "kv_utilization" and scaler.target > 1:
        what = f"kv_utilization is a share, and its target is {scaler.target:g}"
        raise InputError(what, where=f"{where}.target", remedy="write a number of at most 1, such as 0.7")


def _rules(asked: FleetSettings) -> tuple[str, ...]:
    """What a fleet that changes rests on."""
    rules = []
    if any(event.kind == "fail" for event in asked.events):
        rules.append(
            "a failed replica's requests go to the others at once; what was streamed stays, their KV is computed "
            "again, and the step under way is lost"
        )
    if asked.autoscaler is not None:
        rules.append(
            "the autoscaler sees every replica's state without delay; hours and dollars count from its decision on"
        )
    return tuple(rules)


def _ps(seconds: float) -> int:
    return round(seconds * PS_PER_S)

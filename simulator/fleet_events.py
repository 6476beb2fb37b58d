"""What happens to replicas while a fleet serves: failures, starts, stops; and the autoscaler's settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from simulator.errors import InputError
from workloads.workload import PS_PER_S


@dataclass(frozen=True)
class Fail:
    """The replica is gone at once, with all KV; ``restart_after_ps`` later it is up again, empty (None: never)."""

    at_ps: int
    replica: int
    restart_after_ps: int | None = None
    kind: Literal["fail"] = "fail"


@dataclass(frozen=True)
class Start:
    """The replica takes requests from now on; before its first start it is absent."""

    at_ps: int
    replica: int
    kind: Literal["start"] = "start"


@dataclass(frozen=True)
class Stop:
    """The replica takes no more requests, and is gone when those that it has have ended."""

    at_ps: int
    replica: int
    kind: Literal["stop"] = "stop"


FleetEvent = Fail | Start | Stop


@dataclass(frozen=True)
class Autoscaler:
    """Every ``interval_ps`` as many replicas are wanted as hold the metric at its target.

    wanted = ⌈replicas up or starting · metric / target⌉, within ``min_replicas`` .. ``max_replicas``.

    Attributes:
        metric: ``queue``: requests that wait, at the router too, per replica; ``kv_utilization``: the mean share of KV
            slots held. Replicas that are starting count, with no load.
        target: requests, or a share of 1.
        startup_ps: from the decision to the first request that a new replica takes; its GPUs are paid for.
    """

    metric: Literal["queue", "kv_utilization"]
    target: float
    min_replicas: int
    max_replicas: int
    interval_ps: int
    startup_ps: int = 0


def check_events(events: Sequence[FleetEvent], replicas: int, autoscaler: Autoscaler | None = None) -> list[int]:
    """The numbers of the replicas that are up at the start.

    Raises:
        InputError: ``where`` is ``fleet.events.<index>`` and the field; events of one replica contradict each other.
    """
    order = sorted(range(len(events)), key=lambda i: events[i].at_ps)
    seen: dict[int, tuple[bool, int, int]] = {}  # replica -> (up, from when that holds, index of the event)
    absent = set()
    for i in order:
        event, where = events[i], f"fleet.events.{i}"
        if autoscaler is not None and event.kind != "fail":
            remedy = "delete the event, or the autoscaler"
            raise InputError("the autoscaler decides who starts and stops", where=f"{where}.kind", remedy=remedy)
        if not 0 <= event.replica < replicas:
            what = f"there is no replica {event.replica}: {replicas} are numbered from 0 to {replicas - 1}"
            raise InputError(what, where=f"{where}.replica", remedy="give one of these numbers, or more replicas")
        first = event.replica not in seen
        up, since, before = seen.get(event.replica, (event.kind != "start", -1, -1))
        if first and event.kind == "start":
            absent.add(event.replica)
        _check_after(events, i, before, up=up, since=since)
        if isinstance(event, Fail) and event.restart_after_ps is not None:
            seen[event.replica] = (True, event.at_ps + event.restart_after_ps, i)
        else:
            seen[event.replica] = (event.kind == "start", event.at_ps, i)
    return [number for number in range(replicas) if number not in absent]


def _check_after(events: Sequence[FleetEvent], i: int, before: int, *, up: bool, since: int) -> None:
    """Whether event ``i`` of a replica can follow its event ``before`` (-1: it is the first)."""
    event, where = events[i], f"fleet.events.{i}.at_s"
    name = f"replica {event.replica}"
    if event.at_ps <= since:
        remedy = "give events of one replica times that do not overlap"
        if event.at_ps > events[before].at_ps:
            what = f"{name} is not up again before {since / PS_PER_S:g} s (event {before})"
        else:
            what = f"{name} has event {before} at the same time"
        raise InputError(what, where=where, remedy=remedy)
    if event.kind == "start" and up:
        remedy = "delete it, or stop the replica first"
        raise InputError(f"{name} is up already (event {before})", where=where, remedy=remedy)
    if event.kind != "start" and not up:
        remedy = "start it first, or give its failure restart_after_s"
        raise InputError(f"{name} is not up (event {before})", where=where, remedy=remedy)

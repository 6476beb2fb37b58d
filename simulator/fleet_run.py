"""A fleet whose replicas are watched: made, fed by a client, and accounted for when the run is over."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from simpy import Environment

from simulator.allocators.content import TokenContent
from simulator.allocators.pools import make_cache
from simulator.errors import InputError
from simulator.fleet import Fleet
from simulator.fleet_events import Autoscaler, FleetEvent
from simulator.fleet_replica import FleetReplica
from simulator.inbox import Inbox
from simulator.members import Member
from simulator.pass_recorder import PassRecorder
from simulator.routers import make_router
from simulator.run_log import ReplicaLog, RunLog
from simulator.run_writer import RunWriter
from simulator.schedulers.make import make_scheduler
from workloads.workload import Workload

WATCHING = ("least_kv", "central_queue")
"""Routers that look at more than how many requests a replica has."""

NOWHERE = -1
"""Number of the replica of a request that waited at the router to the end."""


def make_fleet(
    env: Environment,
    log: RunLog,
    members: Sequence[Member],
    router: str,
    *,
    seed: int = 0,
    events: Sequence[FleetEvent] = (),
    autoscaler: Autoscaler | None = None,
    stepwise: bool = False,
    max_steps: int | None = None,
    recorders: Sequence[PassRecorder] = (),
) -> Fleet:
    """A fleet of the members' replicas; with an autoscaler these are what it begins with.

    Raises:
        InputError: events that contradict each other, or members that this is not simulated for.
    """
    _check(log.workload, members, router, events, autoscaler)
    begins_with = len(members)
    if autoscaler is not None:
        begins_with = min(max(begins_with, autoscaler.min_replicas), autoscaler.max_replicas)
        members = [members[0]] * max(begins_with, autoscaler.max_replicas)
    content = TokenContent(log.workload)

    def make(number: int) -> FleetReplica:
        member = members[number]
        kv = make_cache(member.pool, member.engine, content)
        log.replicas.append(ReplicaLog(kv.pool, replica=number, group=member.group, gpus=member.gpus))
        return FleetReplica(
            env,
            make_scheduler(member.engine, kv),
            member.step_time,
            RunWriter(log, log.replicas[-1], number),
            Inbox.empty(),
            stepwise=stepwise,
            max_steps=max_steps,
            recorder=recorders[number] if recorders else None,
        )

    route = make_router(router, log.workload, seed=seed, replicas=len(members))
    fleet = Fleet(
        env,
        log.workload,
        members,
        None if router == "central_queue" else route,
        make,
        events,
        autoscaler,
        initial=begins_with,
    )
    if events or autoscaler is not None:
        log.fleet = fleet.log
    return fleet


def close_held(log: RunLog, fleet: Fleet) -> None:
    """Accounts for requests that still wait at the router, when all replicas are closed."""
    if not fleet.held:
        return
    if log.status == "ok":
        log.status = "deadlock"
    log.end_ps = max(log.end_ps, *(max(request.arrival_ps, request.preempted_ps) for request in fleet.held))
    over = next((replica for replica in log.replicas if replica.to_ps is not None), log.replicas[0])
    writer = RunWriter(log, over, NOWHERE)  # who lost its replica has its wait in a log that is over
    for request in fleet.held:
        writer.unfinished(request, 0, log.end_ps, running=False)


def _check(
    workload: Workload,
    members: Sequence[Member],
    router: str,
    events: Sequence[FleetEvent],
    autoscaler: Autoscaler | None,
) -> None:
    what = "events" if events else "an autoscaler" if autoscaler is not None else f"the router {router}"
    if any(hasattr(member.step_time, "stages") for member in members):
        raise InputError(
            f"{what} and pipelined replicas are not simulated together in this version",
            where="fleet.events" if events else "fleet.autoscaler" if autoscaler is not None else "router",
            remedy="set parallelism.pipeline_parallel_size: 1, or router: least_outstanding without fleet",
        )
    if events and workload.sequences is not None and (np.asarray(workload.sequences) > 1).any():
        raise InputError(
            "requests of several sequences cannot be computed again elsewhere, as those of a failed replica must be",
            where="fleet.events",
            remedy="delete the events, or ask for one sequence a request",
        )
    if autoscaler is not None and any(member != members[0] for member in members):
        raise InputError(
            "an autoscaler starts and stops replicas of one kind, and the groups differ",
            where="fleet.autoscaler",
            remedy="delete fleet.groups or fleet.autoscaler",
        )

"""A fleet whose replicas know nothing of each other: simulated in parts, and put together again.

Behind a router that needs no state, in an open loop (also of sessions, if each has all its turns on one replica), what
a replica does depends on its own requests alone. So any sets of replicas can be simulated apart, in any order, on any
machine, and ``joined`` gives the log that one process would have written: the same rows of every replica, and of every
request.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import error as StructError

import numpy as np
from simpy import Environment

from simulator.allocators.content import TokenContent
from simulator.clients import Client
from simulator.cluster import close_fleet, new_replica, watch_ends
from simulator.engine import Replica
from simulator.errors import KvplanError
from simulator.fleet_checks import check_workload, limits_of
from simulator.inbox import Inbox, make_request
from simulator.members import Member
from simulator.routers import static_routes
from simulator.run_log import REQUEST_COLUMNS, ReplicaLog, RunLog, RunStatus
from workloads.workload import IntColumn, Workload

_STATUSES: tuple[RunStatus, ...] = ("ok", "deadlock", "livelock", "max_steps")
"""The later ones hide the earlier ones."""


@dataclass
class FleetPart:
    """What some replicas did; it can be pickled, and is small: tables, no workload.

    Attributes:
        replicas: their logs. None has a reservation that is held until the end of the run, which is not known here:
            whoever is left in a dead-lock waits, and only paged pools know a live-lock.
        requests: their rows as in ``RunLog``; ``reason`` is an index into this part's ``reasons``.
        end_ps: when the last of their requests ended, or the last of them stopped.
        fault: of the first replica that could not go on, its number and what it raised; the others did not run then.
    """

    replicas: list[ReplicaLog] = field(default_factory=list)
    requests: array[int] = field(default_factory=lambda: array("q"))
    reasons: list[str] = field(default_factory=lambda: [""])
    status: RunStatus = "ok"
    end_ps: int = 0
    fault: tuple[int, Exception] | None = None


def why_one_clock(workload: Workload, members: Sequence[Member], router: str, seed: int) -> str | None:
    """Why a fleet cannot be simulated in parts; None where it can.

    Raises:
        InputError: there is no router of that name.
    """
    if len(members) < 2:
        return "one replica has no parts"
    if workload.max_concurrency is not None:
        return "in a closed loop a request is sent when another one ends, on whichever replica"
    routes = static_routes(router, workload, seed=seed, replicas=len(members))
    if routes is None:
        return f"router {router} looks at all replicas whenever a request arrives"
    later = (workload.after >= 0).nonzero()[0]
    if (routes[later] != routes[workload.after[later]]).any():
        return f"router {router} spreads a session's turns, each of which waits for the one before"
    return None


def simulate_part(
    workload: Workload,
    members: Sequence[Member],
    numbers: Sequence[int],
    *,
    router: str,
    seed: int = 0,
    stepwise: bool = False,
) -> FleetPart:
    """Some replicas of a fleet for which ``why_one_clock`` is None, one after the other.

    Args:
        members: all of the fleet, by number.
        numbers: which of them to simulate.
    Raises:
        InputError: as ``simulate_fleet``, before anything runs.
    """
    check_workload(workload, members)
    routes = static_routes(router, workload, seed=seed, replicas=len(members))
    assert routes is not None
    log = RunLog(workload, [])
    part = FleetPart(log.replicas, log.requests, log.reasons)
    content = TokenContent(workload)
    for number in sorted(numbers):
        env = Environment()
        begin = len(log.requests)
        rows = (routes == number).nonzero()[0]
        replica = _fed(env, log, content, members[number], number, rows, stepwise=stepwise)
        try:
            env.run()
        except (KvplanError, OverflowError, StructError) as fault:
            part.fault = (number, fault.__cause__ if isinstance(fault.__cause__, type(fault)) else fault)
            return part
        status, end_ps = close_fleet(log, [replica], begin)
        part.status = max(part.status, status, key=_STATUSES.index)
        part.end_ps = max(part.end_ps, end_ps)
    return part


def _fed(
    env: Environment,
    log: RunLog,
    content: TokenContent,
    member: Member,
    number: int,
    rows: IntColumn,
    *,
    stepwise: bool,
) -> Replica:
    """A replica and whoever sends it its requests: an inbox, or where turns of sessions are among them, a client."""
    workload, limit = log.workload, member.engine.max_model_len
    if (workload.after[rows] < 0).all():
        return new_replica(env, log, content, member, number, Inbox(workload, rows, limit), stepwise=stepwise)
    replica = new_replica(env, log, content, member, number, None, stepwise=stepwise)

    def send(row: int, now: int) -> None:
        replica.deliver(make_request(workload, row, now, limit))

    watch_ends([replica], Client(env, workload, send, rows), None, len(rows))
    return replica


def joined(workload: Workload, members: Sequence[Member], parts: Sequence[FleetPart]) -> RunLog:
    """The log of the whole fleet. Takes the parts apart, so that their rows never lie in memory twice.

    Raises:
        what the first replica (by number) raised that could not go on.
    """
    faults = [part.fault for part in parts if part.fault is not None]
    if faults:
        raise min(faults, key=lambda fault: fault[0])[1]
    replicas = sorted((log for part in parts for log in part.replicas), key=lambda log: log.replica)
    assert [log.replica for log in replicas] == list(range(len(members)))
    whole = RunLog(
        workload,
        replicas,
        status=max((part.status for part in parts), key=_STATUSES.index),
        end_ps=max(part.end_ps for part in parts),
        limits=limits_of(members),
    )
    for part in parts:
        _add_requests(whole, part)
    return whole


def _add_requests(whole: RunLog, part: FleetPart) -> None:
    """Moves a part's rows, with the whole run's numbers of reasons."""
    if len(part.reasons) > 1:
        whole.reasons += [text for text in part.reasons if text not in whole.reasons]
        number = np.array([whole.reasons.index(text) for text in part.reasons], dtype=np.int64)
        rows = np.frombuffer(part.requests, dtype=np.int64).reshape(-1, len(REQUEST_COLUMNS))
        reason = rows[:, REQUEST_COLUMNS.index("reason")]
        reason[:] = number[reason]
    whole.requests.extend(part.requests)
    part.requests = array("q")

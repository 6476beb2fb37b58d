"""The simulation of a deployment: replicas behind a router, fed by a client."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simpy import Environment

from simulator.allocators.content import TokenContent
from simulator.allocators.pools import PoolConfig, make_cache
from simulator.clients import Client
from simulator.engine import Replica
from simulator.errors import KvplanError
from simulator.fleet import Fleet
from simulator.fleet_checks import check_workload, limits_of
from simulator.fleet_events import Autoscaler, FleetEvent
from simulator.fleet_run import WATCHING, close_held, make_fleet
from simulator.inbox import Inbox, make_request
from simulator.members import Member
from simulator.pass_recorder import PassRecorder
from simulator.request import Request
from simulator.routers import make_router, static_routes
from simulator.run_log import REQUEST_COLUMNS, ReplicaLog, RunLog, RunStatus
from simulator.run_writer import RunWriter
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.make import make_scheduler
from simulator.step_time.base import StepTimeModel
from workloads.workload import PS_PER_S, Workload

Progress = Callable[[int, int, float], None]
"""progress(requests ended, requests in all, simulated seconds)."""

PROGRESS_EVERY = 500


def simulate(
    workload: Workload,
    engine: EngineConfig,
    pool: PoolConfig,
    step_time: StepTimeModel,
    *,
    replicas: int = 1,
    router: str = "round_robin",
    seed: int = 0,
    stepwise: bool = False,
    progress: Progress | None = None,
    max_steps: int | None = None,
    recorders: Sequence[PassRecorder] = (),
    inbox: Inbox | None = None,
) -> RunLog:
    """Serves a workload with replicas that are all alike; see ``simulate_fleet``.

    Args:
        engine: the scheduler's settings, the same for every replica.
        pool: the KV pool of each replica.
        step_time: how long a step takes.
        replicas: how many.
    """
    return simulate_fleet(
        workload,
        [Member(engine, pool, step_time)] * replicas,
        router=router,
        seed=seed,
        stepwise=stepwise,
        progress=progress,
        max_steps=max_steps,
        recorders=recorders,
        inbox=inbox,
    )


def simulate_fleet(
    workload: Workload,
    members: Sequence[Member],
    *,
    router: str = "round_robin",
    seed: int = 0,
    stepwise: bool = False,
    progress: Progress | None = None,
    max_steps: int | None = None,
    recorders: Sequence[PassRecorder] = (),
    inbox: Inbox | None = None,
    events: Sequence[FleetEvent] = (),
    autoscaler: Autoscaler | None = None,
) -> RunLog:
    """Serves a workload and returns what happened.

    Args:
        workload: who arrives when with which lengths.
        members: the replicas, at least one, by number.
        router: chooses among them (see ``routers.ROUTERS``).
        seed: for the random router only.
        stepwise: one event per step instead of leaps; the same result, slowly.
        progress: told now and then how far the run is.
        max_steps: cut each replica after that many passes; then a live-lock runs on to there.
        recorders: one per replica, told of every pass (needs ``stepwise``).
        inbox: the arrivals of the only replica, where something else than the workload's times decides.
        events: failures, starts and stops of replicas.
        autoscaler: starts and stops replicas by itself; ``members`` are those that it begins with.

    Raises:
        InputError: settings that contradict each other, an unknown router, or arrivals out of order.
    """
    check_workload(workload, members)
    env = Environment()
    log = RunLog(workload, [], limits=limits_of(members))
    if events or autoscaler is not None or router in WATCHING:
        watched = make_fleet(
            env,
            log,
            members,
            router,
            seed=seed,
            events=events,
            autoscaler=autoscaler,
            stepwise=stepwise,
            max_steps=max_steps,
            recorders=recorders,
        )
        _run_watched(env, log, watched, progress)
        return log
    content = TokenContent(workload)
    inboxes = [inbox] if inbox else _inboxes(workload, members, router, seed)
    fleet = [
        new_replica(
            env,
            log,
            content,
            member,
            number,
            inboxes[number] if inboxes else None,
            stepwise=stepwise,
            max_steps=max_steps,
            recorder=recorders[number] if recorders else None,
        )
        for number, member in enumerate(members)
    ]
    client = None if inboxes else _client(env, workload, members, fleet, router, seed)
    watch_ends(fleet, client, progress, len(workload))
    _run(env)
    log.status, log.end_ps = close_fleet(log, fleet)
    return log


def _run(env: Environment) -> None:
    try:
        env.run()
    except KvplanError as error:  # simpy raises a copy, without the error's place and remedy
        raise error.__cause__ or error from None


def _run_watched(env: Environment, log: RunLog, fleet: Fleet, progress: Progress | None) -> None:
    """The run of a fleet whose replicas may come and go."""
    workload, longest = log.workload, log.limits["max_model_len"]
    client = Client(env, workload, lambda row, now: fleet.send(make_request(workload, row, now, longest)))
    fleet.on_end = _ends(client, progress, len(workload), lambda: int(env.now))
    _run(env)
    log.status, log.end_ps = close_fleet(log, [life for life in fleet.lives if life.writer.log.to_ps is None])
    close_held(log, fleet)


def new_replica(
    env: Environment,
    log: RunLog,
    content: TokenContent,
    member: Member,
    number: int,
    inbox: Inbox | None,
    *,
    stepwise: bool,
    max_steps: int | None = None,
    recorder: PassRecorder | None = None,
) -> Replica:
    """Replica ``number``, with a log of its own; without an inbox it is delivered to. Here its class is chosen."""
    stages = len(getattr(member.step_time, "stages", (member.step_time,)))
    kv = make_cache(member.pool, member.engine, content, stages=stages)
    log.replicas.append(ReplicaLog(kv.pool, replica=number, group=member.group, gpus=member.gpus))
    if hasattr(member.step_time, "stages"):
        from simulator.pipeline import pipelined_replica

        writer = RunWriter(log, log.replicas[-1], number)
        return pipelined_replica(env, member, kv, writer, inbox, max_steps=max_steps)
    return Replica(
        env,
        make_scheduler(member.engine, kv),
        member.step_time,
        RunWriter(log, log.replicas[-1], number),
        inbox or Inbox.empty(),
        coupled=inbox is None,
        stepwise=stepwise,
        max_steps=max_steps,
        recorder=recorder,
    )


def _inboxes(workload: Workload, members: Sequence[Member], router: str, seed: int) -> list[Inbox] | None:
    """One list of arrivals a replica where all times and routes are known beforehand; else None."""
    if workload.max_concurrency is not None or (workload.after >= 0).any():
        return None
    routes = static_routes(router, workload, seed=seed, replicas=len(members))
    if routes is None:
        return None
    return [
        Inbox(workload, (routes == number).nonzero()[0], member.engine.max_model_len)
        for number, member in enumerate(members)
    ]


def _client(
    env: Environment, workload: Workload, members: Sequence[Member], fleet: list[Replica], router: str, seed: int
) -> Client:
    """A client whose requests reach the replica that the router chooses when they arrive."""
    route = make_router(router, workload, seed=seed, replicas=len(fleet))

    def send(row: int, now: int) -> None:
        number = route(row, fleet)
        fleet[number].deliver(make_request(workload, row, now, members[number].engine.max_model_len))

    return Client(env, workload, send)


def watch_ends(fleet: list[Replica], client: Client | None, progress: Progress | None, total: int) -> None:
    """Hooks on the end of each request; none where nobody listens."""
    ended = _ends(client, progress, total, lambda: max(replica.now for replica in fleet))
    for replica in fleet:
        replica.on_end = ended


def _ends(
    client: Client | None, progress: Progress | None, total: int, now_ps: Callable[[], int]
) -> Callable[[Request], None] | None:
    """Who listens when a request ends; None where nobody does."""
    reacts = client is not None and client.reacts
    if progress is None and not reacts:
        return None
    done = 0

    def ended(request: Request) -> None:
        nonlocal done
        done += 1
        if progress is not None and (done % PROGRESS_EVERY == 0 or done == total):
            progress(done, total, now_ps() / PS_PER_S)
        if client is not None and client.reacts:
            client.ended(request.row)

    return ended


def close_fleet(log: RunLog, fleet: Sequence[Replica], begin: int = 0) -> tuple[RunStatus, int]:
    """Accounts for whoever is left; how the run of these replicas ended, and when.

    Args:
        begin: where their rows start in ``log.requests``.
    """
    for replica in fleet:
        replica.writer.log.evicted_blocks = replica.kv.evicted_blocks
    width = len(REQUEST_COLUMNS)
    ends, arrivals = (
        log.requests[begin + REQUEST_COLUMNS.index(name) :: width] for name in ("finish_ps", "arrival_ps")
    )
    end = max(max(ends, default=0), max(arrivals, default=0))
    left = [
        replica
        for replica in fleet
        if replica.scheduler.running or replica.scheduler.waiting or replica.scheduler.away()
    ]
    if not left:
        return "ok", end
    end = max(end, *(replica.now for replica in left))
    for replica in left:
        replica.close(end)
    if any(replica.cut_short for replica in left):
        return "max_steps", end
    return ("livelock" if any(replica.live_locked for replica in left) else "deadlock"), end

"""The simulation of a deployment: replicas behind a router, fed by a client."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from simpy import Environment

from simulator.allocators.content import TokenContent
from simulator.allocators.pools import PoolConfig, make_cache
from simulator.clients import Client
from simulator.engine import Replica
from simulator.errors import InputError, KvplanError
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

    Raises:
        InputError: settings that contradict each other, an unknown router, or arrivals out of order.
    """
    check_workload(workload, members)
    env = Environment()
    log = RunLog(workload, [], limits=limits_of(members))
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
    try:
        env.run()
    except KvplanError as error:  # simpy raises a copy, without the error's place and remedy
        raise error.__cause__ or error from None
    log.status, log.end_ps = close_fleet(log, fleet)
    return log


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
    kv = make_cache(member.pool, member.engine, content)
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


def limits_of(members: Sequence[Member]) -> dict[str, int]:
    """The engines' limits, the highest where they differ."""
    engines = list(dict.fromkeys(member.engine for member in members))
    return {
        "max_num_seqs": max(engine.running_limit for engine in engines),
        "max_num_batched_tokens": max(engine.max_num_batched_tokens for engine in engines),
        "max_model_len": max(engine.max_model_len for engine in engines),
    }


def check_workload(workload: Workload, members: Sequence[Member]) -> None:
    """Raises InputError: arrivals out of order, or sequences that a member's engine does not know."""
    _check_order(workload)
    for engine in dict.fromkeys(member.engine for member in members):
        _check_sequences(workload, engine)


def _check_order(workload: Workload) -> None:
    """Rows that wait for no other must stand in order of arrival: whoever sends them reads them in turn."""
    alone = workload.after < 0
    gaps = np.diff(workload.arrival_ps[alone])
    if (gaps < 0).any():
        row = int(alone.nonzero()[0][int((gaps < 0).argmax()) + 1])
        raise InputError(
            f"request {workload.request_id(row)!r} arrives before the one in front of it",
            where=f"workload row {row}",
            remedy="sort the rows by arrival (Workload.sorted_by_arrival)",
        )


def _check_sequences(workload: Workload, engine: EngineConfig) -> None:
    """Only vLLM v0 has requests of several sequences."""
    if workload.sequences is None or engine.policy.kind == "vllm-v0" or (workload.sequences == 1).all():
        return
    row = int((workload.sequences != 1).argmax())
    raise InputError(
        f"request {workload.request_id(row)!r} asks for {workload.sequences[row]} sequences, which "
        f"{engine.policy.kind} serves as requests of their own",
        where=f"workload row {row}",
        remedy="expand the workload first (workloads.samples.expand_samples)",
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
    reacts = client is not None and client.reacts
    if progress is None and not reacts:
        return
    done = 0

    def ended(request: Request) -> None:
        nonlocal done
        done += 1
        if progress is not None and (done % PROGRESS_EVERY == 0 or done == total):
            progress(done, total, max(replica.now for replica in fleet) / PS_PER_S)
        if client is not None and client.reacts:
            client.ended(request.row)

    for replica in fleet:
        replica.on_end = ended


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

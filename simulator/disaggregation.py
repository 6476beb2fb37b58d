"""Prefill/decode disaggregation: one pool of replicas computes prompts, another one the answers.

As with vLLM's NIXL connector behind its proxy (``toy_proxy_server.py``, ``kv_connector/v1/nixl/pull_scheduler.py``,
``v1/core/sched/scheduler.py``, read 2026-11):

1. The proxy sends a request to a prefill replica, for one token (``max_tokens`` 1). That replica computes the prompt
   and samples a token, which the proxy throws away; the blocks stay (``request_finished`` delays their freeing).
2. At that moment the proxy sends the request to a decode replica, which gives it blocks for the prompt when its turn
   comes and asks for the KV (``schedulers.remote_prefill``). The prefill replica's link carries it (``kv_link``).
3. With the KV there, the prefill replica gives its blocks back at its next pass, and the decode replica computes the
   prompt's last token again and samples the first token of the answer, the first one that the client sees: TTFT holds
   the prefill, the transfer and one step of the decode replica. A request of one output token takes the same way.

Prefixes are shared at the prefill replicas alone; the whole prompt goes over the link all the same. Who is preempted at
a decode replica is computed again there. A step takes note of a transfer when it is over, an idle replica at once (the
real one looks every millisecond).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from simpy import Environment

from simulator.allocators.content import TokenContent
from simulator.allocators.kv_cache import KvCache
from simulator.allocators.pools import make_cache
from simulator.clients import Client
from simulator.clock import ARRIVAL, Alarm
from simulator.cluster import Progress, close_fleet, watch_ends
from simulator.disaggregation_replicas import DecodeReplica, DecodeWriter, Handover, PrefillReplica, Returns
from simulator.engine import Replica
from simulator.errors import InputError, KvplanError
from simulator.fleet_checks import check_workload, limits_of
from simulator.inbox import Inbox, make_request
from simulator.kv_link import KvLink
from simulator.link_spec import LinkSpec
from simulator.members import Member
from simulator.request import Request
from simulator.routers import ROUTERS, Router, make_router
from simulator.run_log import NOT_YET, ReplicaLog, RunLog
from simulator.run_writer import RunWriter
from simulator.schedulers.make import make_scheduler
from simulator.schedulers.remote_prefill import RemotePrefill, RemoteRequest
from simulator.suggestions import did_you_mean
from workloads.workload import Workload


@dataclass(frozen=True)
class Routers:
    """The names of the routers in front of the two pools (``routers.ROUTERS``, but no central queue)."""

    prefill: str = "round_robin"
    decode: str = "round_robin"


def simulate_disaggregated(
    workload: Workload,
    prefill: Sequence[Member],
    decode: Sequence[Member],
    link: LinkSpec,
    *,
    kv_bytes_per_token: int | None = None,
    routers: Routers = Routers(),
    seed: int = 0,
    stepwise: bool = False,
    progress: Progress | None = None,
    max_steps: int | None = None,
) -> RunLog:
    """Serves a workload with two pools. Prefill replicas have the first numbers in the log, then decode replicas.

    Args:
        prefill, decode: the replicas of each pool, at least one; each may have an engine, a GPU and a size of its own.
        link: the outgoing link of each prefill replica.
        kv_bytes_per_token: KV of a token over all ranks; None: of the first decode replica, its GPUs together.
        routers, seed, stepwise, progress, max_steps: as of ``simulate_fleet``.

    Raises:
        InputError: settings that contradict each other or are not simulated, or arrivals out of order.
    """
    members = [*prefill, *decode]
    check_pools(prefill, decode)
    for pool in ("prefill", "decode"):
        check_router(getattr(routers, pool), f"disaggregation.{pool}.router")
    check_workload(workload, members)
    if kv_bytes_per_token is None:
        kv_bytes_per_token = decode[0].pool.bytes_per_token * decode[0].gpus
    log = RunLog(workload, [], limits=limits_of(members))
    log.prefill_replicas, log.link_bytes_per_token = len(prefill), kv_bytes_per_token
    run = _Run(log, prefill, decode, link, {"stepwise": stepwise, "max_steps": max_steps})
    client = Client(run.env, workload, run.route(routers, seed))
    fleet: list[Replica] = [*run.prefill, *run.decode]
    watch_ends(fleet, client, progress, len(workload))
    try:
        run.env.run()
    except KvplanError as error:  # simpy raises a copy, without the error's place and remedy
        raise error.__cause__ or error from None
    log.status, log.end_ps = close_fleet(log, fleet)
    run.close()
    return log


def check_router(name: str, where: str) -> None:
    """Raises InputError: there is no such router, or not in front of a pool."""
    if name not in ROUTERS:
        raise InputError(f"{name!r} is not known", where=where, remedy=did_you_mean(name, ROUTERS))
    if name == "central_queue":
        raise InputError(
            "a central queue is not simulated in front of a pool of prefill/decode disaggregation",
            where=where,
            remedy="use least_outstanding",
        )


def check_pools(prefill: Sequence[Member], decode: Sequence[Member]) -> None:
    """Raises InputError: what the two pools cannot be, or are not simulated as."""
    for pool, members in (("prefill", prefill), ("decode", decode)):
        where = f"disaggregation.{pool}"
        if not members:
            raise InputError(f"the {pool} pool has no replica", where=where, remedy="give it replicas: 1 or more")
        for member in members:
            if member.engine.policy.kind != "vllm-v1" or member.pool.kind != "paged":
                raise InputError(
                    "prefill/decode disaggregation is simulated for vLLM v1 over a paged cache alone",
                    where=f"{where}.engine",
                    remedy="set preset: vllm and no allocator, or run without disaggregation",
                )
            if member.pool.groups:
                raise InputError(
                    "the KV groups of models with sliding windows are not simulated with prefill/decode disaggregation",
                    where=f"{where}.engine",
                    remedy="set engine.disable_hybrid_kv_cache_manager: true, and all layers keep every token",
                )
            if getattr(member.step_time, "stages", 1) != 1:
                raise InputError(
                    "pipeline parallelism is not simulated together with prefill/decode disaggregation",
                    where=f"{where}.parallelism",
                    remedy="set pipeline_parallel_size: 1 and a larger tensor_parallel_size",
                )
    for member in decode:
        if member.engine.scheduling_policy != "fcfs":
            raise InputError(
                "the decode replicas of prefill/decode disaggregation are simulated first come first served alone",
                where="disaggregation.decode.engine.scheduling_policy",
                remedy="set scheduling_policy: fcfs for the decode pool",
            )
        if member.engine.enable_prefix_caching:
            raise InputError(
                "prefix caching at the decode replicas is not simulated: they fetch the KV of every prompt whole",
                where="disaggregation.decode.engine.enable_prefix_caching",
                remedy="set enable_prefix_caching: false for the decode pool; the prefill pool may share prefixes",
            )


class _Run:
    """The two pools, what lies between them, and where each request is in it.

    Invariant: from the end of its prefill on a request is with exactly one decode replica, or on its way there at
    that very time.
    """

    def __init__(
        self, log: RunLog, prefill: Sequence[Member], decode: Sequence[Member], link: LinkSpec, options: dict[str, Any]
    ) -> None:
        self.env = Environment()
        self.log = log
        self.links = [KvLink(link) for _ in prefill]
        self.handovers: dict[int, Handover] = {}
        self.longest = min(member.engine.max_model_len for member in decode)  # an answer ends there
        self.options = options
        self.to_decode: Router = lambda row, replicas: 0  # until ``route``
        content = TokenContent(log.workload)
        self.prefill = [self._prefill_replica(member, content) for member in prefill]
        self.decode = [self._decode_replica(member, content) for member in decode]

    def _new_log(self, member: Member, kv: KvCache, pool: str) -> ReplicaLog:
        number = len(self.log.replicas)
        self.log.replicas.append(ReplicaLog(kv.pool, replica=number, group=member.group or pool, gpus=member.gpus))
        return self.log.replicas[-1]

    def _prefill_replica(self, member: Member, content: TokenContent) -> PrefillReplica:
        kv = make_cache(member.pool, member.engine, content)
        log = self._new_log(member, kv, "prefill")
        writer, scheduler = RunWriter(self.log, log, log.replica), make_scheduler(member.engine, kv)
        return PrefillReplica(
            self.env,
            scheduler,
            member.step_time,
            writer,
            Returns(),
            on_prefilled=self._prefilled,
            **self.options,
        )

    def _decode_replica(self, member: Member, content: TokenContent) -> DecodeReplica:
        kv = make_cache(member.pool, member.engine, content)
        log = self._new_log(member, kv, "decode")
        writer = DecodeWriter(self.log, log, log.replica, handovers=self.handovers)
        scheduler = RemotePrefill(member.engine, kv)
        scheduler.on_reserve = self._reserved
        return DecodeReplica(self.env, scheduler, member.step_time, writer, Inbox.empty(), **self.options)

    def route(self, routers: Routers, seed: int) -> Callable[[int, int], None]:
        """Puts the proxy in front: what a client sends its rows to."""
        workload = self.log.workload
        to_prefill = make_router(routers.prefill, workload, seed=seed, replicas=len(self.prefill))
        self.to_decode = make_router(routers.decode, workload, seed=seed + 1, replicas=len(self.decode))

        def send(row: int, now_ps: int) -> None:
            request = make_request(workload, row, now_ps, self.longest)
            replica = self.prefill[to_prefill(row, self.prefill)]
            reason = self._reason_against(request)
            if reason is not None:
                replica.turn_away(request, reason)
                return
            prompt = request.prompt_tokens
            replica.deliver(Request(row, now_ps, prompt, 1, request.priority, request.tie))

        return send

    def _reason_against(self, request: Request) -> str | None:
        """Why some decode replica could never serve this request; the prefill replica asks on its own behalf."""
        reasons = (replica.servable.reason_against(request) for replica in self.decode)
        return next((reason for reason in reasons if reason is not None), None)

    def _prefilled(self, handover: Handover) -> None:
        """A prompt is computed, now: its request goes on through the clock, behind everything that ends now."""
        self.handovers[handover.request.row] = handover
        self._later(handover, int(self.env.now), self._deliver)

    def _later(self, handover: Handover, at_ps: int, action: Callable[[Handover], None]) -> None:
        alarm = Alarm(self.env, at_ps - int(self.env.now), ARRIVAL + handover.request.row)
        alarm.on_time(lambda _: action(handover))

    def _deliver(self, handover: Handover) -> None:
        row = handover.request.row
        whole = make_request(self.log.workload, row, handover.request.arrival_ps, self.longest)
        replica = self.decode[self.to_decode(row, self.decode)]
        handover.receiver = replica.number
        handover.remote = RemoteRequest(
            row, whole.arrival_ps, whole.prompt_tokens, whole.output_tokens, handover.tokens
        )
        replica.deliver(handover.remote)

    def _reserved(self, request: RemoteRequest, at_ps: int) -> None:
        """A decode replica asks for KV in the step that begins then."""
        handover = self.handovers[request.row]
        handover.reserved_ps = at_ps
        self._later(handover, at_ps, self._ask)

    def _ask(self, handover: Handover) -> None:
        size_bytes = handover.tokens * self.log.link_bytes_per_token
        done_ps, handover.wire_ps = self.links[handover.sender].send(int(self.env.now), size_bytes)
        self._later(handover, done_ps, self._moved)

    def _moved(self, handover: Handover) -> None:
        handover.loaded_ps = int(self.env.now)
        self.prefill[handover.sender].sent(handover)
        self.decode[handover.receiver - len(self.prefill)].received(handover.remote)

    def close(self) -> None:
        """Writes the handovers, and what requests stored without running."""
        log, end_ps = self.log, self.log.end_ps

        def by(time_ps: int) -> int:
            return end_ps if time_ps == NOT_YET else min(time_ps, end_ps)

        for row in sorted(self.handovers):
            handover = self.handovers[row]
            log.handovers.extend(handover.row())
            parked = log.replicas[handover.sender].parked
            parked.tokens += handover.tokens * (by(handover.released_ps) - handover.prefilled_ps)
            parked = log.replicas[handover.receiver].parked
            parked.tokens += handover.tokens * (by(handover.admitted_ps) - by(handover.reserved_ps))

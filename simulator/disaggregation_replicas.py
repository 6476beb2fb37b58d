"""The replicas of the two pools: one hands its KV on when a prompt is computed, the other takes it in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.fleet_replica import FleetReplica
from simulator.inbox import NEVER_PS, Inbox
from simulator.replica_clock import Waits
from simulator.request import Request
from simulator.run_log import NOT_YET
from simulator.run_writer import RunWriter
from simulator.schedulers.remote_prefill import RemotePrefill, RemoteRequest


class Handover:
    """One request on its way from prefill to decode; the columns of ``run_log.HANDOVER_COLUMNS``."""

    __slots__ = (
        "admitted_ps",
        "loaded_ps",
        "prefilled_ps",
        "receiver",
        "released_ps",
        "remote",
        "request",
        "reserved_ps",
        "sender",
        "tokens",
        "wire_ps",
    )

    remote: RemoteRequest  # as the decode replica knows it, once it was sent there

    def __init__(self, request: Request, sender: int, prefilled_ps: int, tokens: int) -> None:
        self.request = request  # as the prefill replica knew it; it holds the KV there
        self.sender = sender
        self.receiver = -1  # until the proxy has chosen one, at the same time
        self.prefilled_ps = prefilled_ps
        self.reserved_ps = self.loaded_ps = self.admitted_ps = NOT_YET
        self.released_ps = NOT_YET if tokens else prefilled_ps
        self.tokens = tokens
        self.wire_ps = 0

    def row(self) -> tuple[int, ...]:
        return (
            self.request.row,
            self.sender,
            self.receiver,
            self.prefilled_ps,
            self.reserved_ps,
            self.loaded_ps,
            self.released_ps,
            self.admitted_ps,
            self.tokens,
            self.wire_ps,
        )


class Returns(Inbox):
    """What a prefill replica takes note of before a pass: transfers that are over, whose blocks are free then.

    Requests come through ``Replica.deliver``.
    """

    def __init__(self) -> None:
        super().__init__(None, np.empty(0, dtype=np.int64), 0)
        self.give_back: Callable[[Handover], None] | None = None
        self._due: list[Handover] = []

    def add(self, handover: Handover, now_ps: int) -> None:
        """A transfer is over, now."""
        self._due.append(handover)
        self.next_ps = min(self.next_ps, now_ps)

    def take(self, now_ps: int) -> list[Request]:
        due, self._due = self._due, []
        self.next_ps = NEVER_PS
        for handover in due:
            assert self.give_back is not None
            self.give_back(handover)
        return []


class _PoolReplica(FleetReplica):
    """A replica that may hold KV while it makes no step, and whose KV a router may read."""

    __slots__ = ()

    def _sleep(self) -> Waits:
        parked, pool, since = self.writer.log.parked, self.kv.pool, self.now
        held = pool.total_slots - self.kv.free_units * pool.block_size
        saved = self.kv.saved_units * pool.block_size
        yield from super()._sleep()
        parked.held_slots += held * (self.now - since)
        parked.saved_slots += saved * (self.now - since)


class PrefillReplica(_PoolReplica):
    """Computes prompts. A request that ends here keeps its blocks until its KV has been sent (``sent``)."""

    __slots__ = ("on_prefilled",)

    def __init__(self, *args: Any, on_prefilled: Callable[[Handover], None], **options: Any) -> None:
        super().__init__(*args, **options)
        self.on_prefilled = on_prefilled
        assert isinstance(self.inbox, Returns)
        self.inbox.give_back = self._give_back

    def _depart(self, request: Request, now_ps: int, holds: bool) -> None:
        """Its KV is lost if it was preempted while its token was in flight: then nothing is left to send."""
        self.outstanding -= 1
        self.on_prefilled(Handover(request, self.number, now_ps, request.prompt_tokens if holds else 0))

    def sent(self, handover: Handover) -> None:
        """The KV of a request has left, now."""
        assert isinstance(self.inbox, Returns)
        self.inbox.add(handover, int(self.env.now))
        if self._bell is not None:
            self._ring()

    def _give_back(self, handover: Handover) -> None:
        self.kv.release(handover.request)
        handover.released_ps = self.now

    def turn_away(self, request: Request, reason: str) -> None:
        """Refuses a request that no decode replica could serve."""
        self.outstanding += 1
        self._drop([(request, reason)])


class DecodeReplica(_PoolReplica):
    """Computes answers; its scheduler is a ``RemotePrefill``."""

    __slots__ = ()

    def received(self, request: RemoteRequest) -> None:
        """The KV of a request is there, now."""
        assert isinstance(self.scheduler, RemotePrefill)
        matters = self.scheduler.received(request)
        if self._bell is not None:
            self._ring()
        elif matters and self._leap > 1:
            self._cut()


class DecodeWriter(RunWriter):
    """Writes of each request what happened to it at both replicas: one row, from its arrival at the proxy on."""

    __slots__ = ("handovers",)

    def __init__(self, *args: Any, handovers: dict[int, Handover]) -> None:
        super().__init__(*args)
        self.handovers = handovers

    def finished(self, request: Request, now_ps: int) -> None:
        self._join(request)
        super().finished(request, now_ps)

    def unfinished(self, request: Request, step: int, now_ps: int, *, running: bool) -> None:
        self._join(request)
        super().unfinished(request, step, now_ps, running=running)

    def _join(self, request: Request) -> None:
        handover = self.handovers[request.row]
        before = handover.request
        handover.admitted_ps = request.scheduled_ps
        request.scheduled_ps = before.scheduled_ps
        request.cached_tokens = before.cached_tokens
        request.preemptions += before.preemptions
        request.recomputed += before.recomputed

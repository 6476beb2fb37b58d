"""The replicas of a run whose number changes or whose router looks at them, and the requests between them.

Everything that happens to replicas at one time happens in this order, after all that ends then and before whatever
arrives then: failures, starts, stops, the autoscaler's look, and then the requests of those that failed, and those
that waited at the router, are routed.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf

from simpy import Environment

from simulator.autoscaler import Stillness, metric_of, wanted_replicas
from simulator.clock import ARRIVAL, FLEET, Alarm
from simulator.fleet_events import Autoscaler, Fail, FleetEvent, check_events
from simulator.fleet_log import FleetLog
from simulator.fleet_replica import FleetReplica
from simulator.inbox import NEVER_PS, capped_output
from simulator.members import Member
from simulator.request import Request
from simulator.routers import Router
from simulator.survivors import refit
from workloads.workload import Workload

Make = Callable[[int], FleetReplica]
"""make(number): a replica that takes requests from now on, with a log of its own."""


_FAIL, _READY, _START, _STOP, _LOOK = range(5)
_ORDER = {"fail": _FAIL, "start": _START, "stop": _STOP}


class Fleet:
    """Who is up, who waits at the router, and what happens when.

    Invariant: ``up`` are the replicas that take requests, by number; ``draining`` those that serve what they have.
    While somebody is ``held``, nobody is up, or (``route`` None: a central queue) nobody who is up takes more.
    """

    def __init__(
        self,
        env: Environment,
        workload: Workload,
        members: Sequence[Member],
        route: Router | None,
        make: Make,
        events: Sequence[FleetEvent] = (),
        autoscaler: Autoscaler | None = None,
        *,
        initial: int | None = None,
        on_end: Callable[[Request], None] | None = None,
    ) -> None:
        self.on_end = on_end
        self.env = env
        self.workload = workload
        self.members = members
        self.route = route
        self.log = FleetLog()
        self.lives: list[FleetReplica] = []
        self.up: list[FleetReplica] = []
        self.draining: dict[int, FleetReplica] = {}
        self.starting: dict[int, int] = {}  # number -> when it takes requests
        self.held: deque[Request] = deque()
        self.left = len(workload)  # requests that have not ended
        self._make = make
        self._scaler = autoscaler
        self._sent = 0
        self._agenda: list[tuple[int, int, int]] = []  # (time, order, number or index of an event)
        self._events = events
        self._dispatching = False
        for number in check_events(events, len(members), autoscaler)[: initial or len(members)]:
            self._start(number)
        for index, event in enumerate(events):
            self._plan(event.at_ps, _ORDER[event.kind], index)
        if autoscaler is not None:
            self._stillness = Stillness(autoscaler)
            self._plan(autoscaler.interval_ps, _LOOK, 0)
        self._note()

    # -- requests ---------------------------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        """Routes a request that arrives now."""
        self._sent += 1
        if self.route is None:
            self.held.append(request)
            self.dispatch()
        elif not self.up:
            self.log.held += 1
            self.held.append(request)
        else:
            self._hand(self.up[self.route(request.row, self.up)], request)

    def dispatch(self) -> None:
        """Central queue: hands out what is held, in order of arrival, as long as somebody takes it."""
        while self.held:
            takers = [replica for replica in self.up if replica.takes_more()]
            if not takers:
                return
            self._hand(min(takers, key=lambda replica: replica.outstanding), self.held.popleft())

    def ended(self, request: Request) -> None:
        """A request has ended, now, or was turned away."""
        self.left -= 1
        if self.route is None and self.held and not self._dispatching:
            self._dispatching = True  # once, when all that ends now has ended
            Alarm(self.env, 0, ARRIVAL - 1).on_time(lambda _: self._dispatch_later())
        for number in [number for number, replica in self.draining.items() if not replica.outstanding]:
            self._retire(self.draining.pop(number))
            self._note()
        if self.on_end is not None:
            self.on_end(request)

    def _dispatch_later(self) -> None:
        self._dispatching = False
        self.dispatch()

    def _hand(self, replica: FleetReplica, request: Request) -> None:
        row, limit = request.row, self.members[replica.number].engine.max_model_len
        output = int(capped_output(self.workload.prompt_tokens[row], self.workload.output_tokens[row], limit))
        if output != request.output_tokens:
            refit(request, output)
        replica.deliver(request)

    # -- replicas ---------------------------------------------------------------------------------------------

    def _plan(self, at_ps: int, order: int, what: int) -> None:
        """Puts something on the agenda."""
        heappush(self._agenda, (at_ps, order, what))
        Alarm(self.env, at_ps - self._now(), FLEET).on_time(lambda _: self._act())

    def _act(self) -> None:
        """Does all that is due now; nothing once all requests have ended."""
        now = self._now()
        if not self.left:
            return
        orphans: list[Request] = []
        while self._agenda and self._agenda[0][0] <= now:
            _, order, what = heappop(self._agenda)
            if order == _FAIL:
                orphans += self._fail(what)
            elif order == _READY:
                if self.starting.get(what) == now:
                    self._start(what)
            elif order == _START:
                self._start(self._events[what].replica)
            elif order == _STOP:
                self._drain(self._events[what].replica)
            else:
                self._look()
        waiting = [*orphans, *self.held]
        self.held.clear()
        if self.route is None:
            self.held.extend(sorted(waiting, key=lambda request: (request.arrival_ps, request.row)))
            self.dispatch()
        elif self.up:
            for request in waiting:
                self._hand(self.up[self.route(request.row, self.up)], request)
        else:
            self.log.held += len(orphans)
            self.held.extend(waiting)
        self._note()

    def _start(self, number: int) -> None:
        """The replica takes requests from now on: an empty one, or the one that was to stop."""
        self.starting.pop(number, None)
        replica = self.draining.pop(number, None)
        if replica is None:
            replica = self._make(number)
            replica.writer.log.from_ps = self._now()
            replica.on_end = self.ended
            replica.dies_at = self._next_failure(number)
            if self.route is None:
                replica.on_pass = self._after_pass
            self.lives.append(replica)
        insort(self.up, replica, key=lambda replica: replica.number)

    def _after_pass(self) -> None:
        if self.held:
            self.dispatch()

    def _next_failure(self, number: int) -> int:
        now = self._now()
        times = [e.at_ps for e in self._events if isinstance(e, Fail) and e.replica == number and e.at_ps > now]
        return min(times, default=NEVER_PS)

    def _fail(self, index: int) -> list[Request]:
        """The requests of a replica that fails; none where it is not there."""
        event = self._events[index]
        assert isinstance(event, Fail)
        alive = [r for r in (*self.up, *self.draining.values()) if r.number == event.replica]
        if not alive:
            return []
        replica = alive[0]
        lost = replica.fail()
        self._retire(replica)
        now = self._now()
        self.log.failures += 1
        self.log.rerouted += len(lost.requests)
        self.log.interrupted += lost.interrupted
        self.log.lost_kv_tokens += lost.kv_tokens
        if self.draining.pop(replica.number, None) is None:
            self.up.remove(replica)
            if event.restart_after_ps is not None:
                self.starting[replica.number] = now + event.restart_after_ps
                self._plan(now + event.restart_after_ps, _READY, replica.number)
        return lost.requests

    def _drain(self, number: int) -> None:
        replica = next(replica for replica in self.up if replica.number == number)
        self.up.remove(replica)
        if replica.outstanding:
            self.draining[number] = replica
        else:
            self._retire(replica)

    def _retire(self, replica: FleetReplica) -> None:
        """It is gone from now on."""
        replica.writer.log.to_ps = self._now()
        replica.writer.log.evicted_blocks = replica.kv.evicted_blocks

    # -- the autoscaler ---------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Asks how many replicas are wanted, starts those that lack and lets go of those too many."""
        scaler, now, nothing_comes = self._scaler, self._now(), self.env.peek() == inf
        assert scaler is not None
        current = len(self.up) + len(self.starting)
        wanted = scaler.min_replicas
        if current:
            metric = metric_of(scaler, self.up, len(self.starting), len(self.held))
            wanted = wanted_replicas(scaler, metric, current)
        taken = {*self.starting, *self.draining, *(replica.number for replica in self.up)}
        free = [number for number in range(len(self.members)) if number not in taken]
        for number in free[: max(wanted - current, 0)]:
            self.starting[number] = now + scaler.startup_ps
            self.log.starts.append((now, now + scaler.startup_ps))
            self._plan(now + scaler.startup_ps, _READY, number)
        for _ in range(current - wanted):
            if self.starting:
                del self.starting[max(self.starting)]  # its start-up is paid for all the same
            else:
                self._drain(self.up[-1].number)
        if not self._stillness.lasts(
            self._sent - self.left, resting=all(replica.rests() for replica in self.lives), nothing_comes=nothing_comes
        ):
            self._plan(now + scaler.interval_ps, _LOOK, 0)

    def _note(self) -> None:
        """Notes how many replicas there are, if that has changed."""
        state = (len(self.up), len(self.starting), len(self.draining))
        if not self.log.scaling or self.log.scaling[-1][1:] != state:
            self.log.scaling.append((self._now(), *state))

    def _now(self) -> int:
        return int(self.env.now)

"""One replica whose layers lie on several pipeline stages: batches follow each other through them.

vLLM v1's engine core (``EngineCore.step_with_batch_queue``): the queue takes as many batches as there are stages. As
long as it has room the engine makes another pass; when it is full it waits for the oldest batch and applies its tokens.
A pass that finds nothing to compute goes into the queue too, as an empty batch that ends with the one before it, and
since it takes a place, the engine then waits until the oldest batch ends: arrivals in between wait as well, and join
that batch's requests in their next pass. So micro-batches form where a pass could not take all (its token budget), and
stay; requests that were batched together once go on together (vLLM issues 15330, 41682, 50853).

A batch enters stage s when it has left stage s - 1 and its activations have been handed over, and the batch before it
has left stage s. Its tokens count when it leaves the last stage. With one stage nothing overlaps, and everything
comes out as from ``engine.Replica``: a property test holds the two together.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from simpy import Environment

from simulator.allocators.kv_cache import KvCache
from simulator.clock import FINISH, PASS, Alarm
from simulator.engine import EMPTY_STEP_PS, Replica
from simulator.inbox import NEVER_PS, Inbox
from simulator.members import Member
from simulator.replica_clock import Waits
from simulator.request import Request, RequestState
from simulator.run_log import NOT_YET, PipelineFacts
from simulator.run_writer import PACK_SEGMENT, RunWriter
from simulator.schedulers.pipelined_prefill import PipelinedPrefill
from simulator.schedulers.pipelined_requests import Chunk
from simulator.schedulers.plan import Plan
from simulator.schedulers.servable import Patience
from simulator.step_time.pipeline import PipelinedStepTime


@dataclass(slots=True)
class Flight:
    """A batch in the queue. ``empty``: a pass that had nothing to compute."""

    start_ps: int
    end_ps: int
    decodes: list[Request]
    chunks: list[Chunk]
    stages_ps: list[int]
    sampled: int
    empty: bool = False


class PipelinedReplica(Replica):
    """A scheduler and a KV cache over the stages of a pipeline, driven by the simulated clock.

    The rows of its log tile the time in which a batch is in flight: a row goes from one pass, or from the end of a
    batch after which no pass found anything to do, to the next; ``tokens`` and ``decodes`` are those of the batch that
    starts with the row (none in rows of the second kind), all else is the state of the replica. Gaps between tokens
    are logged batch by batch (``PipelineFacts.gaps``). There are no leaps.

    Invariant: ``_flights`` are in the order of their ends; at most as many as there are stages.
    """

    __slots__ = ("_facts", "_flights", "_free_at", "_patience", "_row", "_row_starts_batch")

    scheduler: PipelinedPrefill
    step_time: PipelinedStepTime

    def __init__(
        self,
        env: Environment,
        scheduler: PipelinedPrefill,
        step_time: PipelinedStepTime,
        writer: RunWriter,
        inbox: Inbox,
        *,
        coupled: bool = True,
        max_steps: int | None = None,
    ) -> None:
        super().__init__(env, scheduler, step_time, writer, inbox, coupled=coupled, stepwise=True, max_steps=max_steps)
        stages = len(step_time.stages)
        self.windows = None  # the scheduler sums windows itself
        self._flights: deque[Flight] = deque()
        self._free_at = [0] * stages  # when each stage is done with what it was given
        self._facts = writer.log.pipeline = PipelineFacts([0] * stages)
        self._patience = Patience(scheduler.config)
        self._row: list[int] | None = None
        self._row_starts_batch = False

    # -- the process ------------------------------------------------------------------------------------------

    def _run(self) -> Waits:
        inbox = self.inbox
        while not self._is_over():
            if inbox.next_ps <= self.now:
                for request in inbox.take(self.now):
                    self._accept(request)
            self._fill()
            if self._flights:
                yield from self._await_oldest()
                if self.live_locked:
                    break
            else:
                if not self.coupled and inbox.next_ps == NEVER_PS:
                    break
                yield from self._sleep()
        self._close_row()

    def _fill(self) -> None:
        """Makes passes while the queue has room and they find something to compute."""
        flights, stages = self._flights, len(self._free_at)
        if all(flight.empty for flight in flights):
            flights.clear()  # nothing is under way: the engine need not wait for what is over at once
        plan = None
        while len(flights) < stages and not self._is_over():
            plan = self.scheduler.schedule(self.step, self.now)
            for request in plan.admitted:
                if request.preemptions:
                    self.writer.log.requeues.extend((request.row, request.preempted_ps, self.now))
                    request.preempted_ps = NOT_YET
            if plan.batch.tokens:
                self._start_batch(plan, self.step_time.stages_ps(plan.batch), self.step_time.transfer_ps(plan.batch))
                continue
            if flights:
                # The same pass again would find nothing either, unless this one has set memory free.
                last, again = flights[-1].end_ps, bool(plan.preempted)
                for _ in range(1 if again else stages - len(flights)):
                    flights.append(Flight(self.now, last, [], [], [], 0, empty=True))
                if again:
                    continue
            elif plan.preempted:
                self._start_batch(plan, [EMPTY_STEP_PS] + [0] * (stages - 1), 0)
            else:
                self.empty_passes += bool(self.scheduler.running or self.scheduler.waiting)
            break
        if flights and plan is not None:
            self._note_state(plan)

    def _start_batch(self, plan: Plan, stages_ps: list[int], transfer_ps: int) -> None:
        """Sends the pass's batch through the stages."""
        free_at, at = self._free_at, self.now
        for stage, duration in enumerate(stages_ps):
            begin = at if at > free_at[stage] else free_at[stage]
            free_at[stage] = end = begin + duration
            at = end + transfer_ps
        self._flights.append(
            Flight(self.now, end, self.scheduler.decodes, self.scheduler.chunks(), stages_ps, plan.batch.sampled)
        )
        self._close_row()
        self._open_row(plan, starts_batch=True)
        self.step += 1

    def _await_oldest(self) -> Waits:
        """Waits for the oldest batch to leave the last stage, and applies its tokens."""
        flight = self._flights.popleft()
        if flight.empty:
            return
        if self.coupled:
            yield Alarm(self.env, flight.end_ps - int(self.env.now), FINISH + self.number)
        self.now = self.pass_at = flight.end_ps
        self._close_row()
        self._land(flight)
        if flight.sampled:
            self._patience.waited = 0
        elif self.max_steps is None and self._patience.is_over():
            self.live_locked = True
        if self.coupled and self.env.peek() == self.env.now:
            yield Alarm(self.env, 0, PASS + self.number)  # others end or arrive now: they come first

    def _land(self, flight: Flight) -> None:
        facts, now = self._facts, self.now
        for stage, duration in enumerate(flight.stages_ps):
            facts.stage_busy_ps[stage] += duration
        facts.in_flight_ps += now - flight.start_ps
        landed = self.scheduler.land(flight.decodes, flight.chunks, now)
        for gap, count in landed.gaps.items():
            facts.gaps.extend((flight.start_ps, gap, count))
        for request in landed.ended:
            self.writer.finished(request, now)
            self.kv.release(request)
            self._gone(request)
        for request in landed.late:
            self.writer.log.requeues.extend((request.row, request.preempted_ps, now))
            request.preempted_ps = NOT_YET
            self.writer.finished(request, now)
            self._gone(request)

    # -- the log ----------------------------------------------------------------------------------------------

    def _open_row(self, plan: Plan, *, starts_batch: bool) -> None:
        """Begins a row now."""
        batch = plan.batch
        computed = [batch.tokens, batch.decodes, batch.sampled, 0, batch.context] if starts_batch else [0] * 5
        step = self.step if starts_batch else self.step - 1
        self._row = [step, 1, self.now, 0, 0, *computed, *self._state(plan), 0]
        self._row_starts_batch = starts_batch

    def _state(self, plan: Plan) -> list[int]:
        kv, size = self.kv, self.kv.pool.block_size
        used = kv.pool.total_slots - kv.free_units * size
        return [len(self.scheduler.running), self.scheduler.stored, used, plan.head_wait, kv.saved_units * size]

    def _note_state(self, plan: Plan) -> None:
        """After the last pass made now: the row that begins now says what it left; without one, begins it."""
        if self._row is None:
            self._open_row(plan, starts_batch=False)
        elif self._row[2] == self.now:
            self._row[10:15] = self._state(plan)

    def _close_row(self) -> None:
        """Ends the row under way, now. One that begins no batch and took no time says nothing."""
        row, self._row = self._row, None
        if row is None:
            return
        row[3] = self.now - row[2]
        if not self._row_starts_batch:
            if not row[3]:
                return
            self._facts.part_rows += 1
        self.writer.log.segments.frombytes(PACK_SEGMENT(*row))

    def close(self, now_ps: int) -> None:
        """Accounts for whoever is left when the run is over."""
        for request in self.scheduler.running.values():
            if request.state is RequestState.DECODING:
                request.joined_step = self.step  # it is up to date
        super().close(now_ps)


def pipelined_replica(
    env: Environment,
    member: Member,
    kv: KvCache,
    writer: RunWriter,
    inbox: Inbox | None,
    *,
    max_steps: int | None = None,
) -> PipelinedReplica:
    """The replica of a member whose step time has stages; without an inbox it is delivered to.

    Raises:
        InputError: its engine is not simulated over a pipeline.
    """
    step_time = member.step_time
    assert isinstance(step_time, PipelinedStepTime)
    scheduler = PipelinedPrefill(member.engine, kv, step_time.windows)
    coupled = inbox is None
    return PipelinedReplica(
        env, scheduler, step_time, writer, inbox or Inbox.empty(), coupled=coupled, max_steps=max_steps
    )

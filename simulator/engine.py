"""One replica of an LLM server, as a SimPy process that leaps over steps in which nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simpy import Environment

from simulator.clock import FINISH, PASS, Alarm, steps_duration
from simulator.inbox import NEVER_PS, Inbox
from simulator.replica_clock import ReplicaClock, Waits
from simulator.request import Request, RequestState
from simulator.run_writer import PACK_SEGMENT, RunWriter
from simulator.schedulers.plan import Plan
from simulator.schedulers.running import Scheduler
from simulator.schedulers.servable import Patience, Servable
from simulator.step_time.base import UNBOUNDED_STEPS, Segment, StepTimeModel
from simulator.windows import WindowSums

if TYPE_CHECKING:
    from simulator.pass_recorder import PassRecorder

EMPTY_STEP_PS = 1_000_000_000
"""A pass that only preempts: the engine sleeps a millisecond and tries again (SCHEDULERS.md 3)."""
EMPTY_SEGMENT = Segment(EMPTY_STEP_PS, 0, 1)


class Replica(ReplicaClock):
    """A scheduler, a KV cache and a step-time model, driven by the simulated clock.

    A *leap* is one stretch of k steps of the same plan, k being the least that scheduler, cache and step time are
    sure of. An arrival that can change the next pass ends the leap at the first step boundary at or after it: at
    once where the inbox knows it beforehand, else when it is delivered (``_cut``). With ``stepwise`` every k is 1
    and nothing else differs.

    With async scheduling (``lag`` 1) a pass is made when the step before it starts, so that who ends with that step
    is still there (``_ending``), and lets go after the pass.
    """

    __slots__ = (
        "_ending",
        "cut_short",
        "empty_passes",
        "kv",
        "live_locked",
        "max_steps",
        "most_steps",
        "on_end",
        "outstanding",
        "recorder",
        "scheduler",
        "servable",
        "step",
        "step_time",
        "windows",
        "writer",
    )

    def __init__(
        self,
        env: Environment,
        scheduler: Scheduler,
        step_time: StepTimeModel,
        writer: RunWriter,
        inbox: Inbox,
        *,
        coupled: bool = True,
        stepwise: bool = False,
        max_steps: int | None = None,
        recorder: PassRecorder | None = None,
    ) -> None:
        super().__init__(env, writer.number, inbox, scheduler.lag, coupled=coupled)
        self.scheduler = scheduler
        self.kv = scheduler.kv
        self.servable = Servable(scheduler.config, scheduler.kv)
        self.step_time = step_time
        self.windows = WindowSums(step_time.windows) if step_time.windows else None
        self.writer = writer
        self.most_steps = 1 if stepwise else UNBOUNDED_STEPS
        self.max_steps = max_steps
        self.recorder = recorder
        self.on_end: Callable[[Request], None] | None = None
        self.step = 0  # number of the next step
        self.empty_passes = 0  # passes that had nothing to compute
        self.outstanding = 0  # requests routed here and not ended
        self.cut_short = False  # stopped by max_steps
        self.live_locked = False
        self._ending: list[Request] | None = None  # async scheduling: whose last token comes with the step in flight
        env.process(self._run())

    # -- arrivals ---------------------------------------------------------------------------------------------

    def deliver(self, request: Request) -> None:
        """Takes an arrival, now."""
        matters = self._accept(request)
        if self._bell is not None:
            self._ring()
        elif matters and self._leap > 1:
            self._cut()

    def _accept(self, request: Request) -> bool:
        """Queues an arrival, or rejects it; says whether it can change a pass."""
        self.outstanding += 1
        reason = request.final_tokens > self.servable.surely_tokens and self.servable.reason_against(request)
        if reason:
            request.state = RequestState.REJECTED
            self.writer.rejected(request, reason)
            self._gone(request)
            return False
        if self.recorder:
            self.recorder.arrived(request)
        return self.scheduler.waiting.add(request) or self.scheduler.counts_waiting

    # -- the process ------------------------------------------------------------------------------------------

    def _run(self) -> Waits:
        """Pass after pass. One long function on purpose: it is the hot loop, and in it names cost less than calls."""
        env, scheduler, inbox, coupled, recorder = self.env, self.scheduler, self.inbox, self.coupled, self.recorder
        kv, decoders, plan, waiting = self.kv, scheduler.decoders, scheduler.plan, scheduler.waiting
        running, batch, hold = scheduler.running, plan.batch, scheduler.hold
        step_time, windows = self.step_time, self.windows
        write, growth_blocks, pool = self.writer.log.segments.frombytes, self.writer.log.growth_blocks, kv.pool
        patience = Patience(scheduler.config)
        step, holds, watched = 0, hold.active, recorder is not None or self.max_steps is not None
        lag, most_steps = scheduler.lag, self.most_steps
        while not (watched and self._is_over()):
            start = self.now  # stays the start of the leap until it is over
            if inbox.next_ps <= self.pass_at:
                for request in inbox.take(self.pass_at):
                    self._accept(request)
            scheduler.schedule(step, start)
            if plan.dropped:
                self._drop(plan.dropped)
            if not (batch.tokens or plan.preempted):
                self.empty_passes += bool(running or waiting)
                if self.pass_at < start:  # the step in flight may change that
                    yield from self._drain(plan)
                    continue
                # nothing can change before the next arrival
                self._end_late(start)
                if recorder and waiting:
                    recorder.stalled(self, plan)
                if not coupled and inbox.next_ps == NEVER_PS:
                    return
                yield from self._sleep()
                continue
            # How long the steps last, and for how many of them the plan holds.
            most = 1 if lag and self._ending else most_steps
            if windows:
                windows.join(plan.resumed, step)
                batch.windowed, most = windows.read(step, plan.skipped, most, bool(batch.decodes))
            segment = step_time.segment(batch) if batch.tokens else EMPTY_SEGMENT
            if plan.delay_ps:
                segment = Segment(segment.duration_ps + plan.delay_ps, segment.growth_ps, 1)
            duration, growth, steps = segment
            stable = plan.stable
            if stable:
                if most < steps:
                    steps = most
                if decoders.soonest - step < steps:
                    steps = decoders.soonest - step
                if steps > 1:
                    # In block_size steps no decoder needs more than one unit: mostly there is no need to ask. A cache
                    # that minds the order may have groups and windows, and then its growth has no such period.
                    if kv.ordered or decoders.count * (steps // pool.block_size + 1) >= kv.free_units:
                        steps = 1 + kv.horizon(step + 1, steps - 1)
                    wait = inbox.next_ps - start
                    if wait < steps * (duration + growth * steps) and (scheduler.heeds_all or not waiting):
                        at = self.steps_until_pass(duration, growth, wait)
                        if at < steps:
                            steps = at
            else:
                steps = 1
            if watched:
                steps = self._watch(plan, segment, steps)
            if coupled:
                yield self._set_alarm(segment, steps)
                steps, self._leap = self._leap, 0
            if lag:
                self._end_late(start)
                self.pass_at = start + steps_duration(duration, growth, steps - 1)
            # The steps have run: log them, apply their tokens, let go of whoever ended.
            used = pool.total_slots - kv.free_units * pool.block_size
            saved = kv.saved_units * pool.block_size
            n, context = plan.decodes, batch.context
            if stable:  # decoders only: tokens and samples are all theirs
                write(
                    PACK_SEGMENT(
                        step, steps, start, duration, growth if steps > 1 else 0, n, n, n, n, context,
                        len(running), plan.stored_tokens, used, plan.head_wait, saved, len(growth_blocks),
                    )
                )  # fmt: skip
                self.now = start + steps * duration + growth * (steps * (steps - 1) // 2)
                decoders.stored_tokens += steps * n
                if steps > 1:
                    growth_blocks.extend(kv.advance(step + 1, steps - 1))
                    if holds:
                        hold.executed_steps += steps - 1
                self.step = step = step + steps
                if decoders.soonest <= step:  # with a stable plan only decoders can end
                    self._finish(scheduler.complete(step, self.now))
                elif lag:
                    self._ending = []
                elif recorder:
                    recorder.ended(self, [])
                patience.waited = 0
            else:
                write(
                    PACK_SEGMENT(
                        step, 1, start, duration, 0, batch.tokens, n, batch.sampled, plan.regular, context,
                        len(running), plan.stored_tokens, used, plan.head_wait, saved, len(growth_blocks),
                    )
                )  # fmt: skip
                self.now = start + duration
                if plan.irregular:
                    self.writer.tokens_out_of_step(plan, start, self.now)
                scheduler.advance(step)
                self.step = step = step + 1
                ended = scheduler.complete(step, self.now)
                if ended or watched or windows or lag:
                    self._finish(ended)
                if batch.sampled:
                    patience.waited = 0
                elif self.max_steps is None and patience.is_over():
                    self.live_locked = True
                    return
            if not lag:
                self.pass_at = self.now
            if coupled and env.peek() == env.now:
                yield Alarm(env, 0, PASS + self.number)  # others end or arrive now: they come first

    def _is_over(self) -> bool:
        """Whether as many passes were made as are allowed."""
        self.cut_short = self.max_steps is not None and self.step + self.empty_passes >= self.max_steps
        return self.cut_short

    def _watch(self, plan: Plan, segment: Segment, steps: int) -> int:
        """Tells the recorder of a pass, and keeps the leap within the step limit."""
        if self.recorder:
            self.recorder.scheduled(self, plan, segment.duration_ps)
        return steps if self.max_steps is None else min(steps, self.max_steps - self.step - self.empty_passes)

    def _finish(self, ended: list[Request]) -> None:
        """Lets go of the requests that end now; decoding ones that have just begun join the window sums."""
        if self.windows:
            self.windows.join(self.scheduler.plan.completing, self.step)
        if self.lag:
            self._ending = ended
            return
        for request in ended:
            self._depart(request, self.now, True)
        if self.recorder:
            self.recorder.ended(self, ended)

    def _depart(self, request: Request, now_ps: int, holds: bool) -> None:
        """A request has its last token; ``holds``: its KV too (async scheduling may preempt it meanwhile)."""
        self.writer.finished(request, now_ps)
        if holds:
            self.kv.release(request)
        self._gone(request)

    def _end_late(self, now_ps: int) -> None:
        """Async scheduling: the step in flight during the last pass has ended, at ``now_ps``."""
        ended, self._ending = self._ending, None
        if ended is None:
            return
        for request in ended:
            self._depart(request, now_ps, self.scheduler.let_go(request))
        if self.recorder:
            self.recorder.ended(self, ended)

    def _drain(self, plan: Plan) -> Waits:
        """Async scheduling: nothing could be queued behind the step in flight; waits for its end."""
        if self.recorder:
            self.recorder.scheduled(self, plan, 0)
        if self.coupled:
            yield Alarm(self.env, self.now - int(self.env.now), FINISH + self.number)
        self._end_late(self.now)
        self.pass_at = self.now
        self._ending = []  # the empty step ends with the next pass
        if not (self.scheduler.running or self.scheduler.waiting or self.inbox.next_ps <= self.now):
            self._end_late(self.now)
        if self.coupled:
            yield Alarm(self.env, 0, PASS + self.number)  # others end or arrive now: they come first

    def _drop(self, dropped: list[tuple[Request, str]]) -> None:
        """Turns away waiting requests that the scheduler gave up; they hold nothing."""
        for request, reason in dropped:
            request.state = RequestState.REJECTED
            self.writer.rejected(request, reason, self.now)
            self._gone(request)

    def _gone(self, request: Request) -> None:
        self.outstanding -= 1
        if self.on_end is not None:
            self.on_end(request)

    def close(self, now_ps: int) -> None:
        """Accounts for whoever is left when the run is over, and for who came during the last leap."""
        self.on_end = None
        for request in self.inbox.take(self.now):
            self._accept(request)
        for request in self.scheduler.running.values():
            self.writer.unfinished(request, self.step, now_ps, running=True)
        for request in (*self.scheduler.waiting, *self.scheduler.away()):
            self.writer.unfinished(request, self.step, now_ps, running=False)

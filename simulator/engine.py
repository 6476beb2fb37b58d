"""One replica of an LLM server, as a SimPy process that leaps over steps in which nothing changes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from simpy import Environment
from simpy.events import Event

from simulator.clock import ARRIVAL, FINISH, PASS, Alarm, steps_duration, steps_until
from simulator.inbox import NEVER_PS, Inbox
from simulator.request import Request, RequestState
from simulator.run_log import NOT_YET, REQUEST_COLUMNS, SEGMENT_COLUMNS, ReplicaLog, RunLog, Status
from simulator.schedulers.chunked_prefill import ChunkedPrefill
from simulator.schedulers.plan import Plan
from simulator.step_time.base import Segment, StepTimeModel
from simulator.windows import WindowSums

if TYPE_CHECKING:
    from simulator.pass_recorder import PassRecorder

EMPTY_STEP_PS = 1_000_000_000
"""A pass that only preempts: the engine sleeps a millisecond and tries again (SCHEDULERS.md 3)."""
EMPTY_SEGMENT = Segment(EMPTY_STEP_PS, 0, 1)

PATIENCE = 8
"""A live-lock is called after this many times the steps that any prefill can need without one sampled token."""

# Rows go to the log as packed bytes: faster than handing an array one number at a time.
PACK_SEGMENT = struct.Struct(f"={len(SEGMENT_COLUMNS)}q").pack
PACK_REQUEST = struct.Struct(f"={len(REQUEST_COLUMNS)}q").pack
Waits = Generator[Event, None, None]
FINISHED, REJECTED, UNFINISHED = (int(status) for status in Status)


class Replica:
    """A scheduler, a KV cache and a step-time model, driven by the simulated clock.

    A *leap* is one stretch of k steps of the same plan, k being the least that scheduler, cache and step time are
    sure of. An arrival that can change the next pass ends the leap at the first step boundary at or after it: at
    once where the inbox knows it beforehand, else when it is delivered (``_cut``). With ``stepwise`` every k is 1
    and nothing else differs.

    ``now`` is this replica's clock. A replica that nobody can reach from outside (``coupled`` False: its inbox
    holds all its arrivals and nobody listens for ends) runs ahead without waiting for SimPy's clock; all others
    wait, so that everything happens in order.
    """

    __slots__ = (
        "_alarm",
        "_bell",
        "_contiguous",
        "_faithful",
        "_fruitless_steps",
        "_leap",
        "_segment",
        "_slots_per_unit",
        "_start_ps",
        "coupled",
        "cut_short",
        "env",
        "inbox",
        "kv",
        "live_locked",
        "log",
        "max_steps",
        "now",
        "number",
        "on_end",
        "outstanding",
        "process",
        "recorder",
        "run_log",
        "scheduler",
        "step",
        "step_time",
        "stepwise",
        "windows",
    )

    def __init__(
        self,
        env: Environment,
        number: int,
        scheduler: ChunkedPrefill,
        step_time: StepTimeModel,
        run_log: RunLog,
        log: ReplicaLog,
        inbox: Inbox,
        *,
        coupled: bool = True,
        stepwise: bool = False,
        max_steps: int | None = None,
        recorder: PassRecorder | None = None,
    ) -> None:
        self.env = env
        self.number = number
        self.scheduler = scheduler
        self.kv = scheduler.kv
        self.step_time = step_time
        self.windows = WindowSums(step_time.windows) if step_time.windows else None
        self.run_log = run_log
        self.log = log
        self.inbox = inbox
        self.coupled = coupled
        self.stepwise = stepwise
        self.max_steps = max_steps
        self.recorder = recorder
        self.on_end: Callable[[Request], None] | None = None
        self.now = 0
        self.step = 0  # number of the next step
        self.outstanding = 0  # requests routed here and not ended
        self.cut_short = False  # stopped by max_steps
        self.live_locked = False
        self._slots_per_unit = log.pool.block_size
        self._contiguous = log.pool.kind == "contiguous"
        self._faithful = scheduler.config.on_unservable == "faithful"
        self._fruitless_steps = 0  # steps in a row that sampled no token
        self._bell: Event | None = None  # set while there is nothing to do
        self._alarm: Alarm | None = None  # end of the leap under way
        self._start_ps = 0
        self._segment = EMPTY_SEGMENT
        self._leap = 0  # steps of the leap under way
        self.process = env.process(self._run())

    # -- arrivals ---------------------------------------------------------------------------------------------

    def deliver(self, request: Request) -> None:
        """Takes an arrival, now."""
        matters = self._accept(request)
        if self._bell is not None:
            bell, self._bell = self._bell, None
            bell.succeed()
        elif matters and self._leap > 1:
            self._cut()

    def _accept(self, request: Request) -> bool:
        """Queues an arrival, or rejects it; says whether it can change a pass."""
        self.outstanding += 1
        reason = self.scheduler.unservable(request)
        if reason and (not self._faithful or request.prompt_tokens >= self.scheduler.config.max_model_len):
            self._reject(request, reason)
            return False
        if self.recorder:
            self.recorder.arrived(request)
        return self.scheduler.add(request)

    def _cut(self) -> None:
        """Ends the leap at the first step boundary at or after now."""
        assert self._alarm is not None
        duration, growth, _ = self._segment
        steps = steps_until(duration, growth, int(self.env.now) - self._start_ps)
        if steps >= self._leap:
            return
        end = self._start_ps + steps_duration(duration, growth, steps)
        alarm = Alarm(self.env, end - int(self.env.now), FINISH + self.number)
        alarm.callbacks, self._alarm.callbacks = self._alarm.callbacks, []
        self._alarm = alarm
        self._leap = steps

    # -- the process ------------------------------------------------------------------------------------------

    def _run(self) -> Waits:
        env, scheduler, inbox, coupled = self.env, self.scheduler, self.inbox, self.coupled
        running, waiting = scheduler.running, scheduler.waiting
        while True:
            if not (running or waiting) and inbox.next_ps > self.now:
                if not coupled and inbox.next_ps == NEVER_PS:
                    return
                yield from self._sleep()
            start = self.now
            if inbox.next_ps <= start:
                for request in inbox.take(start):
                    self._accept(request)
            plan = scheduler.schedule(self.step, start)
            if not (plan.batch.tokens or plan.preempted):
                if self.recorder and waiting:
                    self.recorder.stalled(self, plan)
                if not coupled and inbox.next_ps == NEVER_PS:
                    return
                yield from self._sleep()  # nothing can change before the next arrival
                continue
            self._plan_leap(plan, start)
            if coupled:
                yield from self._wait()
            self._finish_leap(plan)
            if plan.batch.sampled:
                self._fruitless_steps = 0
            elif self._goes_in_circles():
                return
            if self.max_steps is not None and self.step >= self.max_steps:
                self.cut_short = True
                return
            if coupled and env.peek() == env.now:  # others end or arrive now: they come before the next pass
                yield Alarm(env, 0, PASS + self.number)

    def _sleep(self) -> Waits:
        """Waits for the next arrival, and for all others of the same time."""
        wait = self.inbox.next_ps
        if not self.coupled:
            self.now = wait
            return
        self._bell = bell = self.env.event()
        if wait < NEVER_PS:
            Alarm(self.env, wait - self.now, ARRIVAL).on_time(self._ring)
        yield bell
        yield Alarm(self.env, 0, PASS + self.number)
        self.now = int(self.env.now)

    def _ring(self, _: Event) -> None:
        """Wakes the sleeper, unless a delivery has done so."""
        if self._bell is not None:
            bell, self._bell = self._bell, None
            bell.succeed()

    def _wait(self) -> Waits:
        """Waits for the end of the leap, wherever an arrival may move it."""
        duration, growth, _ = self._segment
        self._alarm = Alarm(self.env, steps_duration(duration, growth, self._leap), FINISH + self.number)
        yield self._alarm

    def _plan_leap(self, plan: Plan, start: int) -> None:
        """Asks everyone how far the plan holds and how long its steps last."""
        self._start_ps = start
        if not plan.batch.tokens:
            self._leap = 1
            self._segment = EMPTY_SEGMENT
            if self.recorder:
                self.recorder.scheduled(self, plan, EMPTY_STEP_PS)
            return
        steps = 1 if self.stepwise or not plan.stable else self.scheduler.horizon(self.step)
        if self.windows:
            plan.batch.windowed, even = self.windows.read(self.step, plan.skipped)
            steps = min(steps, even)
        self._segment = segment = self.step_time.segment(plan.batch)
        if steps > 1:
            duration, growth, sure = segment
            if sure < steps:
                steps = sure
            if self.max_steps is not None:
                steps = min(steps, self.max_steps - self.step)
            wait = self.inbox.next_ps - start
            if wait < steps * (duration + growth * steps) and self.scheduler.heeds_arrivals:
                at = steps_until(duration, growth, wait)
                if at < steps:
                    steps = at
        if self.recorder:
            self.recorder.scheduled(self, plan, segment.duration_ps)
        self._leap = steps

    def _finish_leap(self, plan: Plan) -> None:
        """Logs the steps that ran, applies their tokens and lets go of what ended."""
        scheduler, log, batch, first = self.scheduler, self.log, plan.batch, self.step
        duration, growth, _ = self._segment
        steps, self._leap = self._leap, 0
        log.segments.frombytes(
            PACK_SEGMENT(
                first,
                steps,
                self._start_ps,
                duration,
                growth if steps > 1 else 0,
                batch.tokens,
                plan.decodes,
                batch.sampled,
                plan.regular,
                batch.context,
                len(scheduler.running),
                scheduler.decoders.stored_tokens + scheduler.stored_prefill_tokens + plan.decodes,
                log.pool.total_slots - self.kv.free_units * self._slots_per_unit,
                plan.head_wait,
                len(log.growth_blocks),
            )
        )
        self.step = first + steps
        self.now = now = self._start_ps + steps * duration + growth * (steps * (steps - 1) // 2)
        if steps > 1:
            log.growth_blocks.extend(scheduler.leap(first, steps))
        else:
            scheduler.advance(first)
        if not plan.stable:
            self._log_tokens_out_of_step(plan)
        # With a stable plan only decoders can end.
        nobody = plan.stable and scheduler.decoders.soonest > first + steps
        ended = [] if nobody else scheduler.complete(first + steps, now)
        if self.windows and plan.completing:
            self.windows.join(plan.completing, self.step)
        if self.recorder:
            self.recorder.ended(self, ended)
        if ended:
            for request in ended:
                self._end(request, now)

    def _log_tokens_out_of_step(self, plan: Plan) -> None:
        """Gaps between tokens that are not one step long, and who came back after a preemption."""
        first_end_ps = self._start_ps + self._segment.duration_ps
        gaps = self.log.irregular_gaps_ps
        for request in plan.resumed:
            gaps.append(first_end_ps - request.last_token_ps)
        for request in plan.completing:
            if request.generated:
                gaps.append(first_end_ps - request.last_token_ps)
        for request in plan.admitted:
            if request.preemptions:
                self.log.requeues.extend((request.row, request.preempted_ps, self._start_ps))
                request.preempted_ps = NOT_YET

    def _goes_in_circles(self) -> bool:
        """Whether requests preempt each other for ever: every sampled token is progress, prefills alone are not.

        Without the full-sequence rule the real server can do this for ever; a run must end.
        """
        self._fruitless_steps += 1
        self.live_locked = self._fruitless_steps > PATIENCE * self.scheduler.longest_prefill_steps
        return self.live_locked

    # -- ends -------------------------------------------------------------------------------------------------

    def _end(self, request: Request, now: int) -> None:
        if self._contiguous:
            self._log_hold(request, now)
        self.kv.release(request)
        self._log_request(request, now, FINISHED, 0)

    def _log_hold(self, request: Request, now: int) -> None:
        self.log.holds.extend((request.row, request.admitted_ps, now, request.held, request.final_tokens))

    def _reject(self, request: Request, reason: str) -> None:
        request.state = RequestState.REJECTED
        reasons = self.run_log.reasons
        if reason not in reasons:
            reasons.append(reason)
        self._log_request(request, NOT_YET, REJECTED, reasons.index(reason))

    def _log_request(self, request: Request, finish_ps: int, status: int, reason: int) -> None:
        self.outstanding -= 1
        self.run_log.requests.frombytes(
            PACK_REQUEST(
                request.row,
                self.number,
                request.arrival_ps,
                request.scheduled_ps,
                request.first_token_ps,
                finish_ps,
                request.generated_at(self.step),
                request.preemptions,
                request.cached_tokens,
                request.recomputed,
                status,
                reason,
            )
        )
        if self.on_end is not None:
            self.on_end(request)

    def close(self, now: int) -> None:
        """Logs whoever is left when the run is over, without a hook."""
        self.on_end = None
        for request in self.scheduler.running.values():
            if self._contiguous:
                self._log_hold(request, now)
            self._log_request(request, NOT_YET, UNFINISHED, 0)
        for request in self.scheduler.waiting:
            if request.preempted_ps != NOT_YET:
                self.log.requeues.extend((request.row, request.preempted_ps, NOT_YET))
            self._log_request(request, NOT_YET, UNFINISHED, 0)

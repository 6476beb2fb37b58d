"""A replica that others watch: its KV is read in mid-leap, its passes are told, and it may fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.clock import FINISH, Alarm, steps_duration, steps_until
from simulator.engine import Replica
from simulator.inbox import NEVER_PS
from simulator.replica_clock import Waits
from simulator.request import Request, RequestState
from simulator.run_log import NOT_YET
from simulator.run_writer import PACK_SEGMENT
from simulator.schedulers.pausing_decoders import PausingDecoders
from simulator.step_time.base import Segment
from simulator.survivors import interrupt, lose, survivor

DECODING, SWAPPED, FINISHED = RequestState.DECODING, RequestState.SWAPPED, RequestState.FINISHED


class _StepLost(Exception):
    """The step that a pass has planned does not end before the replica fails."""


@dataclass(frozen=True)
class Lost:
    """What a failure leaves behind.

    Attributes:
        requests: those that ran, by admission, then those swapped out, then the queue; none holds KV any more.
        interrupted: how many of them ran.
        kv_tokens: tokens whose KV is gone.
    """

    requests: list[Request]
    interrupted: int
    kv_tokens: int


class FleetReplica(Replica):
    """One life of a replica, from its start to its failure or to the end of the run.

    ``dies_at`` is known beforehand (``NEVER_PS``: it does not fail), so a leap ends with the last step that ends by
    then. The step after it is begun and lost (``step_lost``): it gives nobody a token, but its time and its KV count.
    ``on_pass`` is called after every pass that computes something, before its step runs.
    """

    __slots__ = ("_passes", "dies_at", "failed", "on_pass", "step_lost")

    _passes: Waits
    dies_at: int
    failed: bool
    on_pass: Callable[[], None] | None
    step_lost: bool

    def _run(self) -> Waits:
        self.now = self.pass_at = int(self.env.now)
        self.dies_at = NEVER_PS
        self.failed = self.step_lost = False
        self.on_pass = None
        self._passes = self._until_failure()
        return self._passes

    def _until_failure(self) -> Waits:
        if self.kv.growth_may_admit or self.kv.ordered:
            self.most_steps = 1  # what growth takes or gives back in mid-leap cannot be read from outside
        try:
            yield from super()._run()
        except _StepLost:
            self.step_lost = True
            if self.lag and self.now > self.env.now:  # the step before it is still under way
                yield Alarm(self.env, self.now - int(self.env.now), FINISH + self.number)
            self._end_late(self.now)

    def _set_alarm(self, segment: Segment, steps: int) -> Alarm:
        duration, growth, _ = segment
        left = self.dies_at - self.now
        if steps_duration(duration, growth, steps) > left:
            steps = steps_until(duration, growth, left)  # at least 1
            if steps_duration(duration, growth, steps) > left:
                steps -= 1
            if not steps:
                raise _StepLost
        super()._set_alarm(segment, steps)
        if self.on_pass is not None:
            self.on_pass()
        assert self._alarm is not None  # a request that comes with the pass may have cut the leap
        return self._alarm

    # -- read from outside ------------------------------------------------------------------------------------

    def used_share(self) -> float:
        """The share of the KV slots held after the last pass, wherever the leap under way stands."""
        pool, free = self.kv.pool, self.kv.free_units
        if self._leap > 1:
            duration, growth, _ = self._segment
            wait = int(self.env.now) - self.now
            passes = min(self.steps_until_pass(duration, growth, wait), self._leap) - 1
            rounds, rest = divmod(max(passes, 0), pool.block_size)  # growth has the period of a block
            first = self.step + 1
            demand = [self.kv.demand(first + i) for i in range(pool.block_size if rounds else rest)]
            free -= rounds * sum(demand) + sum(demand[:rest])
        return (pool.total_slots - free * pool.block_size) / pool.total_slots

    def waiting(self) -> int:
        """Requests that wait here, swapped ones included."""
        return len(self.scheduler.waiting) + len(self.scheduler.away())

    def rests(self) -> bool:
        """Whether it computes nothing until something comes from outside."""
        return self._bell is not None or self.failed or self.live_locked or self.cut_short

    def takes_more(self) -> bool:
        """Whether a request from a central queue would not wait behind another one here."""
        return self.outstanding < self.scheduler.config.running_limit and not self.waiting()

    # -- requests of an earlier life --------------------------------------------------------------------------

    def _accept(self, request: Request) -> bool:
        if request.preempted_ps == NOT_YET:
            return super()._accept(request)
        reason = self.servable.reason_against(request)
        if reason is None:
            return super()._accept(request)
        self.outstanding += 1  # it fits nowhere here, and has waited since its replica failed
        request.state = RequestState.REJECTED
        self.writer.rejected(request, reason, int(self.env.now))
        self._gone(request)
        return False

    def fail(self) -> Lost:
        """The replica fails, now, at ``dies_at``: all its requests go on elsewhere."""
        now = int(self.env.now)
        plan, scheduler = self.scheduler.plan, self.scheduler
        self._passes.close()
        self._bell, self.failed = None, True
        if self.step_lost:
            self._log_lost_step(now)
            if plan.irregular:
                self.writer.returned(plan.admitted, self.now)
        chunks = {request.seq: chunk for request, chunk in plan.chunks} if self.step_lost else {}
        lagging = set(scheduler.lagging)
        if self.step_lost:
            lagging.update(request.seq for request in plan.resumed)
        moved, kv_tokens = [], 0
        for request in scheduler.running.values():
            last_token_ps = self._last_token_ps(request, lagging)
            self.writer.interrupted(request, now)
            again = survivor(request, request.generated_at(self.step))
            computed = request.computed_at(self.step) - chunks.get(request.seq, 0)
            interrupt(again, computed, last_token_ps, now)
            kv_tokens += computed
            moved.append(again)
        for request in (*scheduler.away(), *scheduler.waiting):
            again = survivor(request, request.generated)
            if request.state is SWAPPED:
                lose(again, request.computed)
                kv_tokens += request.computed
            moved.append(again)
        self.outstanding = 0
        return Lost(moved, len(scheduler.running), kv_tokens)

    def _log_lost_step(self, now_ps: int) -> None:
        if now_ps == self.now:
            return
        kv, plan, log = self.kv, self.scheduler.plan, self.writer.log
        used = kv.pool.total_slots - kv.free_units * kv.pool.block_size
        log.segments.frombytes(
            PACK_SEGMENT(
                self.step, 1, self.now, now_ps - self.now, 0, 0, 0, 0, 0, 0, len(self.scheduler.running),
                plan.stored_tokens, used, plan.head_wait, kv.saved_units * kv.pool.block_size, len(log.growth_blocks),
            )
        )  # fmt: skip

    def _last_token_ps(self, request: Request, lagging: set[int]) -> int:
        """When a running request got its last token; NOT_YET where it had none."""
        if request.state is not DECODING or request.seq in lagging:
            return getattr(request, "last_token_ps", NOT_YET)
        decoders = self.scheduler.decoders
        if not isinstance(decoders, PausingDecoders):
            return self.now
        if request.joined_step == self.step:  # its last token is that of its prefill
            return request.last_token_ps
        groups = self.scheduler.plan.late if self.step_lost else []
        return next(iter(decoders.late), groups[0][1] if groups else self.now)

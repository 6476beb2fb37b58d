"""Every scheduling pass as a row, in the format of the recorded vLLM schedules (data/vllm_golden/README.md)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from simulator.inbox import NEVER_PS
from simulator.request import Request, RequestState
from simulator.schedulers.plan import Plan

if TYPE_CHECKING:
    from simulator.engine import Replica
    from simulator.step_clock import StepInbox

PS_PER_NS = 1_000


class PassRecorder:
    """Listens to one replica that runs step by step; ``passes`` is the result, absent optional keys = empty."""

    def __init__(self, names: list[str], clock: StepInbox | None = None) -> None:
        self.names = names
        self.clock = clock
        self.passes: list[dict[str, Any]] = []
        self._arrived: list[str] = []
        self._open: deque[dict[str, Any]] = deque()  # passes whose step has not ended
        self._evicted = 0

    def arrived(self, request: Request) -> None:
        self._arrived.append(self.names[request.row])

    def scheduled(self, replica: Replica, plan: Plan, duration_ps: int) -> None:
        """Notes a pass that computes or preempts something."""
        row = self._row(replica, plan)
        chunks = {request.seq: tokens for request, tokens in plan.chunks}
        skipped = {request.seq for request in plan.skipped}
        for seq, request in replica.scheduler.running.items():
            if seq in chunks:
                row["sched"].append([self.names[request.row], chunks[seq]])
            elif request.state is RequestState.DECODING and seq not in skipped:
                row["sched"].append([self.names[request.row], 1])
        if plan.admitted:
            row["admit"] = [[self.names[request.row], request.hit_tokens] for request in plan.admitted]
        if plan.preempted:
            row["preempt"] = [self.names[request.row] for request in plan.preempted]
        row["dur_ns"] = duration_ps // PS_PER_NS
        if replica.scheduler.lag and (plan.batch.tokens or plan.preempted):
            row["start_ns"] = replica.now // PS_PER_NS
        self.passes.append(row)
        self._open.append(row)

    def ended(self, replica: Replica, ended: list[Request]) -> None:
        """Notes who ends with the oldest step that has not ended, after they gave their KV back."""
        row = self._open.popleft()
        if ended:
            row["fin"] = [self.names[request.row] for request in ended]
        row["free_end"] = replica.kv.free_units

    def stalled(self, replica: Replica, plan: Plan) -> None:
        """Notes a pass that can do nothing before the next arrival."""
        row = self._row(replica, plan)
        row |= {"dur_ns": 0, "stall": 1}
        if replica.inbox.next_ps < NEVER_PS:
            row["free_end"] = replica.kv.free_units
        self.passes.append(row)

    def _row(self, replica: Replica, plan: Plan) -> dict[str, Any]:
        row: dict[str, Any] = {"step": len(self.passes), "t_ns": replica.pass_at // PS_PER_NS}
        if self._arrived:
            row["arr"] = self._arrived
            self._arrived = []
        row |= {
            "sched": [],
            "tok": plan.batch.tokens,
            "ctx": plan.batch.context,
            "run": len(replica.scheduler.running),
            "wait": len(replica.scheduler.waiting),
            "free": replica.kv.free_units,
        }
        evicted = replica.kv.evicted_blocks
        if evicted > self._evicted:
            row["evict"] = evicted - self._evicted
            self._evicted = evicted
        if self.clock is not None:
            row["k"] = self.clock.step
            self.clock.passed()
        return row

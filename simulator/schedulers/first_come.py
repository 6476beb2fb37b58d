"""What policies share that admit in order of arrival and preempt, if ever, the last admitted."""

from __future__ import annotations

from simulator.allocators.kv_cache import KvCache
from simulator.request import Request, RequestState
from simulator.run_log import HeadWait
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.queues import FcfsQueue, WaitingQueue
from simulator.schedulers.running import Scheduler

PREFILLING, DECODING = RequestState.PREFILLING, RequestState.DECODING
NOBODY_WAITS, MAX_NUM_SEQS, KV_MEMORY, TOKEN_BUDGET, PREEMPTION, HELD = (int(reason) for reason in HeadWait)


class FirstCome(Scheduler):
    """Parts of a pass: the head is taken, decoders find room, and the batch is summed up."""

    __slots__ = ("admissions", "running_limit")

    def __init__(self, config: EngineConfig, kv: KvCache, waiting: WaitingQueue | None = None) -> None:
        super().__init__(config, kv, FcfsQueue() if waiting is None else waiting)
        self.admissions = 0
        self.running_limit = config.running_limit

    def take_head(self, now_ps: int) -> Request:
        """Moves the head of the queue, whom the cache has admitted, to the running requests."""
        request = self.waiting.pop()
        self.admissions = request.seq = self.admissions + 1
        self.enter(request, now_ps)
        return request

    def enter(self, request: Request, now_ps: int) -> None:
        """Notes that a numbered request starts."""
        plan = self.plan
        request.state = PREFILLING
        request.admitted_ps = now_ps
        if request.preemptions:
            plan.irregular = True
        else:
            request.scheduled_ps = now_ps
        self.running[request.seq] = request
        plan.admitted.append(request)

    def make_room(self, step: int, now_ps: int) -> None:
        """Serves all decoders' growth, preempting the last admitted one by recompute until the rest fits."""
        while not self.kv.serve(step):
            victim = next(r for r in reversed(self.running.values()) if r.state is DECODING)
            self.preempt(victim, step, now_ps, 0)

    def skip(self, request: Request, now_ps: int) -> None:
        """Leaves a decoder without a token in this pass."""
        self.plan.skipped.append(request)
        if request.seq not in self.lagging:
            request.last_token_ps = now_ps
            self.lagging[request.seq] = request

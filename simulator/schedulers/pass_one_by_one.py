"""Phase A when blocks or budget are short: running requests one by one, preempting as vLLM does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.request import Request, RequestState

if TYPE_CHECKING:
    from simulator.schedulers.chunked_prefill import ChunkedPrefill

DECODING, ENDING = RequestState.DECODING, RequestState.ENDING


class OneByOne:
    """One such pass over the running requests of a scheduler."""

    def __init__(self, scheduler: ChunkedPrefill, step: int, now_ps: int, cap: int, holding: bool) -> None:
        self.scheduler = scheduler
        self.step = step
        self.now_ps = now_ps
        self.cap = cap
        self.holding = holding
        self.budget = scheduler.budget
        self.given: dict[int, tuple[Request, int]] = {}  # admission number -> (request, tokens)

    def run(self) -> int:
        """Fills the plan; returns the budget left."""
        for request in list(self.scheduler.running.values()):
            if self.budget == 0:
                break
            if request.seq not in self.scheduler.running:
                continue  # preempted earlier in this pass
            tokens = self._wanted(request)
            if tokens and self._serve(request, tokens):
                self.given[request.seq] = (request, tokens)
                self.budget -= tokens
        self._note()
        return self.budget

    def _wanted(self, request: Request) -> int:
        if request.state is DECODING:
            return 1
        if request.state is ENDING:
            return 0
        if self.holding:
            return 0
        chunk = request.prompt_tokens + request.generated - request.computed
        if 0 < self.cap < chunk:
            chunk = self.cap
        return min(chunk, self.budget)

    def _serve(self, request: Request, tokens: int) -> bool:
        """Gets the blocks, preempting until they are there or the request itself had to go."""
        kv = self.scheduler.kv
        while True:
            if request.state is DECODING:
                served = kv.grow(request, self.step)
            else:
                served = kv.extend(request, request.computed + tokens)
            if served:
                return True
            victim = self._victim()
            _, taken = self.given.pop(victim.seq, (victim, 0))
            self.budget += taken
            self.scheduler.hold.revoked |= taken > 0 and victim.state is not DECODING
            self.scheduler.preempt(victim, self.step, self.now_ps, taken)
            if victim is request:
                return False

    def _victim(self) -> Request:
        """fcfs: the last admitted; priority: the least important, then latest arrived, first such in the list."""
        running = self.scheduler.running
        if self.scheduler.config.scheduling_policy == "fcfs":
            return running[next(reversed(running))]
        return max(running.values(), key=lambda request: (request.priority, request.arrival_ps))

    def _note(self) -> None:
        scheduler = self.scheduler
        plan = scheduler.plan
        plan.stable = False
        lagging = scheduler.lagging
        for request in scheduler.running.values():
            given = request.seq in self.given
            if request.state is not DECODING:
                if given:
                    plan.chunks.append(self.given[request.seq])
            elif not given:
                plan.skipped.append(request)
                if request.seq not in lagging:
                    request.last_token_ps = self.now_ps
                    lagging[request.seq] = request
            elif request.seq in lagging:
                plan.resumed.append(lagging.pop(request.seq))

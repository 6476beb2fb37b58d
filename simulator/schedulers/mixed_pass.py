"""vLLM v0 with chunked prefill, when its running requests must be gone through one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.request import Request, RequestState

if TYPE_CHECKING:
    from simulator.schedulers.vllm_v0 import VllmV0

DECODING = RequestState.DECODING


class MixedPass:
    """One such pass: decodes and begun prefills in order of arrival, under one token budget.

    Each needs a free block a sequence, also a prefill, whose blocks are all its own already (``can_append_slots`` asks
    whoever runs); where it is missing the last to have arrived goes.
    """

    def __init__(self, scheduler: VllmV0, step: int, now_ps: int) -> None:
        self.scheduler = scheduler
        self.step = step
        self.now_ps = now_ps

    def run(self) -> tuple[int, int]:
        """Fills the plan; returns the tokens given, and to how many sequences."""
        scheduler, kv = self.scheduler, self.scheduler.kv
        scheduler.plan.stable = False
        budget = scheduler.config.max_num_batched_tokens
        left_over, sequences = budget, 0
        queue = sorted(scheduler.running.values(), key=lambda request: (request.arrival_ps, request.row))
        at, end = 0, len(queue)
        while at < end:
            request = queue[at]
            tokens = self._tokens(request, left_over)
            if not tokens:
                break
            while at < end and not kv.can_grow(request):
                end -= 1
                scheduler.give_way(queue[end], self.step, self.now_ps)
            if at < end:
                self._serve(request, tokens)
                left_over -= tokens
                sequences += request.sequences
                at += 1
        for request in queue[at:end]:
            if request.state is DECODING:
                scheduler.skip(request, self.now_ps)
        return budget - left_over, sequences

    def _tokens(self, request: Request, left_over: int) -> int:
        """What the request computes; 0 when the budget has nothing for it."""
        if request.state is DECODING:
            return request.sequences if request.sequences <= left_over else 0
        return min(request.prompt_tokens + request.generated - request.computed, left_over)

    def _serve(self, request: Request, tokens: int) -> None:
        scheduler = self.scheduler
        if request.state is not DECODING:
            scheduler.plan.chunks.append((request, tokens))
            return
        scheduler.kv.grow(request, self.step)
        if scheduler.lagging.pop(request.seq, None) is not None:
            scheduler.plan.resumed.append(request)
            scheduler.plan.irregular = True

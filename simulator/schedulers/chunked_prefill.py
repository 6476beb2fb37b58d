"""vLLM v1's scheduling pass (SCHEDULERS.md 3): one token budget for decodes and prefill chunks alike.

Phase A gives tokens to running requests in order of admission, preempting from the end when the cache is full.
Phase B admits from the head of the queue, never past it. Nearly every pass finds room for all running requests at
once (``_together``), where order cannot matter; only a pass that lacks blocks or budget goes through them
``_one_by_one``.
"""

from __future__ import annotations

from simulator.allocators.kv_cache import KvCache
from simulator.request import Request, RequestState
from simulator.run_log import HeadWait
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.pass_one_by_one import OneByOne
from simulator.schedulers.plan import Plan
from simulator.schedulers.queues import FcfsQueue, PriorityQueue, WaitingQueue
from simulator.schedulers.running import Scheduler

# Plain names and numbers: looking a member up in its enumeration costs more than the comparison.
PREFILLING = RequestState.PREFILLING
NOBODY_WAITS, MAX_NUM_SEQS, KV_MEMORY, TOKEN_BUDGET, PREEMPTION, HELD = (int(reason) for reason in HeadWait)
STAYS_BLOCKED = (NOBODY_WAITS, MAX_NUM_SEQS, KV_MEMORY)  # whoever waits so, waits until somebody ends


class ChunkedPrefill(Scheduler):
    """vLLM's chunked prefill over a waiting queue (fcfs or priority)."""

    __slots__ = ("admissions", "budget", "caps_alone", "in_flight", "running_limit")

    def __init__(self, config: EngineConfig, kv: KvCache) -> None:
        waiting: WaitingQueue = FcfsQueue() if config.scheduling_policy == "fcfs" else PriorityQueue()
        super().__init__(config, kv, waiting)
        self.admissions = 0
        self.lag = int(config.async_scheduling)
        self.caps_alone = config.version == "2025"  # the chunk cap holds for a lone request too
        self.in_flight: list[tuple[Request, int]] = []  # with lag: the chunks of the step before
        self.budget = config.max_num_batched_tokens
        self.running_limit = config.running_limit
        # The chunk cap follows from the number of requests, and a smaller chunk of the head may fit.
        self.counts_waiting = config.long_prefill_token_threshold > 0
        self.heeds_all = config.scheduling_policy != "fcfs" or self.counts_waiting

    def schedule(self, step: int, now_ps: int) -> Plan:
        """Decides what step number ``step``, starting now, computes."""
        plan = self.plan
        if not plan.stable:
            plan.clear()
        decoders = self.decoders
        count = decoders.count
        served = not self.prefilling and count <= self.budget and self.kv.serve(step)
        if served and not (self.waiting or self.lagging or self.hold.active):
            # The commonest pass: a token for every decoder and nothing else to decide.
            plan.decodes = count
            plan.head_wait = NOBODY_WAITS
            batch = plan.batch
            batch.tokens = batch.requests = batch.sampled = batch.decodes = count
            batch.context = batch.decode_context = plan.stored_tokens = decoders.stored_tokens + count
            return plan
        plan.stable = False
        cap = self._chunk_cap() if self.config.long_prefill_token_threshold else 0
        holding = self.hold.active and self.hold.holds(len(self.running), len(self.prefilling))
        budget = self.budget - count
        if not served:
            # Decoders and prefills together, unless it matters to the cache who comes first.
            together = self.prefilling and not (count and self.kv.ordered)
            budget = self._together(step, cap, holding) if together else -1
            if budget < 0:
                budget = OneByOne(self, step, now_ps, cap, holding).run()
        plan.head_wait = NOBODY_WAITS
        if plan.preempted:
            plan.head_wait = PREEMPTION
        else:
            if self.waiting:
                self._admit(now_ps, budget, cap, holding)
            if not holding:
                self.hold.backlog = bool(self.waiting)
        self._settle(step)
        return plan

    def _chunk_cap(self) -> int:
        """Most prefill tokens of one request in this pass; 0 is no cap (a lone request is not capped)."""
        requests = len(self.running) + len(self.waiting)
        if requests <= 1 and not self.caps_alone:
            return 0
        cap = self.config.long_prefill_token_threshold
        if self.config.long_prefill_token_threshold_adaptive:
            cap = max(cap, self.config.max_num_batched_tokens // max(requests, 1))
        return cap

    def _together(self, step: int, cap: int, holding: bool) -> int:
        """Serves all running requests at once if there is room for each; the budget left, or -1 (nothing done).

        Order matters only through budget and blocks. With decoders ahead of every prefill the decoders are served
        first in any case; else all must fit in the budget.
        """
        kv = self.kv
        decoders = self.decoders
        need = kv.demand(step)
        left = self.budget - decoders.count
        if left < 0:
            return -1
        chunks: list[tuple[Request, int]] = []
        interleaved = decoders.last_seq > next(iter(self.prefilling))
        for request in self.prefilling.values():
            if holding:
                break
            chunk = request.prompt_tokens + request.generated - request.computed
            if 0 < cap < chunk:
                chunk = cap
            if chunk > left:
                if interleaved:
                    return -1
                chunk = left
            if not chunk:
                break
            need += kv.units_for(request, request.computed + chunk)
            chunks.append((request, chunk))
            left -= chunk
        if need > kv.free_units:
            return -1
        # There is room for all; should a cache refuse all the same, the slow way finds out whom.
        if not all(kv.extend(request, request.computed + chunk) for request, chunk in chunks) or not kv.serve(step):
            return -1
        self.plan.chunks = chunks
        return left

    def _admit(self, now_ps: int, budget: int, cap: int, holding: bool) -> None:
        """Phase B: moves requests from the head of the queue to running while everything allows it."""
        plan, kv, waiting, running = self.plan, self.kv, self.waiting, self.running
        caching, hit = kv.caching, 0
        while waiting:
            if len(running) >= self.running_limit:
                plan.head_wait = MAX_NUM_SEQS
                return
            request = waiting.head()
            chunk = known = request.prompt_tokens + request.generated
            if caching:
                hit = kv.hit(request, known)
                chunk -= hit
            if 0 < cap < chunk:
                chunk = cap
            if chunk > budget:
                if budget <= 0 or not self.config.enable_chunked_prefill:
                    plan.head_wait = TOKEN_BUDGET
                    return
                chunk = budget
            if holding and known - hit > 1:
                plan.head_wait = HELD
                return
            if not kv.admit(request, known, hit + chunk, bool(running)):
                plan.head_wait = KV_MEMORY
                return
            waiting.pop()
            self.admissions = request.seq = seq = self.admissions + 1
            request.state = PREFILLING
            request.admitted_ps = now_ps
            if request.preemptions:
                plan.irregular = True
            else:
                request.scheduled_ps = now_ps
            if caching:
                self.found(request, hit)
            running[seq] = request
            plan.admitted.append(request)
            plan.chunks.append((request, chunk))
            budget -= chunk

    def _settle(self, step: int) -> None:
        """Sums the pass up, and says whether the next one can differ."""
        plan = self.plan
        self.settle(step)
        if self.lag:
            self._note_in_flight()
        if self.hold.active:
            self.hold.ran(plan, plan.batch.tokens)
        if plan.head_wait in STAYS_BLOCKED and not (
            plan.chunks or self.prefilling or plan.preempted or plan.resumed or plan.skipped
        ):
            plan.stable = plan.head_wait != KV_MEMORY or not self.kv.growth_may_admit

    def _note_in_flight(self) -> None:
        """Chunks of this step are in flight in the next pass, those of the step before no longer."""
        for request, _ in self.in_flight:
            request.in_flight = 0
        for request, chunk in self.plan.chunks:
            request.in_flight = chunk
        self.in_flight = self.plan.chunks

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
from simulator.schedulers.decoders import Decoders
from simulator.schedulers.pass_one_by_one import OneByOne
from simulator.schedulers.plan import Plan
from simulator.schedulers.prefill_hold import PrefillHold
from simulator.schedulers.queues import FcfsQueue, PriorityQueue, WaitingQueue

# Plain names and numbers: looking a member up in its enumeration costs more than the comparison.
DECODING, PREFILLING, FINISHED = RequestState.DECODING, RequestState.PREFILLING, RequestState.FINISHED
NOBODY_WAITS, MAX_NUM_SEQS, KV_MEMORY, TOKEN_BUDGET, PREEMPTION, HELD = (int(reason) for reason in HeadWait)
STAYS_BLOCKED = (NOBODY_WAITS, MAX_NUM_SEQS, KV_MEMORY)  # whoever waits so, waits until somebody ends


class ChunkedPrefill:
    """Waiting queue, running requests and the pass over them.

    Invariant (``check``): ``running`` holds, by admission number, exactly the requests that are PREFILLING (these
    also in ``prefilling``) or DECODING (these also in ``decoders``); ``stored_prefill_tokens`` is the KV of the
    prefilling ones; ``lagging`` are the decoders that the last pass skipped.
    """

    __slots__ = (
        "admissions",
        "config",
        "decoders",
        "hold",
        "kv",
        "lagging",
        "plan",
        "prefilling",
        "running",
        "running_limit",
        "stored_prefill_tokens",
        "waiting",
    )

    def __init__(self, config: EngineConfig, kv: KvCache) -> None:
        self.config = config
        self.kv = kv
        self.waiting: WaitingQueue = FcfsQueue() if config.scheduling_policy == "fcfs" else PriorityQueue()
        self.running: dict[int, Request] = {}
        self.prefilling: dict[int, Request] = {}
        self.decoders = Decoders()
        self.lagging: dict[int, Request] = {}
        self.stored_prefill_tokens = 0
        self.admissions = 0
        self.running_limit = config.running_limit
        self.plan = Plan()
        self.hold = PrefillHold(config.prefill_schedule_interval)

    # -- the pass ---------------------------------------------------------------------------------------------

    def schedule(self, step: int, now_ps: int) -> Plan:
        """Decides what step number ``step``, starting now, computes."""
        plan = self.plan
        if not plan.stable:
            plan.clear()
        if not (self.waiting or self.prefilling or self.lagging or self.hold.active) and self._only_decoders(step):
            return plan
        plan.stable = False
        budget = self.config.max_num_batched_tokens
        cap = self._chunk_cap() if self.config.long_prefill_token_threshold else 0
        holding = self.hold.active and self.hold.holds(self.decoders.count, self.prefilling)
        if self.running:
            left = self._together(step, budget, cap, holding)
            budget = OneByOne(self, step, now_ps, cap, holding).run() if left < 0 else left
        plan.head_wait = NOBODY_WAITS
        if plan.preempted:
            plan.head_wait = PREEMPTION
        elif self.waiting:
            self._admit(now_ps, budget, cap, holding)
        if not plan.preempted and not holding:
            self.hold.backlog = bool(self.waiting)
        self._settle(step)
        return plan

    def _only_decoders(self, step: int) -> bool:
        """The commonest pass: a token for every decoder and nothing else to decide. False: nothing done."""
        decoders = self.decoders
        count = decoders.count
        if count > self.config.max_num_batched_tokens or not self.kv.serve(step):
            return False
        plan = self.plan
        plan.decodes = plan.regular = count
        plan.head_wait = NOBODY_WAITS
        batch = plan.batch
        batch.tokens = batch.requests = batch.sampled = batch.decodes = count
        batch.context = batch.decode_context = decoders.stored_tokens + count
        return True

    def _chunk_cap(self) -> int:
        """Most prefill tokens of one request in this pass; 0 is no cap (a lone request is never capped)."""
        requests = len(self.running) + len(self.waiting)
        if requests <= 1:
            return 0
        cap = self.config.long_prefill_token_threshold
        if self.config.long_prefill_token_threshold_adaptive:
            cap = max(cap, self.config.max_num_batched_tokens // requests)
        return cap

    def _together(self, step: int, budget: int, cap: int, holding: bool) -> int:
        """Serves all running requests at once if there is room for each; the budget left, or -1 (nothing done).

        Order matters only through budget and blocks. With decoders ahead of every prefill the decoders are served
        first in any case; else all must fit in the budget.
        """
        kv = self.kv
        decoders = self.decoders
        need = kv.demand(step)
        left = budget - decoders.count
        if left < 0:
            return -1
        chunks: list[tuple[Request, int]] = []
        if self.prefilling:
            interleaved = decoders.last_seq > next(iter(self.prefilling))
            for request in self.prefilling.values():
                chunk = request.prompt_tokens + request.generated - request.computed
                if holding and chunk > 1:
                    continue
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
        kv.serve(step)
        for request, chunk in chunks:
            kv.extend(request, request.computed + chunk)
        if chunks:
            self.plan.chunks = chunks
        return left

    def _admit(self, now_ps: int, budget: int, cap: int, holding: bool) -> None:
        """Phase B: moves requests from the head of the queue to running while everything allows it."""
        plan, config, kv, waiting = self.plan, self.config, self.kv, self.waiting
        running, prefilling, limit = self.running, self.prefilling, self.running_limit
        while waiting:
            if len(running) >= limit:
                plan.head_wait = MAX_NUM_SEQS
                return
            request = waiting.head()
            known = request.prompt_tokens + request.generated
            chunk = cap if 0 < cap < known else known
            if budget <= 0 or (chunk > budget and not config.enable_chunked_prefill):
                plan.head_wait = TOKEN_BUDGET
                return
            if holding and known > 1:
                plan.head_wait = HELD
                return
            chunk = min(chunk, budget)
            if not kv.admit(request, known, chunk, bool(running)):
                plan.head_wait = KV_MEMORY
                return
            waiting.pop()
            self.admissions += 1
            request.seq = self.admissions
            request.state = PREFILLING
            request.admitted_ps = now_ps
            if not request.preemptions:
                request.scheduled_ps = now_ps
            running[request.seq] = request
            prefilling[request.seq] = request
            plan.admitted.append(request)
            plan.chunks.append((request, chunk))
            budget -= chunk

    def _settle(self, step: int) -> None:
        """Fills in the batch and what follows from the chunks."""
        plan = self.plan
        decoders = self.decoders
        batch = plan.batch
        skipped = len(plan.skipped)
        plan.decodes = decodes = decoders.count - skipped
        context = decoders.stored_tokens + decodes
        for request in plan.skipped:
            context -= request.computed_at(step)
        batch.decodes = batch.tokens = batch.requests = batch.sampled = decodes
        batch.decode_context = context
        if self.lagging and not skipped:  # everybody who lagged gets a token again
            plan.resumed.extend(self.lagging.values())
            self.lagging.clear()
        plan.regular = decodes - len(plan.resumed)
        if plan.chunks:
            for request, chunk in plan.chunks:
                request.computed += chunk
                self.stored_prefill_tokens += chunk
                batch.tokens += chunk
                context += request.computed
                batch.prefills.append((chunk, request.computed))
                if request.computed == request.prompt_tokens + request.generated:
                    plan.completing.append(request)
            batch.requests += len(plan.chunks)
            batch.sampled += len(plan.completing)
        batch.context = context
        if self.hold.active:
            self.hold.ran(plan, batch.tokens)
        if plan.head_wait in STAYS_BLOCKED and not (
            plan.chunks or self.prefilling or plan.preempted or plan.resumed or skipped
        ):
            plan.stable = True

    # -- after the step ---------------------------------------------------------------------------------------

    def advance(self, step: int) -> None:
        """The step of the last plan has run."""
        plan = self.plan
        self.decoders.stored_tokens += plan.decodes
        for request in plan.skipped:
            computed = request.computed_at(step)
            self.kv.leave(request, computed)
            self.decoders.delay(request)
            self.kv.join(request, computed, step + 1)

    def leap(self, step: int, steps: int) -> list[int]:
        """The last plan, a stable one, has run ``steps`` > 1 steps from ``step`` on.

        Returns the cache's growth in the steps after the first, which was served when it was planned.
        """
        self.hold.executed_steps += steps - 1
        self.decoders.stored_tokens += steps * self.plan.decodes
        return self.kv.advance(step + 1, steps - 1)

    def complete(self, next_step: int, now_ps: int) -> list[Request]:
        """Applies the tokens of the step that just ended; returns who ends, in batch order.

        Those that end are up to date and no longer running, but still hold their KV.
        """
        decoders, kv = self.decoders, self.kv
        ended: list[Request] = []
        if decoders.soonest <= next_step:
            ended = decoders.pop_finished(next_step)
            for request in ended:
                kv.leave(request, request.computed)
        for request in self.plan.completing:
            if not request.generated:
                request.first_token_ps = now_ps
            request.generated += 1
            del self.prefilling[request.seq]
            self.stored_prefill_tokens -= request.computed
            if request.generated >= request.output_tokens:
                ended.append(request)
            else:
                decoders.join(request, next_step)
                kv.join(request, request.computed, next_step)
        if ended:
            if len(ended) > 1:
                ended.sort(key=lambda request: request.seq)
            for request in ended:
                del self.running[request.seq]
                request.state = FINISHED
        return ended

    def horizon(self, step: int) -> int:
        """For how many steps from ``step`` on the (stable) plan just made stays the plan, arrivals aside."""
        steps = self.decoders.soonest - step
        return steps if steps <= 1 else 1 + self.kv.horizon(step + 1, steps - 1)

    # -- who is where -----------------------------------------------------------------------------------------

    def add(self, request: Request) -> bool:
        """Queues an arrival; says whether it can change a pass (it became the head of the queue)."""
        return self.waiting.add(request)

    @property
    def heeds_arrivals(self) -> bool:
        """Whether an arrival during a leap can become the head of the queue, and so change the next pass."""
        return not self.waiting or self.config.scheduling_policy != "fcfs"

    @property
    def longest_prefill_steps(self) -> int:
        """Steps in which max_num_seqs prompts of max_model_len are surely computed, as long as all keep their KV."""
        config = self.config
        length, budget = config.max_model_len, config.max_num_batched_tokens
        chunk = min(config.long_prefill_token_threshold or budget, budget)
        return length // chunk + self.running_limit * (length // budget + 1) + 64

    def unservable(self, request: Request) -> str | None:
        """Why this request can never be served here, in numbers; None when it can."""
        config = self.config
        if request.prompt_tokens >= config.max_model_len:
            return (
                f"prompt of {request.prompt_tokens} tokens leaves no room for output "
                f"in max_model_len {config.max_model_len}"
            )
        if not config.enable_chunked_prefill and request.final_tokens > config.max_num_batched_tokens:
            return (
                f"{request.final_tokens} tokens may have to be prefilled at once, "
                f"max_num_batched_tokens is {config.max_num_batched_tokens} and chunked prefill is off"
            )
        return self.kv.unservable(request.prompt_tokens, request.final_tokens)

    def preempt(self, request: Request, step: int, now_ps: int, taken: int) -> None:
        """Takes a running request's KV away and queues it again; ``taken``: tokens this pass had given it."""
        if request.state is DECODING:
            if request.seq not in self.lagging:
                request.last_token_ps = now_ps
            self.kv.leave(request, request.computed_at(step) + taken)
            self.decoders.leave(request, step)
            self.lagging.pop(request.seq, None)
        else:
            self.stored_prefill_tokens -= request.computed
            del self.prefilling[request.seq]
        self.kv.release(request)
        del self.running[request.seq]
        request.state = RequestState.PREEMPTED
        request.recomputed += request.computed
        request.computed = 0
        request.preemptions += 1
        request.preempted_ps = now_ps
        self.waiting.put_back(request)
        self.plan.preempted.append(request)

    @property
    def stored_tokens(self) -> int:
        """KV tokens of all running requests."""
        return self.decoders.stored_tokens + self.stored_prefill_tokens

    def check(self, step: int) -> None:
        """Raises AssertionError when the invariant is broken."""
        running = list(self.running.values())
        assert list(self.running) == sorted(self.running)
        assert all(r.state in (PREFILLING, DECODING) for r in running)
        assert {r.seq for r in running if r.state is PREFILLING} == set(self.prefilling)
        assert list(self.prefilling) == sorted(self.prefilling)
        assert sum(r.computed for r in self.prefilling.values()) == self.stored_prefill_tokens
        self.decoders.check(running, step)
        self.kv.check()

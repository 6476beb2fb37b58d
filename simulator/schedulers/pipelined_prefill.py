"""vLLM v1's scheduling pass while other batches are in flight (pipeline parallelism).

The rules are those of ``ChunkedPrefill``: one token budget, first the running requests, then the head of the queue.
What is in flight counts as computed, as in vLLM, so that

- a request whose newest token is still in flight has nothing to compute and is gone past: the decoders fall apart into
  as many micro-batches as there are batches in flight;
- chunks of one prompt follow each other through the pipeline without waiting;
- whoever is preempted while in flight still gets that token (it is only streamed: its KV is gone), and is gone past in
  the queue until then.

Source: vLLM's ``Scheduler.schedule`` (``num_new_tokens == 0``: "PP>1 and we have already scheduled all prompt tokens
but they are not finished yet") and SCHEDULERS.md 3 and 5.
"""

from __future__ import annotations

from simulator.allocators.kv_cache import KvCache
from simulator.request import Request
from simulator.schedulers.chunked_prefill import (
    HELD,
    KV_MEMORY,
    MAX_NUM_SEQS,
    NOBODY_WAITS,
    PREEMPTION,
    TOKEN_BUDGET,
)
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.pipelined_requests import BY_ADMISSION, DECODING, PREFILLING, Chunk, PipelinedRequests
from simulator.schedulers.plan import Plan


class PipelinedPrefill(PipelinedRequests):
    """vLLM's chunked prefill while other batches are in flight."""

    __slots__ = ("_block",)

    def __init__(self, config: EngineConfig, kv: KvCache, windows: tuple[int, ...] = ()) -> None:
        super().__init__(config, kv, windows)
        # Inside a block growth takes nothing. A cache that minds the order wants to hear of every token.
        contiguous = kv.pool.kind == "contiguous"
        self._block = 1 if kv.ordered else (1 << 62 if contiguous else kv.pool.block_size)

    # -- one pass ---------------------------------------------------------------------------------------------

    def schedule(self, step: int, now_ps: int) -> Plan:
        """Decides what the next batch computes; it may be nothing."""
        plan = self.plan
        plan.clear()
        plan.stable = False
        plan.head_wait = NOBODY_WAITS
        cap = self._chunk_cap() if self.config.long_prefill_token_threshold else 0
        holding = self.hold.active and self.hold.holds(len(self.running), len(self.prefilling))
        budget = self._serve_running(now_ps, cap, holding)
        if plan.preempted:
            plan.head_wait = PREEMPTION
        else:
            if self.waiting or self.passed_over:
                self._admit(now_ps, budget, cap, holding)
            if not holding:
                self.hold.backlog = bool(self.waiting)
        self._add_up()
        if self.hold.active:
            self.hold.ran(plan, plan.batch.tokens)
        return plan

    def _chunk_cap(self) -> int:
        requests = len(self.running) + len(self.waiting) + len(self.passed_over)
        if requests <= 1 and not self.caps_alone:
            return 0
        cap = self.config.long_prefill_token_threshold
        if self.config.long_prefill_token_threshold_adaptive:
            cap = max(cap, self.config.max_num_batched_tokens // max(requests, 1))
        return cap

    def _serve_running(self, now_ps: int, cap: int, holding: bool) -> int:
        """Phase A, in order of admission; the budget left. Whoever has a token in flight has nothing to compute."""
        block, budget, prefilling = self._block, self.budget, self.prefilling
        decodes: list[Request] = []
        self.decodes = decodes
        wanting = self.ready
        if prefilling:
            wanting = sorted([*wanting, *prefilling.values()], key=BY_ADMISSION)
        for request in wanting:
            if budget <= 0:
                break
            computed = request.computed
            if request.state is DECODING:
                if computed % block == 0:
                    budget = self._make_room(request, 1, budget, now_ps)
                    if request.state is not DECODING:
                        continue
                request.computed = computed + 1
                decodes.append(request)
                budget -= 1
            elif not holding and request.state is PREFILLING:
                tokens = request.prompt_tokens + request.generated - computed
                if 0 < cap < tokens:
                    tokens = cap
                if tokens > budget:
                    tokens = budget
                budget = self._make_room(request, tokens, budget, now_ps)
                if request.state is PREFILLING:
                    self._compute(request, tokens)
                    budget -= tokens
        self.stored += len(decodes)
        self.ready = self._left_out(decodes)
        return budget

    def _left_out(self, decodes: list[Request]) -> list[Request]:
        """Decoders that the pass gave nothing."""
        if len(decodes) == len(self.ready):
            return []
        given = {request.seq for request in decodes}
        return [request for request in self.ready if request.state is DECODING and request.seq not in given]

    def _make_room(self, request: Request, tokens: int, budget: int, now_ps: int) -> int:
        """Blocks for ``tokens`` more tokens, preempting until they are there or the request itself had to go."""
        while not self.kv.extend(request, request.computed + tokens):
            victim = self._victim()
            budget += self._take_back(victim)
            self.preempt(victim, 0, now_ps, 0)
            if victim is request:
                break
        return budget

    def _victim(self) -> Request:
        """fcfs: the last admitted; priority: the least important, then latest arrived, first such in the list."""
        running = self.running
        if self.config.scheduling_policy == "fcfs":
            return running[next(reversed(running))]
        return max(running.values(), key=lambda request: (request.priority, request.arrival_ps))

    def _take_back(self, victim: Request) -> int:
        """Takes back what this pass had given the victim; how many tokens."""
        if self.settles:
            self.kv.store(victim, victim.computed)
        if victim in self.decodes:
            self.decodes.remove(victim)
            victim.computed -= 1
            return 1  # ``stored`` counts the decoders' tokens at the end of the pass
        tokens = 0
        for index, (request, chunk) in enumerate(self.plan.chunks):
            if request is victim:
                del self.plan.chunks[index]
                tokens = chunk
                self.hold.revoked = True
                break
        victim.computed -= tokens
        victim.in_flight -= tokens
        self.stored -= tokens
        return tokens

    def _compute(self, request: Request, tokens: int) -> None:
        """A prefill gets ``tokens`` tokens, for which it has room."""
        request.computed += tokens
        request.in_flight += tokens
        self.stored += tokens
        self.plan.chunks.append((request, tokens))

    def _admit(self, now_ps: int, budget: int, cap: int, holding: bool) -> None:
        """Phase B. Whoever waits for a token in flight is gone past; else strictly from the head."""
        plan, kv, running = self.plan, self.kv, self.running
        gone_past: list[Request] = []
        hit = 0
        while self.waiting or self.passed_over:
            if len(running) >= self.running_limit:
                plan.head_wait = MAX_NUM_SEQS
                break
            if budget <= 0:
                plan.head_wait = TOKEN_BUDGET
                break
            request = self._head()
            if request.row in self.stale:
                self._pop(request)
                gone_past.append(request)
                plan.head_wait = PREEMPTION
                continue
            chunk = known = request.prompt_tokens + request.generated
            if kv.caching:
                hit = kv.hit(request, known)
                chunk -= hit
            if 0 < cap < chunk:
                chunk = cap
            if chunk > budget:
                if not self.config.enable_chunked_prefill:
                    plan.head_wait = TOKEN_BUDGET
                    break
                chunk = budget
            if holding and known - hit > 1:
                plan.head_wait = HELD
                break
            if not kv.admit(request, known, hit + chunk, bool(running)):
                plan.head_wait = KV_MEMORY
                break
            self._pop(request)
            self._start(request, now_ps, hit)
            self._compute(request, chunk)
            budget -= chunk
        self.passed_over[:0] = gone_past

    def _head(self) -> Request:
        """Those gone past before come first; under priority whoever is more important."""
        passed_over = self.passed_over
        if not passed_over:
            return self.waiting.head()
        if self.config.scheduling_policy == "fcfs":
            return passed_over[0]
        heads = [self.waiting.head(), *passed_over] if self.waiting else passed_over
        return min(heads, key=lambda request: request.queue_key)

    def _pop(self, request: Request) -> None:
        if self.waiting and self.waiting.head() is request:
            self.waiting.pop()
        else:
            self.passed_over.remove(request)

    def _start(self, request: Request, now_ps: int, hit: int) -> None:
        """Moves a request from waiting to running; ``hit`` tokens of it are cached."""
        self.admissions = request.seq = self.admissions + 1
        request.state = PREFILLING
        request.admitted_ps = now_ps
        if not request.preemptions:
            request.scheduled_ps = now_ps
        if self.kv.caching:
            self.found(request, hit)
            self.stored += hit
        self.running[request.seq] = request
        self.plan.admitted.append(request)

    def _add_up(self) -> None:
        """Fills in the batch, and who prefills on."""
        plan, batch = self.plan, self.plan.batch
        decodes = self.decodes
        batch.decodes = plan.decodes = batch.tokens = len(decodes)
        batch.decode_context = batch.context = sum([request.computed for request in decodes])
        if self.windows:
            batch.windowed = tuple(
                (sum(min(r.computed, window) for r in decodes), sum(r.computed < window for r in decodes))
                for window in self.windows
            )
        for request, chunk in plan.chunks:
            batch.tokens += chunk
            batch.context += request.computed
            batch.prefills.append((chunk, request.computed))
            if request.computed < request.prompt_tokens + request.generated:
                self.prefilling[request.seq] = request
            else:
                self.prefilling.pop(request.seq, None)
                plan.completing.append(request)
        batch.requests = len(decodes) + len(plan.chunks)
        batch.sampled = len(decodes) + len(plan.completing)
        plan.stored_tokens = self.stored

    def chunks(self) -> list[Chunk]:
        """The prefill chunks of the last pass."""
        return [(request, tokens, request.seq not in self.prefilling) for request, tokens in self.plan.chunks]

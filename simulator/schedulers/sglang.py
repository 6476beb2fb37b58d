"""SGLang's scheduling pass (0.5.23; SCHEDULERS.md 9.3): prefill first, else a token for everybody.

A pass either prefills (then every decoder waits) or decodes; nothing mixes. Whether a request may join is decided by
an estimate of what the running ones will still need, so memory can run out: then some are retracted, to the end of
the queue. This is the server's plain loop (``--disable-overlap-schedule``), in which a step's results are known to
the next pass.
"""

from __future__ import annotations

from simulator.allocators.kv_cache import KvCache
from simulator.allocators.radix_kv import RadixKv
from simulator.allocators.sglang_kv import SglangKv
from simulator.errors import InputError
from simulator.request import Request, RequestState
from simulator.schedulers.completion_order import CompletionOrder
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.first_come import KV_MEMORY, MAX_NUM_SEQS, NOBODY_WAITS, PREEMPTION, TOKEN_BUDGET, FirstCome
from simulator.schedulers.longest_prefix import LONGEST_QUEUE, PrefixRefresh, sort_by_longest_prefix
from simulator.schedulers.new_token_ratio import RETRACT_STEPS, NewTokenRatio
from simulator.schedulers.plan import Plan
from simulator.schedulers.policies import SglangPolicy
from simulator.schedulers.prefill_budget import CLIP_NEW_TOKENS, PrefillBudget, Verdict
from simulator.schedulers.queues import FcfsQueue

DECODING = RequestState.DECODING


class RetractQueue(FcfsQueue):
    """Order of arrival; a retracted request goes to the end."""

    put_back = FcfsQueue.append


class Sglang(FirstCome):
    """SGLang's rules over ``SglangKv`` or ``RadixKv``.

    ``batch`` are the decoders in the server's order, which a retraction changes; ``chunked`` is the one request that
    may be in mid-prefill. ``full``: nobody is considered until a running request leaves; ``full_reason`` says why.
    ``ratio`` is up to date at step ``ratio_step``; after a decode step (``decoded``) it falls by the steps since.
    """

    __slots__ = (
        "batch",
        "chunked",
        "completions",
        "decoded",
        "full",
        "full_reason",
        "pages",
        "policy",
        "ratio",
        "ratio_step",
        "refresh",
        "tree",
    )

    def __init__(self, config: EngineConfig, kv: KvCache) -> None:
        super().__init__(config, kv)
        assert isinstance(config.policy, SglangPolicy) and isinstance(kv, SglangKv)
        _check(config, kv)
        self.waiting = RetractQueue()
        self.policy = config.policy
        self.pages = kv
        self.tree = kv if isinstance(kv, RadixKv) else None
        self.refresh = PrefixRefresh()
        self.batch: dict[int, Request] = {}
        self.chunked: Request | None = None
        self.completions: CompletionOrder | None = None
        self.full = False
        self.full_reason = NOBODY_WAITS
        self.ratio = NewTokenRatio(config.policy.schedule_conservativeness)
        self.ratio_step = 0
        self.decoded = False

    def schedule(self, step: int, now_ps: int) -> Plan:
        """Decides what step number ``step``, starting now, computes."""
        plan = self.plan
        if self.decoded:
            self.ratio.decoded(step - self.ratio_step)
        self.ratio_step, self.decoded = step, False
        if not plan.stable:
            plan.clear()
        if self.tree is not None and self.chunked is not None:
            self.tree.store(self.chunked, self.chunked.computed)
        nobody_joins = self.chunked is None and (self.full or not self.waiting) and self.decoders.count
        if nobody_joins and not self.lagging and self.kv.serve(step):
            self.decode_only()  # the commonest pass
            plan.head_wait = self.full_reason if self.waiting else NOBODY_WAITS
            self.decoded = True
            return plan
        plan.stable = False
        if self._prefill(step, now_ps):
            for request in self.batch.values():
                self.skip(request, now_ps)
        elif self.decoders.count:
            self._decode(step, now_ps)
        else:
            self.ratio.reset()  # idle
        self.settle(step)
        if self.decoded and not plan.resumed:
            plan.stable = self.full or not self.waiting
        return plan

    # -- prefill ----------------------------------------------------------------------------------------------

    def _prefill(self, step: int, now_ps: int) -> bool:
        """Forms a prefill batch, if anybody can be in it."""
        plan, decoders = self.plan, self.decoders
        if not decoders.count:
            self.full = False
        plan.head_wait = NOBODY_WAITS
        if self.chunked is None:
            if self.waiting and not self.full and decoders.count >= self.running_limit:
                self.full, self.full_reason = True, MAX_NUM_SEQS
            if self.full or not self.waiting:
                plan.head_wait = self.full_reason if self.waiting else NOBODY_WAITS
                return False
        if self.tree is not None and self.waiting:
            self._order(self.tree)
        budget = self._budget(step)
        self.completions = None
        if self.chunked is not None:
            self._continue(self.chunked, budget)
        self._admit(step, now_ps, budget)
        if not plan.chunks:
            return False
        self._allocate()
        # A batch that somebody leaves, or that joins no other, opens admission again.
        if self.chunked is not None or not decoders.count:
            self.full = False
        return True

    def _order(self, tree: RadixKv) -> None:
        """Whoever is considered first; with lpm a short queue is sorted anew."""
        assert isinstance(self.waiting, FcfsQueue)
        if self.policy.schedule_policy == "lpm" and len(self.waiting) <= LONGEST_QUEUE:
            sort_by_longest_prefix(self.waiting, tree)
        else:
            self.refresh.run(self.waiting, tree)

    def _budget(self, step: int) -> PrefillBudget:
        """The budgets of this pass; the estimate is summed in the server's order, for its very rounding."""
        ratio = 1.0 if self.policy.ignore_eos else self.ratio.current
        promised = sum(
            min(request.output_tokens - request.generated_at(step), CLIP_NEW_TOKENS) * ratio
            for request in self.batch.values()
        )
        budget, prompts = self.config.max_num_batched_tokens, self.policy.max_prefill_tokens
        if self.config.enable_chunked_prefill:
            return PrefillBudget(self.kv, promised, prompts, budget)
        return PrefillBudget(self.kv, promised, min(prompts, budget), None)

    def _continue(self, request: Request, budget: PrefillBudget) -> None:
        """The next chunk of the request in mid-prefill; it comes first and always goes on."""
        assert budget.chunk is not None
        chunk = min(budget.chunk, int(budget.remaining))
        if chunk <= 0:
            chunk = budget.chunk
        left = request.prompt_tokens + request.generated - request.computed
        if left <= chunk:
            chunk, self.chunked = left, None
        self.plan.chunks.append((request, chunk))
        budget.charge(chunk, 0 if self.chunked else min(request.output_tokens, CLIP_NEW_TOKENS))

    def _admit(self, step: int, now_ps: int, budget: PrefillBudget) -> None:
        """Takes requests from the head of the queue until one of the limits says no."""
        plan = self.plan
        while self.waiting:
            if budget.verdict() is Verdict.OTHER:
                plan.head_wait = TOKEN_BUDGET
                return
            if len(plan.chunks) >= self.running_limit - self.decoders.count:
                self.full, self.full_reason = True, MAX_NUM_SEQS
            if self.full:
                plan.head_wait = self.full_reason
                return
            verdict = self._add(self.waiting.head(), step, now_ps, budget)
            if verdict is Verdict.NO_TOKEN:
                self.full, self.full_reason = bool(plan.chunks or self.decoders.count), KV_MEMORY
            if verdict is not Verdict.CONTINUE:
                if self.waiting:
                    plan.head_wait = KV_MEMORY if verdict is Verdict.NO_TOKEN else TOKEN_BUDGET
                return

    def _add(self, request: Request, step: int, now_ps: int, budget: PrefillBudget) -> Verdict:
        """Tries to add the head of the queue; says whether the next one may be tried."""
        hit = 0
        if self.tree is not None:
            hit = self.tree.hit(request, request.prompt_tokens + request.generated)
            self.tree.pin(request)
            refused, chunk = self._fits_by_estimate(request, hit, budget)
            if refused is not None:
                self.tree.unpin(request)
        elif self.policy.ignore_eos:
            refused, chunk = self._fits_to_the_end(request, step, budget)
        else:
            refused, chunk = self._fits_by_estimate(request, hit, budget)
        if refused is not None:
            return refused
        self.take_head(now_ps)
        self.found(request, hit)
        self.plan.chunks.append((request, chunk))
        if hit + chunk < request.prompt_tokens + request.generated:
            self.chunked = request
        budget.charge(chunk, 0 if self.chunked is request else min(request.output_tokens, CLIP_NEW_TOKENS))
        return budget.verdict()

    def _fits_by_estimate(self, request: Request, hit: int, budget: PrefillBudget) -> tuple[Verdict | None, int]:
        """(why not, tokens to compute): its own need against what the others are expected to leave.

        The ``hit`` is locked already, so that it does not count as room.
        """
        tokens = request.prompt_tokens + request.generated - hit
        new_tokens = min(request.output_tokens - request.generated, CLIP_NEW_TOKENS)
        page = self.kv.pool.block_size
        if tokens + new_tokens + page >= budget.remaining:
            return Verdict.NO_TOKEN, 0
        paged = budget.paged(tokens)
        if budget.chunk is None:
            if self.plan.chunks and paged >= budget.input:
                return Verdict.OTHER, 0
        elif paged > budget.chunk:
            tokens = budget.chunk // page * page
            if tokens <= 0:
                return Verdict.OTHER, 0
        return None, tokens

    def _fits_to_the_end(self, request: Request, step: int, budget: PrefillBudget) -> tuple[Verdict | None, int]:
        """(why not, tokens to compute) where no request ends before its limit."""
        tokens = request.prompt_tokens + request.generated
        first = budget.paged(tokens) + self.kv.pool.block_size
        if first > min(budget.remaining_now, budget.remaining):
            return Verdict.NO_TOKEN, 0
        left = request.output_tokens - request.generated
        if self.completions is None:
            others = [*self.batch.values(), *(r for r, _ in self.plan.chunks)]
            states = [(r.output_tokens - r.generated_at(step), r.prompt_tokens + r.generated_at(step)) for r in others]
            self.completions = CompletionOrder([(left, tokens), *states])
        else:
            self.completions.add(left, tokens)
        if not self.completions.fits(budget, first):
            return Verdict.NO_TOKEN, 0
        if budget.chunk is not None and tokens > budget.chunk:
            if budget.chunk <= 0:
                return Verdict.OTHER, 0
            tokens = budget.chunk
        return None, tokens

    def _allocate(self) -> None:
        """Gives the batch its pages: all of them are made free first, with a page to spare for each request."""
        chunks = self.plan.chunks
        page = self.pages.block_size
        wanted = sum(chunk for _, chunk in chunks)
        self.pages.make_room(wanted if page == 1 else wanted + page * len(chunks))
        for request, chunk in chunks:
            if not self.pages.extend(request, request.computed + chunk):
                raise AssertionError(f"admitted request {request.row} finds no page for {chunk} tokens")

    # -- decode -----------------------------------------------------------------------------------------------

    def _decode(self, step: int, now_ps: int) -> None:
        """A token for every decoder, or for those that remain when memory is short."""
        if self.kv.serve(step):
            self.decoded = True
            return
        self._retract(step, now_ps)
        self.plan.head_wait = PREEMPTION
        if self.decoders.count:
            assert self.kv.serve(step)

    def _retract(self, step: int, now_ps: int) -> None:
        """Takes the KV of those with the least output (then the longest prompt) until the others can go on."""

        def progress(request: Request) -> tuple[int, int]:
            return request.generated_at(step), -request.prompt_tokens

        kept = sorted(self.batch.values(), key=progress, reverse=True)
        pages = self.pages
        first = True
        while (first or self._short(step)) and len(kept) > 1:
            first = False
            self.preempt(kept.pop(), step, now_ps, 0)
            pages.make_room(len(kept) * RETRACT_STEPS)
        if len(kept) <= 1 and self._short(step):
            last = kept.pop()
            self.preempt(last, step, now_ps, 0)
            self.waiting.remove(last)
            self.plan.dropped.append((last, "out of memory although it was the last running request: aborted"))
        self.batch = {request.seq: request for request in kept}
        self.ratio.retracted([r.generated_at(step) for r in kept], [r.output_tokens for r in kept])
        self.full = False

    def _short(self, step: int) -> bool:
        """Whether the decoders left lack pages for this step even after what the cache can give."""
        demand = self.pages.demand(step)
        self.pages.make_room(demand * self.pages.block_size)
        return demand > self.pages.free_units

    # -- between steps ----------------------------------------------------------------------------------------

    def advance(self, step: int) -> None:
        """The step of the last plan has run: a prefill left all decoders a step behind."""
        plan = self.plan
        self.decoders.stored_tokens += plan.decodes
        if plan.skipped:
            kv = self.kv
            for request in plan.skipped:
                computed = request.computed_at(step)
                kv.leave(request, computed)
                kv.join(request, computed, step + 1)
            self.decoders.delay_all(plan.skipped)

    def complete(self, next_step: int, now_ps: int) -> list[Request]:
        """Applies the tokens of the step that just ended; returns who ends, in the server's order."""
        tree = self.tree
        if tree is not None:
            for request in self.plan.completing:
                tree.store(request, request.computed)
        ended = super().complete(next_step, now_ps)
        for request in self.plan.completing:
            if request.state is DECODING:
                self.batch[request.seq] = request
        if ended:
            self.full = False
            if len(ended) > 1 and ended[0].seq in self.batch:
                place = {seq: i for i, seq in enumerate(self.batch)}
                ended.sort(key=lambda request: place[request.seq])
            for request in ended:
                if self.batch.pop(request.seq, None) is not None and tree is not None:
                    tree.store(request, request.computed)
        return ended

    def check(self, step: int) -> None:
        """Raises AssertionError when the invariant is broken."""
        super().check(step)
        assert set(self.batch) == {r.seq for r in self.running.values() if r.state is DECODING}
        assert list(self.prefilling.values()) == ([] if self.chunked is None else [self.chunked])


def _check(config: EngineConfig, kv: SglangKv) -> None:
    """Refuses what this policy does not know."""
    if config.scheduling_policy != "fcfs" or config.async_scheduling:
        raise InputError(
            "SGLang is simulated without priorities and without overlapped scheduling",
            where="engine.scheduling_policy" if config.scheduling_policy != "fcfs" else "engine.async_scheduling",
            remedy="set scheduling_policy: fcfs and async_scheduling: false",
        )
    chunk, page = config.max_num_batched_tokens, kv.block_size
    if config.enable_chunked_prefill and chunk % page:
        raise InputError(
            f"chunks of {chunk} tokens are no whole number of pages of {page}",
            where="engine.max_num_batched_tokens",
            remedy=f"set max_num_batched_tokens to {-(-chunk // page) * page}",
        )

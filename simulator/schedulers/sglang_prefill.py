"""SGLang's prefill batches (0.5.23): who is in the next one, by an estimate of what everybody will need."""

from __future__ import annotations

from typing import cast

from simulator.allocators.kv_cache import KvCache
from simulator.allocators.radix_kv import RadixKv
from simulator.allocators.sglang_kv import SglangKv
from simulator.errors import InputError
from simulator.request import Request, RequestState
from simulator.run_log import NOT_YET
from simulator.schedulers.completion_order import CompletionOrder
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.first_come import KV_MEMORY, MAX_NUM_SEQS, NOBODY_WAITS, TOKEN_BUDGET, FirstCome
from simulator.schedulers.longest_prefix import LONGEST_QUEUE, PrefixRefresh, sort_by_longest_prefix
from simulator.schedulers.new_token_ratio import NewTokenRatio
from simulator.schedulers.pausing_decoders import PausingDecoders
from simulator.schedulers.policies import SglangPolicy
from simulator.schedulers.prefill_budget import CLIP_NEW_TOKENS, PrefillBudget, Verdict
from simulator.schedulers.queues import FcfsQueue


class RetractQueue(FcfsQueue):
    """Order of arrival; a retracted request goes to the end."""

    put_back = FcfsQueue.append


class SglangPrefill(FirstCome):
    """The part of SGLang's scheduler that forms prefill batches.

    ``batch`` are the decoders in the server's order, which a retraction changes; ``chunked`` is the one request that
    may be in mid-prefill. ``full``: nobody is considered until a running request leaves; ``full_reason`` says why.
    """

    __slots__ = (
        "batch",
        "chunked",
        "completions",
        "full",
        "full_reason",
        "pages",
        "policy",
        "ratio",
        "refresh",
        "tree",
    )

    decoders: PausingDecoders

    def __init__(self, config: EngineConfig, kv: KvCache) -> None:
        if not isinstance(kv, SglangKv):
            raise InputError(
                "SGLang pages its KV cache; it cannot run over a contiguous one",
                where="engine.allocator",
                remedy="set allocator: {kind: paged}",
            )
        _check(config, kv)
        super().__init__(config, kv)
        self.waiting = RetractQueue()
        self.decoders = PausingDecoders()
        self.policy = cast(SglangPolicy, config.policy)
        self.pages = kv
        self.tree = kv if isinstance(kv, RadixKv) else None
        self.refresh = PrefixRefresh()
        self.batch: dict[int, Request] = {}
        self.chunked: Request | None = None
        self.completions: CompletionOrder | None = None
        self.full = False
        self.full_reason = NOBODY_WAITS
        self.ratio = NewTokenRatio(self.policy.schedule_conservativeness)

    def form_batch(self, step: int, now_ps: int) -> bool:
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
        if not plan.chunks:
            return False
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
        promised = 0.0
        for request in self.batch.values():
            left = request.output_tokens - request.generated - step + request.joined_step
            promised += (left if left < CLIP_NEW_TOKENS else CLIP_NEW_TOKENS) * ratio
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
        for request, chunk in list(chunks):
            if not self.pages.extend(request, request.computed + chunk):
                self._take_back(request, chunk)

    def _take_back(self, request: Request, chunk: int) -> None:
        """Leaves out a chunk that found no pages against all estimates; a newcomer heads the queue again."""
        plan = self.plan
        plan.chunks.remove((request, chunk))
        plan.head_wait = KV_MEMORY
        if request not in plan.admitted:
            self.chunked = request  # goes on with the next batch
            return
        plan.admitted.remove(request)
        if self.chunked is request:
            self.chunked = None
        del self.running[request.seq]
        self.kv.release(request)
        if request.preemptions:
            request.state = RequestState.PREEMPTED
            request.recomputed += min(request.hit_tokens, request.lost_tokens)
        else:
            request.state = RequestState.WAITING
            request.scheduled_ps = NOT_YET
        request.computed = 0
        assert isinstance(self.waiting, FcfsQueue)
        self.waiting.appendleft(request)


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

"""SGLang's scheduling pass (0.5.23; SCHEDULERS.md 9.3): prefill first, else a token for everybody.

A pass either prefills (then every decoder waits) or decodes; nothing mixes. Whether a request may join is decided by
an estimate of what the running ones will still need, so memory can run out: then some are retracted, to the end of
the queue. This is the server's plain loop (``--disable-overlap-schedule``), in which a step's results are known to
the next pass.
"""

from __future__ import annotations

from simulator.allocators.kv_cache import KvCache
from simulator.request import Request, RequestState
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.first_come import NOBODY_WAITS, PREEMPTION
from simulator.schedulers.new_token_ratio import RETRACT_STEPS
from simulator.schedulers.plan import Plan
from simulator.schedulers.sglang_prefill import SglangPrefill

DECODING = RequestState.DECODING


class Sglang(SglangPrefill):
    """SGLang's rules over ``SglangKv`` or ``RadixKv``.

    ``ratio`` is up to date at step ``ratio_step``; after a decode step (``decoded``) it falls by the steps since.
    ``pass_ps`` is when the last pass that could change anything began.
    """

    __slots__ = ("decoded", "pass_ps", "ratio_step")

    def __init__(self, config: EngineConfig, kv: KvCache) -> None:
        super().__init__(config, kv)
        self.pass_ps = 0
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
        if nobody_joins and not self.decoders.late_count and self.kv.serve(step):
            self.decode_only()  # the commonest pass
            plan.head_wait = self.full_reason if self.waiting else NOBODY_WAITS
            self.decoded = True
            return plan
        plan.stable = False
        self.pass_ps = now_ps
        if not self.form_batch(step, now_ps):
            if self.decoders.count:
                self._decode(step, now_ps)
            else:
                self.ratio.reset()  # idle
        self._settle()
        if self.decoded and not plan.late:
            plan.stable = self.full or not self.waiting
        return plan

    # -- decode -----------------------------------------------------------------------------------------------

    def _decode(self, step: int, now_ps: int) -> None:
        """A token for every decoder, or for those that remain when memory is short."""
        if self.kv.serve(step):
            self.decoded = True
            self._catch_up()
            return
        self._retract(step, now_ps)
        self.plan.head_wait = PREEMPTION
        if self.decoders.count:
            assert self.kv.serve(step)
        self._catch_up()

    def _catch_up(self) -> None:
        """Everybody gets a token now: after prefills, that one comes late."""
        if self.decoders.late_count:
            self.plan.late = self.decoders.caught_up()
            self.plan.irregular = True

    def _retract(self, step: int, now_ps: int) -> None:
        """Takes the KV of those with the least output (then the longest prompt) until the others can go on."""

        def progress(request: Request) -> tuple[int, int]:
            return request.generated_at(step), -request.prompt_tokens

        kept = sorted(self.batch.values(), key=progress, reverse=True)
        pages = self.pages
        first = True
        while (first or self._short(step)) and len(kept) > 1:
            first = False
            self._give_up(kept.pop(), step, now_ps)
            pages.make_room(len(kept) * RETRACT_STEPS)
        if len(kept) <= 1 and self._short(step):
            last = kept.pop()
            self._give_up(last, step, now_ps)
            self.waiting.remove(last)
            self.plan.dropped.append((last, "out of memory although it was the last running request: aborted"))
        self.batch = {request.seq: request for request in kept}
        self.ratio.retracted([r.generated_at(step) for r in kept], [r.output_tokens for r in kept])
        self.full = False

    def _give_up(self, request: Request, step: int, now_ps: int) -> None:
        """Retracts one request, which may not have got a token for a while."""
        last_token_ps = next(iter(self.decoders.late), now_ps)
        if request.joined_step == step:  # its last token is that of its prefill
            last_token_ps = request.last_token_ps
        if self.decoders.late.get(last_token_ps):
            self.decoders.forget_late(last_token_ps)
        self.preempt(request, step, now_ps, 0)
        request.last_token_ps = last_token_ps

    def _short(self, step: int) -> bool:
        """Whether the decoders left lack pages for this step even after what the cache can give."""
        demand = self.pages.demand(step)
        self.pages.make_room(demand * self.pages.block_size)
        return demand > self.pages.free_units

    # -- between steps ----------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Fills in the batch: prefills, or all decoders."""
        plan, decoders, batch = self.plan, self.decoders, self.plan.batch
        decodes = 0 if plan.chunks else decoders.count
        stored = decoders.stored_tokens + decodes
        context = stored if decodes else 0
        plan.decodes = batch.decodes = tokens = decodes
        batch.decode_context = context
        plan.regular = decodes - sum(count for count, _ in plan.late)
        for request, chunk in plan.chunks:
            request.computed = computed = request.computed + chunk
            tokens += chunk
            context += computed
            batch.prefills.append((chunk, computed))
            if request is not self.chunked:
                plan.completing.append(request)
                stored += computed
                plan.irregular |= request.generated > 0
            if request is self.chunked or request.seq in self.prefilling:
                self.carry_over(request, chunk)
        batch.tokens = tokens
        batch.context = context
        batch.requests = decodes + len(plan.chunks)
        batch.sampled = decodes + len(plan.completing)
        plan.stored_tokens = stored + self.stored_prefill_tokens

    def advance(self, step: int) -> None:
        """The step of the last plan has run: a prefill left all decoders a step behind."""
        self.decoders.stored_tokens += self.plan.decodes
        if self.plan.chunks:
            self.decoders.pause(self.batch.values(), self.pass_ps)
            self.pages.pause()

    def complete(self, next_step: int, now_ps: int) -> list[Request]:
        """Applies the tokens of the step that just ended; returns who ends, in the server's order."""
        tree = self.tree
        if tree is not None:
            for request in self.plan.completing:
                tree.store(request, request.computed)
        ended = super().complete(next_step, now_ps)
        for request in self.plan.completing:
            if request.state is DECODING:
                request.last_token_ps = now_ps
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

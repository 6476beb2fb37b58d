"""TensorRT-LLM's pass (SCHEDULERS.md 9.2): first who may hold memory, then who computes what."""

from __future__ import annotations

from simulator.allocators.kv_cache import KvCache
from simulator.errors import InputError
from simulator.request import Request, RequestState
from simulator.schedulers.arrival_queue import ArrivalQueue
from simulator.schedulers.capacity import Capacity
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.context_chunks import micro_batch
from simulator.schedulers.first_come import (
    HELD,
    KV_MEMORY,
    MAX_NUM_SEQS,
    NOBODY_WAITS,
    PREEMPTION,
    TOKEN_BUDGET,
    FirstCome,
)
from simulator.schedulers.plan import Plan
from simulator.schedulers.policies import TrtLlmPolicy

PREFILLING, DECODING = RequestState.PREFILLING, RequestState.DECODING
STAYS_BLOCKED = (NOBODY_WAITS, MAX_NUM_SEQS, KV_MEMORY, HELD)  # whoever waits so, waits until somebody ends


class TrtLlm(FirstCome):
    """Capacity scheduler, then micro-batch scheduler, over all requests in order of arrival.

    ``max_batch_size`` is ``max_num_seqs``, ``max_num_tokens`` is ``max_num_batched_tokens``, and the chunk unit is a
    block. A request starts, and its whole prompt gets its blocks, with its first chunk; one that may hold memory but
    got no token holds nothing. A request's number (``seq``) is that of its arrival, so that a paused one keeps its
    place. Pausing (MAX_UTILIZATION only) frees all blocks and moves the outputs into the prompt.

    With block reuse (``enable_prefix_caching``) tokens found in the cache are not computed, blocks are taken chunk by
    chunk, the rest of the prompt being promised, and they can be found from the next pass on.

    Over a contiguous cache a request reserves its run when it starts, and blocks are not counted. One micro-batch is in
    flight (no look-ahead of two steps), and nobody holds more than ``max_num_seqs`` requests at once.
    """

    __slots__ = ("chunk_unit", "paged", "policy", "usable_blocks")

    waiting: ArrivalQueue

    def __init__(self, config: EngineConfig, kv: KvCache) -> None:
        super().__init__(config, kv, ArrivalQueue())
        assert isinstance(config.policy, TrtLlmPolicy)
        self.policy = config.policy
        self.paged = kv.pool.kind == "paged"
        self.usable_blocks = kv.free_units
        self.chunk_unit = kv.pool.block_size if config.enable_chunked_prefill else None
        if self.chunk_unit is not None and self.chunk_unit > config.max_num_batched_tokens:
            raise InputError(
                f"max_num_batched_tokens ({config.max_num_batched_tokens}) is below a block of {self.chunk_unit} "
                "tokens, the unit of TensorRT-LLM's context chunks: a long prompt could never be computed",
                where="engine.max_num_batched_tokens",
                remedy=f"set max_num_batched_tokens to {self.chunk_unit} or more, or use smaller blocks",
            )

    def blocks(self, tokens: int) -> int:
        """Blocks of so many tokens; 0 over a contiguous cache, which has none."""
        return -(-tokens // self.kv.pool.block_size) if self.paged else 0

    def blocks_held(self, request: Request, step: int) -> int:
        """Blocks in a request's table just before ``step``."""
        if request.state is DECODING:
            return self.blocks(request.computed_at(step))
        if request.state is not PREFILLING:
            return 0
        return self.blocks(request.computed if self.kv.caching else request.prompt_tokens + request.generated)

    def schedule(self, step: int, now_ps: int) -> Plan:
        """Decides what step number ``step``, starting now, computes."""
        plan, decoders = self.plan, self.decoders
        if not plan.stable:
            plan.clear()
        budget = self.config.max_num_batched_tokens
        only_decodes = not (self.waiting or self.prefilling or self.lagging) and decoders.count <= budget
        if only_decodes and (not decoders.count or self.kv.serve(step)):
            self.decode_only()
            return plan
        plan.stable = False
        capacity = Capacity(self, step, now_ps)
        if self.policy.capacity_scheduler_policy == "max_utilization":
            capacity.max_utilization()
        else:
            capacity.no_evict(static=self.policy.capacity_scheduler_policy == "static_batch")
        for request, reason in capacity.dropped:
            self.waiting.remove(request)
            plan.dropped.append((request, reason))
        decodes, contexts = micro_batch(
            capacity.fits,
            budget,
            self.running_limit,
            self.chunk_unit,
            self.policy.context_chunking_policy,
            capacity.reused,
        )
        for request in capacity.reserved:
            if all(request is not chosen for chosen, _ in contexts):
                self.kv.release(request)
        self._decode(decodes, step, now_ps)
        plan.head_wait = capacity.wait
        self._compute(contexts, capacity.reused, now_ps)
        if not self.waiting:
            plan.head_wait = NOBODY_WAITS
        elif plan.preempted:
            plan.head_wait = PREEMPTION
        elif self.waiting.head() in capacity.fits:
            plan.head_wait = TOKEN_BUDGET
        elif plan.head_wait == NOBODY_WAITS:  # deferred
            plan.head_wait = HELD
        self.settle(step)
        plan.stable = plan.head_wait in STAYS_BLOCKED and not (
            plan.chunks or self.prefilling or plan.preempted or plan.resumed or plan.skipped or plan.dropped
        )
        if plan.head_wait == KV_MEMORY and self.kv.growth_may_admit:
            plan.stable = False
        return plan

    def _decode(self, decodes: list[Request], step: int, now_ps: int) -> None:
        """Gives the chosen decoders their tokens; the others miss this step."""
        if not self.decoders.count:
            return
        if len(decodes) == self.decoders.count:
            self.make_room(step, now_ps)  # the room is there: capacity has counted it
            return
        chosen = {request.seq for request in decodes}
        for request in [request for request in self.running.values() if request.state is DECODING]:
            if request.seq not in chosen:
                self.skip(request, now_ps)
            elif not self.kv.grow(request, step):
                self.preempt(request, step, now_ps, 0)
            elif request.seq in self.lagging:
                self.plan.resumed.append(self.lagging.pop(request.seq))

    def carry_over(self, request: Request, chunk: int) -> None:
        super().carry_over(request, chunk)
        in_order(self.prefilling)

    def _compute(self, contexts: list[tuple[Request, int]], reused: dict[int, int], now_ps: int) -> None:
        """Gives the chosen contexts their chunks; newcomers among them start."""
        plan, kv = self.plan, self.kv
        for request, chunk in contexts:
            if request.state is not PREFILLING:
                known = request.prompt_tokens + request.generated
                hit = kv.hit(request, known) if kv.caching else 0
                before = reused.get(request.seq, 0)
                if hit < before:  # lost to what others take in this pass
                    continue
                if hit > before:  # a static batch defers nobody: found what the one before it is to compute
                    chunk = max(before + chunk - hit, min(self.kv.pool.block_size, known - hit))
                end = hit + chunk if kv.caching else known
                if self.paged and not kv.admit(request, known, end, False):
                    plan.head_wait = KV_MEMORY
                    continue
                self.waiting.remove(request)
                self.enter(request, now_ps)
                if kv.caching:
                    self.found(request, hit)
            elif kv.caching and not kv.extend(request, request.computed + chunk):
                continue
            plan.chunks.append((request, chunk))

    def enter(self, request: Request, now_ps: int) -> None:
        """Starts a request, wherever it stands in the order of arrival."""
        super().enter(request, now_ps)
        in_order(self.running)


def in_order(table: dict[int, Request]) -> None:
    """Sorts a table whose last entry may stand too late."""
    keys = reversed(table)
    last = next(keys, 0)
    if last < next(keys, 0):
        ordered = sorted(table.items())
        table.clear()
        table.update(ordered)

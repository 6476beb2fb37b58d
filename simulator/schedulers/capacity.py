"""TensorRT-LLM's capacity scheduler (SCHEDULERS.md 9.2): who may hold KV memory in the coming step."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import TYPE_CHECKING

from simulator.allocators.prefix_hashes import PrefixHash
from simulator.allocators.reusing_kv import ReusingKv
from simulator.request import Request, RequestState
from simulator.schedulers.first_come import HELD, KV_MEMORY, MAX_NUM_SEQS, NOBODY_WAITS

if TYPE_CHECKING:
    from simulator.schedulers.trtllm import TrtLlm

PREFILLING, DECODING = RequestState.PREFILLING, RequestState.DECODING
STARTED = (PREFILLING, DECODING)


def by_arrival(request: Request) -> int:
    return request.seq


class Capacity:
    """One pass over all requests. Fills ``fits``, in the order in which they will be offered tokens.

    Blocks are counted, not taken: ``promised`` of the free ones belong to somebody in ``fits``. A contiguous cache has
    no blocks to count; there a newcomer takes its slots at once (``reserved``) and gives them back if it gets no token.

    With block reuse ``reused`` has the cached tokens of the newcomers in ``fits``, by ``seq``. A newcomer whose first
    block that is not cached is in the making by a context before it (``in_the_making``) is deferred: it will find it.

    ``wait`` is why the first newcomer that stays did not fit, NOBODY_WAITS if all that were asked did.
    """

    def __init__(self, scheduler: TrtLlm, step: int, now_ps: int) -> None:
        self.scheduler = scheduler
        self.kv = scheduler.kv
        self.step = step
        self.now_ps = now_ps
        self.limit = scheduler.running_limit
        self.promised = 0
        self.newcomers = 0
        self.fits: list[Request] = []
        self.reserved: list[Request] = []
        self.dropped: list[tuple[Request, str]] = []
        self.reused: dict[int, int] = {}
        self.in_the_making: dict[PrefixHash, int] = {}  # first new block -> seq of who computes it
        self.wait = NOBODY_WAITS

    # -- block reuse --------------------------------------------------------------------------------------------

    def note_contexts_under_way(self) -> None:
        """What contexts under way are about to compute will be there for others."""
        if isinstance(self.kv, ReusingKv):
            for request in self.scheduler.prefilling.values():
                known = request.prompt_tokens + request.generated
                block = self.kv.new_block(request, request.computed, known)
                if block is not None:
                    self.in_the_making.setdefault(block, request.seq)

    def _deferred(self, request: Request) -> bool:
        """Whether a newcomer had better wait; else what it will compute is noted."""
        if not isinstance(self.kv, ReusingKv):
            return False
        known = request.prompt_tokens + request.generated
        self.reused[request.seq] = hit = self.kv.hit(request, known)
        block = self.kv.new_block(request, hit, known)
        return block is not None and self.in_the_making.setdefault(block, request.seq) != request.seq

    def _blocks_in_use(self, request: Request) -> int:
        """Of the blocks that a newcomer reuses, those that others hold: they cost no free one."""
        if not isinstance(self.kv, ReusingKv):
            return 0
        return self.kv.hits_in_use(request, request.prompt_tokens + request.generated)

    # -- GUARANTEED_NO_EVICT and STATIC_BATCH -------------------------------------------------------------------

    def no_evict(self, *, static: bool) -> None:
        """Everybody who generates keeps the blocks to its end; contexts, in order of arrival, take theirs of the rest.

        The first newcomer that does not fit ends the scan for all newcomers. ``static``: contexts are looked at only
        when nobody generates.
        """
        scheduler = self.scheduler
        self.fits = [request for request in scheduler.running.values() if request.state is DECODING]
        if static and self.fits:
            self.wait = HELD
            return
        self.promised = sum(self._blocks_to_end(request) for request in self.fits)
        if not static:
            self.note_contexts_under_way()
        for request in merge(scheduler.prefilling.values(), scheduler.waiting, key=by_arrival):
            if request.state is PREFILLING:
                self._keep(request)
            elif self._deferred(request) and not static:
                continue
            elif not self._newcomer_fits(request):
                for later in scheduler.prefilling.values():
                    if later.seq > request.seq:
                        self._keep(later)
                return

    def _keep(self, request: Request) -> None:
        """A context under way: its blocks were promised to it when it began."""
        self.promised += self._blocks_to_end(request)
        self.fits.append(request)

    def _newcomer_fits(self, request: Request) -> bool:
        """Promises a newcomer all blocks of its prompt and its longest output; False ends the scan."""
        scheduler = self.scheduler
        if not self._has_place():
            self.wait = MAX_NUM_SEQS
            return False
        blocks = scheduler.blocks(request.prompt_tokens + request.output_tokens)
        if blocks > scheduler.usable_blocks and scheduler.config.on_unservable == "reject":
            self.dropped.append((request, self._too_large(request, blocks)))
            return True
        blocks -= self._blocks_in_use(request)
        if self.promised + blocks > self.kv.free_units or not self._reserve(request):
            self.wait = KV_MEMORY
            return False
        self.promised += blocks
        self.newcomers += 1
        self.fits.append(request)
        return True

    def _has_place(self) -> bool:
        """Whether one more may begin: contexts under way count, wherever they stand."""
        return len(self.scheduler.running) + self.newcomers < self.limit

    def _too_large(self, request: Request, blocks: int) -> str:
        scheduler = self.scheduler
        return (
            f"{scheduler.policy.capacity_scheduler_policy} reserves {blocks} KV blocks of {self.kv.pool.block_size} "
            f"tokens for it ({request.prompt_tokens} prompt and {request.output_tokens} output tokens), "
            f"the pool has {scheduler.usable_blocks}"
        )

    def _blocks_to_end(self, request: Request) -> int:
        scheduler = self.scheduler
        total = scheduler.blocks(request.prompt_tokens + request.output_tokens)
        return total - scheduler.blocks_held(request, self.step)

    # -- MAX_UTILIZATION ----------------------------------------------------------------------------------------

    def max_utilization(self) -> None:
        """Everybody, in order of arrival, needs the blocks of the next step only; who is last pays when they lack.

        If a request does not fit, the last one at or after it that has started is paused, the line ends before that
        one, and the request is tried again; without such a one the scan ends.
        """
        self.note_contexts_under_way()
        start, end = 0, None
        while (request := self._first_misfit(start, end)) is not None:
            victim = self._last_started(request.seq, end)
            if victim is None:
                if self.wait == NOBODY_WAITS:
                    self.wait = MAX_NUM_SEQS if len(self.fits) >= self.limit else KV_MEMORY
                return
            self.scheduler.preempt(victim, self.step, self.now_ps, 0)
            start, end = request.seq, victim.seq

    def _line(self, start: int, end: int | None) -> Iterator[Request]:
        """All requests by arrival, from number ``start`` to before ``end``."""
        for request in merge(self.scheduler.running.values(), self.scheduler.waiting, key=by_arrival):
            if end is not None and request.seq >= end:
                return
            if request.seq >= start:
                yield request

    def _first_misfit(self, start: int, end: int | None) -> Request | None:
        """Lets those fit that do, in order; the first that does not, or None."""
        for request in self._line(start, end):
            if request.state not in STARTED and self._deferred(request):
                continue
            if len(self.fits) >= self.limit:
                return request
            need = self._blocks_of_step(request)
            if self.promised + need > self.kv.free_units:
                return request
            if request.state not in STARTED and not self._reserve(request):
                return request
            self.promised += need
            self.fits.append(request)
        return None

    def _last_started(self, start: int, end: int | None) -> Request | None:
        for request in reversed(self.scheduler.running.values()):
            if request.seq < start:
                return None
            if end is None or request.seq < end:
                return request
        return None

    def _blocks_of_step(self, request: Request) -> int:
        """A decoder needs a block when its last one is full, a newcomer those of its whole prompt."""
        scheduler = self.scheduler
        if request.state is DECODING:
            tokens = request.computed_at(self.step) + 1
        else:
            tokens = request.prompt_tokens + request.generated
        blocks = scheduler.blocks(tokens) - scheduler.blocks_held(request, self.step)
        return blocks if request.state in STARTED else blocks - self._blocks_in_use(request)

    # -- contiguous caches --------------------------------------------------------------------------------------

    def _reserve(self, request: Request) -> bool:
        """Takes a newcomer's run of slots, where the cache is contiguous."""
        if self.scheduler.paged:
            return True
        known = request.prompt_tokens + request.generated
        if not self.kv.admit(request, known, known, False):
            return False
        self.reserved.append(request)
        return True

"""vLLM's scheduler on the decode side of prefill/decode disaggregation: prompts whose KV comes from elsewhere.

As with vLLM's NIXL connector (``v1/core/sched/scheduler.py``, ``kv_connector/v1/nixl/pull_scheduler.py``, read
2026-11):

- At its turn in the queue a request gets the blocks of its whole prompt and no tokens (it needs token budget and a free
  place among the running ones all the same), then waits for its KV outside the queue (``WAITING_FOR_REMOTE_KVS``), so
  that whoever stands behind it goes on. It is not preempted meanwhile, so it gets its blocks only where those that
  running prefills still need stay free (``_inflight_prefill_reserved_blocks``), beside the watermark.
- Once its KV is there it goes ahead of the queue (``skipped_waiting`` first), in the order in which blocks were given;
  the watermark must be free then too. The prompt's last token is computed again, for a step must have something to
  sample from: one token, and the first token of the answer.
- Who is preempted afterwards computes everything again here: the remote blocks are gone (``do_remote_prefill`` is
  false from the first transfer on).
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain

from simulator.allocators.kv_cache import KvCache
from simulator.request import Request, RequestState
from simulator.run_log import HeadWait
from simulator.schedulers.chunked_prefill import ChunkedPrefill
from simulator.schedulers.config import EngineConfig

PREFILLING = RequestState.PREFILLING
NOBODY_WAITS, MAX_NUM_SEQS, KV_MEMORY, TOKEN_BUDGET, PREEMPTION, HELD = (int(reason) for reason in HeadWait)


class RemoteRequest(Request):
    """A request whose prompt was computed by another replica.

    ``external_tokens`` are to come over the link; 0 where there is nothing to fetch (any more): the prompt is computed
    here. ``place`` is its number in the order of reservations, from 1, or 0 before; ``loaded``: its KV is there.
    """

    __slots__ = ("external_tokens", "loaded", "place")

    def __init__(self, row: int, arrival_ps: int, prompt_tokens: int, output_tokens: int, external_tokens: int) -> None:
        super().__init__(row, arrival_ps, prompt_tokens, output_tokens)
        self.external_tokens = external_tokens
        self.place = 0
        self.loaded = False


class RemoteQueue:
    """Those whose KV has come, in the order of their reservations, ahead of all others, first come first served."""

    __slots__ = ("_loaded", "_others")

    def __init__(self) -> None:
        self._loaded: list[RemoteRequest] = []
        self._others: deque[RemoteRequest] = deque()

    def __len__(self) -> int:
        return len(self._loaded) + len(self._others)

    def __iter__(self) -> Iterator[RemoteRequest]:
        return chain(self._loaded, self._others)

    def add(self, request: RemoteRequest) -> bool:
        """Queues an arrival, or one whose KV has come; says whether it became the head."""
        if request.loaded:
            insort(self._loaded, request, key=lambda other: other.place)
            return self._loaded[0] is request
        self._others.append(request)
        return len(self) == 1

    def put_back(self, request: RemoteRequest) -> None:
        """Queues a preempted request: before those that have not run, behind those that wait for a place alone."""
        self._others.appendleft(request)

    def head(self) -> RemoteRequest:
        return self._loaded[0] if self._loaded else self._others[0]

    def pop(self) -> RemoteRequest:
        return self._loaded.pop(0) if self._loaded else self._others.popleft()

    def remove(self, request: RemoteRequest) -> None:
        """Takes out a request that ends while it waits: it was preempted."""
        self._others.remove(request)


class RemotePrefill(ChunkedPrefill):
    """``ChunkedPrefill`` first come first served, whose queue holds ``RemoteRequest``s.

    ``pending``: by row, who holds blocks and waits for KV. ``on_reserve`` is told of each, with the time of the step
    that the pass is made for: then the connector asks for the KV.
    """

    __slots__ = ("on_reserve", "pending", "reservations", "watermark_blocks")

    def __init__(self, config: EngineConfig, kv: KvCache) -> None:
        super().__init__(config, kv)
        self.waiting = RemoteQueue()  # type: ignore[assignment]  # of RemoteRequests only
        self.pending: dict[int, RemoteRequest] = {}
        self.reservations = 0
        self.watermark_blocks = int(config.watermark * kv.pool.num_blocks)
        self.on_reserve: Callable[[RemoteRequest, int], None] | None = None

    def received(self, request: RemoteRequest) -> bool:
        """The KV of a pending request is there; says whether that can change the next pass."""
        del self.pending[request.row]
        request.loaded = True
        return self.waiting.add(request) or self.counts_waiting

    def away(self) -> list[Request]:
        return list(self.pending.values())

    def _admit(self, now_ps: int, budget: int, cap: int, holding: bool) -> None:
        plan, waiting, running = self.plan, self.waiting, self.running
        while waiting:
            if len(running) >= self.running_limit:
                plan.head_wait = MAX_NUM_SEQS
                return
            if budget <= 0:
                plan.head_wait = TOKEN_BUDGET
                return
            request = waiting.head()
            assert isinstance(request, RemoteRequest)
            if request.loaded:
                # It needs no block, and yet (vLLM's allocate_slots).
                if running and self.watermark_blocks > self.kv.free_units:
                    plan.head_wait = KV_MEMORY
                    return
                request.computed = request.external_tokens - 1
                request.loaded, request.external_tokens = False, 0
                chunk = 1
            elif request.external_tokens:
                if not self._reserve(request):
                    plan.head_wait = KV_MEMORY
                    return
                waiting.pop()
                if self.on_reserve is not None:
                    self.on_reserve(request, now_ps)
                continue
            else:
                chunk = self._local_chunk(request, budget, cap, holding)
                if not chunk:
                    return
            waiting.pop()
            self._start(request, chunk, now_ps)
            budget -= chunk

    def _reserve(self, request: RemoteRequest) -> bool:
        """Blocks for the whole prompt, if those that running prefills still need stay free."""
        kv, known = self.kv, request.prompt_tokens
        if not kv.admit(request, known, known, bool(self.running)):
            return False
        kept_free = self.watermark_blocks if self.running else 0
        started = (r for r in self.plan.admitted if r.seq not in self.prefilling)
        prefills = [*self.prefilling.values(), *started]
        needed = sum(kv.units_for(r, r.prompt_tokens + r.generated) for r in prefills)
        if prefills and needed + kept_free > kv.free_units:
            kv.release(request)
            return False
        self.reservations = request.place = self.reservations + 1
        self.pending[request.row] = request
        return True

    def _local_chunk(self, request: Request, budget: int, cap: int, holding: bool) -> int:
        """The first chunk of a prompt that is computed here, with its blocks; 0, and why, where it must wait.

        The decode side shares no prefixes (``disaggregation`` turns caching off), so that nothing is hit.
        """
        plan = self.plan
        chunk = known = request.prompt_tokens + request.generated
        if 0 < cap < chunk:
            chunk = cap
        if chunk > budget:
            if not self.config.enable_chunked_prefill:
                plan.head_wait = TOKEN_BUDGET
                return 0
            chunk = budget
        if holding and known > 1:
            plan.head_wait = HELD
            return 0
        if not self.kv.admit(request, known, chunk, bool(self.running)):
            plan.head_wait = KV_MEMORY
            return 0
        return chunk

    def _start(self, request: Request, chunk: int, now_ps: int) -> None:
        """Moves a request that holds what its chunk needs to the running ones."""
        plan = self.plan
        self.admissions = request.seq = self.admissions + 1
        request.state = PREFILLING
        request.admitted_ps = now_ps
        if request.preemptions:
            plan.irregular = True
        else:
            request.scheduled_ps = now_ps
        self.running[request.seq] = request
        plan.admitted.append(request)
        plan.chunks.append((request, chunk))

    def check(self, step: int) -> None:
        super().check(step)
        assert all(r.place and not r.loaded and r.held for r in self.pending.values())

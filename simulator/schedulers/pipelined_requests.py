"""The running requests of a replica with pipeline stages: who has something to compute, and what a batch brings."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter

from simulator.allocators.kv_cache import KvCache
from simulator.errors import InputError
from simulator.request import Request, RequestState
from simulator.schedulers.chunked_prefill import ChunkedPrefill
from simulator.schedulers.config import EngineConfig

PREFILLING, DECODING = RequestState.PREFILLING, RequestState.DECODING
PREEMPTED, FINISHED = RequestState.PREEMPTED, RequestState.FINISHED
BY_ADMISSION = attrgetter("seq")

Chunk = tuple[Request, int, bool]
"""A prefilling request, its tokens in a batch, and whether they are the last that it needs, so that it samples."""


@dataclass(slots=True)
class Landed:
    """What a batch brought when it left the last stage.

    Attributes:
        ended: requests with their last token, in order of admission; they still hold their KV.
        late: requests that got their last token after they were preempted; they hold nothing.
        gaps: inter-token gap, ps -> how many tokens had it.
    """

    ended: list[Request] = field(default_factory=list)
    late: list[Request] = field(default_factory=list)
    gaps: dict[int, int] = field(default_factory=dict)

    def count(self, gap_ps: int, tokens: int = 1) -> None:
        """So many tokens had this gap."""
        self.gaps[gap_ps] = self.gaps.get(gap_ps, 0) + tokens


class PipelinedRequests(ChunkedPrefill):
    """What is in flight counts as computed, as in vLLM; the pass itself is ``PipelinedPrefill``.

    Requests are up to date at all times: nobody is among the lazy ``decoders``. ``ready`` are the decoders whose newest
    token is there, by admission (the others are in a batch); ``decodes`` those of the last pass. ``stored`` is the sum
    of ``computed`` over all running requests. ``stale`` maps the rows of preempted requests to their tokens in flight;
    ``passed_over`` are those of them that a pass went past, first in line as in vLLM. ``in_flight`` of a request counts
    prefill tokens alone: a decoder's token is in flight exactly when it is not ready.

    Invariant (``check``): of a running request, ``computed`` <= prompt + generated, equal while its token is in flight.
    """

    __slots__ = ("decodes", "passed_over", "ready", "settles", "stale", "stored", "windows")

    def __init__(self, config: EngineConfig, kv: KvCache, windows: tuple[int, ...] = ()) -> None:
        if config.policy.kind != "vllm-v1" or config.async_scheduling:
            what = "async_scheduling" if config.async_scheduling else f"policy {config.policy.kind}"
            raise InputError(
                f"{what} is not simulated with pipeline parallelism",
                where="parallelism.pipeline_parallel_size",
                remedy="use engine: {preset: vllm, async_scheduling: false}, or pipeline_parallel_size: 1",
            )
        super().__init__(config, kv)
        self.windows = windows
        self.ready: list[Request] = []
        self.decodes: list[Request] = []
        self.passed_over: list[Request] = []
        self.stale: dict[int, int] = {}
        self.stored = 0
        self.settles = kv.caching and not kv.ordered  # such a cache hears of full blocks when they are given back

    def preempt(self, request: Request, step: int, now_ps: int, taken: int) -> None:
        """Takes a running request's KV away and queues it again."""
        in_flight = request.in_flight
        if request.state is DECODING and request.computed == request.prompt_tokens + request.generated:
            in_flight = 1
        if in_flight:
            self.stale[request.row] = in_flight
        self.kv.release(request)
        del self.running[request.seq]
        self.prefilling.pop(request.seq, None)
        self.stored -= request.computed
        request.recomputed += request.computed
        request.lost_tokens = request.computed
        request.state = PREEMPTED
        request.computed = request.in_flight = 0
        request.preemptions += 1
        request.preempted_ps = now_ps
        self.waiting.put_back(request)
        self.plan.preempted.append(request)

    # -- the end of a batch -----------------------------------------------------------------------------------

    def land(self, decodes: list[Request], chunks: list[Chunk], now_ps: int) -> Landed:
        """Applies a batch's tokens."""
        landed, ready = Landed(), []
        stale, ended = self.stale, landed.ended
        last_token_ps, tokens = now_ps, 0  # of a run of decoders that got their last token at the same time
        for request in decodes:
            if stale and request.row in stale:
                self._drain(request, 1, True, now_ps, landed)
                continue
            if request.last_token_ps == last_token_ps:
                tokens += 1
            else:
                if tokens:
                    landed.count(now_ps - last_token_ps, tokens)
                last_token_ps, tokens = request.last_token_ps, 1
            request.last_token_ps = now_ps
            request.generated = generated = request.generated + 1
            if generated < request.output_tokens:
                ready.append(request)
            else:
                ended.append(request)
        if tokens:
            landed.count(now_ps - last_token_ps, tokens)
        for request, size, samples in chunks:
            if stale and request.row in stale:
                self._drain(request, size, samples, now_ps, landed)
                continue
            request.in_flight -= size
            if samples:
                self._sample(request, now_ps, landed)
                if request.generated >= request.output_tokens:
                    ended.append(request)
                else:
                    request.state = DECODING
                    ready.append(request)
        self.ready = sorted(self.ready + ready, key=BY_ADMISSION)
        if ended:
            ended.sort(key=BY_ADMISSION)
            for request in ended:
                self._leave(request)
        return landed

    def _sample(self, request: Request, now_ps: int, landed: Landed) -> None:
        """The token of a prefill, or of one that was preempted meanwhile."""
        if request.generated:
            landed.count(now_ps - request.last_token_ps)
        else:
            request.first_token_ps = now_ps
        request.generated += 1
        request.last_token_ps = now_ps

    def _leave(self, request: Request) -> None:
        """A request has its last token; it still holds its KV."""
        if self.settles:
            self.kv.store(request, request.computed)
        self.stored -= request.computed
        del self.running[request.seq]
        request.state = FINISHED

    def _drain(self, request: Request, tokens: int, samples: bool, now_ps: int, landed: Landed) -> None:
        """Tokens of a preempted request are there: one that was sampled is streamed, and may be its last."""
        left = self.stale[request.row] - tokens
        if left:
            self.stale[request.row] = left
        else:
            del self.stale[request.row]
        if not samples:
            return
        self._sample(request, now_ps, landed)
        if request.generated >= request.output_tokens:
            if request in self.passed_over:
                self.passed_over.remove(request)
            else:
                self.waiting.remove(request)
            request.state = FINISHED
            landed.late.append(request)

    def away(self) -> list[Request]:
        return self.passed_over

    def check(self, step: int) -> None:
        """Raises AssertionError when the invariant is broken."""
        running = self.running
        assert list(running) == sorted(running)
        assert sum(request.computed for request in running.values()) == self.stored
        ready = []
        for request in running.values():
            missing = request.prompt_tokens + request.generated - request.computed
            assert 0 <= request.in_flight <= request.computed
            if request.state is DECODING:
                assert missing in (0, 1)
                assert not request.in_flight
                ready += [request] * missing
            else:
                assert request.state is PREFILLING
                assert (missing > 0) == (request.seq in self.prefilling)
        assert ready == self.ready
        assert self.prefilling.keys() <= running.keys()
        gone = [*self.waiting, *self.passed_over]
        assert self.stale.keys() <= {request.row for request in gone}
        assert all(request.computed == request.in_flight == 0 for request in gone)
        self.kv.check()

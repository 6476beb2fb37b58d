"""FasterTransformer's request-level batching (SCHEDULERS.md 9.4): a batch runs until its longest member ends."""

from __future__ import annotations

from simulator.allocators.kv_cache import KvCache
from simulator.request import Request, RequestState
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.first_come import HELD, KV_MEMORY, MAX_NUM_SEQS, NOBODY_WAITS, PREEMPTION, FirstCome
from simulator.schedulers.plan import Plan

PREFILLING, DECODING, FINISHED = RequestState.PREFILLING, RequestState.DECODING, RequestState.FINISHED


class RequestLevel(FirstCome):
    """When nobody runs, the earliest requests form a batch: as many as the cache and ``max_num_seqs`` take.

    Their prompts are computed in order, ``max_num_batched_tokens`` a step (FasterTransformer has no such limit: a value
    as large as all prompts together means none), and generation begins when the last prompt is done. Nobody joins
    a batch under way. A member that has generated all its tokens is FINISHED, yet it keeps its slots and its place
    in ``running``: all members are returned to their clients, and all slots freed, when the last one is done.
    ``first_token_ps`` is when the first token was computed, not when the client had it. A finished member costs no
    computing: the padded rows of FasterTransformer's linear layers are left out.

    Over a paged cache, where growth can run out, the last admitted member that still generates is preempted by
    recompute and joins the next batch, at its head.

    ``full``: what kept the head out of the batch under way, and so keeps it waiting until the batch ends.

    Invariant (``check``): ``done`` are the FINISHED members, in order of their ends, ``done_tokens`` their KV.
    """

    __slots__ = ("done", "done_tokens", "full")

    def __init__(self, config: EngineConfig, kv: KvCache) -> None:
        super().__init__(config, kv)
        self.done: list[Request] = []
        self.done_tokens = 0
        self.full = HELD

    def schedule(self, step: int, now_ps: int) -> Plan:
        """Decides what step number ``step``, starting now, computes."""
        plan = self.plan
        if not plan.stable:
            plan.clear()
        if self.decoders.count and not self.prefilling:
            self._generate(step, now_ps)
        else:
            plan.stable = False
            if not self.running:
                self._form_batch(now_ps)
            self._hold_waiting()
            self._prefill(now_ps)
            self.settle(step)
        plan.stored_tokens += self.done_tokens
        return plan

    def _generate(self, step: int, now_ps: int) -> None:
        """A token for every member that is not done."""
        served = self.kv.serve(step)
        if served and not self.lagging:
            self.decode_only()
            self._hold_waiting()
            return
        self.plan.stable = False
        self._hold_waiting()
        if not served:
            self.make_room(step, now_ps)
            self.plan.head_wait = PREEMPTION
        self.settle(step)

    def _hold_waiting(self) -> None:
        self.plan.head_wait = self.full if self.waiting else NOBODY_WAITS

    def _form_batch(self, now_ps: int) -> None:
        kv, waiting, running = self.kv, self.waiting, self.running
        self.full = HELD
        while waiting:
            if len(running) >= self.running_limit:
                self.full = MAX_NUM_SEQS
                break
            request = waiting.head()
            known = request.prompt_tokens + request.generated
            if not kv.admit(request, known, known, bool(running)):
                self.full = KV_MEMORY
                break
            self.take_head(now_ps)
            self.prefilling[request.seq] = request

    def _prefill(self, now_ps: int) -> None:
        """The next prompts of the batch; members whose prompt is done wait for the others."""
        plan, left = self.plan, self.config.max_num_batched_tokens
        for request in self.running.values():
            if request.state is DECODING:
                self.skip(request, now_ps)
            elif request.state is PREFILLING:
                chunk = request.prompt_tokens + request.generated - request.computed
                if chunk > left:
                    if not self.config.enable_chunked_prefill:
                        return
                    chunk = left
                if not chunk:
                    return
                plan.chunks.append((request, chunk))
                left -= chunk

    def complete(self, next_step: int, now_ps: int) -> list[Request]:
        """Applies the tokens of the step that just ended; the whole batch ends with its last member."""
        decoders, kv, done = self.decoders, self.kv, self.done
        ended: list[Request] = []
        if decoders.soonest <= next_step:
            ended = decoders.pop_finished(next_step)
            for request in ended:
                kv.leave(request, request.computed)
        for request in self.plan.completing:
            if not request.generated:
                request.first_token_ps = now_ps
            request.generated += 1
            if request.generated >= request.output_tokens:
                ended.append(request)
            else:
                decoders.join(request, next_step)
                kv.join(request, request.computed, next_step)
        for request in ended:
            request.state = FINISHED
            self.done_tokens += request.computed
            done.append(request)
        if not done or decoders.count or self.prefilling:
            return []
        batch = list(self.running.values())
        self.running.clear()
        self.done = []
        self.done_tokens = 0
        return batch

    def check(self, step: int) -> None:
        """Raises AssertionError when the invariant is broken."""
        running = list(self.running.values())
        assert [r.seq for r in running] == sorted(self.running)
        assert {r.seq for r in running if r.state is PREFILLING} == set(self.prefilling)
        assert sum(r.computed for r in self.prefilling.values()) == self.stored_prefill_tokens
        assert {r.seq for r in running if r.state is FINISHED} == {r.seq for r in self.done}
        assert sum(r.computed for r in self.done) == self.done_tokens
        assert not running or self.prefilling or self.decoders.count
        self.decoders.check(running, step)
        self.kv.check()

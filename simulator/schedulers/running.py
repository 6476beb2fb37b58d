"""The running requests of a replica: who prefills, who decodes, and what a step does to them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from simulator.allocators.kv_cache import KvCache
from simulator.request import Request, RequestState
from simulator.run_log import HeadWait
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.decoders import Decoders
from simulator.schedulers.plan import Plan
from simulator.schedulers.prefill_hold import PrefillHold
from simulator.schedulers.queues import WaitingQueue

DECODING, PREFILLING = RequestState.DECODING, RequestState.PREFILLING
PREEMPTED, FINISHED, ENDING = RequestState.PREEMPTED, RequestState.FINISHED, RequestState.ENDING


class Scheduler(ABC):
    """What every policy shares; a policy adds the pass that fills ``plan`` (``schedule``).

    ``heeds_all``: whether any arrival in mid-leap may change the next pass while others wait (with fcfs only one that
    finds the queue empty can); ``counts_waiting``: even one that stands behind the head. ``lag`` 1: a pass is made when
    the step before it starts, not when it ends (async scheduling), so that whoever ends still runs, as ENDING, in one
    more pass.
    """

    __slots__ = (
        "config",
        "counts_waiting",
        "decoders",
        "heeds_all",
        "hold",
        "kv",
        "lag",
        "lagging",
        "plan",
        "prefilling",
        "running",
        "stored_prefill_tokens",
        "waiting",
    )

    def __init__(self, config: EngineConfig, kv: KvCache, waiting: WaitingQueue) -> None:
        self.config = config
        self.kv = kv
        self.heeds_all = False
        self.counts_waiting = False
        self.lag = 0
        self.waiting = waiting
        self.running: dict[int, Request] = {}
        self.prefilling: dict[int, Request] = {}
        self.decoders = Decoders()
        self.lagging: dict[int, Request] = {}
        self.stored_prefill_tokens = 0
        self.plan = Plan()
        self.hold = PrefillHold(config.prefill_schedule_interval)

    @abstractmethod
    def schedule(self, step: int, now_ps: int) -> Plan:
        """Decides what step number ``step``, starting now, computes."""

    def decode_only(self) -> None:
        """Fills the plan of a pass that gives every decoder a token, with nothing else to decide."""
        plan, decoders = self.plan, self.decoders
        count = decoders.count
        plan.decodes = count
        plan.head_wait = int(HeadWait.NOBODY_WAITS)
        batch = plan.batch
        batch.tokens = batch.requests = batch.sampled = batch.decodes = count
        batch.context = batch.decode_context = plan.stored_tokens = decoders.stored_tokens + count

    def settle(self, step: int) -> None:
        """Fills in the batch and what follows from chunks and skipped decoders.

        Whoever lagged and is not skipped again must stand in ``plan.resumed``, unless nobody is skipped at all.
        """
        plan, decoders = self.plan, self.decoders
        decodes = decoders.count - len(plan.skipped)
        context = decoders.stored_tokens + decoders.count
        stored = decoders.stored_tokens + decodes
        for request in plan.skipped:
            context -= request.computed_at(step) + 1
        if self.lagging and not plan.skipped:
            plan.resumed.extend(self.lagging.values())
            self.lagging.clear()
        batch = plan.batch
        batch.decodes = plan.decodes = tokens = decodes
        batch.decode_context = context
        plan.regular = decodes - len(plan.resumed)
        if plan.resumed:
            plan.irregular = True
        for request, chunk in plan.chunks:
            request.computed = computed = request.computed + chunk
            tokens += chunk
            context += computed
            batch.prefills.append((chunk, computed))
            complete = computed == request.prompt_tokens + request.generated
            if complete:
                plan.completing.append(request)
                stored += computed
                if request.generated:
                    plan.irregular = True
            if request.seq in self.prefilling or not complete:
                self.carry_over(request, chunk)
        batch.tokens = tokens
        batch.context = context
        batch.requests = decodes + len(plan.chunks)
        batch.sampled = decodes + len(plan.completing)
        plan.stored_tokens = stored + self.stored_prefill_tokens

    def advance(self, step: int) -> None:
        """The step of the last plan has run."""
        plan = self.plan
        self.decoders.stored_tokens += plan.decodes
        for request in plan.skipped:
            computed = request.computed_at(step)
            self.kv.leave(request, computed)
            if self.lag:
                self.kv.store(request, computed)
                request.in_flight = 0
            self.decoders.delay(request)
            self.kv.join(request, computed, step + 1)

    def complete(self, next_step: int, now_ps: int) -> list[Request]:
        """Applies the tokens of the step that just ended; returns who ends, in batch order.

        Those that end are up to date and no longer running (with ``lag``: until ``let_go``), but still hold their KV.
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
            if request.generated >= request.output_tokens:
                ended.append(request)
            else:
                decoders.join(request, next_step)
                kv.join(request, request.computed, next_step)
        if ended:
            if len(ended) > 1:
                ended.sort(key=lambda request: request.seq)
            if self.lag:
                for request in ended:
                    request.state = ENDING
            else:
                for request in ended:
                    del self.running[request.seq]
                    request.state = FINISHED
        return ended

    def away(self) -> list[Request]:
        """Requests that neither run nor wait in the queue: swapped out."""
        return []

    def let_go(self, request: Request) -> bool:
        """The last token of an ENDING request is there; whether it still holds its KV (it may be preempted)."""
        holds = request.state is ENDING
        if holds:
            del self.running[request.seq]
            self.kv.store(request, request.computed)
        else:
            self.waiting.remove(request)
        request.state = FINISHED
        return holds

    def preempt(self, request: Request, step: int, now_ps: int, taken: int) -> None:
        """Takes a running request's KV away and queues it again; ``taken``: tokens this pass had given it."""
        if request.state is DECODING:
            if request.seq not in self.lagging:
                request.last_token_ps = now_ps
            self.kv.leave(request, request.computed_at(step) + taken)
            self.decoders.leave(request, step)
            self.lagging.pop(request.seq, None)
        elif request.state is PREFILLING:
            self.stored_prefill_tokens -= request.computed
            del self.prefilling[request.seq]
        self.kv.release(request)
        del self.running[request.seq]
        if request.state is not ENDING:
            request.recomputed += request.computed
        request.state = PREEMPTED
        request.lost_tokens = request.computed
        request.computed = request.in_flight = 0
        request.preemptions += 1
        request.preempted_ps = now_ps
        self.waiting.put_back(request)
        self.plan.preempted.append(request)

    def found(self, request: Request, hit: int) -> None:
        """An admitted request takes ``hit`` tokens from the prefix cache."""
        request.computed = request.hit_tokens = hit
        if request.preemptions:
            request.recomputed -= min(hit, request.lost_tokens)
        else:
            request.cached_tokens = hit

    def carry_over(self, request: Request, chunk: int) -> None:
        """Keeps ``prefilling``: who is in it has had a chunk and needs more."""
        computed = request.computed
        before = computed - chunk if request.seq in self.prefilling else 0
        if computed < request.prompt_tokens + request.generated:
            self.stored_prefill_tokens += computed - before
            self.prefilling[request.seq] = request
        else:
            self.stored_prefill_tokens -= before
            del self.prefilling[request.seq]

    def check(self, step: int) -> None:
        """Raises AssertionError when the invariant is broken."""
        running = list(self.running.values())
        assert list(self.running) == sorted(self.running)
        assert all(r.state in (PREFILLING, DECODING, ENDING) for r in running)
        assert {r.seq for r in running if r.state is PREFILLING} == set(self.prefilling)
        assert list(self.prefilling) == sorted(self.prefilling)
        assert sum(r.computed for r in self.prefilling.values()) == self.stored_prefill_tokens
        self.decoders.check(running, step)
        self.kv.check()

"""The scheduler of the vLLM twin, synchronous and asynchronous. Source: SCHEDULERS.md sections 3 to 5.

Running requests keep their order of admission. Waiting ones stand in two queues: ``waiting``, and ``skipped`` for those
that a pass went past because tokens of theirs, from before a preemption, are still in flight.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.differential.vllm_twin_blocks import TwinRequest
from tests.differential.vllm_twin_cache import TwinCache


@dataclass
class Pass:
    """What one pass decided. ``samples``: who gets a token when the batch ends."""

    scheduled: dict[str, int] = field(default_factory=dict)
    admitted: list[tuple[str, int]] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    samples: set[str] = field(default_factory=set)
    budget: int = 0
    prefill: bool = False  # ran a chunk of a prefill, or admitted more than one token of one


class TwinScheduler:
    def __init__(self, config: dict[str, Any]) -> None:
        self.cache = TwinCache(config)
        self.budget: int = config["max_num_batched_tokens"]
        self.max_running: int = min(config["max_num_seqs"], config["max_num_active_seqs"] or config["max_num_seqs"])
        self.max_model_len: int = config["max_model_len"]
        self.chunked: bool = config["enable_chunked_prefill"]
        self.threshold: int = config["long_prefill_token_threshold"]
        self.adaptive: bool = config["long_prefill_token_threshold_adaptive"]
        self.by_priority: bool = config["policy"] == "priority"
        self.whole_sequence: bool = config["scheduler_reserve_full_isl"]
        self.watermark = int(config["watermark"] * config["num_gpu_blocks"])
        self.interval: int = config["prefill_schedule_interval"]
        self.asynchronous: bool = config["async_scheduling"]
        self.running: list[TwinRequest] = []
        self.waiting: list[TwinRequest] = []
        self.skipped: list[TwinRequest] = []
        self.by_id: dict[str, TwinRequest] = {}
        self.executed = 0  # passes that scheduled tokens
        self.last_prefill = 0  # the last of them that ran a prefill
        self.backlog = False

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting or self.skipped)

    def add(self, request: TwinRequest) -> None:
        self.by_id[request.request_id] = request
        self.waiting.append(request)
        self._sort()

    # -- one pass

    def schedule(self) -> Pass:
        done = Pass(budget=self.budget)
        present = len(self.running) + len(self.waiting) + len(self.skipped)
        cap = self.threshold if present > 1 else 0
        if cap and self.adaptive:
            cap = max(cap, self.budget // present)
        hold = (
            self.interval > 1
            and not self.backlog
            and self.executed + 1 - self.last_prefill < self.interval
            and any(not request.prefilling for request in self.running)
        )
        self._run(done, cap, hold)
        if not done.preempted:
            self._admit(done, cap, hold)
            if not hold:
                self.backlog = bool(self.waiting)
        self._commit(done)
        return done

    def _run(self, done: Pass, cap: int, hold: bool) -> None:
        """Phase A: tokens for the running requests, in their order."""
        cursor = 0
        while cursor < len(self.running) and done.budget > 0:
            request = self.running[cursor]
            new = self._wanted(request, cap, done.budget)
            if new == 0 or (hold and request.prefilling):
                cursor += 1
                continue
            while not self.cache.allocate(request, new):
                victim = self._victim()
                place = self.running.index(victim)
                del self.running[place]
                if place < cursor:
                    cursor -= 1
                done.budget += done.scheduled.pop(victim.request_id, 0)
                self._preempt(victim)
                done.preempted.append(victim.request_id)
                if victim is request:
                    break
            if request.status != "running":
                if self.by_priority:
                    continue
                break
            done.scheduled[request.request_id] = new
            done.budget -= new
            done.prefill |= request.prefilling
            cursor += 1

    def _wanted(self, request: TwinRequest, cap: int, budget: int) -> int:
        ends_surely = request.prompt_tokens + request.max_output_tokens
        if request.placeholders > 0 and request.computed + 2 - request.placeholders >= ends_surely:
            return 0
        new = len(request.tokens) + request.placeholders - request.computed
        if 0 < cap < new:
            new = cap
        return min(new, budget, self.max_model_len - 1 - request.computed)

    def _victim(self) -> TwinRequest:
        if self.by_priority:
            return max(self.running, key=lambda request: (request.priority, request.arrival))
        return self.running[-1]

    def _preempt(self, request: TwinRequest) -> None:
        self.cache.free(request)
        request.status = "preempted"
        request.computed = 0
        request.placeholders = 0
        request.stale = request.in_flight
        self.waiting.insert(0, request)
        self._sort()

    def _admit(self, done: Pass, cap: int, hold: bool) -> None:
        """Phase B: waiting requests join, strictly from the head."""
        passed_over: list[TwinRequest] = []
        while (self.waiting or self.skipped) and done.budget > 0 and len(self.running) < self.max_running:
            queue = self._next_queue()
            request = queue[0]
            if request.stale > 0:
                passed_over.append(queue.pop(0))
                continue
            hit = self.cache.look_up(request)
            request.junction = hit.junction
            known = len(request.tokens)
            if hold and hit.length < known - 1:
                break
            new = known - hit.length
            if 0 < cap < new:
                new = cap
            if not self.chunked and new > done.budget:
                break
            new = min(new, done.budget)
            watermark = self.watermark if self.running else 0
            if not self.cache.allocate(request, new, hit, self.whole_sequence, watermark):
                break
            queue.pop(0)
            self.running.append(request)
            request.status = "running"
            request.computed = hit.length
            done.scheduled[request.request_id] = new
            done.admitted.append((request.request_id, hit.length))
            done.budget -= new
            done.prefill |= hit.length < known - 1
        self.skipped[:0] = passed_over
        self._sort()

    def _next_queue(self) -> list[TwinRequest]:
        if self.by_priority and self.waiting and self.skipped:
            return min(self.waiting, self.skipped, key=lambda queue: queue[0].queue_key())
        return self.skipped or self.waiting

    def _sort(self) -> None:
        if self.by_priority:
            self.waiting.sort(key=TwinRequest.queue_key)
            self.skipped.sort(key=TwinRequest.queue_key)

    def _commit(self, done: Pass) -> None:
        for request_id, new in done.scheduled.items():
            request = self.by_id[request_id]
            request.computed += new
            request.in_flight += new
            request.prefilling = request.computed < len(request.tokens) + request.placeholders
            if not request.prefilling:
                done.samples.add(request_id)
                if self.asynchronous:
                    request.placeholders += 1
        if done.scheduled:
            self.executed += 1
            if done.prefill:
                self.last_prefill = self.executed

    # -- the end of a batch

    def complete(self, done: Pass, sample: Any) -> list[str]:
        """Applies a batch's tokens; ``sample(request)`` gives the next output token. Returns who finished, in order."""
        finished = []
        for request_id, new in done.scheduled.items():
            request = self.by_id[request_id]
            request.in_flight -= new
            stale = request.stale > 0
            if stale:
                request.stale -= new
            if request.status == "finished" or request_id not in done.samples:
                continue
            request.tokens.append(sample(request))
            request.output_tokens += 1
            if self.asynchronous and not stale:
                request.placeholders -= 1
                self.cache.insert(request, request.computed - request.placeholders)
            if request.output_tokens >= request.max_output_tokens or len(request.tokens) >= self.max_model_len:
                self._finish(request)
                finished.append(request_id)
        return finished

    def _finish(self, request: TwinRequest) -> None:
        for queue in (self.running, self.waiting, self.skipped):
            if request in queue:
                queue.remove(request)
        request.status = "finished"
        self.cache.free(request)

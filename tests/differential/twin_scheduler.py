"""vLLM v1's pass written down plainly from SCHEDULERS.md section 3: slow, and independent of the engine.

One object a request, one loop a pass, one clock; no caching, no async, one full-attention group. Block counts only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simulator.allocators.pools import PagedPool
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from workloads.workload import Workload


@dataclass(eq=False)
class TwinRequest:
    row: int
    arrival: int
    prompt: int
    maxout: int
    priority: int
    out: int = 0
    comp: int = 0
    prefilling: bool = False
    blocks: int = 0

    @property
    def tok(self) -> int:
        return self.prompt + self.out


def cd(a: int, b: int) -> int:
    return -(-a // b)


@dataclass
class Twin:
    """``passes``: one dictionary per pass that computed or preempted something."""

    engine: EngineConfig
    pool: PagedPool
    step_time: LinearStepTime
    waiting: list[TwinRequest] = field(default_factory=list)
    running: list[TwinRequest] = field(default_factory=list)
    passes: list[dict[str, Any]] = field(default_factory=list)
    finished: dict[int, int] = field(default_factory=dict)
    token_times: dict[int, list[int]] = field(default_factory=dict)
    budget_at: Callable[[int], int] | None = None  # tokens a step may compute, by number of the pass
    now: int = 0
    executed: int = 0
    last_prefill: int = 0
    backlog: bool = False

    def __post_init__(self) -> None:
        self.free = self.pool.num_gpu_blocks - 1

    def run(self, workload: Workload, limit: int) -> None:
        todo = [
            TwinRequest(i, int(workload.arrival_ps[i]), int(workload.prompt_tokens[i]),
                        int(workload.output_tokens[i]), int(workload.priority[i]))
            for i in range(len(workload))
        ]  # fmt: skip
        while (todo or self.waiting or self.running) and len(self.passes) < limit:
            if not self.waiting and not self.running:
                self.now = max(self.now, todo[0].arrival)
            while todo and todo[0].arrival <= self.now:
                request = todo.pop(0)
                if self.servable(request):
                    self.waiting.append(request)
            if self.engine.scheduling_policy == "priority":
                self.sort_waiting()
            if self.waiting or self.running:
                self.one_pass()

    def servable(self, r: TwinRequest) -> bool:
        L = self.engine.max_model_len
        if r.prompt >= L:
            return False
        last = min(r.prompt + r.maxout, L) - 1
        if not self.engine.enable_chunked_prefill and last > self.engine.max_num_batched_tokens:
            return False
        return cd(last, self.pool.block_size) <= self.pool.num_gpu_blocks - 1

    def sort_waiting(self) -> None:
        self.waiting.sort(key=lambda r: (r.priority, r.arrival, r.row))

    def one_pass(self) -> None:
        e, B, L = self.engine, self.pool.block_size, self.engine.max_model_len
        budget = T = e.max_num_batched_tokens
        if self.budget_at:
            budget = self.budget_at(len(self.passes))
        several = len(self.running) + len(self.waiting)
        thr = e.long_prefill_token_threshold if several > 1 else 0
        if thr and e.long_prefill_token_threshold_adaptive:
            thr = max(thr, T // several)
        k = e.prefill_schedule_interval
        decoding = any(not r.prefilling for r in self.running)
        hold = k > 1 and not self.backlog and self.executed + 1 - self.last_prefill < k and decoding
        given: dict[int, int] = {}
        preempted: list[TwinRequest] = []
        chunks: set[int] = set()  # rows whose prefill counts for the interval
        for r in list(self.running):
            if budget == 0:
                break
            if r in preempted:
                continue
            prefill = r.prefilling
            if hold and prefill:
                continue
            n = r.tok - r.comp
            if 0 < thr < n:
                n = thr
            n = min(n, budget, L - r.comp - 1)
            while True:
                need = max(0, cd(min(r.comp + n, L), B) - r.blocks)
                if need <= self.free:
                    self.free -= need
                    r.blocks += need
                    given[r.row] = n
                    budget -= n
                    if prefill:
                        chunks.add(r.row)
                    break
                if e.scheduling_policy == "fcfs":
                    victim = self.running[-1]
                else:
                    victim = max(self.running, key=lambda v: (v.priority, v.arrival))
                budget += given.pop(victim.row, 0)
                self.preempt(victim)
                preempted.append(victim)
                if victim is r:
                    break
        admitted: list[int] = []
        if not preempted:
            while self.waiting and budget > 0 and len(self.running) < e.running_limit:
                r = self.waiting[0]
                n = r.tok
                if 0 < thr < n:
                    n = thr
                if hold and r.tok > 1:
                    break
                if not e.enable_chunked_prefill and n > budget:
                    break
                n = min(n, budget)
                w = int(e.watermark * self.pool.num_gpu_blocks) if self.running else 0
                full = cd(min(r.tok, L), B)
                chunk = cd(min(n, L), B)
                if (e.scheduler_reserve_full_isl and full + w > self.free) or chunk + w > self.free:
                    break
                self.waiting.pop(0)
                self.free -= chunk
                r.blocks = chunk
                self.running.append(r)
                admitted.append(r.row)
                given[r.row] = n
                budget -= n
                if r.tok > 1:
                    chunks.add(r.row)
            if not hold:
                self.backlog = bool(self.waiting)
        self.settle(given, admitted, preempted, bool(chunks))

    def preempt(self, victim: TwinRequest) -> None:
        self.running.remove(victim)
        self.free += victim.blocks
        victim.blocks = 0
        victim.comp = 0
        self.waiting.insert(0, victim)
        if self.engine.scheduling_policy == "priority":
            self.sort_waiting()

    def settle(self, given: dict[int, int], admitted: list[int], preempted: list[TwinRequest], prefilled: bool) -> None:
        scheduled = [r for r in self.running if r.row in given]
        for r in scheduled:
            r.comp += given[r.row]
            r.prefilling = r.comp < r.tok
        tokens = sum(given.values())
        context = sum(r.comp for r in scheduled)
        if tokens:
            self.executed += 1
            if prefilled:
                self.last_prefill = self.executed
        t = self.step_time
        duration = t.base_ps + t.per_token_ps * tokens + t.per_context_token_ps * context
        if not tokens:
            assert preempted, "the twin is stuck"
            duration = 1_000_000_000
        row = {
            "t": self.now,
            "sched": [(r.row, given[r.row]) for r in scheduled],
            "admit": admitted,
            "preempt": [r.row for r in preempted],
            "free": self.free,
            "run": len(self.running),
            "wait": len(self.waiting),
            "dur": duration,
        }
        self.passes.append(row)
        self.now += duration
        done = []
        for r in scheduled:
            if r.comp == r.tok:
                r.out += 1
                self.token_times.setdefault(r.row, []).append(self.now)
                if r.out == r.maxout or r.tok >= self.engine.max_model_len:
                    done.append(r)
        for r in done:
            self.running.remove(r)
            self.free += r.blocks
            self.finished[r.row] = self.now
        row["fin"] = [r.row for r in done]

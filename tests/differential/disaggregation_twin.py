"""Prefill and decode servers written down plainly after vLLM's scheduler: one loop, one object a request, no leaps.

Queues are vLLM's two (``waiting``, ``skipped_waiting``) and statuses are its words, so that little of it resembles the
simulator's. First come first served, synchronous, block counts, one group, no caching; requests take turns among
servers by their row.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from simulator.link_spec import LinkSpec
from simulator.members import Member
from simulator.step_time.linear import LinearStepTime
from workloads.workload import Workload


def cd(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(eq=False)
class Req:
    row: int
    prompt: int
    max_out: int
    external: int
    out: int = 0
    comp: int = 0
    blocks: int = 0
    status: str = "WAITING"
    received: bool = False
    admitted: int = -1
    first_token: int = -1

    @property
    def tok(self) -> int:
        return self.prompt + self.out


@dataclass(eq=False)
class Server:
    """``now``: when its next pass is due; idle: it has nothing to compute before something comes."""

    member: Member
    number: int
    keeps_kv: bool  # a prefill server: the blocks stay when a request ends
    ended: Callable[[Req, int], None]
    waiting: list[Req] = field(default_factory=list)
    skipped: list[Req] = field(default_factory=list)
    running: list[Req] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)  # blocks that come back at the next pass
    asked: list[Req] = field(default_factory=list)  # of the last pass
    passes: list[tuple[int, list[tuple[int, int]], int]] = field(default_factory=list)
    preemptions: int = 0
    now: int = 0
    idle: bool = True

    def __post_init__(self) -> None:
        self.free = self.member.pool.num_gpu_blocks - 1  # type: ignore[union-attr]
        self.size = self.member.pool.block_size  # type: ignore[union-attr]

    def allocate(self, r: Req, total: int, reserved: int, waits: bool) -> bool:
        """``KVCacheManager.allocate_slots`` so that ``total`` tokens have slots."""
        e = self.member.engine
        kept = 0
        if waits and self.running:
            kept = int(e.watermark * self.member.pool.num_gpu_blocks)  # type: ignore[union-attr]
        if waits and e.scheduler_reserve_full_isl:
            full = max(0, cd(min(r.tok, e.max_model_len), self.size) - r.blocks)
            if full + kept > self.free:
                return False
        need = max(0, cd(min(total, e.max_model_len), self.size) - r.blocks)
        if need + kept > self.free - reserved:
            return False
        self.free -= need
        r.blocks += need
        return True

    def one_pass(self) -> None:
        """A pass at ``now``; its step runs until the new ``now``."""
        e = self.member.engine
        for blocks in self.returned:
            self.free += blocks
        self.returned, self.asked = [], []
        budget = e.max_num_batched_tokens
        requests = len(self.running) + len(self.waiting) + sum(r.received for r in self.skipped)
        cap = e.long_prefill_token_threshold if requests > 1 else 0
        given: dict[int, int] = {}
        preempted = False
        for r in list(self.running):
            if budget == 0:
                break
            if r not in self.running:
                continue
            n = r.tok - r.comp
            n = min(cap, n) if cap else n
            n = min(n, budget)
            while not self.allocate(r, r.comp + n, 0, False):
                victim = self.running.pop()
                budget += given.pop(victim.row, 0)
                self.free += victim.blocks
                victim.blocks = victim.comp = 0
                victim.status = "PREEMPTED"
                self.waiting.insert(0, victim)
                self.preemptions += 1
                preempted = True
                if victim is r:
                    break
            else:
                given[r.row] = n
                budget -= n
        if not preempted:
            self.phase_b(budget, cap, given)
        self.step(given, preempted)

    def phase_b(self, budget: int, cap: int, given: dict[int, int]) -> None:
        e = self.member.engine
        step_skipped: list[Req] = []
        while (self.skipped or self.waiting) and budget > 0:
            if len(self.running) == e.running_limit:
                break
            queue = self.skipped or self.waiting
            r = queue[0]
            if r.status == "WAITING_FOR_REMOTE_KVS":
                if not r.received:
                    step_skipped.append(queue.pop(0))
                    continue
                r.status = "WAITING"
                if r.comp == r.tok:
                    r.comp -= 1
            load = False
            computed = r.comp
            if r.comp == 0 and r.external:
                load, computed = True, r.external
                r.external = 0  # one transfer a request
            if load:
                n = 0
            else:
                n = r.tok - computed
                n = min(cap, n) if cap else n
                if not e.enable_chunked_prefill and n > budget:
                    break
                n = min(n, budget)
            reserved = 0
            if load:
                reserved = sum(
                    cd(o.tok, self.size) - o.blocks for o in self.running if o.comp + given.get(o.row, 0) < o.tok
                )
            if not self.allocate(r, computed + n, reserved, True):
                if load:
                    r.external = computed
                break
            queue.pop(0)
            if load:
                r.status, r.comp = "WAITING_FOR_REMOTE_KVS", computed
                step_skipped.append(r)
                self.asked.append(r)
                continue
            self.running.append(r)
            r.status, r.comp = "RUNNING", computed
            if r.admitted < 0:
                r.admitted = self.now
            given[r.row] = n
            budget -= n
        self.skipped = step_skipped + self.skipped

    def step(self, given: dict[int, int], preempted: bool) -> None:
        begin = self.now
        ran = [r for r in self.running if r.row in given]
        for r in ran:
            r.comp += given[r.row]
        self.idle = not given and not preempted
        if self.idle:
            return
        t = self.member.step_time
        assert isinstance(t, LinearStepTime)
        tokens = sum(given.values())
        duration = t.base_ps + t.per_token_ps * tokens + t.per_context_token_ps * sum(r.comp for r in ran)
        if not given:
            duration = 1_000_000_000
        self.passes.append((begin, [(r.row, given[r.row]) for r in ran], self.free))
        self.now += duration
        for r in ran:
            if r.comp < r.tok:
                continue
            r.out += 1
            if r.out == 1:
                r.first_token = self.now
            if r.out == r.max_out:
                self.running.remove(r)
                if not self.keeps_kv:
                    self.free += r.blocks
                self.ended(r, self.now)


class DisaggregationTwin:
    """``finished``: row to (prefilled, asked, loaded, admitted, first token, end)."""

    def __init__(self, prefill: list[Member], decode: list[Member], link: LinkSpec, bytes_per_token: int) -> None:
        self.link, self.bytes_per_token = link, bytes_per_token
        self.prefill = [Server(m, i, True, self.prefilled) for i, m in enumerate(prefill)]
        self.decode = [Server(m, len(prefill) + i, False, self.done) for i, m in enumerate(decode)]
        self.wire_free = [0] * len(prefill)
        self.events: list[tuple[int, int, int, Callable[[], None]]] = []
        self.count = 0
        self.at: dict[int, list[int]] = {}
        self.kept: dict[int, tuple[Server, Req]] = {}
        self.outputs: list[int] = []

    def later(self, time: int, row: int, action: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.events, (time, row, self.count, action))

    def run(self, workload: Workload) -> None:
        self.outputs, prefill = workload.output_tokens.tolist(), self.prefill
        for row, (time, prompt) in enumerate(
            zip(workload.arrival_ps.tolist(), workload.prompt_tokens.tolist(), strict=True)
        ):
            self.later(time, row, partial(self.queue, self.prefill[row % len(prefill)], Req(row, prompt, 1, 0), time))
        servers = [*self.prefill, *self.decode]
        while True:
            busy = [s for s in servers if not s.idle]
            due = min(busy, key=lambda s: (s.now, s.number), default=None)
            if self.events and (due is None or self.events[0][0] <= due.now):
                heapq.heappop(self.events)[3]()
            elif due is not None:
                due.one_pass()
                now = due.passes[-1][0] if not due.idle else due.now
                for r in sorted(due.asked, key=lambda r: r.row):
                    self.ask(r, now)
            else:
                return

    def queue(self, server: Server, request: Req, time: int) -> None:
        server.waiting.append(request)
        self.wake(server, time)

    def wake(self, server: Server, time: int) -> None:
        if server.idle:
            server.idle, server.now = False, time

    def prefilled(self, r: Req, time: int) -> None:
        self.at[r.row] = [time]
        self.kept[r.row] = (self.prefill[r.row % len(self.prefill)], r)
        server = self.decode[r.row % len(self.decode)]
        request = Req(r.row, r.prompt, self.outputs[r.row], r.prompt)
        self.later(time, r.row, lambda: self.queue(server, request, time))

    def ask(self, r: Req, time: int) -> None:
        sender = r.row % len(self.prefill)
        begin = max(self.wire_free[sender], time)
        self.wire_free[sender] = begin + self.link.wire_ps(r.prompt * self.bytes_per_token)
        there = self.wire_free[sender] + self.link.latency_ps
        self.at[r.row] += [time, there]
        self.later(there, r.row, lambda: self.loaded(r, there))

    def loaded(self, r: Req, time: int) -> None:
        server, before = self.kept.pop(r.row)
        server.returned.append(before.blocks)
        self.wake(server, time)
        r.received = True
        self.wake(self.decode[r.row % len(self.decode)], time)

    def done(self, r: Req, time: int) -> None:
        self.at[r.row] += [r.admitted, r.first_token, time]

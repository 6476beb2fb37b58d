"""vLLM v0's default mode written again, plainly: lists of requests, a table a sequence, one step at a time.

It follows SCHEDULERS.md 9.1 and shares nothing with the simulator but the ``BlockPool`` under its tables (forks and
copies by ``PagedAllocator``). Arrivals, parallel samples, recompute and swap; every step is compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from simulator.allocators.paged import PagedAllocator
from simulator.allocators.pools import PagedPool
from simulator.cluster import simulate
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.policies import VllmV0Policy
from simulator.step_time.linear import LinearStepTime
from tests.expand import steps_of
from workloads.workload import Workload

MS = 1_000_000_000
BASE, PER_TOKEN, PER_SWAPPED_BLOCK = 5 * MS, 40_000_000, 700_000_000
EMPTY = MS


@dataclass
class Group:
    row: int
    arrival: int
    prompt: int
    output: int
    n: int
    out: int = 0
    cpu_blocks: int = 0
    parked: list[int] = field(default_factory=list)  # of a swapped group: stored tokens of its sequences

    @property
    def known(self) -> int:
        return self.prompt + self.out


class Server:
    def __init__(self, blocks: int, size: int, watermark: int, budget: int, seqs: int, swap: bool) -> None:
        self.memory = PagedAllocator(blocks, size)
        self.blocks, self.size, self.watermark, self.budget, self.seqs, self.swap = (
            blocks, size, watermark, budget, seqs, swap,
        )  # fmt: skip
        self.waiting: list[Group] = []
        self.running: list[Group] = []
        self.swapped: list[Group] = []
        self.now = 0
        self.steps: list[tuple[int, int, int, int]] = []  # start, duration, tokens, blocks in use
        self.finish: dict[int, int] = {}
        self.moved = 0

    @property
    def free(self) -> int:
        return self.memory.pool.free_blocks

    def sequences(self) -> int:
        return sum(group.n for group in self.running)

    def prefills(self) -> list[Group]:
        new: list[Group] = []
        tokens = 0
        while self.waiting and not self.swapped:
            group = self.waiting[0]
            need = -(-group.known // self.size)
            if self.free - need < self.watermark or tokens + group.known > self.budget:
                break
            if self.sequences() + sum(other.n for other in new) + group.n > self.seqs:
                break
            self.memory.add((group.row, 0), group.known, 100_000)
            tokens += group.known
            new.append(self.waiting.pop(0))
        return new

    def preempt(self, group: Group) -> None:
        names = [name for name in self.memory.requests() if name[0] == group.row]  # type: ignore[index]
        distinct = {block for name in names for block in self.memory.tables[name]}
        if group.n > 1 or self.swap:
            group.cpu_blocks = len(distinct)
            group.parked = [self.memory.tokens(name) for name in names]
            self.swapped.append(group)
            self.moved += len(distinct)
        else:
            self.waiting.insert(0, group)
        for name in names:
            self.memory.free(name)

    def append(self, group: Group) -> None:
        for i in range(1, group.n):
            if (group.row, i) not in self.memory.tables:
                self.memory.fork((group.row, 0), (group.row, i))
        for i in range(group.n):
            self.memory.append((group.row, i))

    def decode(self) -> bool:
        """A token for each running sequence; whether somebody was preempted."""
        queue = sorted(self.running, key=lambda group: (group.arrival, group.row))
        self.running = []
        preempted = False
        while queue:
            group = queue.pop(0)
            while self.free < group.n:
                preempted = True
                victim = queue.pop() if queue else group
                self.preempt(victim)
                if victim is group:
                    break
            else:
                self.append(group)
                self.running.append(group)
        return preempted

    def bring_back(self) -> None:
        self.swapped.sort(key=lambda group: (group.arrival, group.row))
        while self.swapped:
            group = self.swapped[0]
            if self.free - group.cpu_blocks - group.n < self.watermark or self.sequences() + group.n > self.seqs:
                return
            self.swapped.pop(0)
            stored = group.parked[0]
            shared = group.prompt if stored > group.prompt else stored
            self.memory.add((group.row, 0), shared, 100_000)
            for i in range(1, group.n if stored > group.prompt else 1):
                self.memory.fork((group.row, 0), (group.row, i))
            for _ in range(stored - shared):
                for i in range(group.n):
                    self.memory.append((group.row, i))
            self.moved += group.cpu_blocks
            self.append(group)
            self.running.append(group)

    def step(self) -> None:
        self.moved = 0
        new = self.prefills()
        if new:
            active, tokens = new, sum(group.known for group in new)
            self.running += new
        else:
            if not self.decode():
                self.bring_back()
            active, tokens = self.running, self.sequences()
        duration = (BASE + PER_TOKEN * tokens if tokens else EMPTY) + PER_SWAPPED_BLOCK * self.moved
        self.steps.append((self.now, duration, tokens, self.blocks - self.free))
        self.now += duration
        for group in list(active):
            group.out += 1
            if group.out == group.output:
                self.finish[group.row] = self.now
                self.running.remove(group)
                for name in [name for name in self.memory.requests() if name[0] == group.row]:  # type: ignore[index]
                    self.memory.free(name)

    def serve(self, groups: list[Group]) -> None:
        while groups or self.waiting or self.running or self.swapped:
            if not (self.waiting or self.running or self.swapped):
                self.now = max(self.now, groups[0].arrival)
            while groups and groups[0].arrival <= self.now:
                self.waiting.append(groups.pop(0))
            self.step()


@pytest.mark.parametrize("seed", range(60))
def test_every_step_is_that_of_the_plain_server(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, size = int(random.integers(1, 25)), int(random.choice([1, 4, 16]))
    several = bool(random.integers(2))
    arrivals = np.sort(random.integers(0, 200, n)) * MS + np.arange(n)
    prompts, outputs = random.integers(1, 60, n), random.integers(1, 40, n)
    counts = random.integers(1, 5, n) if several else np.ones(n, dtype=np.int64)
    blocks, budget, seqs = int(random.integers(10, 20 + 400 // size)), int(random.integers(100, 200)), 12
    swap = bool(random.integers(2))
    policy = VllmV0Policy(
        "swap" if swap else "auto", swap_blocks=100 * blocks, swap_ps_per_block=PER_SWAPPED_BLOCK, watermark=0.05
    )
    engine = EngineConfig(256, seqs, budget, enable_chunked_prefill=False, policy=policy)
    load = Workload.from_columns(arrivals, prompts, outputs, sequences=counts)
    log = simulate(load, engine, PagedPool(blocks, size, null_block=False), LinearStepTime(BASE, PER_TOKEN, 0))
    table = log.request_columns()
    taken = [row for row in range(n) if table["status"][row] == 0]
    server = Server(blocks, size, int(0.05 * blocks), budget, seqs, swap)
    server.serve([Group(r, int(arrivals[r]), int(prompts[r]), int(outputs[r]), int(counts[r])) for r in taken])
    steps = steps_of(log.replicas[0])
    mine = [(s["start_ps"], s["duration_ps"], s["tokens"], s["used_slots"] // size) for s in steps]
    assert mine == server.steps
    assert {row: int(table["finish_ps"][row]) for row in taken} == server.finish

"""Run logs for tests of metrics and reports, from a small and slow server that goes token by token.

It is no copy of the engine: one first-come queue, one prompt chunk at a time, recompute preemption of the last.
``server_log`` writes a row per step; ``merged`` joins rows into leaps wherever a leap means the same steps.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

import numpy as np

from simulator.run_log import (
    NOT_YET,
    REQUEST_COLUMNS,
    SEGMENT_COLUMNS,
    HeadWait,
    PoolFacts,
    ReplicaLog,
    RunLog,
    Status,
)
from workloads.workload import Workload


@dataclass(frozen=True)
class Server:
    """Sizes and speeds; ``reserve`` slots a request make the pool contiguous."""

    blocks: int = 20
    block_size: int = 4
    max_num_seqs: int = 4
    budget: int = 16
    base_ps: int = 6_000_000_000
    per_token_ps: int = 50_000_000
    per_context_ps: int = 26_000
    reserve: int | None = None
    replicas: int = 1
    bytes_per_token: int = 131_072
    end_ps: int | None = None

    @property
    def slots(self) -> int:
        return self.blocks * self.block_size

    def pool(self) -> PoolFacts:
        if self.reserve is None:
            return PoolFacts("paged", self.block_size, self.blocks + 1, self.slots, self.bytes_per_token)
        return PoolFacts("contiguous", 1, self.slots, self.slots, self.bytes_per_token)


@dataclass
class _Job:
    row: int
    arrival: int
    prompt: int
    output: int
    computed: int = 0
    generated: int = 0
    scheduled: int = NOT_YET
    first: int = NOT_YET
    finish: int = NOT_YET
    token_at: int = NOT_YET
    token_step: int = -9
    preemptions: int = 0
    recomputed: int = 0
    preempted_ps: int | None = None
    held_from: int = 0
    most_computed: int = 0

    @property
    def known(self) -> int:
        return self.prompt + self.generated


@dataclass
class Truth:
    """What the server saw, for comparison: every gap, ps, and per step (start, end, running, stored, used)."""

    gaps: list[int] = field(default_factory=list)
    steps: list[tuple[int, int, int, int, int]] = field(default_factory=list)


class _Replica:
    def __init__(self, server: Server, jobs: list[_Job], truth: Truth) -> None:
        self.server, self.truth = server, truth
        self.log = ReplicaLog(server.pool())
        self.coming = sorted(jobs, key=lambda job: (job.arrival, job.row))
        self.waiting: list[_Job] = []
        self.running: list[_Job] = []
        self.done: list[_Job] = []
        self.now = self.step = 0

    def held(self, job: _Job, tokens: int) -> int:
        if self.server.reserve is not None:
            return self.server.reserve
        return -(-tokens // self.server.block_size) * self.server.block_size

    def used(self, planned: dict[int, int]) -> int:
        return sum(self.held(job, job.computed + planned.get(job.row, 0)) for job in self.running)

    def run(self) -> None:
        while self.coming or self.waiting or self.running:
            if not self.waiting and not self.running:
                self.now = max(self.now, self.coming[0].arrival)
            while self.coming and self.coming[0].arrival <= self.now:
                self.waiting.append(self.coming.pop(0))
            if self.server.end_ps is not None and self.now >= self.server.end_ps:
                return
            planned, cause = self.plan()
            if planned:
                self.do(planned, cause)

    def plan(self) -> tuple[dict[int, int], HeadWait]:
        planned: dict[int, int] = {}
        budget, preempted, index = self.server.budget, False, 0
        while index < len(self.running):
            job = self.running[index]
            tokens = min(job.known - job.computed, budget)
            while self.used(planned | {job.row: tokens}) > self.server.slots:
                victim = self.running.pop()
                budget += planned.pop(victim.row, 0)
                self.preempt(victim)
                preempted = True
                if victim is job:
                    break
            if job in self.running:
                if tokens:
                    planned[job.row] = tokens
                budget -= tokens
                index += 1
        if preempted:
            return planned, HeadWait.PREEMPTION
        return planned, self.admit(planned, budget)

    def admit(self, planned: dict[int, int], budget: int) -> HeadWait:
        while self.waiting:
            if len(self.running) >= self.server.max_num_seqs:
                return HeadWait.MAX_NUM_SEQS
            if budget <= 0:
                return HeadWait.TOKEN_BUDGET
            job = self.waiting[0]
            tokens = min(job.known, budget)
            if self.used(planned) + self.held(job, tokens) > self.server.slots:
                return HeadWait.KV_MEMORY
            self.waiting.pop(0)
            self.running.append(job)
            planned[job.row] = tokens
            budget -= tokens
            job.held_from = self.now
            if job.scheduled == NOT_YET:
                job.scheduled = self.now
            if job.preempted_ps is not None:
                self.log.requeues.extend((job.row, job.preempted_ps, self.now))
                job.preempted_ps = None
        return HeadWait.NOBODY_WAITS

    def preempt(self, job: _Job) -> None:
        job.preemptions += 1
        self.let_go(job)
        job.preempted_ps = self.now
        job.computed = 0
        self.waiting.insert(0, job)

    def let_go(self, job: _Job) -> None:
        if self.server.reserve is not None:
            final = job.prompt + job.output - 1
            self.log.holds.extend((job.row, job.held_from, self.now, self.server.reserve, final))

    def do(self, planned: dict[int, int], cause: HeadWait) -> None:
        server, active = self.server, [job for job in self.running if job.row in planned]
        used = self.used(planned)
        decodes = [job for job in active if job.generated and planned[job.row] == 1 and job.computed + 1 == job.known]
        sampled = [job for job in active if job.computed + planned[job.row] == job.known]
        regular = sum(job.token_step == self.step - 1 for job in decodes)
        for job in active:
            before = job.computed
            job.computed += planned[job.row]
            job.recomputed += max(0, min(job.computed, job.most_computed) - before)
            job.most_computed = max(job.most_computed, job.computed)
        stored, tokens = sum(job.computed for job in self.running), sum(planned.values())
        context = sum(job.computed for job in active)
        duration = server.base_ps + server.per_token_ps * tokens + server.per_context_ps * context
        end = self.now + duration
        self.truth.steps.append((self.now, end, len(self.running), stored, used))
        row = (self.step, 1, self.now, duration, server.per_context_ps * len(decodes), tokens, len(decodes))
        row += (len(sampled), regular, context, len(self.running), stored, used, int(cause))
        self.log.segments.extend((*row, 0, len(self.log.growth_blocks)))
        self.now = end
        for job in sampled:
            self.sample(job, regular=job in decodes and job.token_step == self.step - 1)
        self.step += 1

    def sample(self, job: _Job, regular: bool) -> None:
        if job.token_at == NOT_YET:
            job.first = self.now
        else:
            self.truth.gaps.append(self.now - job.token_at)
            if not regular:
                self.log.irregular_gaps_ps.append(self.now - job.token_at)
        job.token_at, job.token_step = self.now, self.step
        job.generated += 1
        if job.generated == job.output:
            job.finish = self.now
            self.running.remove(job)
            self.done.append(job)
            self.let_go(job)


def server_log(workload: Workload, server: Server) -> tuple[RunLog, Truth]:
    """Serves a workload; requests go to replicas in turn."""
    truth, log = Truth(), RunLog(workload, [])
    log.reasons.append("needs more slots than the pool has")
    jobs = [
        _Job(row, int(a), int(p), int(o))
        for row, (a, p, o) in enumerate(
            zip(workload.arrival_ps, workload.prompt_tokens, workload.output_tokens, strict=True)
        )
    ]
    limit = server.slots if server.reserve is None else server.reserve * (server.reserve <= server.slots)
    fits = [job for job in jobs if job.prompt + job.output - 1 <= limit]
    replicas = [_Replica(server, fits[i :: server.replicas], truth) for i in range(server.replicas)]
    for replica in replicas:
        replica.run()
        log.replicas.append(replica.log)
    log.end_ps = max([replica.now for replica in replicas] + [job.arrival for job in jobs])
    if server.end_ps is not None:
        log.status = "max_steps"
    for job in jobs:
        if job not in fits:
            _end(log, job, 0, Status.REJECTED)
    for number, replica in enumerate(replicas):
        replica.log.replica = number
        for job in replica.done:
            _end(log, job, number, Status.FINISHED)
        for job in replica.waiting + replica.running:
            if job.preempted_ps is not None:
                replica.log.requeues.extend((job.row, job.preempted_ps, NOT_YET))
            elif job in replica.running and server.reserve is not None:
                replica.log.holds.extend((job.row, job.held_from, NOT_YET, server.reserve, job.prompt + job.output - 1))
            _end(log, job, number, Status.UNFINISHED)
    return log, truth


def _end(log: RunLog, job: _Job, replica: int, status: Status) -> None:
    reason = 1 if status == Status.REJECTED else 0
    times = (job.arrival, job.scheduled, job.first, job.finish)
    row = (job.row, replica, *times, job.generated, job.preemptions, 0, job.recomputed, int(status), reason)
    assert len(row) == len(REQUEST_COLUMNS)
    log.requests.extend(row)


def merged(log: RunLog, seed: int, chance: float = 0.9) -> RunLog:
    """The same run with steps joined into leaps, each possible join made with ``chance``."""
    rng = random.Random(seed)
    replicas = []
    for replica in log.replicas:
        other = ReplicaLog(replica.pool, replica=replica.replica)
        other.irregular_gaps_ps = replica.irregular_gaps_ps
        other.requeues, other.holds = replica.requeues, replica.holds
        rows = np.array(replica.segments, dtype=np.int64).reshape(-1, len(SEGMENT_COLUMNS)).tolist()
        leap: list[dict[str, int]] = []
        for values in rows:
            row = dict(zip(SEGMENT_COLUMNS, values, strict=True))
            if leap and not (_continues(leap, row) and rng.random() < chance):
                _write(other, leap)
                leap = []
            leap.append(row)
        if leap:
            _write(other, leap)
        replicas.append(other)
    return RunLog(log.workload, replicas, log.requests, log.reasons, log.status, log.end_ps, log.limits)


def _continues(leap: list[dict[str, int]], row: dict[str, int]) -> bool:
    last = leap[-1]
    same = ("tokens", "decodes", "sampled", "running", "head_wait", "saved_slots")
    if last["start_ps"] + last["duration_ps"] != row["start_ps"] or any(last[name] != row[name] for name in same):
        return False
    if len(leap) > 1 and row["duration_ps"] - last["duration_ps"] != last["duration_ps"] - leap[-2]["duration_ps"]:
        return False
    moving = ("context", "stored_tokens")
    pure = row["tokens"] == row["decodes"] == row["regular"]
    return pure and all(row[name] - last[name] == row["decodes"] for name in moving)


def _write(replica: ReplicaLog, leap: list[dict[str, int]]) -> None:
    first = dict(leap[0])
    size = max(replica.pool.block_size, 1)
    first["steps"] = len(leap)
    if len(leap) > 1:
        first["growth_ps"] = leap[1]["duration_ps"] - leap[0]["duration_ps"]
    first["growth_at"] = len(replica.growth_blocks)
    replica.segments.extend(first[name] for name in SEGMENT_COLUMNS)
    if replica.pool.kind == "paged":
        for before, after in itertools.pairwise(leap[: size + 1]):
            replica.growth_blocks.append((after["used_slots"] - before["used_slots"]) // size)


def random_workload(seed: int, requests: int, gap_ps: int, longest: int) -> Workload:
    """Random arrivals and lengths, all small."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.integers(0, 2 * gap_ps + 1, requests))
    prompts, outputs = rng.integers(1, longest + 1, (2, requests))
    return Workload.from_columns(arrivals, prompts, outputs)

"""The pipelined replica against the vLLM twin's scheduler behind vLLM's batch queue, pass by pass.

The twin's scheduler counts in-flight tokens of its own (tests/differential/vllm_twin_scheduler.py); the queue below is
``EngineCore.step_with_batch_queue`` in plain words, and shares no line with ``simulator.pipeline``.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

import simulator.pipeline
from simulator.allocators.pools import KvGroupShape, PagedPool
from simulator.cluster import simulate
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.pipelined_prefill import PipelinedPrefill
from simulator.schedulers.plan import Plan
from simulator.step_time.linear import LinearStepTime
from simulator.step_time.pipeline import PipelinedStepTime, StageTransfer
from tests.differential.vllm_twin import _Tokens
from tests.differential.vllm_twin_blocks import TwinRequest
from tests.differential.vllm_twin_scheduler import Pass, TwinScheduler
from tests.vllm_cases_random import random_case
from workloads.workload import Workload

SEEDS = 25
MOST_PASSES = 1200
EMPTY_STEP_PS = 1_000_000_000

Told = tuple[int, dict[str, int], list[str], list[str]]
"""A pass that computes or preempts something: (time, id -> tokens, admitted, preempted)."""


@dataclass
class Queued:
    done: Pass
    end_ps: int


@dataclass
class TwinPipeline:
    """Requests of a recorded-case format through stages of (base, per token, per context token) picoseconds."""

    config: dict[str, Any]
    requests: list[dict[str, Any]]
    stages: list[tuple[int, int, int]]
    transfer_ps: int
    passes: list[Told] = field(default_factory=list)
    finished: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        scheduler, tokens, size = TwinScheduler(self.config), _Tokens(), len(self.stages)
        scheduler.cache.in_flight_limit *= size
        arrivals = deque(sorted(self.requests, key=lambda row: row["arrival_ps"]))
        queue: deque[Queued] = deque()
        free = [0] * size
        now = 0
        while len(self.passes) < MOST_PASSES:
            while arrivals and arrivals[0]["arrival_ps"] <= now:
                row = arrivals.popleft()
                scheduler.add(TwinRequest(row, row["arrival_ps"], tokens.prompt(row)))
            if scheduler.busy:
                done = scheduler.schedule()
                under_way = any(batch.end_ps > now or batch.done.scheduled for batch in queue)
                if done.scheduled or done.preempted:
                    self.passes.append((now, dict(done.scheduled), [name for name, _ in done.admitted], done.preempted))
                if not done.scheduled and not under_way:
                    queue.clear()
                    if done.preempted:
                        now += EMPTY_STEP_PS
                        continue
                    if not arrivals:  # nothing can change before the next one
                        return
                    now = max(now, arrivals[0]["arrival_ps"])
                    continue
                queue.append(Queued(done, self._send(done, free, now, queue, scheduler)))
                if len(queue) < size:
                    continue
            elif not queue:
                if not arrivals:
                    return
                now = max(now, arrivals[0]["arrival_ps"])
                continue
            batch = queue.popleft()
            now = max(now, batch.end_ps)
            for name in scheduler.complete(batch.done, tokens.output):
                self.finished[name] = now

    def _send(self, done: Pass, free: list[int], now: int, queue: deque[Queued], scheduler: TwinScheduler) -> int:
        """When the batch leaves the last stage; an empty one leaves it with the one before."""
        if not done.scheduled:
            return queue[-1].end_ps
        new = sum(done.scheduled.values())
        context = sum(scheduler.by_id[name].computed for name in done.scheduled)
        at = now
        for stage, (base, per_token, per_context) in enumerate(self.stages):
            free[stage] = max(at, free[stage]) + base + per_token * new + per_context * context
            at = free[stage] + self.transfer_ps
        return free[-1]


class RecordedPrefill(PipelinedPrefill):
    """Notes its passes as ``TwinPipeline`` does."""

    passes: list[Told]
    names: list[str]

    def schedule(self, step: int, now_ps: int) -> Plan:
        plan = super().schedule(step, now_ps)
        self.check(step)
        given = {self.names[request.row]: 1 for request in self.decodes}
        given |= {self.names[request.row]: tokens for request, tokens in plan.chunks}
        if given or plan.preempted:
            admitted, preempted = ([self.names[r.row] for r in who] for who in (plan.admitted, plan.preempted))
            self.passes.append((now_ps, given, admitted, preempted))
        return plan


def ours(
    config: dict[str, Any], requests: list[dict[str, Any]], stages: list[tuple[int, int, int]], transfer_ps: int
) -> tuple[list[Told], dict[str, int]]:
    workload = Workload.from_columns(
        [row["arrival_ps"] for row in requests],
        [row["prompt_len"] for row in requests],
        [row["output_len"] for row in requests],
        priority=[row.get("priority") or 0 for row in requests],
        segments=[
            tuple((stream, start, length) for stream, start, length in row["segments"] if length)
            if row.get("segments") is not None
            else None
            for row in requests
        ],
        request_ids=[row["id"] for row in requests],
    ).sorted_by_arrival()
    assert workload.request_ids is not None
    shared = ("max_model_len", "max_num_seqs", "max_num_active_seqs", "max_num_batched_tokens", "watermark")
    chosen = ("enable_chunked_prefill", "long_prefill_token_threshold", "long_prefill_token_threshold_adaptive")
    more = ("scheduler_reserve_full_isl", "prefill_schedule_interval", "enable_prefix_caching")
    last = ("prefix_cache_retention_interval",)
    engine = EngineConfig(
        **{name: config[name] for name in (*shared, *chosen, *more, *last)},
        scheduling_policy=config["policy"],
        on_unservable="faithful",
    )
    groups = tuple(
        KvGroupShape(group.get("block_size", config["block_size"]), group.get("window"))
        for group in config["kv_groups"] or ()
    )
    RecordedPrefill.passes, RecordedPrefill.names = [], list(workload.request_ids)
    log = simulate(
        workload,
        engine,
        PagedPool(config["num_gpu_blocks"], config["block_size"], groups=groups),
        PipelinedStepTime(tuple(LinearStepTime(*stage) for stage in stages), StageTransfer(transfer_ps)),
        max_steps=MOST_PASSES,
    )
    table = log.request_columns()
    finished = {
        workload.request_ids[row]: int(time)
        for row, time, status in zip(table["row"], table["finish_ps"], table["status"], strict=True)
        if status == 0
    }
    return RecordedPrefill.passes, finished


def compare(kind: str, seeds: range) -> None:
    """Raises AssertionError at the first pass that differs."""
    overlaps = preempted = 0
    for seed in seeds:
        config, rows = random_case(seed, kind)
        rng = random.Random(seed)
        config["async_scheduling"] = False
        requests = [
            row | {"arrival_ps": row["arrival_ns"] * 1000}
            for row in rows
            if row["prompt_len"] < config["max_model_len"]
        ]
        ms = 1_000_000_000
        stages = [
            (rng.choice([1, 2, 5]) * ms, rng.choice([0, 50_000_000]), rng.choice([0, 100_000]))
            for _ in range(rng.randint(2, 4))
        ]
        transfer_ps = rng.choice([0, ms])
        twin = TwinPipeline(config, requests, stages, transfer_ps)
        twin.run()
        passes, finished = ours(config, requests, stages, transfer_ps)
        for number, (mine, theirs) in enumerate(zip(passes, twin.passes, strict=False)):
            assert mine == theirs, f"{kind} {seed}, pass {number}"
        if max(len(passes), len(twin.passes)) < MOST_PASSES:
            assert len(passes) == len(twin.passes), f"{kind} {seed}"
            assert finished == twin.finished, f"{kind} {seed}"
        preempted += sum(len(told[3]) for told in passes)
        overlaps += len(passes)
    assert overlaps > 10 * len(seeds)
    assert preempted


@pytest.mark.parametrize("kind", ["full", "swa", "hybrid", "mixed"])
def test_every_pass_is_the_twins(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator.pipeline, "PipelinedPrefill", RecordedPrefill)
    compare(kind, range(SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "swa", "hybrid", "mixed"])
def test_every_pass_is_the_twins_in_many_cases(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough of them for what is rare, such as a preemption just when a block is full."""
    monkeypatch.setattr(simulator.pipeline, "PipelinedPrefill", RecordedPrefill)
    compare(kind, range(SEEDS, 400))

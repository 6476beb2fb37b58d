"""TensorRT-LLM's two schedulers as its C++ has them, list by list and slowly, against ours, pass by pass.

Read in capacityScheduler.cpp, microBatchScheduler.cpp and kvCacheManager.cpp (getRemainingBlocksToCompletion,
getNeededBlocksOneStep); one beam, no window, no block reuse, one micro-batch in flight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simulator.cluster
from simulator.request import Request, RequestState
from simulator.schedulers.plan import Plan
from simulator.schedulers.policies import TrtLlmPolicy
from simulator.schedulers.trtllm import TrtLlm
from tests.policy_cases import paged, policy_cases
from tests.property.test_leaps import run


@dataclass
class TwinRequest:
    """``prompt`` holds the outputs of a paused request; ``position`` of a context is what is computed."""

    row: int
    generating: bool
    started: bool
    prompt: int
    max_new: int
    tokens: int  # in the KV cache
    allocated: int  # blocks
    chunk: int = 0

    @property
    def context_remaining(self) -> int:
        return self.prompt - self.tokens


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def twin_of(request: Request, step: int, block: int) -> TwinRequest:
    generating = request.state is RequestState.DECODING
    started = generating or request.state is RequestState.PREFILLING
    outputs = 0 if generating else request.generated
    prompt = request.prompt_tokens + outputs
    tokens = request.computed_at(step)
    held = ceil_div(tokens if generating else prompt, block) if started else 0
    return TwinRequest(request.row, generating, started, prompt, request.output_tokens - outputs, tokens, held)


def remaining_to_completion(r: TwinRequest, block: int) -> int:
    context_blocks = r.prompt // block
    total_blocks = ceil_div(r.prompt + r.max_new, block)
    if r.allocated < context_blocks:
        return context_blocks - r.allocated + (total_blocks - context_blocks)
    return total_blocks - r.allocated


def needed_one_step(r: TwinRequest, block: int) -> int:
    if r.generating:
        to_add = min(1, r.max_new - (r.tokens - r.prompt))
        return ceil_div(r.tokens + to_add, block) - ceil_div(r.tokens, block)
    return 0 if r.started else r.prompt // block + ceil_div(r.prompt % block, block)


def no_evict(active: list[TwinRequest], free: int, block: int, limit: int, static: bool) -> list[TwinRequest]:
    scheduled: list[TwinRequest] = []
    pending: list[TwinRequest] = []
    for r in active:
        if len(scheduled) >= limit:
            break
        if r.generating:
            scheduled.append(r)
            free -= remaining_to_completion(r, block)
        else:
            pending.append(r)
    if not static or not scheduled:
        for r in pending:
            if len(scheduled) >= limit or remaining_to_completion(r, block) > free:
                break
            scheduled.append(r)
            free -= remaining_to_completion(r, block)
    return scheduled


def max_utilization(
    active: list[TwinRequest], free: int, block: int, limit: int
) -> tuple[list[TwinRequest], list[TwinRequest]]:
    scheduled: list[TwinRequest] = []
    paused: list[TwinRequest] = []
    at, end, taken = 0, len(active), 0
    while at < end:
        r = active[at]
        need = needed_one_step(r, block)
        if len(scheduled) < limit and taken + need <= free:
            taken += need
            scheduled.append(r)
            at += 1
            continue
        started = [i for i in range(at, end) if active[i].started]
        if not started:
            break
        end = started[-1]
        paused.append(active[end])
        free += active[end].allocated
    return scheduled, paused


def micro_batch(
    fits: list[TwinRequest], max_tokens: int, max_batch: int, unit: int | None, policy: str
) -> tuple[list[int], list[tuple[int, int]]]:
    batch_tokens = chunked_tokens = 0
    generation: list[int] = []
    context: list[TwinRequest] = []
    to_chunk: list[TwinRequest] = []
    for size, r in enumerate(fits, 1):
        if r.generating:
            if batch_tokens + 1 > max_tokens:
                break
            generation.append(r.row)
            batch_tokens += 1
        elif unit is None:
            if batch_tokens + r.prompt > max_tokens:
                break
            r.chunk = r.prompt
            context.append(r)
            batch_tokens += r.prompt
        else:
            r.chunk = r.context_remaining
            to_chunk.append(r)
            chunked_tokens += r.chunk
        if size >= max_batch:
            break
    if unit is not None and chunked_tokens > max_tokens - batch_tokens:
        set_chunk_sizes(to_chunk, max_tokens - batch_tokens, unit, policy)
    context += [r for r in to_chunk if r.chunk > 0]
    return generation, [(r.row, r.chunk) for r in context]


def set_chunk_sizes(to_chunk: list[TwinRequest], capacity: int, unit: int, policy: str) -> None:
    if policy == "first_come_first_served":
        for r in to_chunk:
            suggested = r.context_remaining
            r.chunk = min(suggested, capacity)
            if r.chunk != suggested:
                r.chunk = r.chunk // unit * unit
            capacity -= r.chunk
        return
    for r in to_chunk:
        r.chunk = 0
    total, in_a_loop = 0, 1
    while total < capacity and in_a_loop:
        in_a_loop = 0
        for r in to_chunk:
            past = r.chunk
            r.chunk = min(past + unit, r.context_remaining)
            increment = r.chunk - past
            if total + increment > capacity:
                r.chunk = past
                continue
            total += increment
            in_a_loop += increment


class Compared(TrtLlm):
    """Works out the pass beside the twin, and compares."""

    __slots__ = ()

    passes = 0
    pauses = 0

    def schedule(self, step: int, now_ps: int) -> Plan:
        block, config, policy = self.kv.pool.block_size, self.config, self.policy
        line = sorted([*self.running.values(), *self.waiting], key=lambda request: request.seq)
        kept = policy.capacity_scheduler_policy != "max_utilization"
        too_large = {
            r.row for r in line if kept and ceil_div(r.prompt_tokens + r.output_tokens, block) > self.usable_blocks
        }
        active = [twin_of(request, step, block) for request in line if request.row not in too_large]
        paused: list[TwinRequest] = []
        if kept:
            static = policy.capacity_scheduler_policy == "static_batch"
            fits = no_evict(active, self.kv.free_units, block, self.running_limit, static)
        else:
            fits, paused = max_utilization(active, self.kv.free_units, block, self.running_limit)
        unit = block if config.enable_chunked_prefill else None
        generation, context = micro_batch(
            fits, config.max_num_batched_tokens, self.running_limit, unit, policy.context_chunking_policy
        )
        plan = super().schedule(step, now_ps)
        skipped = {request.row for request in plan.skipped}
        decoding = [r.row for r in self.running.values() if r.state is RequestState.DECODING]
        assert sorted(set(decoding) - skipped) == sorted(generation)
        assert [(request.row, chunk) for request, chunk in plan.chunks] == context
        assert [request.row for request in plan.preempted] == [r.row for r in paused]
        type(self).passes += 1
        type(self).pauses += len(paused)
        return plan


def make_compared(config: Any, kv: Any) -> Compared:
    return Compared(config, kv)


@pytest.mark.parametrize("chunking", ["first_come_first_served", "equal_progress"])
@pytest.mark.parametrize("capacity", ["guaranteed_no_evict", "max_utilization", "static_batch"])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_pass_decides_as_the_twin(capacity: Any, chunking: Any, data: st.DataObject) -> None:
    case = data.draw(policy_cases(TrtLlmPolicy(capacity, chunking), [paged]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator.cluster, "make_scheduler", make_compared)
        run(case, stepwise=False)


def test_the_comparison_sees_pauses() -> None:
    """Two requests that outgrow five blocks."""
    from tests.unit.test_trtllm import MAX_UTILIZATION, blocks
    from tests.unit.test_trtllm import run as run_lengths

    Compared.passes = Compared.pauses = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator.cluster, "make_scheduler", make_compared)
        run_lengths(MAX_UTILIZATION, blocks(5), [(7, 6), (8, 6)])
    assert Compared.passes > 4  # a leap is one pass of several steps
    assert Compared.pauses == 1

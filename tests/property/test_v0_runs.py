"""vLLM v0 in random runs with groups, swapping and all its modes: leaps are steps, and nothing is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simulator.cluster
import simulator.inbox
from simulator.allocators.kv_cache import KvCache
from simulator.allocators.pools import PagedPool
from simulator.allocators.sequence_kv import SequenceKv
from simulator.cluster import simulate
from simulator.metrics import summarize
from simulator.request import RequestState
from simulator.run_log import RunLog
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.plan import Plan
from simulator.schedulers.policies import VllmV0Policy
from simulator.schedulers.vllm_v0 import VllmV0
from simulator.step_time.base import UNBOUNDED_STEPS, Batch, Segment
from simulator.step_time.linear import LinearStepTime
from tests.policy_cases import WatchedRequest
from tests.property.test_leaps import assert_same_run, run
from tests.scenarios_random import PS_PER_MS, Case, workloads
from workloads.workload import Workload

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def v0_cases(draw: st.DrawFn, *, groups: bool) -> Case:
    """Up to 40 requests; those of several sequences have a CPU pool that is never full."""
    load = draw(workloads())
    if groups:
        n = len(load)
        load = replace(
            load,
            sequences=np.array(draw(st.lists(st.integers(1, 4), min_size=n, max_size=n)), dtype=np.int64),
            beam=np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=np.bool_),
        )
    block = draw(st.sampled_from([1, 2, 4, 16]))
    blocks = draw(st.integers(6, 12 + 300 // block))
    policy = VllmV0Policy(
        preemption_mode="auto" if groups else draw(st.sampled_from(["auto", "swap", "recompute"])),
        swap_blocks=blocks * 20 if groups else draw(st.sampled_from([0, 3, blocks])),
        swap_ps_per_block=draw(st.sampled_from([0, 300_000_000])),
        watermark=draw(st.sampled_from([0.0, 0.01, 0.1])),
        release=draw(st.sampled_from(["2024", "2023-06"])),
        beam_diversity=draw(st.sampled_from([0.0, 0.5, 1.0])),
    )
    seqs = draw(st.integers(1, 20))
    budget = draw(st.integers(max(seqs, 20), 130))
    engine = EngineConfig(
        draw(st.sampled_from([64, 128, 1024])), seqs, budget, enable_chunked_prefill=draw(st.booleans()), policy=policy
    )
    base, per_token = draw(st.sampled_from([5, 10])) * PS_PER_MS, draw(st.sampled_from([0, 50_000_000]))
    step_time = LinearStepTime(base, per_token, draw(st.sampled_from([0, 100_000])))
    return Case(load, engine, PagedPool(blocks, block, null_block=False), step_time, {"max_steps": 20_000})


def all_accounted_for(case: Case, log: RunLog) -> None:
    assert log.status == "ok"
    table = log.request_columns()
    assert table["row"].tolist() == list(range(len(case.workload)))
    finished = table["status"] == 0
    room = (case.engine.max_model_len - case.workload.prompt_tokens).clip(min=1)
    assert (table["generated_tokens"][finished] == case.workload.output_tokens.clip(max=room)[finished]).all()
    for replica in log.replicas:
        assert replica.swapped_in_blocks == replica.swapped_out_blocks  # the CPU's pool is empty again
    summarize(log)  # Little's law, to the picosecond


@pytest.mark.parametrize("groups", [False, True])
@FEW
@given(st.data())
def test_leaps_are_steps_and_every_request_ends(groups: bool, data: st.DataObject) -> None:
    case = data.draw(v0_cases(groups=groups))
    leaps, steps = run(case, stepwise=False), run(case, stepwise=True)
    assert_same_run(leaps, steps)
    assert summarize(leaps) == summarize(steps)
    all_accounted_for(case, leaps)


class Watched(VllmV0):
    """Looks at itself before and after every pass."""

    __slots__ = ()

    def schedule(self, step: int, now_ps: int) -> Plan:
        self.check(step)
        self.memory_balances(step)
        plan = super().schedule(step, now_ps)
        prompts = sum(chunk for _, chunk in plan.chunks)
        sequences = sum(r.sequences for r in self.running.values() if r.state is RequestState.DECODING)
        assert prompts <= self.config.max_num_batched_tokens
        if self.mixed:
            assert plan.batch.tokens <= self.config.max_num_batched_tokens
        else:
            assert not (plan.chunks and plan.decodes)
            assert plan.batch.tokens == (prompts or sequences)
            assert not (plan.chunks and self.swapped)
        assert self.sequences() <= self.running_limit or self.mixed
        assert not (plan.swapped_out_blocks and plan.swapped_in_blocks)
        return plan

    def memory_balances(self, step: int) -> None:
        """What runs holds exactly what is not free."""
        held = 0
        for request in self.running.values():
            decodes = request.state is RequestState.DECODING
            held += self.kv.held(request, request.computed_at(step)) if decodes else request.held
        assert self.kv.free_units + held == self.kv.usable_blocks


def make_watched(config: EngineConfig, kv: KvCache) -> Watched:
    assert isinstance(kv, SequenceKv)
    return Watched(config, kv)


@FEW
@given(v0_cases(groups=True))
def test_states_sums_and_memory_hold_at_every_pass(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator.inbox, "Request", WatchedRequest)
        patch.setattr(simulator.cluster, "make_scheduler", make_watched)
        all_accounted_for(case, run(case, stepwise=False))


@FEW
@given(v0_cases(groups=False))
def test_swap_and_recompute_give_the_same_tokens(case: Case) -> None:
    """Preemption costs time, never tokens: whoever both modes serve gets as many."""
    tokens = []
    for mode in ("swap", "recompute"):
        policy = replace(VllmV0Policy(), preemption_mode=mode, swap_blocks=2000, swap_ps_per_block=1_000_000)
        log = run(replace(case, engine=replace(case.engine, policy=policy)), stepwise=False)
        all_accounted_for(replace(case, engine=replace(case.engine, policy=policy)), log)
        tokens.append(log.request_columns())
    both = (tokens[0]["status"] == 0) & (tokens[1]["status"] == 0)
    assert (tokens[0]["generated_tokens"][both] == tokens[1]["generated_tokens"][both]).all()
    assert not tokens[0]["recomputed_tokens"].any() or case.engine.enable_chunked_prefill


def test_parallel_samples_save_what_the_prompt_holds() -> None:
    """Ample memory, equal requests: saved / (held + saved) is the ratio of the closed forms, summed over the steps."""
    prompt, output, n, size = 37, 50, 4, 16
    load = replace(
        Workload.from_columns([0] * 5, [prompt] * 5, [output] * 5),
        sequences=np.full(5, n, dtype=np.int64),
    )
    engine = EngineConfig(1024, 64, 1024, enable_chunked_prefill=False, policy=VllmV0Policy())
    log = simulate(load, engine, PagedPool(1000, size), LinearStepTime(PS_PER_MS, 0, 0))
    shared = prompt // size
    held, saved = -(-prompt // size), 0  # the prefill
    for tokens in range(prompt + 1, prompt + output):
        held += shared + n * (-(-tokens // size) - shared)
        saved += (n - 1) * shared
    assert summarize(log)["kv"]["saved_by_sharing_share"] == pytest.approx(saved / (held + saved), rel=1e-12)


def test_the_draws_of_a_search_depend_on_nothing_but_its_name() -> None:
    """The same beams are kept whether the request runs alone or beside others, and again in the next run."""

    def saved(rows: int, name: str) -> int:
        load = replace(
            Workload.from_columns([0] * rows, [20] * rows, [60] * rows),
            sequences=np.full(rows, 4, dtype=np.int64),
            beam=np.full(rows, True),
            request_ids=[name, "x", "y"][:rows],
        )
        engine = EngineConfig(1024, 64, 1024, enable_chunked_prefill=False, policy=VllmV0Policy())
        log = simulate(load, engine, PagedPool(1000, 4), LinearStepTime(PS_PER_MS, 0, 0))
        return int(log.replicas[0].segment_columns()["saved_slots"].sum())

    assert saved(1, "a") == saved(1, "a") != saved(1, "b")
    assert saved(2, "a") - saved(1, "a") == saved(1, "x")


class WindowedTime:
    """A step lasts as long as what the decodes see of the last 20 tokens, and the tokens computed."""

    windows = (20,)

    def segment(self, batch: Batch) -> Segment:
        seen, growing = batch.windowed[0]
        return Segment(PS_PER_MS + 1_000_000 * batch.tokens + 1_000 * seen, 1_000 * growing, UNBOUNDED_STEPS)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(v0_cases(groups=True))
def test_windows_follow_decoders_that_pause_or_come_back(case: Case) -> None:
    """Σ min(context, W) over the sequences that decode, whoever stood still, was swapped out or came back."""
    seen: list[int] = []
    wanted: list[int] = []

    class Timed(WindowedTime):
        def segment(self, batch: Batch) -> Segment:
            seen.append(batch.windowed[0][0])
            return super().segment(batch)

    class Summed(VllmV0):
        __slots__ = ()

        def schedule(self, step: int, now_ps: int) -> Plan:
            plan = super().schedule(step, now_ps)
            if plan.batch.tokens:
                skipped = {request.row for request in plan.skipped}
                running = [r for r in self.running.values() if r.state is RequestState.DECODING and plan.decodes]
                active = [r for r in running if r.row not in skipped]
                wanted.append(sum(min(r.computed_at(step) + 1, 20) * r.sequences for r in active))
            return plan

    def make_summed(config: EngineConfig, kv: KvCache) -> Summed:
        return Summed(config, kv)

    times = []
    for stepwise in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(simulator.cluster, "make_scheduler", make_summed)
            log = simulate(case.workload, case.engine, case.pool, Timed(), stepwise=stepwise, max_steps=20_000)
        assert seen == wanted
        times.append(log.request_columns()["finish_ps"].tolist())
    assert times[0] == times[1]

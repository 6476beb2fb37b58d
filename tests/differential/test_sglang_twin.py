"""Every pass of the simulated SGLang against the plain twin: who runs, how much, who is retracted, what is free."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.allocators.content import TokenContent
from simulator.allocators.pools import PagedPool
from simulator.allocators.radix_kv import RadixKv
from simulator.allocators.token_spans import merged
from simulator.inbox import make_request
from simulator.schedulers.plan import Plan
from simulator.schedulers.policies import SglangPolicy
from simulator.schedulers.running import Scheduler
from simulator.step_time.linear import LinearStepTime
from tests.differential.sglang_twin import STEP_PS, Req, Server, Settings, TwinStep
from tests.policy_cases import watched
from tests.property.test_leaps import run
from tests.property.test_sglang_runs import sglang_cases
from tests.radix_twin import tokens_of
from tests.scenarios_random import Case


def twin_of(case: Case, rows: list[int]) -> Server:
    """The twin, asked to serve the rows that the replica does not turn away."""
    engine, pool, workload = case.engine, case.pool, case.workload
    policy = engine.policy
    assert isinstance(policy, SglangPolicy) and isinstance(pool, PagedPool)
    content = TokenContent(workload)
    requests = []
    for row in rows:
        request = make_request(workload, row, int(workload.arrival_ps[row]), engine.max_model_len)
        path = tokens_of(merged(content.segments(row)))
        requests.append(Req(row, request.arrival_ps, request.prompt_tokens, request.output_tokens, path))
    budget, prompts = engine.max_num_batched_tokens, policy.max_prefill_tokens
    return Server(
        Settings(
            chunk=budget if engine.enable_chunked_prefill else None,
            max_prefill=prompts if engine.enable_chunked_prefill else min(prompts, budget),
            max_running=engine.running_limit,
            conservativeness=policy.schedule_conservativeness,
            ignore_eos=policy.ignore_eos,
            lpm=policy.schedule_policy == "lpm",
            caching=engine.enable_prefix_caching,
            page=pool.block_size,
            pages=pool.num_gpu_blocks,
        ),
        requests,
    )


@pytest.mark.parametrize("caching", [False, True])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_pass_is_the_twins(caching: bool, data: st.DataObject) -> None:
    case = data.draw(sglang_cases(caching=caching))
    plain = replace(
        case.workload, after=case.workload.after * 0 - 1, think_ps=case.workload.think_ps * 0, max_concurrency=None
    )
    case = replace(case, workload=plain, step_time=LinearStepTime(STEP_PS, 0, 0), options={"max_steps": 20_000})
    passes: list[TwinStep] = []

    def note(scheduler: Scheduler, plan: Plan, step: int) -> None:
        if plan.batch.tokens:
            kv = scheduler.kv
            free = kv.free_pages if isinstance(kv, RadixKv) else kv.free_units
            passes.append(
                TwinStep(
                    [(request.row, chunk) for request, chunk in plan.chunks],
                    [] if plan.chunks else [request.row for request in scheduler.batch.values()],  # type: ignore[attr-defined]
                    [request.row for request in plan.preempted],
                    free,
                    kv.free_units - free,
                    scheduler.ratio.current,  # type: ignore[attr-defined]
                )
            )

    with watched(note):
        log = run(case, stepwise=True)
    table = log.request_columns()
    twin = twin_of(case, [row for row, status in zip(table["row"], table["status"], strict=True) if status == 0])
    theirs = twin.serve()
    for number, (mine, other) in enumerate(zip(passes, theirs, strict=True)):
        assert mine == other, number
    assert twin.free + twin.evictable() // case.pool.block_size == case.pool.num_gpu_blocks  # type: ignore[union-attr]

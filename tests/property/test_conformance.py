"""What every system promises, whatever its rules: requests end, nothing is lost, limits hold, memory balances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.metrics import summarize
from simulator.request import RequestState
from simulator.schedulers.plan import Plan
from simulator.schedulers.running import Scheduler
from tests.expand import steps_of
from tests.policy_cases import System, systems, watched
from tests.property.test_leaps import assert_same_run, run

LOOSE_BUDGET = ("request-level", "iteration-level", "vllm-v0", "sglang")
"""Whose ``max_num_batched_tokens`` is a limit of prompt tokens: their decodes are not counted."""
WHOLE_PROMPTS = ("iteration-level", "sglang")
"""Who lets a lone prompt exceed the budget."""

FEW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def limits_hold(scheduler: Scheduler, plan: Plan, step: int) -> None:
    config = scheduler.config
    kind = config.policy.kind
    assert len(scheduler.running) <= config.running_limit
    prompts = sum(chunk for _, chunk in plan.chunks)
    assert all(chunk > 0 for _, chunk in plan.chunks)
    counted = prompts if kind in LOOSE_BUDGET else prompts + plan.decodes
    alone = kind in WHOLE_PROMPTS and len(plan.chunks) == 1
    assert counted <= config.max_num_batched_tokens or alone
    assert plan.batch.tokens == prompts + plan.decodes
    assert plan.batch.sampled == plan.decodes + len(plan.completing)
    assert len({request.seq for request, _ in plan.chunks}) == len(plan.chunks)
    running = scheduler.running.values()
    stored = sum(request.computed_at(step) for request in running)
    assert plan.stored_tokens == stored + plan.decodes
    waiting = list(scheduler.waiting)
    assert all(r.state in (RequestState.WAITING, RequestState.PREEMPTED) for r in waiting)
    assert not {r.row for r in waiting} & {r.row for r in running}
    for request in waiting:
        assert request.computed == 0
        assert request.held == 0 or kind == "vllm-v0"  # swapped out: its blocks lie in the CPU's pool


@pytest.mark.parametrize("system", systems())
@FEW
@given(st.data())
def test_a_run_ends_with_every_request_accounted_for_within_the_limits(system: System, data: st.DataObject) -> None:
    case = data.draw(system.cases())
    with watched(limits_hold):
        log = run(case, stepwise=False)
    assert log.status == "ok"  # what can never be served is rejected, so no run hangs
    table = log.request_columns()
    assert table["row"].tolist() == list(range(len(case.workload)))
    finished = table["status"] == 0
    limit = case.engine.max_model_len - case.workload.prompt_tokens
    wanted = case.workload.output_tokens.clip(max=limit.clip(min=1))
    assert (table["generated_tokens"][finished] == wanted[finished]).all()
    for reason in table["reason"][~finished]:
        assert log.reasons[reason]
    assert (np.diff(np.stack([table[name][finished] for name in TIMES]), axis=0) >= 0).all()
    computed = sum(step["tokens"] for replica in log.replicas for step in steps_of(replica))
    useful = case.workload.prompt_tokens[finished] + wanted[finished] - 1 - table["cached_tokens"][finished]
    expected = useful.sum() + table["recomputed_tokens"][finished].sum()
    assert computed == expected or (system.caching and computed < expected)  # a second hit may exceed what was lost
    for replica in log.replicas:
        assert all(0 <= step["used_slots"] <= replica.pool.total_slots for step in steps_of(replica))
    summarize(log)  # raises where Little's law does not hold to the picosecond


TIMES = ("arrival_ps", "scheduled_ps", "first_token_ps", "finish_ps")


@pytest.mark.parametrize("system", systems())
@FEW
@given(st.data())
def test_leaps_are_steps(system: System, data: st.DataObject) -> None:
    case = data.draw(system.cases())
    assert_same_run(run(case, stepwise=False), run(case, stepwise=True))

"""Two pools: leaps are single steps, nobody is lost, Little's law holds, and both caches are whole again in the end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.disaggregation import Routers, simulate_disaggregated
from simulator.link_spec import LinkSpec
from simulator.members import Member
from simulator.metrics import summarize
from simulator.run_log import NOT_YET, RunLog
from simulator.step_time.linear import LinearStepTime
from tests.property.test_leaps import assert_same_run
from tests.scenarios_random import PS_PER_MS, caches, columns_equal, engines, workloads
from workloads.workload import Workload


@dataclass(frozen=True)
class Case:
    workload: Workload
    prefill: list[Member]
    decode: list[Member]
    link: LinkSpec
    options: dict[str, Any]


@st.composite
def members(draw: st.DrawFn, *, decode: bool) -> list[Member]:
    engine = draw(engines())
    pool, cache = draw(caches(draw(st.sampled_from([1, 4, 16]))))
    if decode:
        engine = replace(engine, scheduling_policy="fcfs")
        cache = cache | {"enable_prefix_caching": False}
    engine, pool = replace(engine, **cache), replace(pool, groups=(), bytes_per_token=100)
    step = LinearStepTime(
        draw(st.sampled_from([5, 10])) * PS_PER_MS,
        draw(st.sampled_from([0, 1_000_000_000])),
        draw(st.sampled_from([0, 100_000, 50_000_000])),
    )
    return [Member(engine, pool, step)] * draw(st.sampled_from([1, 1, 2]))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    names = st.sampled_from(["round_robin", "least_outstanding", "random", "least_kv", "prefix_affine"])
    return Case(
        draw(workloads()),
        draw(members(decode=False)),
        draw(members(decode=True)),
        LinkSpec(
            "drawn",
            draw(st.sampled_from([float("inf"), 1e6, 1e5, 2e4])),  # of 100 B/token: 0, 0.1, 1 and 5 ms a token
            draw(st.sampled_from([0, PS_PER_MS, 7 * PS_PER_MS])),
        ),
        {"routers": Routers(draw(names), draw(names)), "seed": draw(st.integers(0, 3))},
    )


def run(case: Case, *, stepwise: bool, max_steps: int | None = None) -> RunLog:
    return simulate_disaggregated(
        case.workload, case.prefill, case.decode, case.link, stepwise=stepwise, max_steps=max_steps, **case.options
    )


def reserves_whole_prompts(case: Case) -> bool:
    return all(member.engine.scheduler_reserve_full_isl for member in [*case.prefill, *case.decode])


@settings(max_examples=90, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_leaps_and_single_steps_are_the_same_run(case: Case) -> None:
    leaps, steps = run(case, stepwise=False), run(case, stepwise=True)
    assert_same_run(leaps, steps)
    assert columns_equal(leaps.handover_columns(), steps.handover_columns())
    assert [log.parked for log in leaps.replicas] == [log.parked for log in steps.replicas]
    assert summarize(leaps) == summarize(steps)  # Little's law is checked on the way


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_nobody_is_lost_and_everybody_takes_the_same_way(case: Case) -> None:
    log = run(case, stepwise=False)
    table, moved = log.request_columns(), log.handover_columns()
    if reserves_whole_prompts(case):
        assert log.status == "ok"
    if log.status != "ok":
        summarize(log)
        return
    assert table["row"].tolist() == list(range(len(case.workload)))
    done = table["status"] == 0
    assert moved["row"].tolist() == table["row"][done].tolist()
    assert all(log.reasons[reason] for reason in table["reason"][~done])
    times = [moved[name] for name in ("prefilled_ps", "reserved_ps", "loaded_ps", "admitted_ps")]
    sent = moved["tokens"] > 0
    assert all((a[sent] <= b[sent]).all() for a, b in pairwise(times))
    assert (moved["tokens"][sent] == case.workload.prompt_tokens[moved["row"]][sent]).all()
    assert (moved["released_ps"] != NOT_YET).all() and (moved["admitted_ps"] != NOT_YET).all()
    assert (moved["released_ps"][sent] >= moved["loaded_ps"][sent]).all()
    assert (table["first_token_ps"][done] > moved["admitted_ps"]).all()
    assert (table["scheduled_ps"][done] < moved["prefilled_ps"]).all()
    assert (moved["decode_replica"] == table["replica"][done]).all()
    assert moved["decode_replica"].min(initial=99) >= len(case.prefill)
    assert moved["prefill_replica"].max(initial=0) < len(case.prefill)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.integers(1, 30))
def test_a_run_that_is_cut_still_accounts_for_everybody_who_arrived(case: Case, most: int) -> None:
    log = run(case, stepwise=True, max_steps=most)
    table = log.request_columns()
    assert len(set(table["row"].tolist())) == len(table["row"])
    if len(table["row"]):
        summarize(log)

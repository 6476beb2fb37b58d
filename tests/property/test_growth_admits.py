"""Memory that the growth of decoders itself sets free, and tokens that are computed: both counted to the last one."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings

from simulator.allocators.pools import KvGroupShape, PagedPool
from simulator.run_log import RunLog
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from tests.expand import steps_of
from tests.property.test_leaps import assert_same_run, run
from tests.scenarios_random import Case, cases
from workloads.workload import Segment, Workload

STEP_PS = 5_000_000_000


def admitted_in_mid_decode(prompts: list[tuple[Segment, ...]], pool: PagedPool, caching: bool) -> bool:
    """Leaps and steps agree; whether row 1, blocked at first, got in while row 0 went on alone."""
    lengths = [sum(part[2] for part in prompt) for prompt in prompts]
    workload = Workload.from_columns([0, 1], lengths, [55, 2], segments=prompts)
    engine = EngineConfig(128, 8, 66 if caching else 16, enable_prefix_caching=caching)
    case = Case(workload, engine, pool, LinearStepTime(STEP_PS, 0, 0), {})
    leaps = run(case, stepwise=False)
    assert_same_run(leaps, run(case, stepwise=True))
    table = leaps.request_columns()
    if table["status"].any():
        return False
    return bool(STEP_PS < table["scheduled_ps"][1] < table["finish_ps"][0])


def test_a_block_that_fills_in_mid_leap_lets_a_request_in_that_shares_it() -> None:
    """A full block is a hit, and costs the head nothing; one that is still filling takes room and serves nobody."""
    prompts: list[tuple[Segment, ...]] = [(("p:0", 0, 9),), (("p:0", 0, 9), ("o:0", 0, 40), ("u", 0, 17))]
    assert any(admitted_in_mid_decode(prompts, PagedPool(blocks, 4), True) for blocks in range(12, 30))
    two = (KvGroupShape(4), KvGroupShape(4))
    assert any(admitted_in_mid_decode(prompts, PagedPool(blocks, 4, groups=two), True) for blocks in range(30, 40))


def test_a_block_that_a_window_passes_in_mid_leap_lets_a_request_in() -> None:
    prompts: list[tuple[Segment, ...]] = [(("a", 0, 9),), (("b", 0, 20),)]
    got_in = [
        admitted_in_mid_decode(prompts, PagedPool(blocks, 4, groups=(KvGroupShape(4, window),)), False)
        for blocks in range(4, 12)
        for window in (5, 6, 7, 8, 11)
    ]
    assert any(got_in)


def computed_tokens(log: RunLog) -> int:
    return sum(step["tokens"] for replica in log.replicas for step in steps_of(replica))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(contiguous=False))
def test_every_computed_token_is_a_requests_own_or_computed_again(case: Case) -> None:
    """Async scheduling too, where a request may be preempted with its last token under way: that repeats nothing."""
    case = replace(case, engine=replace(case.engine, async_scheduling=True))
    log = run(case, stepwise=False)
    table = log.request_columns()
    if log.status != "ok":
        return
    done = table["status"] == 0
    own = case.workload.prompt_tokens[table["row"]] + table["generated_tokens"] - 1 - table["cached_tokens"]
    accounted = int((own + table["recomputed_tokens"])[done].sum())
    if case.workload.segments is None:
        assert computed_tokens(log) == accounted
    else:  # whoever returns may find more than it lost: others have computed the same prefix
        assert computed_tokens(log) <= accounted

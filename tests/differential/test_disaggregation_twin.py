"""Two pools against a plain re-implementation after vLLM's own loop: every pass, every time, every free block."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.allocators.pools import PagedPool
from simulator.disaggregation import simulate_disaggregated
from simulator.link_spec import LinkSpec
from simulator.members import Member
from simulator.run_log import RunLog
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from tests.differential.disaggregation_twin import DisaggregationTwin
from tests.expand import steps_of
from workloads.workload import Workload

MS = 1_000_000_000


@st.composite
def members(draw: st.DrawFn) -> list[Member]:
    """Servers that can serve every prompt and answer below, in tight pools."""
    budget = draw(st.integers(8, 70))
    engine = EngineConfig(
        max_model_len=256,
        max_num_seqs=draw(st.integers(1, 8)),
        max_num_batched_tokens=budget,
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 7])),
        scheduler_reserve_full_isl=draw(st.booleans()),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.1])),
    )
    size = draw(st.sampled_from([2, 4, 16]))
    blocks = -(-81 // size) + 2 + draw(st.integers(0, 120 // size))
    step = LinearStepTime(draw(st.sampled_from([2, 5])) * MS, draw(st.sampled_from([0, MS // 2])), 0)
    return [Member(engine, PagedPool(blocks, size, bytes_per_token=100), step)] * draw(st.sampled_from([1, 1, 2]))


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    n = draw(st.integers(1, 30))
    arrivals = sorted(draw(st.lists(st.integers(0, 250), min_size=n, max_size=n)))
    lengths = st.integers(1, 40)
    return Workload.from_columns(
        [time * MS for time in arrivals],
        draw(st.lists(lengths, min_size=n, max_size=n)),
        draw(st.lists(lengths, min_size=n, max_size=n)),
    )


def links() -> st.SearchStrategy[LinkSpec]:
    speeds = st.sampled_from([float("inf"), 1e6, 1e5, 3e4])  # of 100 B a token: 0, 0.1, 1 and 3.3 ms a token
    return st.builds(LinkSpec, st.just("drawn"), speeds, st.sampled_from([0, MS, 9 * MS]))


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workloads(), members(), members(), links())
def test_every_pass_of_both_pools_is_the_twins(
    workload: Workload, prefill: list[Member], decode: list[Member], link: LinkSpec
) -> None:
    log = simulate_disaggregated(workload, prefill, decode, link)
    if log.status != "ok":  # a live-lock without the full-sequence rule has no end to compare
        prefill, decode = ([replace(m, engine=replace(m.engine, scheduler_reserve_full_isl=True)) for m in pool]
                           for pool in (prefill, decode))  # fmt: skip
        log = simulate_disaggregated(workload, prefill, decode, link)
    assert log.status == "ok"
    twin = DisaggregationTwin(prefill, decode, link, 100)
    twin.run(workload)
    assert_twins(log, twin)


def assert_twins(log: RunLog, twin: DisaggregationTwin) -> None:
    table, moved = log.request_columns(), log.handover_columns()
    columns = [moved[name] for name in ("prefilled_ps", "reserved_ps", "loaded_ps", "admitted_ps")]
    columns += [table["first_token_ps"], table["finish_ps"]]
    found = dict(zip(table["row"].tolist(), zip(*(column.tolist() for column in columns), strict=True), strict=True))
    assert found == {row: tuple(times) for row, times in twin.at.items()}
    for mine, theirs in zip(log.replicas, [*twin.prefill, *twin.decode], strict=True):
        steps = steps_of(mine)
        assert [(s["start_ps"], s["tokens"]) for s in steps] == [
            (start, sum(tokens for _, tokens in given)) for start, given, _ in theirs.passes
        ]
        free = [(mine.pool.total_slots - s["used_slots"]) // mine.pool.block_size for s in steps]
        assert free == [free for _, _, free in theirs.passes]
        assert len(mine.requeues) // 3 == theirs.preemptions

"""Metrics of small runs worked out by hand, and each rule's edge."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.metrics import MetricsOptions, summarize
from simulator.metrics_exact import ratio, sum_of_products
from simulator.metrics_gaps import GapCollector, order_statistics
from simulator.metrics_reasons import summarized
from simulator.metrics_requests import percentile as metric_percentile
from simulator.metrics_steps import BrokenRunLogError
from simulator.metrics_trend import batch_means_interval
from simulator.run_log import REQUEST_COLUMNS, SEGMENT_COLUMNS, HeadWait, RunLog
from tests.support import ROOT
from tests.synthetic_log import Server, random_workload, server_log
from workloads.workload import RequestClass, Workload

MS = 1_000_000_000
CONSTANT = Server(base_ps=10 * MS, per_token_ps=0, per_context_ps=0)


def served(arrivals_ms: list[int], prompts: list[int], outputs: list[int], server: Server, **work: object) -> RunLog:
    columns = [time * MS for time in arrivals_ms], prompts, outputs
    return server_log(Workload.from_columns(*columns, **work), server)[0]  # type: ignore[arg-type]


def test_one_request_by_hand() -> None:
    """Prompt 4 and three tokens at 10 ms a step: tokens at 10, 20, 30 ms after its arrival at 5 ms."""
    got = summarize(served([5], [4], [3], CONSTANT))
    assert (got["mean_ttft_ms"], got["mean_tpot_ms"], got["mean_itl_ms"], got["mean_e2el_ms"]) == (10, 10, 10, 30)
    assert (got["mean_queue_ms"], got["std_itl_ms"], got["duration"], got["engine_steps"]) == (0, 0, 0.03, 3)
    assert got["output_throughput"] == pytest.approx(100)
    assert got["total_token_throughput"] == pytest.approx(7 / 0.03)
    # blocks of 4: one holds the prompt, two from the second step on; tokens 4, 5, 6 of 80 slots
    assert got["kv"]["mean_utilization"] == pytest.approx((4 + 8 + 8) / 3 / 80)
    assert got["kv"]["token_share"] == pytest.approx((4 + 5 + 6) / 3 / 80)
    assert got["kv"]["peak_utilization"] == 8 / 80
    assert (got["binding_limit"], got["saturated"], got["mean_running"]) == ("arrivals", False, 1)


def test_contiguous_shares_by_hand() -> None:
    """Two requests of 4 + 3 tokens (6 stored in the end) reserve 10 of 16 slots each: the second has to wait."""
    server = Server(blocks=4, block_size=4, base_ps=10 * MS, per_token_ps=0, per_context_ps=0, reserve=10)
    got = summarize(served([0, 0], [4, 4], [3, 3], server))
    kv = got["kv"]
    assert kv["token_share"] == pytest.approx((4 + 5 + 6) / 3 / 16)
    assert kv["reserved_share"] == pytest.approx((2 + 1 + 0) / 3 / 16)
    assert kv["internal_fragmentation_share"] == pytest.approx(4 / 16)
    assert kv["external_fragmentation_share"] == pytest.approx(6 / 16 / 2)  # while the second waits: half the time
    assert kv["free_share"] == pytest.approx(6 / 16 / 2)
    assert got["binding_limit"] == "kv_memory"
    assert got["wait_shares"]["kv_memory"] == 0.5


def test_one_token_requests_have_no_tpot_and_no_itl() -> None:
    got = summarize(served([0, 1], [4, 4], [1, 1], CONSTANT))
    assert got["mean_tpot_ms"] is None and got["p99_itl_ms"] is None
    assert got["completed"] == 2


def test_an_empty_run_is_all_zero_or_none() -> None:
    log, _ = server_log(Workload.from_columns([0], [500], [1]), CONSTANT)
    got = summarize(log)
    assert (got["completed"], got["failed"], got["rejected"], got["duration"]) == (0, 1, 1, 0)
    assert got["reject_reasons"] == {"needs more slots than the pool has": 1}
    assert got["mean_ttft_ms"] is None
    assert got["kv"]["free_share"] == 1
    json.dumps(got, allow_nan=False)


def test_reasons_of_rejections_are_few_and_add_up() -> None:
    log, _ = server_log(Workload.from_columns([0] * 9, [500] * 9, [1] * 9), CONSTANT)
    log.reasons = ["", *"abcde"]
    for request, reason in enumerate([1, 2, 2, 3, 3, 3, 4, 5, 3]):
        log.requests[request * len(REQUEST_COLUMNS) + REQUEST_COLUMNS.index("reason")] = reason
    assert summarize(log)["reject_reasons"] == {"c": 4, "b": 2, "a": 1, "other reasons": 2}


def test_reasons_that_differ_in_their_numbers_are_one_with_a_range() -> None:
    counts = {f"prompt of {n} tokens leaves no room in max_model_len 600": 2 for n in (858, 601, 700)}
    counts |= {"needs 9 blocks": 1}
    assert summarized(counts) == {
        "prompt of 601 to 858 tokens leaves no room in max_model_len 600": 6,
        "needs 9 blocks": 1,
    }
    assert summarized({}) == {}


@pytest.mark.parametrize(
    ("server", "limit"),
    [
        (Server(max_num_seqs=1), "max_num_seqs"),
        (Server(budget=2, max_num_seqs=50, blocks=500), "token_budget"),
        (Server(blocks=6, max_num_seqs=50, budget=64), "kv_memory"),
    ],
)
def test_binding_limit_is_named(server: Server, limit: str) -> None:
    log, _ = server_log(random_workload(1, 40, 2 * MS, 10), server)
    assert summarize(log)["binding_limit"] == limit


def test_binding_limit_asks_the_step_model_where_the_budget_binds_or_nobody_waits() -> None:
    budget, _ = server_log(random_workload(1, 40, 2 * MS, 10), Server(budget=2, max_num_seqs=50, blocks=500))
    asked: list[tuple[int, ...]] = []

    def compute(*step: int) -> str:
        asked.append(step)
        return "compute"

    options = MetricsOptions(step_hint=compute)  # type: ignore[arg-type]
    assert summarize(budget, options)["binding_limit"] == "compute"
    assert asked and all(0 < tokens <= 2 for tokens, *_ in asked)
    assert summarize(budget, MetricsOptions(step_hint=lambda *_: "bandwidth"))["binding_limit"] == "token_budget"
    together, _ = server_log(Workload.from_columns([0, 0], [3, 3], [20, 20]), Server())
    assert summarize(together, MetricsOptions(step_hint=lambda *_: "bandwidth"))["binding_limit"] == "bandwidth"
    assert summarize(together)["binding_limit"] == "arrivals"


def test_saturation_is_the_trend_of_the_backlog_and_not_the_drain() -> None:
    overloaded, _ = server_log(random_workload(0, 400, 5 * MS, 8), Server(blocks=200, max_num_seqs=2))
    relaxed, _ = server_log(random_workload(0, 400, 200 * MS, 8), Server(blocks=200, max_num_seqs=2))
    assert summarize(overloaded)["saturated"] is True
    assert summarize(relaxed)["saturated"] is False
    closed = Workload.from_columns([0] * 4, [2] * 4, [2] * 4, max_concurrency=4)
    assert summarize(server_log(closed, Server(max_num_seqs=1))[0])["saturated"] is False


def test_a_log_that_breaks_littles_law_is_an_internal_error() -> None:
    log = served([0, 3], [4, 4], [3, 3], CONSTANT)
    log.replicas[0].segments[SEGMENT_COLUMNS.index("running")] += 1
    with pytest.raises(BrokenRunLogError, match="Little"):
        summarize(log)


@pytest.mark.parametrize("replicas", [1, 3])
def test_littles_law_holds_in_a_run_that_was_cut(replicas: int) -> None:
    server = Server(blocks=12, max_num_seqs=5, budget=30, replicas=replicas, end_ps=200 * MS)
    log, _ = server_log(random_workload(3, 30, 5 * MS, 30), server)
    got = summarize(log)
    assert got["status"] == "max_steps" and got["unfinished"] > 0 and got["completed"] > 0


def test_goodput_counts_requests_within_every_limit_of_their_class() -> None:
    classes = (RequestClass("fast", {"ttft_ms": {"p99": 15}}), RequestClass("slow", {"e2el_ms": {"p99": 1000}}))
    server = Server(base_ps=10 * MS, per_token_ps=0, per_context_ps=0, max_num_seqs=1)
    log = served([0, 0, 0], [4, 4, 4], [3, 3, 3], server, classes=classes, class_index=[0, 0, 1])
    got = summarize(log)
    assert got["request_goodput"] == pytest.approx(2 / got["duration"])
    assert got["classes"]["fast"]["slo_attainment"] == 0.5
    assert got["slo"]["met"] is False
    assert [limit["met"] for limit in got["slo"]["limits"]] == [False, True]


def test_a_default_slo_holds_for_classes_without_their_own_and_typos_are_errors() -> None:
    log = served([0], [4], [3], CONSTANT)
    assert summarize(log, MetricsOptions(slo={"tpot_ms": {"p99": 10}}))["slo"]["met"] is True
    assert summarize(log, MetricsOptions(slo={"tpot_ms": {"p99": 9.9}}))["request_goodput"] == 0
    assert summarize(log)["request_goodput"] is None
    for slo in ({"tpot": {"p99": 1}}, {"tpot_ms": {"p98": 1}}):
        with pytest.raises(InputError, match="is not a"):
            summarize(log, MetricsOptions(slo=slo))


def test_warmup_leaves_out_early_requests_and_steps() -> None:
    log = served([0, 100], [4, 8], [3, 3], CONSTANT)
    got = summarize(log, MetricsOptions(warmup_s=0.05))
    assert got["measured_requests"] == 1 and got["completed"] == 2
    with pytest.raises(InputError, match="warm-up"):
        summarize(log, MetricsOptions(warmup_s=1))
    with pytest.raises(InputError, match="warmup_s"):
        summarize(log, MetricsOptions(warmup_s=-1))


def test_most_in_flight_lets_a_finish_go_before_an_arrival_of_the_same_time() -> None:
    assert summarize(served([0, 30], [4, 4], [3, 3], CONSTANT))["max_concurrent_requests"] == 1
    assert summarize(served([0, 29], [4, 4], [3, 3], CONSTANT))["max_concurrent_requests"] == 2


@given(st.lists(st.tuples(*[st.integers(-(1 << 40), 1 << 40)] * 3), max_size=30))
def test_sums_of_products_are_exact(rows: list[tuple[int, int, int]]) -> None:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    assert sum_of_products(*columns) == sum(a * b * c for a, b, c in rows)


def test_sums_beyond_the_safe_bound_are_exact_too() -> None:
    big = np.full(5, (1 << 61) + 1, dtype=np.int64)
    assert sum_of_products(big, big) == 5 * ((1 << 61) + 1) ** 2
    assert ratio(1 << 100, 1 << 101) == 0.5 and ratio(1, 0) == 0


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.integers(0, 3000), st.integers(-40, 40), st.integers(0, 3), st.integers(0, 5)),
        min_size=1,
        max_size=12,
    ),
    st.lists(st.integers(0, 4000), max_size=4),
    st.booleans(),
)
def test_order_statistics_equal_sorting(rows: list[tuple[int, ...]], irregular: list[int], halve: bool) -> None:
    from unittest.mock import patch

    expanded = list(irregular)
    columns = {name: np.array([row[i] for row in rows]) for i, name in enumerate(("steps", "duration_ps", "growth_ps"))}
    for k, d, g, regular, later in rows:
        expanded += [d] * regular + [d + i * g for i in range(1, k)] * later
    columns["regular"], columns["decodes"] = (np.array([row[i] for row in rows]) for i in (3, 4))
    steps = columns["steps"]
    columns["length_ps"] = steps * columns["duration_ps"] + columns["growth_ps"] * (steps * (steps - 1) // 2)
    collector = GapCollector()
    collector.add_steps(columns)
    collector.add_irregular(np.array(irregular, dtype=np.int64))
    gaps = collector.gaps()
    assert gaps.count == len(expanded)
    assert gaps.total_ps == sum(expanded)
    assert gaps.total_squares == sum(x * x for x in expanded)
    with patch("simulator.metrics_gaps._FEW_TERMS", 3 if halve else 1 << 15):
        found = order_statistics(gaps, range(len(expanded)))
    assert [found[rank] for rank in range(len(expanded))] == sorted(expanded)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.sampled_from([50, 90, 95, 99]))
def test_percentiles_are_numpys(values: list[float], percent: int) -> None:
    assert metric_percentile(np.sort(values), percent) == np.percentile(values, percent)


def test_a_summary_imports_no_masked_arrays() -> None:
    # numpy.percentile and numpy.unique do, at their first call: that takes as long as all the rest of a summary
    code = (
        "import sys; from tests.synthetic_log import Server, random_workload, server_log;"
        "from simulator.metrics import summarize;"
        "log, _ = server_log(random_workload(0, 30, 1_000_000_000, 20), Server());"
        "assert summarize(log)['p99_ttft_ms'] > 0; assert 'numpy.ma' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)


def test_batch_means_cover_the_mean_of_independent_values_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        interval = batch_means_interval(rng.exponential(1.0, 400))
        assert interval is not None
        hits += interval[0] <= 1.0 <= interval[1]
    assert 0.92 <= hits / 400 <= 0.98
    assert batch_means_interval(np.ones(39)) is None


def test_head_wait_causes_are_all_accounted_for() -> None:
    """A cause that is added to the log must find its place in the binding limit."""
    from simulator.metrics_limit import _CAUSES

    assert {cause for causes in _CAUSES.values() for cause in causes} | {HeadWait.NOBODY_WAITS} == set(HeadWait)

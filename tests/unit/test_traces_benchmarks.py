"""Results of ``vllm bench serve``: the load that was sent, how it was sent, and what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench_loads import GOOD, MS, SERVED, build, check_details, check_load, differs_of, load, put
from tests.bench_results import guidellm_result, vllm_result
from workloads.arrivals import AllAtOnce, ClosedLoop, Constant, Gamma, Poisson
from workloads.errors import WorkloadError
from workloads.traces.config import TraceConfig
from workloads.traces.load import load_trace
from workloads.workload import PS_PER_S

RATES = ["request_throughput", "output_throughput", "total_token_throughput"]
NO_TOTALS = {"mean_ttft_ms": None, "median_ttft_ms": None, "p99_ttft_ms": None}


def test_vllm_replays_its_times_and_computes_what_it_does_not_state(tmp_path: Path) -> None:
    rows = load(tmp_path, vllm_result(SERVED, **NO_TOTALS))
    check_load(rows, "vllm-bench")
    check_details(rows)
    assert rows.arrival_ps is not None and rows.arrival_ps.tolist() == pytest.approx([0, 500 * MS, 2000 * MS], abs=100)
    assert rows.lines.tolist() == [1, 2, 4] and rows.request_ids == ["0", "1", "3"]
    (dropped,) = rows.facts.dropped
    assert dropped.reason == "the request failed" and dropped.examples == ((3, "TimeoutError"),)


def test_what_the_tool_states_comes_first(tmp_path: Path) -> None:
    measured = load(tmp_path, vllm_result(SERVED, p95_ttft_ms=140.0)).measured
    assert measured is not None
    stated = {"mean_ttft_ms": 123.0, "median_ttft_ms": 120.0, "p95_ttft_ms": 140.0, "p99_ttft_ms": 150.0}
    assert {key: measured.values[key] for key in stated} == stated
    assert not stated.keys() & set(measured.from_details) and "p90_ttft_ms" in measured.from_details
    assert measured.values["request_throughput"] == 0.3 and measured.values["duration"] == 10.0
    assert list(measured.values)[:4] == ["duration", *RATES]
    assert measured.model == "meta-llama/Llama-3.1-8B-Instruct" and measured.tool == "vllm bench serve"
    p50 = load(tmp_path, vllm_result(SERVED, median_ttft_ms=None, p50_ttft_ms=121.0)).measured
    assert p50 is not None and p50.values["median_ttft_ms"] == 121.0


def test_later_vllm_states_latencies_and_queue_times(tmp_path: Path) -> None:
    details = {"latencies": [1.0, 2.0, 0.0, 3.0], "queue_times": [0.25, 0.0, 0.0, 0.5]}
    rows = load(tmp_path, vllm_result(SERVED, max_concurrency=2, **details))
    assert rows.arrival_ps is not None  # due when they wanted to be sent: at -0.25, 0.5 and 1.5 s
    assert rows.arrival_ps.tolist() == pytest.approx([0, 750 * MS, 1750 * MS], abs=100)
    assert rows.client is not None and rows.client.max_concurrency == 2
    assert rows.measured is not None and rows.measured.values["mean_e2el_ms"] == 2000.0
    workload = build(put(tmp_path, vllm_result(SERVED, max_concurrency=2, **details)))
    assert workload.max_concurrency == 2 and workload.requested_rate_rps == 4.0


@pytest.mark.parametrize(
    "changes,law,most,says",
    [
        ({"start_times": None}, Gamma(4.0, 1.0, rescale_last_arrival=True), None, "no start_times"),
        ({"start_times": None, "burstiness": 0.5}, Gamma(4.0, 0.5, rescale_last_arrival=True), None, "burstiness 0.5"),
        ({"start_times": None, "burstiness": float("inf")}, Constant(4.0), None, "4 requests/s, constant"),
        ({"start_times": None, "request_rate": "inf"}, AllAtOnce(), None, "all at once"),
        ({"max_concurrency": 3}, Gamma(4.0, 1.0, rescale_last_arrival=True), 3, "queue_times is missing"),
        ({"max_concurrency": 3, "request_rate": "inf"}, ClosedLoop(3), 3, "closed loop of 3"),
        ({"max_concurrency": 3, "request_rate": float("inf")}, ClosedLoop(3), 3, "closed loop of 3"),
        ({"max_concurrency": 3, "request_rate": None}, ClosedLoop(3), 3, "no usable request_rate"),
    ],
)
def test_arrivals_that_are_not_recorded_come_from_the_clients_settings(
    tmp_path: Path, changes: dict[str, Any], law: Any, most: int | None, says: str
) -> None:
    path = put(tmp_path, vllm_result(SERVED, **changes))
    rows = load_trace(TraceConfig(path=path))
    assert rows.arrival_ps is None and rows.client is not None and rows.client.arrivals == law
    workload = build(path)
    assert len(workload) == 3 and workload.max_concurrency == most
    assert any(says in note for note in workload.notes)
    if isinstance(law, Gamma):
        assert workload.arrival_ps[-1] == pytest.approx(3 / 4 * PS_PER_S, abs=2)
        assert workload.requested_rate_rps == 4.0 and workload.burstiness == law.burstiness
    elif isinstance(law, Constant):
        assert workload.arrival_ps.tolist() == [0, 250 * MS, 500 * MS]
    else:
        assert workload.arrival_ps.tolist() == [0, 0, 0]


def test_a_ramp_without_times_needs_arrivals(tmp_path: Path) -> None:
    ramp = {"ramp_up_strategy": "linear", "ramp_up_start_rps": 1, "ramp_up_end_rps": 9, "request_rate": "inf"}
    assert load(tmp_path, vllm_result(SERVED, **ramp)).arrival_ps is not None
    path = put(tmp_path, vllm_result(SERVED, start_times=None, **ramp))
    with pytest.raises(WorkloadError, match="no times") as caught:
        build(path)
    assert caught.value.where == "workload.arrivals"
    assert len(build(path, arrivals=Poisson(3))) == 3


def test_the_scenario_may_send_otherwise_and_says_that_the_loads_differ(tmp_path: Path) -> None:
    good = vllm_result(GOOD)

    def differs(**fields: Any) -> tuple[str, ...]:
        workload = build(put(tmp_path, good), **fields)
        assert workload.measured is not None
        return workload.measured.differs

    assert differs() == ()
    assert differs(arrivals=Poisson(3)) == ("arrivals are poisson, not those of the benchmark",)
    assert differs(num_requests=2) == ("2 of the 3 measured requests are sent",)
    assert differs(trace={"limit": 1}) == ("1 of the 3 measured requests are sent",)
    assert differs(trace={"time_scale": 0.5}) == ("times are stretched by 0.5",)
    assert differs(max_concurrency=7) == ("max_concurrency is 7, and was unlimited",)
    assert differs(n=2) == ("each request asks for several answers",)
    assert differs(duration_s=1.0) == ("2 of the 3 measured requests are sent",)
    good = vllm_result(GOOD, max_concurrency=7, request_rate="inf")
    assert differs(max_concurrency=7) == () == differs()
    assert "of 1 request that did not succeed" in differs_of(build(put(tmp_path, vllm_result(SERVED))))
    with pytest.raises(WorkloadError, match="time_scale has no effect"):
        differs(trace={"time_scale": 2.0})


def test_several_results_of_one_file_are_told_apart(tmp_path: Path) -> None:
    several = [vllm_result(SERVED), vllm_result(SERVED[:2], request_rate=9.0)]
    with pytest.raises(WorkloadError, match="holds 2 benchmarks") as caught:
        load(tmp_path, several)
    assert "1 is request_rate 9.0" in str(caught.value.remedy) and "trace.benchmark" in str(caught.value.remedy)
    assert len(load(tmp_path, several, benchmark=1).lines) == 2
    with pytest.raises(WorkloadError, match="number 2"):
        load(tmp_path, several, benchmark=2)


def test_pieces_of_several_tokens_and_broken_latencies_are_said(tmp_path: Path) -> None:
    pieces = load(tmp_path, vllm_result(GOOD, itls=[[0.1], [], [0.4]])).measured
    assert pieces is not None and "33 tokens in 5 pieces" in pieces.notes[0]
    nan = load(tmp_path, vllm_result(GOOD, ttfts=[0.05, float("nan"), 0.08], **NO_TOTALS)).measured
    assert nan is not None and nan.values["mean_ttft_ms"] == pytest.approx(65.0) and "1 request with" in nan.notes[0]
    silent = load(tmp_path, vllm_result(GOOD, ttfts=[0.0, 0.0, 0.0], mean_ttft_ms=0.0, median_ttft_ms=0.0)).measured
    assert silent is not None and "mean_ttft_ms" not in silent.values and "median_ttft_ms" not in silent.values
    endless = load(tmp_path, vllm_result(GOOD, ttfts=[1e308] * 3, itls=None, **NO_TOTALS)).measured
    assert endless is not None and list(endless.values) == ["duration", *RATES] and endless.from_details == ()
    broken = load(tmp_path, vllm_result(GOOD, mean_ttft_ms=float("nan"))).measured
    assert broken is not None and broken.values["mean_ttft_ms"] == pytest.approx(1000 * 0.2 / 3)


def test_pretty_printed_files_are_told_too(tmp_path: Path) -> None:
    for name, value in (
        ("vllm-bench", vllm_result(SERVED)),
        ("guidellm", guidellm_result(SERVED, {"type_": "synchronous"})),
    ):
        (tmp_path / "pretty.json").write_text(json.dumps(value, indent=2))
        assert load_trace(TraceConfig(path=str(tmp_path / "pretty.json"))).facts.format == name

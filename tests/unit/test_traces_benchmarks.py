"""Results of benchmark tools: the load that the tool sent, how it sent it, and what it measured."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.random_streams import Streams
from tests.bench_results import Served, aiperf_records, aiperf_totals, guidellm_result, vllm_result
from workloads.arrivals import AllAtOnce, ClosedLoop, Constant, Gamma, Poisson
from workloads.build import build_workload
from workloads.config import WorkloadConfig
from workloads.errors import WorkloadError
from workloads.traces.config import TraceConfig
from workloads.traces.load import TraceRows, load_trace
from workloads.workload import PS_PER_S, Workload

SERVED = [
    Served(0.0, 100, 11, 0.050, 0.010),
    Served(0.5, 200, 1, 0.070),
    Served(0.75, 30, 5, 0.100, 0.030, error="Traceback (most recent call last):\nTimeoutError"),
    Served(2.0, 40, 21, 0.080, 0.020),
]
GOOD = [one for one in SERVED if not one.error]
MS = PS_PER_S // 1000


def put(folder: Path, value: Any, name: str = "result.json") -> str:
    lines = "\n".join(json.dumps(row) for row in value) if isinstance(value, list) else json.dumps(value)
    (folder / name).write_text(lines)
    return str(folder / name)


def load(folder: Path, value: Any, name: str = "result.json", **options: Any) -> TraceRows:
    return load_trace(TraceConfig(path=put(folder, value, name), **options))


def build(path: str, *, trace: dict[str, Any] | None = None, **fields: Any) -> Workload:
    return build_workload(WorkloadConfig(trace=TraceConfig(path=path, **(trace or {})), **fields), Streams(0))


def check_load(rows: TraceRows, file_format: str) -> None:
    assert rows.facts.format == file_format and rows.facts.rows_read == 4 and rows.facts.rows_dropped == 1
    assert rows.prompt_tokens.tolist() == [100, 200, 40] and rows.output_tokens.tolist() == [11, 1, 21]
    assert rows.measured is not None and rows.measured.requests == 3 and rows.measured.failed == 1


def check_details(rows: TraceRows) -> None:
    """Latencies that follow from the requests, worked out here from what was served."""
    assert rows.measured is not None
    values = rows.measured.values
    expected = {
        "ttft": [1000 * one.ttft_s for one in GOOD],
        "tpot": [1000 * one.gap_s for one in GOOD if one.output > 1],
        "e2el": [1000 * one.latency_s for one in GOOD],
    }
    if rows.facts.format != "guidellm":
        expected["itl"] = [1000 * gap for one in GOOD for gap in one.gaps_s]
    for name, column in expected.items():
        for statistic, value in (
            ("mean", np.mean(column)),
            ("median", np.median(column)),
            ("p90", np.percentile(column, 90)),
            ("p95", np.percentile(column, 95)),
            ("p99", np.percentile(column, 99)),
        ):
            key = f"{statistic}_{name}_ms"
            assert key in rows.measured.from_details, key
            assert values[key] == pytest.approx(float(value), rel=1e-6), key


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


def differs_of(workload: Workload) -> str:
    assert workload.measured is not None
    return "; ".join(workload.measured.differs)


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


def test_aiperf_records_alone(tmp_path: Path) -> None:
    records = aiperf_records(SERVED)
    warm = json.loads(json.dumps(records[0]))
    warm["metadata"]["benchmark_phase"] = "warmup"
    cancelled = json.loads(json.dumps(records[0]))
    cancelled["metadata"]["was_cancelled"] = True
    rows = load(tmp_path, records, "profile_export.jsonl")
    check_load(rows, "aiperf")
    check_details(rows)
    assert rows.arrival_ps is not None and rows.arrival_ps.tolist() == [0, 500 * MS, 2000 * MS]
    assert rows.request_ids == ["request-0", "request-1", "request-3"]
    assert rows.measured is not None
    assert rows.measured.values["duration"] == pytest.approx(2.0 + SERVED[3].latency_s, rel=1e-6)
    assert any("closed_loop" in note for note in rows.notes)
    more = load(tmp_path, [warm, *records, cancelled], "profile_export.jsonl")
    assert [drop.reason for drop in more.facts.dropped] == [
        "belongs to the phase 'warmup'",
        "the request failed",
        "the request was cancelled",
    ]
    assert more.measured is not None and more.measured.failed == 2  # a warm-up is no part of what was measured


def test_aiperf_totals_beside_the_records_are_used_from_either_name(tmp_path: Path) -> None:
    put(tmp_path, aiperf_records(SERVED), "profile_export.jsonl")
    totals = aiperf_totals(
        phase={"type": "concurrency", "concurrency": 16},
        time_to_first_token={"unit": "sec", "avg": 0.2, "p50": 0.1, "p99": 0.9},
        inter_token_latency={"unit": "ms", "avg": 12.0},
        inter_chunk_latency={"unit": "ms", "p99": 99.0},
        output_token_throughput={"unit": "tokens/sec", "avg": 1172.0},
    )
    put(tmp_path, totals, "profile_export_aiperf.json")
    for name in ("profile_export.jsonl", "profile_export_aiperf.json"):
        workload = build(str(tmp_path / name))
        assert workload.measured is not None and workload.trace is not None and workload.trace.format == "aiperf"
        values = workload.measured.values
        assert (values["mean_ttft_ms"], values["p99_ttft_ms"], values["mean_tpot_ms"]) == (200.0, 900.0, 12.0)
        assert (values["p99_itl_ms"], values["output_throughput"], values["p95_e2el_ms"]) == (99.0, 1172.0, 950.0)
        assert "p90_ttft_ms" in workload.measured.from_details and workload.measured.model == "llama"
        assert workload.max_concurrency == 16 and workload.arrival_ps.tolist() == [0, 0, 0]
        assert workload.prompt_tokens.tolist() == [100, 200, 40]  # by time of sending, not of the end


@pytest.mark.parametrize(
    "phase,law,most",
    [
        ({"type": "poisson", "rate": 5.0}, None, None),
        ({"type": "constant", "rate": 5.0, "concurrency": 8}, Constant(5.0), 8),
        ({"type": "gamma", "rate": 5.0, "smoothness": 2.0, "concurrency": 8}, Gamma(5.0, 2.0), 8),
        ({"type": "poisson", "rate": 5.0, "concurrency": 8}, Poisson(5.0), 8),
    ],
)
def test_aiperf_rates(tmp_path: Path, phase: dict[str, Any], law: Any, most: int | None) -> None:
    put(tmp_path, aiperf_totals(phase=phase), "profile_export_aiperf.json")
    rows = load(tmp_path, aiperf_records(SERVED), "profile_export.jsonl")
    assert rows.client is not None and rows.client.max_concurrency == most
    assert (rows.arrival_ps is None) == (most is not None)
    if law is not None:
        assert rows.client.arrivals == law
    workload = build(str(tmp_path / "profile_export.jsonl"))
    assert workload.requested_rate_rps == 5.0 and workload.max_concurrency == most


def test_aiperf_records_under_another_name_and_later_turns(tmp_path: Path) -> None:
    records = aiperf_records(GOOD)
    records[0]["metadata"]["turn_index"] = 1
    rows = load(tmp_path, records, "records.json")
    assert rows.facts.format == "aiperf" and len(rows.lines) == 3
    assert any("1 request continue a conversation" in note for note in rows.notes)
    with gzip.open(tmp_path / "profile_export.jsonl.gz", "wt") as file:
        file.write("\n".join(json.dumps(row) for row in records))
    assert len(load_trace(TraceConfig(path=str(tmp_path / "profile_export.jsonl.gz"))).lines) == 3


@pytest.mark.parametrize("older", [False, True])
def test_guidellm_open_loop(tmp_path: Path, older: bool) -> None:
    summary = {"successful": {"mean": 0.3, "median": 0.2, "percentiles": {"p90": 0.5, "p95": 0.6, "p99": 0.7}}}
    strategy = {"type_": "poisson", "rate": 1.5, "max_concurrency": 10240}
    rows = load(tmp_path, guidellm_result(SERVED, strategy, older=older))
    check_load(rows, "guidellm")
    check_details(rows)
    assert rows.arrival_ps is not None
    assert rows.arrival_ps.tolist() == pytest.approx([0, 500 * MS, 2000 * MS], abs=MS // 1000)
    assert rows.client is not None and rows.client.arrivals == Poisson(1.5) and rows.client.max_concurrency is None
    stated = load(
        tmp_path,
        guidellm_result(
            SERVED, strategy, older=older, request_latency=summary, inter_token_latency_ms=summary,
            requests_per_second={"successful": {"mean": 7.5}}, time_per_output_token_ms=summary,
        ),
    ).measured  # fmt: skip
    assert stated is not None and stated.itl == "request_means"
    assert (stated.values["mean_e2el_ms"], stated.values["p99_e2el_ms"]) == (300.0, 700.0)
    assert (stated.values["mean_itl_ms"], stated.values["p95_itl_ms"]) == (0.3, 0.6)
    assert stated.values["request_throughput"] == 7.5 and stated.values["duration"] == 10.0
    assert "mean_tpot_ms" in stated.from_details  # guidellm's own counts the first token in


@pytest.mark.parametrize(
    "strategy,most",
    [
        ({"type_": "concurrent", "streams": 6, "max_concurrency": 6}, 6),
        ({"type_": "synchronous"}, 1),
        ({"type_": "throughput", "max_concurrency": 512}, 512),
    ],
)
def test_guidellm_closed_loops(tmp_path: Path, strategy: dict[str, Any], most: int) -> None:
    workload = build(put(tmp_path, guidellm_result(SERVED, strategy, incomplete=2)))
    assert workload.max_concurrency == most and workload.arrival_ps.tolist() == [0, 0, 0]
    assert workload.trace is not None and workload.measured is not None
    reasons = {drop.reason: drop.count for drop in workload.trace.dropped}
    assert reasons == {"the request failed": 1, "was cut off when the benchmark ended": 2}
    assert "of 3 requests that did not succeed" in differs_of(workload)


def test_guidellm_sweeps_and_samples(tmp_path: Path) -> None:
    one = guidellm_result(SERVED, {"type_": "constant", "rate": 2.0})
    two = guidellm_result(SERVED[:1], {"type_": "concurrent", "streams": 4})
    both = one | {"benchmarks": one["benchmarks"] + two["benchmarks"]}
    with pytest.raises(WorkloadError, match="holds 2 benchmarks") as caught:
        load(tmp_path, both)
    assert "0 is constant 2, 1 is concurrent 4" in str(caught.value.remedy)
    assert len(load(tmp_path, both, benchmark=1).lines) == 1
    sampled = guidellm_result(GOOD, {"type_": "constant", "rate": 2.0}, request_totals={"successful": 900})
    assert "totals are of 900 requests, and the file lists 3" in differs_of(build(put(tmp_path, sampled)))


def test_usage_that_only_the_server_counted(tmp_path: Path) -> None:
    result = guidellm_result(GOOD, {"type_": "constant", "rate": 2.0})
    for request in result["benchmarks"][0]["requests"]["successful"]:
        for name in ("prompt_tokens", "output_tokens", "request_latency", "time_to_first_token_ms"):
            del request[name]
    rows = load(tmp_path, result)
    assert rows.prompt_tokens.tolist() == [100, 200, 40] and rows.measured is not None
    assert rows.measured.values["mean_ttft_ms"] == pytest.approx(1000 * 0.2 / 3, rel=1e-6)


def test_pretty_printed_files_are_told_too(tmp_path: Path) -> None:
    for name, value in (
        ("vllm-bench", vllm_result(SERVED)),
        ("guidellm", guidellm_result(SERVED, {"type_": "synchronous"})),
    ):
        (tmp_path / "pretty.json").write_text(json.dumps(value, indent=2))
        assert load_trace(TraceConfig(path=str(tmp_path / "pretty.json"))).facts.format == name

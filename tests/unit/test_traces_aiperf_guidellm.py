"""Results of aiperf and guidellm: the load that was sent, how it was sent, and what was measured."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench_loads import GOOD, MS, SERVED, build, check_details, check_load, differs_of, load, put
from tests.bench_results import aiperf_records, aiperf_totals, guidellm_result
from workloads.arrivals import Constant, Gamma, Poisson
from workloads.errors import WorkloadError
from workloads.traces.config import TraceConfig
from workloads.traces.load import load_trace


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

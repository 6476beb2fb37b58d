"""Measured values beside predicted ones: the same formulas on both sides, and a simulation that never looks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from reports.measured_rows import error_words, rows
from simulator.cli import app
from simulator.measured import beside_predicted, comparison_warnings
from simulator.metrics import summarize
from simulator.metrics_requests import RequestFacts
from simulator.run_log import RunLog
from tests.bench_results import Served, guidellm_result, vllm_result
from tests.synthetic_log import Server, random_workload, server_log
from workloads.measured import KEYS, LATENCIES, STATISTICS, Measured

SCENARIO = """name: logs
model: llama-3.1-8b
gpu: h100-sxm-80gb
engine: {preset: vllm, max_model_len: 8192, max_num_seqs: 6}
workload: {trace: {path: %s%s}}
"""
SERVED = [Served(0.1 * i, 100 + 40 * i, 1 + (7 * i) % 23, 0.04 + 0.001 * i, 0.01 + 0.0001 * i) for i in range(40)]


def kvplan_run(
    folder: Path, result: dict[str, Any], *, options: str = "", out: str = "out", report: bool = False
) -> Any:
    """A run of SCENARIO on a result file; returns what the command line said."""
    (folder / f"{out}.json").write_text(json.dumps(result))
    (folder / "s.yaml").write_text(SCENARIO % (f"{out}.json", options))
    arguments = ["run", str(folder / "s.yaml"), "--out", str(folder / out), "--quiet"]
    return CliRunner().invoke(app, arguments if report else [*arguments, "--no-report"])


def result_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def as_measured(folder: Path) -> list[Served]:
    """The requests of a finished run, with the latencies that were predicted."""
    import pandas as pd

    table = pd.read_csv(folder / "requests.csv")
    return [
        Served(
            row.arrival_s,
            int(row.prompt_tokens),
            int(row.output_tokens),
            row.ttft_ms / 1000,
            (row.e2el_ms - row.ttft_ms) / 1000 / max(int(row.output_tokens) - 1, 1),
        )
        for row in table.itertuples()
    ]


def test_a_server_that_behaves_as_simulated_is_predicted_without_error(tmp_path: Path) -> None:
    """Take the simulation for the measurement: then every error is nothing, for what each tool states or implies."""
    assert kvplan_run(tmp_path, vllm_result(SERVED)).exit_code == 0
    first = result_of(tmp_path / "out")
    served = as_measured(tmp_path / "out")
    stated = {key: first[key] for key in ("duration", "request_throughput", "output_throughput")}
    stated |= {f"{s}_itl_ms": first[f"{s}_itl_ms"] for s in STATISTICS}
    again = vllm_result(served, mean_ttft_ms=None, median_ttft_ms=None, p99_ttft_ms=None)
    assert (
        kvplan_run(tmp_path, again | stated | {"total_token_throughput": first["total_token_throughput"]}).exit_code
        == 0
    )
    second = result_of(tmp_path / "out")
    assert list(second["measured"]) == list(KEYS)
    for key, row in second["measured"].items():
        assert row["predicted"] == pytest.approx(first[key], rel=1e-6), key
        assert row["error"] == pytest.approx(0.0, abs=1e-6), key
        assert row["error"] == row["predicted"] / row["measured"] - 1
    assert set(second["measured_from"]["from_details"]) >= {"mean_tpot_ms", "p99_e2el_ms", "median_ttft_ms"}
    assert not second["measured_from"]["differs"] and not any("another load" in w for w in second["warnings"])


def weighted(values: list[float], weights: list[int], percent: float) -> float:
    """The smallest value that at least ``percent`` of the weight does not exceed: each value repeated by its weight."""
    spread = sorted(value for value, weight in zip(values, weights, strict=True) for _ in range(weight))
    return spread[max(int(np.ceil(percent / 100 * len(spread))) - 1, 0)]


def test_guidellms_inter_token_latency_is_predicted_by_its_own_formula(tmp_path: Path) -> None:
    log = server_log(random_workload(5, 60, 40_000_000_000, 30), Server(blocks=64, max_num_seqs=16, budget=64))[0]
    values = dict.fromkeys((f"{s}_itl_ms" for s in STATISTICS), 2.0)
    work = replace(log.workload, measured=Measured("guidellm", values, (), 60, itl="request_means"))
    log = replace(log, workload=work)
    found = beside_predicted(log, summarize(log))["measured"]
    facts = RequestFacts.of(log)
    gaps = (facts.columns["generated_tokens"] - 1).tolist()
    tpot = facts.latency_ms["tpot"].tolist()
    means = [value for value in tpot if value == value]
    weights = [gap for gap, value in zip(gaps, tpot, strict=True) if value == value]
    for statistic, percent in STATISTICS.items():
        row = found[f"{statistic}_itl_ms"]
        expected = np.average(means, weights=weights) if percent is None else weighted(means, weights, percent)
        assert row["predicted"] == pytest.approx(float(expected)) and row["error"] == row["predicted"] / 2.0 - 1
    assert found["mean_itl_ms"]["predicted"] == pytest.approx(summarize(log)["mean_itl_ms"])


def test_one_token_answers_have_no_gaps() -> None:
    work = random_workload(5, 4, 40_000_000_000, 30)
    work = replace(work, output_tokens=np.ones(4, dtype=np.int64))
    work = replace(
        work, measured=Measured("guidellm", {"mean_itl_ms": 2.0, "mean_ttft_ms": 1.0}, (), 4, itl="request_means")
    )
    log: RunLog = server_log(work, Server(blocks=64, max_num_seqs=16, budget=64))[0]
    found = beside_predicted(log, summarize(log))["measured"]
    assert found["mean_itl_ms"] == {"measured": 2.0, "predicted": None, "error": None}
    assert error_words(None) == "-" and found["mean_ttft_ms"]["error"] is not None


def changed(result: dict[str, Any]) -> dict[str, Any]:
    """The same load with every measured number blanked: another server, or none."""
    blank = {key: 7.5 for key in result if key.endswith("_ms") or key in KEYS}
    count = len(result["input_lens"])
    details = {"ttfts": [9.0] * count, "itls": [[] for _ in range(count)], "generated_texts": [""] * count}
    return result | blank | details | {"max_output_tokens_per_s": 0.0}


@pytest.mark.parametrize("settings", [{}, {"max_concurrency": 3, "request_rate": "inf"}, {"start_times": None}])
def test_the_simulation_is_blind_to_what_was_measured(tmp_path: Path, settings: dict[str, Any]) -> None:
    result = vllm_result(SERVED, **settings)
    for name, content in (("a", result), ("b", changed(result))):
        assert kvplan_run(tmp_path, content, out=name).exit_code == 0
    a, b = result_of(tmp_path / "a"), result_of(tmp_path / "b")
    assert a.pop("measured") != b.pop("measured") and a.pop("measured_from") != b.pop("measured_from")
    assert a.pop("scenario_sha256") != b.pop("scenario_sha256")  # the file is part of the scenario
    assert a == b
    for name in ("requests.csv", "timeline.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_in_a_closed_loop_the_measured_times_of_sending_do_not_count(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_concurrency": 3, "request_rate": "inf"}
    for name, stretch in (("a", 1.0), ("b", 5.0)):
        served = [replace(one, sent_s=stretch * one.sent_s) for one in SERVED]
        assert kvplan_run(tmp_path, vllm_result(served, **settings), out=name).exit_code == 0
    assert (tmp_path / "a" / "requests.csv").read_bytes() == (tmp_path / "b" / "requests.csv").read_bytes()
    assert result_of(tmp_path / "a")["max_concurrent_requests"] == 3


def test_it_is_said_where_the_loads_differ(tmp_path: Path) -> None:
    failed = [*SERVED, Served(9.0, 5, 5, 0.1, error="TimeoutError")]
    assert kvplan_run(tmp_path, vllm_result(failed), options=", limit: 20").exit_code == 0
    result = result_of(tmp_path / "out")
    (warning,) = [line for line in result["warnings"] if "another load" in line]
    assert "20 of the 40 measured requests are sent" in warning and "1 request that did not succeed" in warning
    log = server_log(random_workload(5, 9, 40_000_000_000, 30), Server(blocks=64, max_num_seqs=16, budget=64))[0]
    assert beside_predicted(log, {}) == {} and comparison_warnings({}) == []
    log = replace(log, workload=replace(log.workload, measured=Measured("t", {"mean_ttft_ms": 2.0}, (), 9)))
    block = beside_predicted(log, {"mean_ttft_ms": 3.0, "failed": 2, "warmup_s": 1.5})
    assert block["measured"] == {"mean_ttft_ms": {"measured": 2.0, "predicted": 3.0, "error": 0.5}}
    assert (
        "2 requests are not served here" in comparison_warnings(block)[0] and "1.5 s" in comparison_warnings(block)[0]
    )


def test_the_summary_and_the_report_show_both(tmp_path: Path) -> None:
    done = kvplan_run(tmp_path, vllm_result(SERVED), report=True)
    assert done.exit_code == 0
    result = result_of(tmp_path / "out")
    row = result["measured"]["p99_ttft_ms"]
    cells = ["150.00", f"{row['predicted']:,.2f}", f"{row['predicted'] / 150 - 1:+.1%}"]
    (line,) = [line for line in done.output.splitlines() if line.startswith("P99 TTFT (ms):") and "%" in line]
    assert line.split()[3:] == cells and done.output.split("Assumptions")[0].isascii()
    assert "* computed from the request details" in done.output
    page = (tmp_path / "out" / "report.html").read_text()
    assert '<h2 id="measured">' in page and "Measured by vllm bench serve over 40 requests" in page
    assert "".join(f"<td>{cell}</td>" for cell in ["P99 TTFT (ms)", *cells]) in page
    drawing = (tmp_path / "out" / "plots" / "measured_and_predicted.svg").read_text()
    for name in LATENCIES:
        assert result["measured"][f"mean_{name}_ms"]["predicted"]
    assert drawing.count("measured and predicted: mean") == 4 and "p99 150 ms and" in drawing


def test_a_run_without_measurement_has_no_trace_of_one(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,50,5\n1,50,5\n")
    (tmp_path / "s.yaml").write_text(SCENARIO % ("t.csv", ""))
    done = CliRunner().invoke(app, ["run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), "--quiet"])
    assert done.exit_code == 0 and "easured" not in done.output.split("Assumptions")[0]
    assert not {"measured", "measured_from"} & result_of(tmp_path / "out").keys()
    assert 'id="measured"' not in (tmp_path / "out" / "report.html").read_text()
    assert not (tmp_path / "out" / "plots" / "measured_and_predicted.svg").exists()


def test_variants_stand_beside_one_measurement() -> None:
    block = {"mean_ttft_ms": {"measured": 2.0, "predicted": 3.0, "error": 0.5}}
    other = {"mean_ttft_ms": {"measured": 2.0, "predicted": None, "error": None}}
    found = rows([{"measured": block}, {"measured": other}, {}])
    assert found == [["Mean TTFT (ms)", "2.00", "3.00", "+50.0%", "-", "-", "-", "-"]]


def test_guidellm_runs_too(tmp_path: Path) -> None:
    summary = {"successful": {"mean": 20.0, "median": 19.0, "percentiles": {"p90": 30.0}}}
    result = guidellm_result(SERVED, {"type_": "concurrent", "streams": 4}, inter_token_latency_ms=summary)
    assert kvplan_run(tmp_path, result).exit_code == 0
    found = result_of(tmp_path / "out")
    assert found["max_concurrency"] == 4 and found["max_concurrent_requests"] == 4
    assert found["measured"]["p90_itl_ms"]["measured"] == 30.0 and "weight" in found["measured_from"]["definitions"][0]

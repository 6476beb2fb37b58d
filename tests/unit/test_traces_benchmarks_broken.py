"""Results of benchmark tools that cannot be used: what is wrong, where, and a change that works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simulator.cli import app
from tests.bench_results import Served, aiperf_records, aiperf_totals, guidellm_result, vllm_result
from workloads.errors import WorkloadError
from workloads.traces.config import TraceConfig
from workloads.traces.load import load_trace

SERVED = [Served(0.0, 100, 11, 0.05), Served(0.5, 200, 1, 0.07)]
FAILED = [Served(0.0, 100, 11, 0.05, error="ConnectionRefusedError")] * 2
STRATEGY = {"type_": "constant", "rate": 2.0}
DETAILED = "--save-detailed"


def without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in names}


def totals_alone() -> dict[str, Any]:
    arrays = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors")
    return without(vllm_result(SERVED), *arrays)


def listed(**changes: Any) -> dict[str, Any]:
    result = guidellm_result(SERVED, STRATEGY)
    result["benchmarks"][0] |= changes
    return result


REFUSED: list[tuple[str, Any, str, str, str]] = [
    ("totals without requests", totals_alone(), "auto", "holds totals alone", DETAILED),
    ("no output_lens", without(vllm_result(SERVED), "output_lens"), "auto", "has no output_lens", DETAILED),
    ("no input_lens", without(vllm_result(SERVED), "input_lens"), "auto", "has no input_lens", DETAILED),
    ("lengths no list", vllm_result(SERVED, input_lens=3), "auto", "has no input_lens", DETAILED),
    ("one length missing", vllm_result(SERVED, output_lens=[3]), "auto", "output_lens has 1 entries", "again"),
    ("one time missing", vllm_result(SERVED, start_times=[3]), "auto", "start_times has 1 entries", "leave out start"),
    ("one gap list missing", vllm_result(SERVED, itls=[]), "auto", "itls has 0 entries and input_lens 2", "leave out"),
    ("no request", vllm_result([]), "auto", "no usable row", "whose requests were served"),
    ("all failed", vllm_result(FAILED), "auto", "request 1 the request failed: ConnectionRefusedError", "were served"),
    ("lengths are NaN", vllm_result(SERVED, input_lens=[float("nan")] * 2), "auto", "not a whole number", "served"),
    ("times are NaN", vllm_result(SERVED, start_times=[float("nan")] * 2), "auto", "start_times is not", "served"),
    ("times too far", vllm_result(SERVED, start_times=[0, 1e12]), "auto", "clock ends", "time_scale"),
    ("another file", {"a": 1, "b": 2}, "vllm-bench", "is no result of vllm bench serve: it has a, b", DETAILED),
    ("a number", 3, "vllm-bench", "holds no result", "JSON file"),
    ("no object", [], "vllm-bench", "holds no result", "JSON file"),
    ("another tool's", vllm_result(SERVED), "guidellm", "is no result of guidellm", "benchmarks.json"),
    ("no benchmark", {"guidellm_version": "0.6.0", "benchmarks": []}, "auto", "holds no benchmark", "benchmarks.json"),
    ("no requests", listed(requests={}), "auto", "holds totals alone", "--sample-requests"),
    ("requests null", listed(requests={"successful": None}), "auto", "holds totals alone", "--sample-requests"),
    ("none succeeded", guidellm_result(FAILED, STRATEGY), "auto", "no usable row", "were served"),
    (
        "requests are numbers",
        listed(requests={"successful": [1, 2]}),
        "auto",
        "request 1 is not a JSON object",
        "served",
    ),
    (
        "aiperf's totals alone",
        aiperf_totals(phase={}),
        "auto",
        "there is no profile_export.jsonl",
        "profile_export.jsonl",
    ),
    ("all aiperf's failed", aiperf_records(FAILED), "auto", "line 1 the request failed", "format"),
    ("no record", [{"a": 1, "b": 2}], "aiperf", "is no record of aiperf: a, b", "format"),
]


@pytest.mark.parametrize(
    "content,file_format,what,remedy", [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refused(tmp_path: Path, content: Any, file_format: Any, what: str, remedy: str) -> None:
    name = "profile_export_aiperf.json" if "aiperf_version" in str(content) else "result.jsonl"
    rows = content if isinstance(content, list) else [content]
    (tmp_path / name).write_text("\n".join(json.dumps(row) for row in rows))
    with pytest.raises(WorkloadError) as caught:
        load_trace(TraceConfig(path=str(tmp_path / name), format=file_format), where="workload.trace")
    assert what in caught.value.what and caught.value.where
    assert caught.value.remedy is not None and remedy in caught.value.remedy


def test_a_result_that_was_cut_short_says_at_which_line(tmp_path: Path) -> None:
    text = json.dumps(vllm_result(SERVED), indent=1)
    path = tmp_path / "result.json"
    path.write_text(text[:-30])
    with pytest.raises(WorkloadError, match=r"cut short|is not JSON") as caught:
        load_trace(TraceConfig(path=str(path)))
    lines = text[:-30].count("\n") + 1
    assert caught.value.where in (f"{path}:{lines}", f"{path}:{lines - 1}") and "again" in str(caught.value.remedy)
    path.write_text(text.replace('"date"', "date", 1))
    with pytest.raises(WorkloadError, match="is not JSON") as caught:
        load_trace(TraceConfig(path=str(path)))
    assert caught.value.where == f"{path}:2"


def test_a_nest_without_end(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"input_lens": ' + "[" * 100_000)
    with pytest.raises(WorkloadError, match="nests too deeply"):
        load_trace(TraceConfig(path=str(path), format="vllm-bench"))


def test_failed_requests_may_be_an_error(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(vllm_result([*SERVED, FAILED[0]])))
    with pytest.raises(WorkloadError, match="ConnectionRefusedError") as caught:
        load_trace(TraceConfig(path=str(path), on_bad_row="error"))
    assert caught.value.where == f"{path}, request 3"


SCENARIO = """name: logs
model: llama-3.1-8b
gpu: h100-sxm-80gb
engine: {preset: vllm, max_model_len: 8192}
workload: {trace: {path: result.json%s}}
"""


@pytest.mark.parametrize(
    "content,options,what,remedy",
    [
        (totals_alone(), "", "holds totals alone", DETAILED),
        (vllm_result(FAILED), "", "no usable row", "served"),
        (vllm_result(SERVED), ", benchmark: 4", "number 4", "trace.benchmark"),
        (vllm_result(SERVED), ", benchmark: -1", "workload.trace.benchmark", ""),
        (vllm_result(SERVED), ", format: vllm", "format", "vllm-bench"),
    ],
)
def test_the_command_line_exits_with_2(tmp_path: Path, content: Any, options: str, what: str, remedy: str) -> None:
    (tmp_path / "result.json").write_text(json.dumps(content))
    (tmp_path / "s.yaml").write_text(SCENARIO % options)
    done = CliRunner().invoke(app, ["run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), "--quiet"])
    said = " ".join((done.output + done.stderr).split())
    assert done.exit_code == 2, said
    assert what in said and remedy in said and "Traceback" not in said
    assert not (tmp_path / "out").exists()

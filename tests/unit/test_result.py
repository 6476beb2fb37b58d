"""The result's keys and files: the contract's columns, whole or absent, the same bytes from leaps as from steps."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from simulator.result import ResultContext, result_dict, write_json, write_requests_csv, write_timeline_csv
from simulator.result_files import json_text, whole_file
from tests.synthetic_log import Server, merged, random_workload, server_log

CONTRACT = """model_id num_prompts request_rate burstiness max_concurrency duration completed failed total_input_tokens
total_output_tokens request_throughput request_goodput output_throughput total_token_throughput
max_concurrent_requests schema_version seed scenario_sha256 calibration engine_steps preemptions recomputed_tokens
prefix_cache_hit_rate mean_running mean_waiting binding_limit saturated rejected slo classes warnings assumptions kv"""
CONTRACT_KV = """pool_bytes num_gpu_blocks block_size bytes_per_token peak_utilization mean_utilization token_share
reserved_share internal_fragmentation_share external_fragmentation_share"""
CONTRACT_CSV = (
    "request_id,class,replica,arrival_s,prompt_tokens,output_tokens,scheduled_s,first_token_s,finish_s,"
    "queue_ms,ttft_ms,tpot_ms,e2el_ms,preemptions,cached_tokens,status,reason"
)
SERVER = Server(blocks=12, max_num_seqs=5, budget=30, replicas=2)
LOG = server_log(random_workload(3, 30, 5_000_000_000, 30), SERVER)[0]
CONTEXT = ResultContext(
    model_id="llama-3.1-8b",
    seed=3,
    slo={"ttft_ms": {"p99": 500}},
    assumptions=("block_size: the engine's default",),
    usd_per_gpu_hour=2.0,
)


def test_every_key_of_the_contract_is_there() -> None:
    result = result_dict(LOG, CONTEXT)
    latencies = {
        f"{stat}_{name}_ms"
        for stat in ("mean", "median", "std", "p90", "p95", "p99")
        for name in ("ttft", "tpot", "itl", "e2el", "queue")
    }
    assert {*CONTRACT.split(), *latencies} <= set(result)
    assert set(CONTRACT_KV.split()) <= set(result["kv"])
    assert result["completed"] + result["failed"] == result["num_prompts"] == 30
    assert result["usd_per_hour"] == 4.0
    assert result["usd_per_million_output_tokens"] == pytest.approx(4.0 / 3600 / result["output_throughput"] * 1e6)


def test_leaps_and_steps_write_the_same_bytes(tmp_path: Path) -> None:
    for name, log in (("steps", LOG), ("leaps", merged(LOG, 1, 1.0))):
        write_json(result_dict(log, CONTEXT), tmp_path / name / "result.json")
        write_requests_csv(log, tmp_path / name / "requests.csv")
        write_timeline_csv(log, tmp_path / name / "timeline.csv")
    for file in ("result.json", "requests.csv", "timeline.csv"):
        assert (tmp_path / "steps" / file).read_bytes() == (tmp_path / "leaps" / file).read_bytes(), file


def test_requests_csv_has_the_contracts_columns_and_consistent_cells(tmp_path: Path) -> None:
    write_requests_csv(LOG, tmp_path / "requests.csv")
    text = (tmp_path / "requests.csv").read_text()
    assert text.splitlines()[0] == CONTRACT_CSV
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["request_id"] for row in rows] == [str(i) for i in range(30)]
    for row in rows:
        if row["status"] == "rejected":
            assert row["reason"] and row["ttft_ms"] == row["finish_s"] == ""
            continue
        span = float(row["finish_s"]) - float(row["arrival_s"])
        assert float(row["e2el_ms"]) == pytest.approx(1000 * span)
        assert (row["tpot_ms"] == "") == (row["output_tokens"] == "1")
    assert {row["status"] for row in rows} == {"finished", "rejected"}


def test_timeline_adds_up_and_has_at_most_a_thousand_rows(tmp_path: Path) -> None:
    write_timeline_csv(LOG, tmp_path / "timeline.csv")
    rows = list(csv.DictReader((tmp_path / "timeline.csv").read_text().splitlines()))
    assert len(rows) == 1000
    slots = SERVER.slots * SERVER.replicas
    parts = ("stored_tokens", "reserved_slots", "internal_slots", "external_slots", "free_slots")
    assert all(sum(int(row[part]) for part in parts) == slots for row in rows)
    assert max(int(row["running"]) for row in rows) > 1
    assert rows[-1]["running"] == "0" and float(rows[-1]["time_s"]) == LOG.end_ps / 1e12


def test_warnings_say_what_a_reader_must_know() -> None:
    text = " ".join(result_dict(LOG, CONTEXT)["warnings"])
    assert "can never be served" in text and "preemptions" in text


def test_json_has_no_nan_and_keeps_the_order() -> None:
    assert json.loads(json_text({"b": math.nan, "a": [math.inf, 1.5]})) == {"b": None, "a": [None, 1.5]}
    assert list(json.loads(json_text({"b": 1, "a": 2}))) == ["b", "a"]


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("before")
    with pytest.raises(RuntimeError), whole_file(path) as file:
        file.write("half")
        raise RuntimeError
    assert path.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.txt"]

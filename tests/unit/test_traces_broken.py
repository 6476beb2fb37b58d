"""Broken traces: bad rows are counted and named by line; a file that cannot be used is refused with a remedy."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from simulator.random_streams import Streams
from workloads.build import build_workload
from workloads.config import WorkloadConfig
from workloads.errors import WorkloadError
from workloads.traces.config import TraceConfig
from workloads.traces.facts import NAMED_LINES
from workloads.traces.load import TraceRows, load_trace


def load(folder: Path, text: str, **options: Any) -> TraceRows:
    (folder / "trace").write_text(text)
    return load_trace(TraceConfig(path=str(folder / "trace"), **options), where="workload.trace")


BROKEN_ROWS = [
    ("2023-11-16 18:15:50,396", "fields"),
    ("2023-11-16 18:15:50,396,109,7", "fields"),
    ("2023-11-16 18:15:50,,109", "ContextTokens is missing"),
    ("2023-11-16 18:15:50,x,109", "ContextTokens is not a number"),
    ("2023-11-16 18:15:50,12.5,109", "ContextTokens is not a whole number"),
    ("2023-11-16 18:15:50,nan,109", "ContextTokens is not a whole number"),
    ("2023-11-16 18:15:50,1e400,109", "ContextTokens is not a whole number"),
    ("2023-11-16 18:15:50,1_000,109", "ContextTokens is not a number"),
    ("2023-11-16 18:15:50,0,109", "ContextTokens is below 1"),
    ("2023-11-16 18:15:50,-4,109", "ContextTokens is below 1"),
    ("2023-11-16 18:15:50,99999999999999999999999,109", "ContextTokens is above"),
    ("2023-11-16 18:15:50,5,0", "GeneratedTokens is below 1"),
    ("2023-11-31 18:15:50,5,5", "TIMESTAMP is not a date"),
    ("2023-11-16 25:15:50,5,5", "TIMESTAMP is not a time of day"),
    (",5,5", "TIMESTAMP is missing"),
    ("yesterday,5,5", "TIMESTAMP is not a time"),
    ("NaN,5,5", "TIMESTAMP is not a time"),
    ('"2023-11-16 18:15:50,5,5', "has broken quotes"),
]


@pytest.mark.parametrize("row,reason", BROKEN_ROWS)
def test_a_broken_table_row_costs_itself_alone(tmp_path: Path, row: str, reason: str) -> None:
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n\n"
    rows = load(tmp_path, head + row + "\n2023-11-16 18:15:51,7,8\n")
    assert rows.prompt_tokens.tolist() == [374, 7] and rows.facts.rows_read == 3
    (dropped,) = rows.facts.dropped
    assert reason in dropped.reason and dropped.count == 1 and dropped.examples[0][0] == 4
    with pytest.raises(WorkloadError) as caught:
        load(tmp_path, head + row + "\n", on_bad_row="error")
    assert caught.value.where == f"{tmp_path / 'trace'}:4" and caught.value.remedy


GOOD: dict[str, Any] = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
BROKEN_OBJECTS = [
    ("{broken", "is not valid JSON"),
    ("[1, 2]", "is not a JSON object"),
    (json.dumps({"foo": 1}), "is missing"),
    (json.dumps(GOOD | {"timestamp": None}), "timestamp is missing"),
    (json.dumps(GOOD | {"timestamp": float("nan")}), "timestamp is not a usable number"),
    (json.dumps(GOOD | {"timestamp": 10**400}), "timestamp is not a usable number"),
    (json.dumps(GOOD | {"timestamp": [3]}), "timestamp is not a time"),
    (json.dumps(GOOD | {"input_length": True}), "input_length is not a number"),
    (json.dumps(GOOD | {"input_length": -5}), "input_length is below 1"),
    (json.dumps(GOOD | {"output_length": 0}), "output_length is below 1"),
    (json.dumps(GOOD | {"hash_ids": 3}), "hash_ids is not a list"),
    (json.dumps(GOOD | {"hash_ids": [0, None]}), "hash_ids holds something else"),
    (json.dumps(GOOD | {"hash_ids": [0, 1, 2]}), "hash_ids name more blocks"),
]


@pytest.mark.parametrize(
    "row,reason,first",
    [(row, reason, False) for row, reason in BROKEN_OBJECTS]
    # a file that begins with [ is one array
    + [(row, reason, True) for row, reason in BROKEN_OBJECTS if not row.startswith("[")],
)
def test_a_broken_json_row_costs_itself_alone(tmp_path: Path, row: str, reason: str, first: bool) -> None:
    good = json.dumps(GOOD)
    text = f"{row}\n{good}\n{good}\n" if first else f"{good}\n{row}\n{good}\n"
    rows = load(tmp_path, text)
    assert len(rows.lines) == 2 and rows.facts.rows_read == 3
    (dropped,) = rows.facts.dropped
    assert reason in dropped.reason or (first and "names no prompt" in dropped.reason)
    assert dropped.examples[0][0] == (1 if first else 2)


@pytest.mark.parametrize("first", ["{broken", json.dumps({"foo": 1}), json.dumps({"timestamp": 4})])
def test_a_first_line_unlike_the_rest_is_dropped_too(tmp_path: Path, first: str) -> None:
    rows = load(tmp_path, f"{first}\n{json.dumps(GOOD)}\n", format="mooncake")
    assert rows.prompt_tokens.tolist() == [600] and rows.facts.dropped[0].examples[0][0] == 1


def test_many_broken_rows_are_all_counted_and_the_first_named(tmp_path: Path) -> None:
    rows = load(tmp_path, "prompt_tokens,output_tokens\n5,5\n" + "x,5\n" * 100 + "5,y\n")
    bad, other = rows.facts.dropped
    assert bad.count == 100 and [line for line, _ in bad.examples] == list(range(3, 3 + NAMED_LINES))
    assert other.count == 1 and rows.facts.rows_dropped == 101 and rows.facts.rows_read == 102


def test_dropped_rows_reach_the_notes(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("arrival_s,prompt_tokens,output_tokens\n0,5,5\n1,x,5\n2,5,5\n")
    workload = build_workload(WorkloadConfig(trace=TraceConfig(path=str(tmp_path / "trace"))), Streams(0))
    assert any("1 of 3 rows dropped" in note and "line 3 ('x')" in note for note in workload.notes)


def test_an_array_that_breaks_off_is_read_up_to_there(tmp_path: Path) -> None:
    text = json.dumps([{"prompt_tokens": 5, "output_tokens": 6}] * 3)
    rows = load(tmp_path, text[:-20])
    assert len(rows.lines) == 2 and "nothing after it" in rows.facts.dropped[0].reason
    rows = load(tmp_path, text[:-1])
    assert len(rows.lines) == 3 and rows.facts.rows_dropped == 1


def test_what_follows_an_array_is_told(tmp_path: Path) -> None:
    rows = load(tmp_path, '[{"prompt_tokens": 5, "output_tokens": 6}]\n{"prompt_tokens": 7, "output_tokens": 8}\n')
    assert len(rows.lines) == 1 and "after the end of its array" in rows.facts.dropped[0].reason


def test_a_large_array_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.traces.json_rows._CHUNK", 7)
    array = [{"prompt_tokens": i + 1, "output_tokens": 12345, "text": "]},\n{" * i} for i in range(50)]
    for indent, lines in ((2, [2, 7, 12]), (None, [1, 1, 1])):
        rows = load(tmp_path, json.dumps(array, indent=indent))
        assert rows.prompt_tokens.tolist() == list(range(1, 51)) and not rows.facts.dropped
        assert rows.lines[:3].tolist() == lines
    as_lines = load(tmp_path, "\n" + "\n".join(json.dumps(row) for row in array))
    assert as_lines.prompt_tokens.tolist() == list(range(1, 51)) and as_lines.lines[0] == 2


UNUSABLE: list[tuple[bytes, dict[str, Any], str, str]] = [
    (b"", {}, "is empty", "at least one request"),
    (b" \n\n", {}, "is empty", "at least one request"),
    (b"TIMESTAMP,ContextTokens,GeneratedTokens\n", {}, "no usable row", "format"),
    (b"TIMESTAMP,ContextTokens,GeneratedTokens\nx,y,z\n", {}, "line 2", "format"),
    (b"a,b,c\n1,2,3\n", {}, "no column of prompt tokens; it has a, b, c", "prompt_tokens"),
    (b"prompt_tokens,b\n1,2\n", {}, "no column of output tokens", "output_tokens"),
    (b'{"timestamp": 3}\n', {}, "no column of prompt tokens", "prompt_tokens"),
    (b"{nonsense\n", {}, "no usable row", "format"),
    (b"PAR1....", {}, "Parquet", "CSV"),
    (b"PK\x03\x04...", {}, "zip", "CSV"),
    (gzip.compress(b"prompt_tokens,output_tokens\n" + b"5,5\n" * 9999, mtime=0)[:60], {}, "cut short", "again"),
    (b"\x1f\x8b garbage that is no gzip", {}, "", "again"),
    (b"arrival_s,prompt_tokens,output_tokens\n0,5,5\n99999999,5,5\n", {}, "clock ends", "time_scale"),
    (
        b'{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [1, 2, 3, 4, 5, 6, 7]}\n',
        {},
        "no block size",
        "block_size",
    ),
    (b"\xff\xfe\x00binary\x00\n\x00", {}, "no column", "prompt_tokens"),
]


@pytest.mark.parametrize("content,options,what,remedy", UNUSABLE)
def test_an_unusable_file_is_refused_with_a_remedy(
    tmp_path: Path, content: bytes, options: dict[str, Any], what: str, remedy: str
) -> None:
    (tmp_path / "trace").write_bytes(content)
    with pytest.raises(WorkloadError) as caught:
        load_trace(TraceConfig(path=str(tmp_path / "trace"), **options), where="workload.trace")
    assert what in caught.value.what and caught.value.where
    assert caught.value.remedy is not None and remedy in caught.value.remedy


def test_a_missing_file_names_its_neighbour_and_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "azure_conv.csv").write_text("x")
    with pytest.raises(WorkloadError, match="there is no file") as caught:
        load_trace(TraceConfig(path="azure_con.csv"), base_dir=tmp_path, where="workload.trace")
    assert caught.value.where == "workload.trace.path" and "azure_conv.csv" in str(caught.value.remedy)
    with pytest.raises(WorkloadError, match="cannot be read"):
        load_trace(TraceConfig(path=str(tmp_path)))


@pytest.mark.parametrize(
    "options,where",
    [
        ({"path": ""}, "path"),
        ({"format": "parquet"}, "format"),
        ({"time_scale": 0}, "time_scale"),
        ({"time_scale": float("nan")}, "time_scale"),
        ({"limit": 0}, "limit"),
        ({"block_size": True}, "block_size"),
        ({"characters_per_token": -1}, "characters_per_token"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], where: str) -> None:
    config = WorkloadConfig(trace=TraceConfig(**({"path": "x"} | options)))
    with pytest.raises(WorkloadError) as caught:
        build_workload(config, Streams(0))
    assert caught.value.where == f"workload.trace.{where}" and caught.value.remedy

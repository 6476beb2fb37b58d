"""Whatever a trace file holds: rows that can be used, or one WorkloadError; and every row is accounted for."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.errors import WorkloadError
from workloads.traces.config import FORMATS, TraceConfig
from workloads.traces.load import load_trace

VALUES: st.SearchStrategy[Any] = st.one_of(
    st.integers(-5, 5000),
    st.integers(),
    st.floats(allow_nan=True),
    st.none(),
    st.booleans(),
    st.text(max_size=8),
    st.lists(st.one_of(st.integers(0, 9), st.text(max_size=2), st.none()), max_size=4),
)
NAMES = st.sampled_from(
    ["timestamp", "input_length", "output_length", "hash_ids", "priority", "class", "id", "segments", "messages", "x"]
)
HEADERS = st.sampled_from(
    [
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "Timestamp,Model,Request tokens,Response tokens",
        "arrived_at,num_prefill_tokens,num_decode_tokens",
        "arrival_ms,prompt_tokens,output_tokens,priority,class,id",
    ]
)
CELLS = st.one_of(
    st.integers(-9, 9000).map(str),
    st.sampled_from(["2023-11-16 18:15:46.6805900", "0.5", "1e3", "", '"', '"a,b"', "nan", "-1", "inf", "9" * 30]),
    st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=6),
)


def loads_or_refuses(content: bytes, file_format: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(content)
        try:
            rows = load_trace(TraceConfig(path=str(path), format=file_format))
        except WorkloadError as error:
            assert error.what and error.where and error.remedy
            return
    facts = rows.facts
    assert facts.rows_kept == len(rows.lines) >= 1
    if rows.turn is None:
        assert facts.rows_read == facts.rows_kept + facts.rows_dropped
    assert rows.prompt_tokens.min() >= 1 and rows.output_tokens.min() >= 1
    assert rows.arrival_ps is None or rows.arrival_ps.min() >= 0
    for prompt, segments in zip(rows.prompt_tokens.tolist(), rows.segments or (), strict=False):
        assert segments is None or sum(length for _, _, length in segments) == prompt


@given(st.binary(max_size=300), st.sampled_from(FORMATS))
@settings(max_examples=150)
def test_any_bytes(content: bytes, file_format: str) -> None:
    loads_or_refuses(content, file_format)


@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=8), max_size=6), st.booleans())
@settings(max_examples=250)
def test_any_json_rows(rows: list[dict[str, Any]], as_array: bool) -> None:
    text = json.dumps(rows) if as_array else "\n".join(json.dumps(row) for row in rows)
    loads_or_refuses(text.encode(), "auto")


@given(HEADERS, st.lists(st.lists(CELLS, min_size=1, max_size=7), max_size=8))
@settings(max_examples=250)
def test_any_table(header: str, rows: list[list[str]]) -> None:
    loads_or_refuses("\n".join([header, *(",".join(row) for row in rows)]).encode(), "auto")

"""Whatever a trace file holds: rows that can be used, or one WorkloadError; and every row is accounted for."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench_results import Served, aiperf_records, aiperf_totals, guidellm_result, vllm_result
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


_SERVED = [Served(0.0, 100, 3, 0.05), Served(0.5, 20, 1, 0.07, error="TimeoutError"), Served(0.75, 30, 2, 0.08)]
BENCHMARKS: tuple[tuple[Any, Any], ...] = (
    ("vllm-bench", vllm_result(_SERVED, latencies=[0.1, 0.0, 0.2], queue_times=[0.0, 0.0, 0.0])),
    ("aiperf", aiperf_records(_SERVED)[0]),
    ("aiperf", aiperf_totals(phase={"type": "poisson", "rate": 2.0})),
    ("guidellm", guidellm_result(_SERVED, {"type_": "poisson", "rate": 2.0}, incomplete=1)),
    ("guidellm", guidellm_result(_SERVED, {"type_": "concurrent", "streams": 2}, older=True)),
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to each part of a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] + [place for key, part in items for place in _places(part, (*path, key))]


@given(st.sampled_from(BENCHMARKS), st.data(), st.booleans())
@settings(max_examples=300)
def test_any_damage_to_a_benchmarks_result(benchmark: tuple[Any, Any], data: st.DataObject, named: bool) -> None:
    file_format, document = benchmark
    document = json.loads(json.dumps(document))
    for _ in range(data.draw(st.integers(1, 3))):
        places = _places(document)[1:]
        if not places:
            break
        *path, last = data.draw(st.sampled_from(places))
        where = document
        for key in path:
            where = where[key]
        if data.draw(st.booleans()):
            where[last] = data.draw(VALUES)
        else:
            del where[last]
    loads_or_refuses(json.dumps(document).encode(), file_format if named else "auto")


@given(st.sampled_from(BENCHMARKS), st.data())
@settings(max_examples=100)
def test_a_benchmarks_result_cut_anywhere(benchmark: tuple[Any, Any], data: st.DataObject) -> None:
    content = json.dumps(benchmark[1]).encode()
    loads_or_refuses(content[: data.draw(st.integers(0, len(content) - 1))], benchmark[0])

"""Each trace format, written here by hand: what a row becomes, and how the format is told from the content."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from simulator.random_streams import Streams
from workloads.arrivals import AllAtOnce, ClosedLoop, Constant, Poisson, Replay
from workloads.build import build_workload
from workloads.config import WorkloadConfig
from workloads.errors import WorkloadError
from workloads.mixes import ClassConfig
from workloads.traces.config import TraceConfig
from workloads.traces.load import TraceRows, load_trace
from workloads.workload import PS_PER_S, Workload

MS = PS_PER_S // 1000


def write(folder: Path, text: str, name: str = "trace") -> TraceConfig:
    (folder / name).write_text(text)
    return TraceConfig(path=str(folder / name))


def load(folder: Path, text: str, **options: Any) -> TraceRows:
    (folder / "trace").write_text(text)
    return load_trace(TraceConfig(path=str(folder / "trace"), **options))


def build(trace: TraceConfig, **fields: Any) -> Workload:
    return build_workload(WorkloadConfig(trace=trace, **fields), Streams(0))


AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:16:00,879,55
"""


def test_azure_keeps_all_seven_decimals_and_starts_at_its_first_row(tmp_path: Path) -> None:
    rows = load(tmp_path, AZURE)
    assert rows.facts.format == "azure" and rows.arrival_ps is not None
    assert rows.arrival_ps.tolist() == [0, 4_314_579_000_000, 13_319_410_000_000]
    assert rows.prompt_tokens.tolist() == [374, 396, 879] and rows.output_tokens.tolist() == [44, 109, 55]
    assert rows.lines.tolist() == [2, 3, 4]


def test_azure_2024_has_an_offset_and_may_cross_midnight(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-02-29 23:59:59.5+00:00,1,2\n2024-03-01 02:00:00.25+02:00,3,4\n"
    )
    rows = load(tmp_path, text)
    assert rows.arrival_ps is not None and rows.arrival_ps.tolist() == [0, 750 * MS]


def test_burstgpt_drops_failures_and_counts_them(tmp_path: Path) -> None:
    text = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n"
        "45,ChatGPT,1087,0,1087,Conversation log\n"
        "118,GPT-4,417,276,693,API log\n"
    )
    rows = load(tmp_path, text)
    assert rows.facts.format == "burstgpt" and rows.arrival_ps is not None
    assert rows.arrival_ps.tolist() == [5 * PS_PER_S, 118 * PS_PER_S]
    (dropped,) = rows.facts.dropped
    assert dropped.count == 1 and dropped.examples[0][0] == 3 and "failed" in dropped.reason
    with_session = text.replace("Timestamp,", "Timestamp,Session ID,Elapsed time,").replace(
        ",ChatGPT", ",7,0.5,ChatGPT"
    )
    assert load(tmp_path, with_session.replace(",GPT-4", ",8,1,GPT-4")).prompt_tokens.tolist() == [472, 417]


def test_vidur_and_its_time_zero(tmp_path: Path) -> None:
    rows = load(tmp_path, "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0000015,10,2\n1e-3,5,1\n")
    assert rows.facts.format == "vidur" and rows.arrival_ps is not None
    assert rows.arrival_ps.tolist() == [1_500_000, MS]


@pytest.mark.parametrize(
    "header,first",
    [
        ("arrival_ns,ContextTokens,GeneratedTokens", 1000),
        ("timestamp_ms,input_length,output_length", 10**9),
        ("arrival_us,prompt_len,output_len", 10**6),
        ("arrival_s,prompt_tokens,output_tokens", PS_PER_S),
        ("t,in,out", PS_PER_S),
        ("Arrival Time (ms),Input Tokens,Output Tokens", 10**9),
        ("timestamp,isl,osl", PS_PER_S),
        ("arrival_time_ns,input_toks,output_toks", 1000),
        ("arrival_timestamp,prompt_size,token_size", PS_PER_S),
    ],
)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_plain_tables_say_by_their_names_what_they_hold(
    tmp_path: Path, header: str, first: int, delimiter: str
) -> None:
    rows = load(tmp_path, f"{header}\n1,20,3\n".replace(",", delimiter))
    assert rows.arrival_ps is not None and rows.arrival_ps.tolist() == [first]
    assert (rows.prompt_tokens[0], rows.output_tokens[0]) == (20, 3)


def test_etalon_lengths_have_no_times_and_need_a_law(tmp_path: Path) -> None:
    trace = write(tmp_path, "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n74,918,992,0.08\n")
    with pytest.raises(WorkloadError, match="no times") as caught:
        build(trace)
    assert caught.value.where == "workload.arrivals" and "poisson" in str(caught.value.remedy)
    assert build(trace, arrivals=Constant(2)).prompt_tokens.tolist() == [74]


def mooncake(*rows: tuple[float, int, int, list[Any]], time: str = "timestamp") -> str:
    names = (time, "input_length", "output_length", "hash_ids")
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)


def test_mooncake_blocks_become_segments_and_the_last_may_be_partial(tmp_path: Path) -> None:
    rows = load(tmp_path, mooncake((0, 1030, 5, [0, 1, 2]), (3000, 512, 6, [0]), (3000, 700, 7, [0, 9])))
    assert rows.facts.format == "mooncake" and rows.facts.block_size == 512 and rows.arrival_ps is not None
    assert rows.arrival_ps.tolist() == [0, 3 * PS_PER_S, 3 * PS_PER_S]
    assert rows.segments is not None
    assert rows.segments[0] == (("h:0", 0, 512), ("h:1", 0, 512), ("h:2", 0, 6))
    assert rows.segments[-1] == (("h:0", 0, 512), ("h:9", 0, 188)) and len(rows.segments[1:]) == 2
    with pytest.raises(IndexError):
        rows.segments[3]


def test_block_size_follows_from_the_lengths_or_is_given(tmp_path: Path) -> None:
    full_blocks_only = mooncake((0, 40, 5, [0, 1]), (1, 15, 5, []), (2, 64, 6, [0, 1, 5, 6]), time="timestamp_ms")
    rows = load(tmp_path, full_blocks_only)
    assert rows.facts.block_size == 16 and any("16 tokens" in note for note in rows.notes)
    assert rows.segments is not None and rows.arrival_ps is not None
    assert rows.segments[0] == (("h:0", 0, 16), ("h:1", 0, 16), ("r:0", 0, 8)) and rows.segments[1] is None
    assert rows.arrival_ps.tolist() == [0, 10**9, 2 * 10**9]
    assert load(tmp_path, full_blocks_only, block_size=8).segments[0] == (  # type: ignore[index]
        ("h:0", 0, 8),
        ("h:1", 0, 8),
        ("r:0", 0, 24),
    )
    rows = load(tmp_path, full_blocks_only, block_size=64)
    (dropped,) = rows.facts.dropped
    assert (dropped.count, [line for line, _ in dropped.examples]) == (2, [1, 3])


def test_alibaba_times_are_seconds_and_text_ids_work(tmp_path: Path) -> None:
    row = {"chat_id": 1, "timestamp": 61.114, "input_length": 20, "output_length": 3, "hash_ids": ["a", "b"]}
    rows = load(tmp_path, json.dumps(row) + "\n", block_size=16)
    assert rows.arrival_ps is not None and rows.arrival_ps.tolist() == [61_114 * MS]
    assert rows.segments is not None and [length for _, _, length in rows.segments[0] or ()] == [16, 4]


def test_time_unit_overrules_the_format(tmp_path: Path) -> None:
    rows = load(tmp_path, mooncake((7, 10, 5, [0])), time_unit="s")
    assert rows.arrival_ps is not None and rows.arrival_ps.tolist() == [7 * PS_PER_S]


def test_plain_jsonl_and_a_json_array_read_alike(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 1.5, "prompt_len": 9, "output_len": 2, "id": "a"},
        {"timestamp": 2, "prompt_len": 8, "output_len": 1, "id": "b"},
    ]
    lines = load(tmp_path, "\n" + "\n\n".join(json.dumps(row) for row in rows))
    array = load(tmp_path, json.dumps(rows, indent=1))
    for loaded in (lines, array):
        assert loaded.facts.format == "jsonl" and loaded.arrival_ps is not None
        assert loaded.arrival_ps.tolist() == [1500 * MS, 2 * PS_PER_S]
        assert loaded.prompt_tokens.tolist() == [9, 8] and loaded.request_ids == ["a", "b"]
    assert lines.lines.tolist() == [2, 4] and array.lines.tolist() == [2, 8]


def test_segments_of_the_golden_format_are_read(tmp_path: Path) -> None:
    good = {"id": "r0", "arrival_ns": 5, "prompt_len": 7, "output_len": 2, "segments": [["s", 0, 5], ["u", 2, 2]]}
    bad = dict(good, id="r1", segments=[["s", 0, 5]])
    rows = load(tmp_path, json.dumps(good) + "\n" + json.dumps(bad) + "\n")
    assert rows.segments is not None and rows.segments[0] == (("s", 0, 5), ("u", 2, 2))
    assert rows.facts.dropped[0].examples[0][0] == 2 and "add up" in rows.facts.dropped[0].reason


SHAREGPT = [
    {"id": "x", "conversations": [
        {"from": "human", "value": "a" * 10}, {"from": "gpt", "value": "b" * 5},
        {"from": "human", "value": "c" * 4}, {"from": "gpt", "value": "d" * 8}]},
    {"id": "y", "conversations": [{"from": "gpt", "value": "no question"}]},
    {"id": "z", "conversations": [
        {"from": "system", "value": "s" * 4}, {"from": "human", "value": "q"}, {"from": "gpt", "value": "r" * 9}]},
]  # fmt: skip


def test_sharegpt_takes_the_first_exchange_and_says_that_lengths_are_a_proxy(tmp_path: Path) -> None:
    rows = load(tmp_path, json.dumps(SHAREGPT))
    assert rows.facts.format == "sharegpt" and rows.arrival_ps is None
    assert rows.prompt_tokens.tolist() == [3, 2] and rows.output_tokens.tolist() == [2, 3]
    assert rows.facts.rows_dropped == 1 and any("proxy" in note for note in rows.notes)
    assert load(tmp_path, json.dumps(SHAREGPT), characters_per_token=1).prompt_tokens.tolist() == [10, 5]


def test_sharegpt_in_full_is_sessions(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(json.dumps(SHAREGPT))
    trace = TraceConfig(path=str(tmp_path / "trace"), turns="all", characters_per_token=1)
    workload = build(trace, arrivals=Constant(1))
    assert workload.prompt_tokens.tolist() == [10, 19, 5] and workload.after.tolist() == [-1, 0, -1]
    assert workload.arrival_ps.tolist() == [0, 0, PS_PER_S]
    assert workload.segments is not None
    assert workload.segments[1] == (("p:0", 0, 10), ("o:0", 0, 5), ("p:1", 0, 4)) and workload.segments[2] is None
    with pytest.raises(WorkloadError, match="closed loop"):
        build(trace, arrivals=ClosedLoop(2))


def test_messages_a_line_are_sharegpt_too(tmp_path: Path) -> None:
    line = {"messages": [{"role": "user", "content": "abcd"}, {"role": "assistant", "content": "efgh"}]}
    assert load(tmp_path, json.dumps(line) + "\n").prompt_tokens.tolist() == [1]


def test_gzip_is_told_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "azure.csv").write_bytes(gzip.compress(AZURE.encode()))
    rows = load_trace(TraceConfig(path=str(tmp_path / "azure.csv")))
    assert rows.facts.format == "azure" and len(rows.lines) == 3


def test_time_scale_stretches_and_replay_says_the_same(tmp_path: Path) -> None:
    trace = write(tmp_path, AZURE)
    slow = load_trace(TraceConfig(path=trace.path, time_scale=2.0))
    assert slow.arrival_ps is not None and slow.arrival_ps.tolist() == [0, 8_629_158_000_000, 26_638_820_000_000]
    replayed = build(trace, arrivals=Replay(time_scale=2.0))
    assert replayed.arrival_ps.tolist() == slow.arrival_ps.tolist()


def test_limits_and_other_arrivals(tmp_path: Path) -> None:
    trace = write(tmp_path, AZURE)
    limited = load_trace(TraceConfig(path=trace.path, limit=2))
    assert len(limited.lines) == 2 and limited.facts.rows_read == 2
    assert len(build(trace, num_requests=1)) == 1
    assert len(build(trace, duration_s=5)) == 2
    assert build(trace, arrivals=Constant(4)).arrival_ps.tolist() == [0, PS_PER_S // 4, PS_PER_S // 2]
    assert build(trace, arrivals=ClosedLoop(2)).max_concurrency == 2
    assert not build(trace, arrivals=AllAtOnce()).arrival_ps.any()
    with pytest.raises(WorkloadError, match="the trace has 3") as caught:
        build(trace, num_requests=4)
    assert caught.value.where == "workload.num_requests"


def test_rows_out_of_order_are_sorted_with_everything_they_carry(tmp_path: Path) -> None:
    rows = load(tmp_path, mooncake((9, 20, 1, [7]), (3, 600, 2, [1, 2]), (5, 30, 3, [8])))
    assert rows.prompt_tokens.tolist() == [600, 30, 20] and rows.lines.tolist() == [2, 3, 1]
    assert rows.segments is not None
    assert [row[0][0] for row in rows.segments if row is not None] == ["h:1", "h:8", "h:7"]
    assert any("sorted" in note for note in rows.notes)


def test_classes_and_priorities_come_from_the_trace_or_by_weight(tmp_path: Path) -> None:
    text = "arrival_s,prompt_tokens,output_tokens,class,priority\n0,1,1,chat,2\n1,1,1,batch,0\n2,1,1,chat,1\n"
    trace = write(tmp_path, text)
    own = build(trace)
    assert [c.name for c in own.classes] == ["chat", "batch"] and own.class_index.tolist() == [0, 1, 0]
    assert own.priority.tolist() == [2, 0, 1]
    slo = {"ttft_ms": {"p99": 300.0}}
    named = build(trace, classes=(ClassConfig("batch"), ClassConfig("chat", slo=slo)))
    assert named.class_index.tolist() == [1, 0, 1] and named.classes[1].slo == slo
    with pytest.raises(WorkloadError, match="'batch'"):
        build(trace, classes=(ClassConfig("chat"),))
    weighted = build(write(tmp_path, AZURE), classes=(ClassConfig("a", weight=0), ClassConfig("b", priority=4)))
    assert weighted.class_index.tolist() == [1, 1, 1] and weighted.priority.tolist() == [4, 4, 4]


def test_what_a_trace_excludes_is_refused(tmp_path: Path) -> None:
    trace = write(tmp_path, AZURE)
    from workloads.lengths import Fixed

    for fields, where in [
        ({"prompt_tokens": Fixed(3)}, "workload.prompt_tokens"),
        ({"classes": (ClassConfig("a", output_tokens=Fixed(3)),)}, "workload.output_tokens"),
        ({"classes": (ClassConfig("a", arrivals=Poisson(3)),)}, "workload.classes"),
        ({"arrivals": Replay(times_s=(1.0,))}, "workload.arrivals.times_s"),
    ]:
        with pytest.raises(WorkloadError) as caught:
            build(trace, **fields)  # type: ignore[arg-type]
        assert caught.value.where == where and caught.value.remedy
    twice = TraceConfig(path=trace.path, time_scale=2)
    for law in (Replay(time_scale=3), Poisson(1)):
        with pytest.raises(WorkloadError, match="time_scale"):
            build(twice, arrivals=law)

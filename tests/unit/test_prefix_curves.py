"""Prefix curves by hand, their text, their files, and the command's promises."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from reports.plots import prefix_cache
from reports.style import INK
from simulator.cli import app
from simulator.random_streams import Streams
from tests.support import DATA, needs_shared
from workloads.arrivals import AllAtOnce, Poisson
from workloads.build import build_workload
from workloads.config import WorkloadConfig
from workloads.errors import WorkloadError
from workloads.lengths import Fixed
from workloads.prefix_curves import CacheModel, cache_sizes, prefix_curves, serving_order
from workloads.prefix_curves_text import CSV_COLUMNS, answer, csv_rows, prefix_text
from workloads.prefix_lru import chain_curves
from workloads.prefix_radix import paged_tree, radix_hit_tokens
from workloads.sessions import Sessions, ThinkTime
from workloads.token_tree import token_tree
from workloads.workload import PS_PER_S, Workload

MOONCAKE = DATA / "traces" / "mooncake_fast25_conversation_trace.jsonl"
CHATS = (
    '{"timestamp": 0, "input_length": 1000, "output_length": 25, "hash_ids": [0, 1]}\n'
    '{"timestamp": 1000, "input_length": 1100, "output_length": 5, "hash_ids": [0, 2, 3]}\n'
    '{"timestamp": 2000, "input_length": 1500, "output_length": 5, "hash_ids": [0, 2, 4]}\n'
)


def kvplan(*args: str) -> Result:
    return CliRunner().invoke(app, list(args))


def abab() -> Workload:
    """Prompts A B A B of 8 tokens, with answers of 1 token: nothing of them is kept."""
    segments: Any = [((name, 0, 8),) for name in "ABAB"]
    return Workload.from_columns([0, 1, 2, 3], [8] * 4, [1] * 4, segments=segments)


def test_two_documents_by_turns_need_room_for_both_but_for_the_ends() -> None:
    """Blocks of 2: each prompt is 4 blocks, of which 3 may hit (never the last token). When A comes again, B's 4
    blocks were used since: A's blocks 1 to 3 need a cache of 5, 6 and 7 blocks."""
    curve = chain_curves(token_tree(abab(), np.arange(4)), [2])[0]
    assert [curve.hit_blocks(blocks) for blocks in range(4, 9)] == [0, 2, 4, 6, 6]
    assert curve.footprint_blocks == 8 and curve.smallest_cache_tokens(12) == 14


def test_a_radix_cache_evicts_whole_leaves() -> None:
    """The same with pages of 1: 15 tokens hold all but one of A's and B's 16, and yet A's only leaf goes whole."""
    tree = paged_tree(token_tree(abab(), np.arange(4)), 1)
    assert [radix_hit_tokens(tree, size) for size in (8, 15, 16)] == [0, 0, 14]
    assert chain_curves(token_tree(abab(), np.arange(4)), [1])[0].hit_tokens(15) == 14


def test_the_answer_of_a_turn_is_found_by_the_next() -> None:
    """Turn 2 is the 4 tokens of turn 1, its answer of 3 (2 of which went through the model), and 1 of its own."""
    segments: Any = [None, (("p:0", 0, 4), ("o:0", 0, 3), ("p:1", 0, 1))]
    workload = Workload.from_columns([0, 1], [4, 8], [3, 1], segments=segments)
    found = [curve.ideal_tokens for curve in chain_curves(token_tree(workload, np.arange(2)), [1, 2, 3, 4, 6])]
    assert found == [6, 6, 6, 4, 6]


def test_later_turns_take_their_place_in_time() -> None:
    second = PS_PER_S
    columns: Any = ([0, 5 * second, 0, 0], [4] * 4, [4] * 4)
    workload = Workload.from_columns(*columns, after=[-1, 0, 1, -1], think_ps=[0, 2 * second, 3 * second, 0])
    assert serving_order(workload).tolist() == [0, 3, 1, 2]
    at_once = WorkloadConfig(
        3, None, AllAtOnce(), Fixed(4), Fixed(4), session=Sessions(Fixed(2), ThinkTime(mean_s=0.0))
    )
    assert serving_order(build_workload(at_once, Streams(0))).tolist() == [0, 2, 1]  # row 1 is row 0's next turn


def test_interleaved_sessions_evict_each_other() -> None:
    """Sessions that overlap need room for all that stands between two turns; row by row they would need one's."""
    session = Sessions(Fixed(4), ThinkTime(mean_s=100.0))
    config = WorkloadConfig(80, None, Poisson(1), Fixed(64), Fixed(64), session=session)
    workload = build_workload(config, Streams(0))
    one, real = (chain_curves(token_tree(workload, o), [16])[0] for o in (np.arange(80), serving_order(workload)))
    longest = int((workload.prompt_tokens + workload.output_tokens).max())
    assert one.ideal_tokens == real.ideal_tokens == one.hit_tokens(longest)
    assert real.hit_tokens(longest) < one.ideal_tokens / 2


def test_sizes_run_from_the_longest_row_to_what_holds_everything() -> None:
    assert cache_sizes(150, 4000) == [200, 300, 500, 1000, 2000, 3000, 5000]
    assert cache_sizes(200, 200) == [200]
    assert len(cache_sizes(1, 10**12)) == 24 and cache_sizes(1, 10**12)[-1] == 10**12


def test_all_numbers_agree_with_each_other() -> None:
    facts = prefix_curves(abab(), block_size=2, model=CacheModel("m", 1 << 30))
    chain = facts["curves"][0]
    assert (chain["cache"], chain["block_size_tokens"], chain["footprint_tokens"]) == ("hash_chain", 2, 16)
    assert facts["ideal_token_hit_rate"] == chain["ideal_token_hit_rate"] == 12 / 32
    assert facts["ideal_block_hit_rate"] == 8 / 16  # as a trace counts: a whole prompt again hits whole
    assert [c["block_size_tokens"] for c in facts["curves"] if c["cache"] == "radix"] == [1, 2]
    for curve in facts["curves"]:
        assert curve["points"][-1]["cached_tokens"] == curve["ideal_cached_tokens"]
        assert all(p["cache_gib"] == p["cache_tokens"] for p in curve["points"])
    assert facts["near_ideal_cache_tokens"] >= facts["smallest_cache_tokens"] == 1024  # one block of 1024


def test_the_text_answers_first_and_then_shows() -> None:
    text = prefix_text(prefix_curves(abab(), block_size=2, model=CacheModel("m", 1 << 20)))
    assert text.isascii() and text.startswith(
        "An infinite prefix cache would serve 37.5 % of the 32 prompt tokens (hash chain, blocks of 2).\n"
    )
    assert "1.00 GiB (1,024 tokens of m, 1024 KiB each), as much as the longest request takes," in text
    infinite = next(line for line in text.splitlines() if line.lstrip().startswith("infinite"))
    assert infinite.split() == ["infinite", "37.5", "0.0", "0.0", "0.0", "0.0", "43.8", "37.5"]


def test_where_nothing_is_shared_no_size_helps() -> None:
    segments: Any = [(("A", 0, 50),), (("B", 0, 50),)]
    facts = prefix_curves(Workload.from_columns([0, 1], [50, 50], [2, 2], segments=segments))
    assert "no cache size helps" in answer(facts)[1]
    assert ElementTree.fromstring(prefix_cache.drawing(facts)) is not None


def test_without_token_identity_there_is_no_analysis() -> None:
    with pytest.raises(WorkloadError, match="token identity") as error:
        prefix_curves(Workload.from_columns([0], [5], [5]), where="my.csv")
    assert error.value.where == "my.csv" and error.value.remedy


def test_large_workloads_get_fewer_radix_sizes_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    segments: Any = [((f"s{row // 2}", 0, 5000),) for row in range(40)]
    workload = Workload.from_columns([0] * 40, [5000] * 40, [1] * 40, segments=segments)
    monkeypatch.setattr("workloads.prefix_curves._MOST_RADIX_ROWS", 40 * 2 * 2)
    facts = prefix_curves(workload)
    chain, radix = facts["curves"][0]["points"], facts["curves"][-1]["points"]
    assert len(radix) == 2 < len(chain) and radix[0]["cache_tokens"] == chain[0]["cache_tokens"]
    assert "2 of the" in facts["assumptions"][-1] and " - " in prefix_text(facts)
    monkeypatch.setattr("workloads.prefix_curves._MOST_RADIX_ROWS", 40 * 2 * 2 - 1)
    facts = prefix_curves(workload)
    assert {curve["cache"] for curve in facts["curves"]} == {"hash_chain"} and "radix" not in prefix_text(facts)[:900]
    assert "too large for radix" in facts["assumptions"][-1]


def test_the_csv_has_a_row_for_each_point_and_each_infinite_cache() -> None:
    facts = prefix_curves(abab(), block_size=2)
    rows = csv_rows(facts)
    assert len(rows) == sum(len(curve["points"]) + 1 for curve in facts["curves"])
    assert {len(row) for row in rows} == {len(CSV_COLUMNS)}
    assert next(row[3:] for row in rows if row[1] == "none") == ["", "", 12, 32, 0.375]


def test_the_picture_names_each_line_and_says_its_ends() -> None:
    facts = prefix_curves(abab(), block_size=2, model=CacheModel("m", 1 << 20))
    text = prefix_cache.drawing(facts)
    assert text == prefix_cache.drawing(facts) and INK not in text and "currentColor" in text
    root = ElementTree.fromstring(text)
    words = " ".join("".join(part.itertext()) for part in root.iter("{http://www.w3.org/2000/svg}text"))
    for name in ("hash chain, blocks of 2", "radix, pages of 1", "radix, pages of 2", "blocks of 1,024", "GiB of m"):
        assert name in words
    alt = prefix_cache.alt_text(facts)
    assert alt in "".join(root.itertext()) and "infinite 43.8 %" in alt and answer(facts)[0] in alt


def test_names_at_the_ends_of_lines_keep_apart_and_in_order() -> None:
    placed = prefix_cache._apart([10.0, 10.0, 30.0, 10.5], 2.0)
    assert placed[2] > placed[3] > placed[0] > placed[1]
    heights = sorted(placed)
    assert all(b - a >= 2 - 1e-9 for a, b in pairwise(heights))


def test_importing_the_plot_does_not_import_matplotlib() -> None:
    code = "import sys, reports.plots.prefix_cache; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command_prints_the_answer_and_writes_its_files(tmp_path: Path) -> None:
    trace, out = tmp_path / "t.jsonl", tmp_path / "out"
    trace.write_text(CHATS, encoding="utf-8")
    args = ["workload", str(trace), "--prefix-cache", "--model", "llama-3.1-8b", "--out", str(out)]
    done = kvplan(*args)
    assert done.exit_code == 0 and done.stdout.startswith("An infinite prefix cache would serve 42.7 % of the 3,600")
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    assert sorted(files) == ["prefix_cache.csv", "prefix_cache.svg"]
    facts = json.loads(kvplan(*args, "--json").stdout)["prefix_cache"]
    assert {path.name: path.read_bytes() for path in out.iterdir()} == files
    # 512 of block 0, then 512 of block 0 and 512 of block 2: 1,536 of 3,600.
    assert facts["ideal_token_hit_rate"] == 1536 / 3600 and facts["kv_bytes_per_token"] == 131072
    rows = list(csv.DictReader(files["prefix_cache.csv"].decode().splitlines()))
    assert float(rows[0]["cache_gib"]) == int(rows[0]["cache_tokens"]) / 8192
    half = json.loads(kvplan(*args[:-2], "--kv-cache-dtype", "fp8", "--json").stdout)["prefix_cache"]
    assert half["kv_bytes_per_token"] == 65536


def test_a_scenario_brings_its_model(tmp_path: Path) -> None:
    patches = [
        "--set",
        "workload.num_requests=60",
        "--set",
        "workload.prefix={prefix_tokens: {kind: fixed, tokens: 100}}",
    ]
    facts = json.loads(kvplan("workload", "quickstart", "--prefix-cache", "--json", *patches).stdout)
    assert facts["prefix_cache"]["model"] == "llama-3.1-8b"
    assert facts["prefix_cache"]["ideal_token_hit_rate"] == facts["ideal_cached_token_share"] > 0.05
    changed = ["--set", "variants={a: {workload.num_requests: 50}, b: {}}", *patches]
    done = kvplan("workload", "quickstart", "--prefix-cache", "--out", str(tmp_path), *changed)
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "a" / "prefix_cache.csv").exists() and (tmp_path / "b" / "prefix_cache.svg").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["quickstart", "--prefix-cache"], ("quickstart", "token identity", "workload.prefix")),
        (["TRACE", "--model", "llama-3.1-8b"], ("--model", "--prefix-cache")),
        (["TRACE", "--out", "x"], ("--out", "--prefix-cache")),
        (["TRACE", "--prefix-cache", "--model", "no-such-model"], ("--model", "no-such-model")),
        (["TRACE", "--prefix-cache", "--model", "llama-3.1-8b", "--kv-cache-dtype", "x"], ("--kv-cache-dtype",)),
        (["TRACE", "--prefix-cache", "--kv-cache-dtype", "fp8"], ("--kv-cache-dtype", "--model")),
        (["TRACE", "--prefix-cache", "--out", "TRACE"], ("--out", "cannot be written")),
        (["TRACE", "--prefix-cache", "--max-model-len", "10"], ("10 tokens or more", "--max-model-len")),
    ],
)
def test_what_cannot_be_done_is_said_with_a_way_out(args: list[str], words: tuple[str, ...], tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text(CHATS, encoding="utf-8")
    done = kvplan("workload", *(arg.replace("TRACE", str(trace)) for arg in args))
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    for word in words:
        assert word in done.stderr


@needs_shared
def test_mooncake_conversations_hit_36_6_percent_of_their_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.prefix_curves._MOST_RADIX_ROWS", 3 * 2 * 12031)  # three sizes, to be quick
    facts = json.loads(kvplan("workload", str(MOONCAKE), "--prefix-cache", "--json").stdout)["prefix_cache"]
    assert round(facts["ideal_block_hit_rate"], 3) == 0.366
    assert (facts["rows"], facts["prompt_blocks"], facts["block_size_tokens"]) == (12031, 288500, 512)
    for curve in facts["curves"]:
        rates = [point["token_hit_rate"] for point in curve["points"]]
        assert rates == sorted(rates) and rates[-1] == curve["ideal_token_hit_rate"]

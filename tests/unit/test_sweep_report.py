"""The report of a sweep: which point is best, how it is said, which drawings it gets, and what the pages hold."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reports.plots.sweep_bars import Bars
from reports.plots.sweep_heat import Maps
from reports.plots.sweep_lines import Lines
from reports.plots.sweep_pictures import pictures
from reports.sweep_answer import judge, sweep_answer
from reports.sweep_data import read_sweep
from reports.sweep_page import write_sweep_report
from reports.sweep_points import merged, points_of
from reports.sweep_reasons import sweep_reasons
from reports.sweep_table import first_table, whole_table
from simulator.cli import app
from simulator.errors import InputError
from tests.sweep_report_folder import DOES_NOT_FIT, block_sizes, grid, write_sweep

LOAD = "workload.arrivals.rate_rps"


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = block_sizes(tmp_path_factory.mktemp("blocks"))
    write_sweep_report(folder)
    return folder


def test_cells_are_read_as_what_they_say(tmp_path: Path) -> None:
    axes = {"engine.kv_cache_dtype": ["auto", "fp8"], "engine.max_model_len": [None, 4096]}
    sweep = read_sweep(write_sweep(tmp_path, axes, lambda place: {"cost": 0.25, "extra": None, "yes": True}))
    first = sweep.rows[0]
    assert [type(first[key]) for key in ("point", "cost", "yes", "status")] == [int, float, bool, str]
    assert first["extra"] is None
    assert [axis.values for axis in sweep.axes] == [("auto", "fp8"), ("not set", 4096)]
    assert not any(axis.numeric for axis in sweep.axes)


def test_warnings_of_points_are_said_once_with_their_number(blocks: Path) -> None:
    sweep = read_sweep(blocks)
    assert sweep.warnings == ("At 3 of 18 points, at most: 3 preemptions: 5 tokens were computed again.",)
    assert sweep.assumptions == ("linear layers compute in bf16",)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("sweep.json", None, "not the folder of a finished sweep"),
        ("sweep.json", "{", "is broken"),
        ("sweep.json", "[]", "not a JSON object"),
        ("points.csv", None, "is missing"),
        ("points.csv", "a,b\n1,2\n", "not the table of a sweep"),
        ("points.csv", "point,variant,x,replication,status\n0,,1,0\n", "rows are missing or cut"),
    ],
)
def test_broken_folders_are_refused(tmp_path: Path, name: str, text: str | None, words: str) -> None:
    folder = block_sizes(tmp_path)
    (folder / name).unlink()
    if text is not None:
        (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=words):
        read_sweep(folder)


def test_replications_become_a_mean_with_students_interval(tmp_path: Path) -> None:
    axes = {"engine.block_size": [8, 16]}
    folder = write_sweep(
        tmp_path, axes, lambda place: {"output_throughput": 1.0 + place["replication"]}, replications=3
    )
    point = points_of(read_sweep(folder))[0]
    assert point.mean("output_throughput") == 2.0
    assert point.half_width("output_throughput") == pytest.approx(4.303 * 1.0 / 3**0.5)
    assert "± 2.5" in whole_table(judge(read_sweep(folder))).rows[0].cells[0]


def test_a_baseline_that_a_knob_does_not_touch_is_one_point(blocks: Path) -> None:
    sweep = read_sweep(blocks)
    points = merged(sweep, points_of(sweep))
    assert len(points) == 10
    assert [point.place["engine.block_size"] for point in points if point.place["variant"] == "max"] == [None]


def test_a_knob_that_nobody_feels_keeps_its_rows(tmp_path: Path) -> None:
    sweep = read_sweep(write_sweep(tmp_path, {"engine.block_size": [8, 16, 32]}, lambda place: {}))
    assert len(merged(sweep, points_of(sweep))) == 3


def test_of_points_that_are_alike_the_cheapest_is_best(blocks: Path) -> None:
    judged = judge(read_sweep(blocks))
    assert [point.place["engine.block_size"] for point in judged.best] == [32]  # 16 is within 1 %, its table larger


def test_alike_in_throughput_does_not_excuse_long_waits(tmp_path: Path) -> None:
    def formula(place: Mapping[str, Any]) -> dict[str, Any]:
        small = place["engine.gpu_memory_utilization"] == 0.8
        wait = {"p99_ttft_ms": 900.0 if small else 100.0}
        return {"kv.pool_bytes": 1e9 if small else 9e9, "output_throughput": 100.0, **wait}

    axes = {"engine.gpu_memory_utilization": [0.8, 0.9]}
    judged = judge(read_sweep(write_sweep(tmp_path, axes, formula)))
    assert judged.best[0].place["engine.gpu_memory_utilization"] == 0.9


def test_answer_says_what_is_best_what_it_costs_and_what_binds(blocks: Path) -> None:
    first, second = sweep_answer(judge(read_sweep(blocks)))
    assert first == (
        "Paged, block_size 32 is best with 100 output tokens/s, against 10.0 tokens/s at the worst point (max); its "
        "price: a block table of 16.0 KiB (4.00 KiB with paged, block_size 128)."
    )
    assert second == (
        "There KV memory binds: the next request waited for room in the pool 50% of the time, and the same limit binds "
        "at every other point."
    )


def test_answer_to_a_load_names_how_much_each_choice_carries(tmp_path: Path) -> None:
    carried = {"paged": 4, "max": 1, "pow2": 0}

    def formula(place: Mapping[str, Any]) -> dict[str, Any]:
        overload = place[LOAD] > carried[place["variant"]]
        return {"saturated": overload, "output_throughput": 10.0 * min(place[LOAD], carried[place["variant"]] + 0.5)}

    sweep = read_sweep(write_sweep(tmp_path, {LOAD: [1, 2, 4, 8]}, formula, variants=tuple(carried)))
    judged = judge(sweep)
    assert sweep_answer(judged)[0] == (
        "Paged carries most: up to rate_rps 4 without a growing backlog, where the others carry max 1 and pow2 none of "
        "them; there, no point that delivers nearly as much is cheaper."
    )
    assert [point.place[LOAD] for point in judged.best] == [1, 2, 4, 8]
    assert {point.place["variant"] for point in judged.best} == {"paged"}


def test_answer_under_conditions_counts_where_a_choice_is_best(tmp_path: Path) -> None:
    def formula(place: Mapping[str, Any]) -> dict[str, Any]:
        tokens, fp8 = place["workload.prompt_tokens.tokens"], place["engine.kv_cache_dtype"] == "fp8"
        return {"output_throughput": 1000.0 / tokens * (1 + fp8 * tokens / 200)}

    axes = {"engine.kv_cache_dtype": ["auto", "fp8"], "workload.prompt_tokens.tokens": [100, 200]}
    first, _ = sweep_answer(judge(read_sweep(write_sweep(tmp_path, axes, formula))))
    assert first == (
        "kv_cache_dtype fp8 is best at 2 of the 2 values of prompt_tokens, most at prompt_tokens 200: 10.0 against "
        "5.00 output tokens/s, and least at prompt_tokens 100: 15.0 against 10.0 output tokens/s; no point that "
        "delivers nearly as much is cheaper."
    )


def test_where_nothing_runs_the_answer_is_the_error(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, {"engine.block_size": [8, 16]}, lambda place: dict(DOES_NOT_FIT))
    assert sweep_answer(judge(read_sweep(folder))) == (
        "None of the 2 points could be run.",
        "The reason at 2 of them: 4,096 tokens | do not fit <b>at all</b>.",
    )
    page = write_sweep_report(folder).read_text(encoding="utf-8")
    assert "None of the 2 points" in page
    assert not (folder / "plots").exists()


def test_failed_points_are_rows_with_their_error_and_the_first_table_stays_short(tmp_path: Path) -> None:
    judged = judge(read_sweep(grid(tmp_path)))
    first, whole = first_table(judged), whole_table(judged)
    assert len(whole.rows) == 200
    assert len(first.rows) <= 20
    assert first.left_out == 200 - len(first.rows)
    best = [row.settings for row in first.rows if row.best]
    assert best == [["90", "600"]]
    failed = [row for row in whole.rows if row.error]
    assert len(failed) == 10
    assert all(row.settings[0] == "200" and "do not fit" in str(row.error) for row in failed)
    assert any(row.error for row in first.rows)


def test_one_numeric_setting_is_lines_two_are_maps_none_is_bars(tmp_path: Path, blocks: Path) -> None:
    kinds = [type(picture) for picture in pictures(judge(read_sweep(blocks)))]
    assert kinds == [Lines] * 4
    (tmp_path / "grid").mkdir()
    (drawn,) = pictures(judge(read_sweep(grid(tmp_path / "grid"))))
    assert isinstance(drawn, Maps)
    assert "most 10.0 at max_num_seqs 90 and max_num_batched_tokens 600" in drawn.alt_text().replace("10.00", "10.0")
    (tmp_path / "bars").mkdir()
    axes = {"engine.kv_cache_dtype": ["auto", "fp8"], "gpu": ["l4", "l40s"]}
    faster = {"auto": 1.0, "fp8": 2.0}
    folder = write_sweep(
        tmp_path / "bars", axes, lambda place: {"output_throughput": 100 * faster[place["engine.kv_cache_dtype"]]}
    )
    (drawn,) = pictures(judge(read_sweep(folder)))
    assert isinstance(drawn, Bars)
    assert "kv_cache_dtype fp8, gpu l4 200" in drawn.alt_text()
    write_sweep_report(folder)
    assert "failed" not in (folder / "plots" / "sweep_bars.svg").read_text(encoding="utf-8")


def test_block_sizes_are_drawn_beside_level_baselines_with_the_tables_cost(blocks: Path) -> None:
    drawn = {picture.name: picture for picture in pictures(judge(read_sweep(blocks)))}
    assert list(drawn) == ["sweep_waste", "sweep_delivered", "sweep_latency", "sweep_block_table"]
    waste = drawn["sweep_waste"]
    assert isinstance(waste, Lines)
    assert [(one.name, one.level) for one in waste.series] == [("paged", False), ("max", True)]
    assert "internal waste: paged from 0.2% at 1 to 64.0% at 256; max 80.0% throughout" in waste.alt_text()
    table = drawn["sweep_block_table"]
    assert isinstance(table, Lines)
    assert [one.name for one in table.series] == ["paged"]
    assert [measure.unit for measure in table.measures] == ["% of the pool", "KiB", ""]
    ticks = (blocks / "plots" / "sweep_waste.svg").read_text(encoding="utf-8")
    assert all(f">{size}<" in ticks for size in (1, 2, 4, 8, 16, 32, 64, 128, 256))
    assert "calibration default" in drawn["sweep_latency"].caption


def test_many_lines_and_many_points_stay_drawable(tmp_path: Path) -> None:
    names = tuple(f"v{number:02d}" for number in range(20))

    def formula(place: Mapping[str, Any]) -> dict[str, Any]:
        return {"output_throughput": 100.0 + int(place["variant"][1:]) * place["engine.max_num_seqs"]}

    folder = write_sweep(tmp_path, {"engine.max_num_seqs": list(range(1, 11))}, formula, variants=names)
    first = pictures(judge(read_sweep(folder)))[0]
    assert isinstance(first, Lines)
    assert len(first.series) == 8
    assert "v19" in [one.name for one in first.series]
    assert "12 are left out" in first.caption


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "href" and tag == "a" and value:
                self.links.append(value)
            elif name == "id" and value:
                self.ids.append(value)


def test_page_needs_nothing_else_and_its_links_lead_somewhere(blocks: Path) -> None:
    text = (blocks / "report.html").read_text(encoding="utf-8")
    page = _Page(text)
    assert not re.search(r"https?://(?!www\.w3\.org/)", text)
    assert "script" not in page.tags
    assert len(page.ids) == len(set(page.ids))
    assert "#sweep_waste" in page.links
    for link in page.links:
        assert link[1:] in page.ids if link.startswith("#") else (blocks / link).is_file(), link


def test_text_of_others_is_text(tmp_path: Path) -> None:
    folder = grid(tmp_path)
    page = write_sweep_report(folder).read_text(encoding="utf-8")
    assert "Which &lt;i&gt;value&lt;/i&gt; is best?" in page
    assert "&lt;b&gt;at all" in page
    assert "<b>at all" not in page
    assert page.count('class="failed"') >= 10
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "4,096 tokens \\| do not fit \\<b\\>at all" in text
    assert text.startswith("# Which \\<i\\>value\\</i\\> is best?")


def test_markdown_has_answer_table_and_drawings(blocks: Path) -> None:
    text = (blocks / "report.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert "is best with 100 output tokens/s" in lines[2]
    assert any(line.startswith("| **paged** | **32** | **100** |") for line in lines)
    tables = [line for line in lines if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in tables}) == 1
    for drawing in re.findall(r"\]\((plots/\w+\.svg)\)", text):
        assert (blocks / drawing).is_file()
    assert "calibration default" in text


def test_same_bytes_in_another_process_and_over_an_older_report(blocks: Path, tmp_path: Path) -> None:
    block_sizes(tmp_path)
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "sweep_map.svg").write_text("of an older sweep", encoding="utf-8")
    (tmp_path / "plots" / "mine.svg").write_text("a user's", encoding="utf-8")
    command = f"from pathlib import Path; from reports.sweep_page import *; write_sweep_report(Path({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", command], check=True, env={**os.environ, "PYTHONHASHSEED": "7"})
    (tmp_path / "plots" / "mine.svg").unlink()
    assert _hashes(tmp_path) == _hashes(blocks)


def test_kvplan_report_redraws_a_sweep(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, {"gpu": ["l4", "l40s"]}, lambda place: {})
    done = CliRunner().invoke(app, ["report", str(folder), "--json"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == {"report": str(folder / "report.html")}
    assert (folder / "report.md").is_file()
    (folder / "points.csv").unlink()
    assert CliRunner().invoke(app, ["report", str(folder)]).exit_code == 2


def _hashes(folder: Path) -> dict[str, str]:
    files = [folder / "report.html", folder / "report.md", *sorted((folder / "plots").iterdir())]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_points_of_a_grid_stay_where_one_of_its_settings_matters_little(tmp_path: Path) -> None:
    """One sequence at a time feels no token budget; its cells must not leave the map."""
    axes = {"engine.max_num_seqs": [1, 64], "engine.max_num_batched_tokens": [512, 1024]}
    feel = {1: 0.0, 64: 1.0}

    def formula(place: Mapping[str, Any]) -> dict[str, Any]:
        more = feel[place["engine.max_num_seqs"]] * place["engine.max_num_batched_tokens"]
        return {"output_throughput": 100.0 + more}

    sweep = read_sweep(write_sweep(tmp_path, axes, formula))
    assert len(merged(sweep, points_of(sweep))) == 4


def test_reasons_name_the_points_that_are_as_good_and_the_trade(blocks: Path) -> None:
    ties, beside, trade = sweep_reasons(judge(read_sweep(blocks)))
    assert ties.startswith("As good within 1 %: paged, block_size 16. ")
    assert beside == (
        "With paged, block_size 32 beside max: 40.0 requests run at once on average, against 8.00; 8.0% of the KV pool "
        "is reserved or wasted, against 90.0%."
    )
    assert trade == (
        "paged: from block_size 1 to 256 the waste inside blocks goes from 0.2% to 64.0% of the pool, the block table "
        "from 512 KiB to 2.00 KiB, and the entries of it that a step reads from 4,000 to 15.6."
    )


def test_without_a_clock_the_admitted_requests_decide(tmp_path: Path) -> None:
    def formula(place: Mapping[str, Any]) -> dict[str, Any]:
        return {"admitted": 400 // place["engine.block_size"], "used_share": 0.5}

    folder = write_sweep(tmp_path, {"engine.block_size": [8, 16]}, formula)
    judged = judge(read_sweep(folder))
    first, second = sweep_answer(judged)
    assert first.startswith("block_size 8 is best with 50 requests admitted, against 25")
    assert second == (
        "What ends admission: KV memory at 2 of the 2 points; this is a memory effect, not a speed benchmark."
    )
    assert whole_table(judged).columns[:2] == ["admitted", "slots in use"]

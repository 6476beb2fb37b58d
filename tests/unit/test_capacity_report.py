"""The report of a capacity search: what is read, the table, the drawings, the words, the same bytes each time."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reports.capacity_data import is_capacity, limits_of, read_capacity
from reports.capacity_page import write_capacity_report
from reports.capacity_sections import headroom_sentences, knob_rows, memory_table, other_answers
from reports.capacity_table import FEW_ROWS, ranked_table, shortened, why_not
from reports.capacity_text import capacity_text
from simulator.cli import app
from simulator.errors import InputError
from tests.capacity_folder import GPUS, chat, many, no_rate, nobody, served, single, write_capacity

FOLDERS = {make.__name__: make for make in (chat, nobody, no_rate, single)}


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = chat(tmp_path_factory.mktemp("chat"))
    write_capacity_report(folder)
    return folder


@pytest.mark.parametrize("name", list(FOLDERS))
def test_any_search_has_a_report(tmp_path: Path, name: str) -> None:
    folder = FOLDERS[name](tmp_path)
    data = read_capacity(folder)
    page = write_capacity_report(folder).read_text(encoding="utf-8")
    text = (folder / "report.md").read_text(encoding="utf-8")
    for row in data.rows[:FEW_ROWS]:
        assert page.count(row["candidate"]) >= 1 and row["candidate"] in text.replace("\\", "")
    assert "<script>" in page and not re.search(r'(src|href)="https?:', page)
    for drawing in re.findall(r"\]\((plots/\w+\.svg)\)", text):
        assert (folder / drawing).is_file()
    capacity_text(data.answer, data.rows).encode("ascii")


def test_cells_are_read_as_what_they_say(chats: Path) -> None:
    data = read_capacity(chats)
    first = data.rows[0]
    assert [type(first[key]) for key in ("rank", "knee_rps", "meets_rate", "kv_cache_dtype")] == [int, float, bool, str]
    assert first["reason"] is None and first["confirmed"] is True
    assert data.swept == ("engine.max_num_seqs",)
    assert data.winner is first
    assert [(limit.column, limit.label, limit.limit_ms) for limit in data.limits] == [
        ("p99_ttft_ms", "p99 TTFT", 400.0),
        ("p99_tpot_ms", "p99 TPOT", 40.0),
    ]


def test_limits_of_an_slo_in_every_form() -> None:
    by_class = {"chat": {"ttft_ms": {"p50": 100, "p99": 400}}, "batch": {"ttft_ms": {"p99": 300.0}}}
    found = {limit.column: limit.limit_ms for limit in limits_of({"preset": "chat", **by_class})}
    assert found == {"median_ttft_ms": 100.0, "p99_ttft_ms": 300.0}
    listed = [{"class": "default", "metric": "tpot_ms", "stat": "p99", "limit": 50.0, "met": True}]
    assert [limit.label for limit in limits_of({"met": True, "limits": listed})] == ["p99 TPOT"]
    assert limits_of(None) == ()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("answer.json", None, "not the folder of a finished capacity search"),
        ("answer.json", "{", "is broken"),
        ("answer.json", "[]", "not a JSON object"),
        ("candidates.csv", None, "is missing"),
        ("candidates.csv", "a,b\n1,2\n", "not the table of a capacity search"),
        ("candidates.csv", "candidate,status\nx\n", "a row is cut"),
    ],
)
def test_broken_folders_are_refused(tmp_path: Path, name: str, text: str | None, words: str) -> None:
    folder = single(tmp_path)
    (folder / name).unlink()
    if text is not None:
        (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=words):
        read_capacity(folder)


def test_table_ranks_what_serves_and_says_why_the_others_do_not(chats: Path) -> None:
    data = read_capacity(chats)
    table = ranked_table(data.rows, data.answer, data.limits)
    assert len(table.rows) == 16 and len(table.refused) == 6
    assert [row.name for row in table.rows if row.best] == ["a100-sxm-80gb tp1"]
    shown = dict(zip((column.head for column in table.columns), table.rows[0].cells, strict=True))
    assert {head: cell.text for head, cell in shown.items()} == {
        "GPUs": "3", "USD per hour": "5.37", "USD per M tokens": "0.0932", "knee (req/s)": "22.8", "to spare": "14%",
        "p99 TTFT (ms)": "215", "p99 TPOT (ms)": "25.9", "tokens/s per user": "49.4", "tokens/s per GPU": "1,667",
        "KV pool (GiB/GPU)": "56.1", "binding limit": "bandwidth",
    }  # fmt: skip
    assert shown["knee (req/s)"].value == data.rows[0]["knee_rps"]
    whys = {row.name: row.why for row in table.refused}
    assert whys["l40s tp2"] == "too slow: 4 GPUs serve 14.6 requests/s, less than 20"
    assert whys["l40s tp1"].startswith("does not fit: the weights take 131.4 GiB")
    assert whys["l4 tp1"].startswith("misses the SLO: p99 of tpot is 61.3 ms")


def test_reason_is_one_line_of_bounded_length() -> None:
    row = {"status": "failed", "reason": "first line\nsecond  line " + "word " * 100}
    text = why_not(row, 60)
    assert text.startswith("failed: first line second line word") and len(text) <= 60 and text.endswith(" ...")
    assert why_not({"status": "does_not_fit", "reason": "does not fit: x"}) == "does not fit: x"
    assert why_not({"status": "ok", "meets_rate": False, "reason": None}) == "does not serve the rate"


def test_places_in_a_file_and_remedies_give_way_to_the_reason() -> None:
    row = {"status": "does_not_fit"}
    row["reason"] = "/tmp/a.yaml:17:3: gpu: " + "x" * 120 + " (what would work: fp8 weights, or fewer tokens)"
    assert why_not(row) == "does not fit: " + "x" * 120


def test_deployments_that_were_not_simulated_whole_are_marked(tmp_path: Path, chats: Path) -> None:
    rows = [served(GPUS[0]), {**served(GPUS[1]), "confirmed": False}]
    folder = write_capacity(tmp_path, rows)
    data = read_capacity(folder)
    table = ranked_table(data.rows, data.answer, data.limits)
    assert [row.sure for row in table.rows] == [True, False] and table.footnote.startswith("~: not simulated whole")
    text = capacity_text(data.answer, data.rows)
    assert "h200-sxm-141gb tp1 ~" in text and "\n~: not simulated whole" in text
    page = write_capacity_report(folder).read_text(encoding="utf-8")
    assert "h200-sxm-141gb tp1 ~" in page and "those marked ~" in page
    sure = read_capacity(chats)
    assert ranked_table(sure.rows, sure.answer, sure.limits).footnote == ""


def test_first_table_of_many_is_short_and_counts_what_it_leaves_out(tmp_path: Path) -> None:
    data = read_capacity(many(tmp_path, 60))
    table = shortened(ranked_table(data.rows, data.answer, data.limits))
    assert len(table.rows) == FEW_ROWS and table.left_out == 60 - FEW_ROWS
    page = write_capacity_report(tmp_path).read_text(encoding="utf-8")
    assert page.count('<tr class="best">') == 2  # in the first table and among all
    assert page.count('scope="row" data-value=') == FEW_ROWS + 60
    assert f"... and {60 - FEW_ROWS} more candidates in candidates.csv" in capacity_text(data.answer, data.rows)


def test_memory_adds_up_to_what_the_answer_says(chats: Path) -> None:
    data = read_capacity(chats)
    names, rows = memory_table(data)
    assert names == [row["candidate"] for row in data.rows[:4]]
    assert rows[-1][2][0] == "79.20"  # of an a100-sxm-80gb
    assert ("activation peak", "estimated") in [row[:2] for row in rows]
    parts = [float(cells[0]) for _, _, cells in rows[:-1]]
    assert sum(parts) == pytest.approx(79.2, abs=0.05)


def test_knobs_and_headroom_name_gain_and_price(chats: Path) -> None:
    answer = read_capacity(chats).answer
    assert knob_rows(answer)[1] == [
        *("engine.max_num_batched_tokens: 16384", "7.83", "+3.0 %", "+3.0 %", "-1.29", "+1.29", "0", ""),
    ]
    assert knob_rows(answer)[2][2:7] == ["none", "none", "0", "0", "0"]
    first, _ = headroom_sentences(answer)
    assert first.startswith("+20 % (24.0 req/s): misses the SLO (p99 of ttft is")
    assert first.endswith("; 4 replicas would do, 7.16 USD/h")
    good = {"at": 1.2, "rate_rps": 24.0, "passed": True, "latencies": {"p99_ttft_ms": 312.0}}
    assert headroom_sentences({**answer, "headroom": [good]}) == ["+20 % (24.0 req/s): within the SLO, p99 TTFT 312 ms"]


def test_other_answers_are_named(chats: Path) -> None:
    assert other_answers(read_capacity(chats)) == [
        ("Best within 20.00 USD per hour", "a100-sxm-80gb tp1: 22.8 requests/s on 3 GPUs for 5.37 USD per hour"),
        ("Largest rate within the SLO", "b200-sxm-180gb tp1 kv fp8: 31.5 requests/s on 1 GPU for 5.49 USD per hour"),
    ]


def test_best_within_a_budget_may_have_another_size_than_in_the_table(tmp_path: Path) -> None:
    row = served(GPUS[0])
    more = {**row, "replicas": 6, "gpus": 6, "usd_per_hour": 17.94, "knee_rps": 85.2}
    data = read_capacity(write_capacity(tmp_path, [row], within_budget=more, budget_usd_per_hour=20.0))
    assert other_answers(data)[0][1] == "h100-sxm-80gb tp1: 85.2 requests/s on 6 GPUs for 17.94 USD per hour"


def test_terminal_says_the_answer_first_and_the_command_last(chats: Path) -> None:
    data = read_capacity(chats)
    lines = capacity_text(data.answer, data.rows).splitlines()
    assert lines[0].startswith("a100-sxm-80gb tp1 serves the load for the least money.")
    assert lines[-2:] == data.answer["command"].replace("vllm", "  vllm", 1).replace("\n", "\n  ").splitlines()
    (best,) = [line for line in lines if " * " in line]
    assert best.split()[:7] == ["1", "a100-sxm-80gb", "tp1", "*", "3", "5.37", "0.0932"]
    assert max(map(len, lines)) < 140
    assert "  - Beyond the knee bandwidth binds: at 7.83 req/s: p99 of TTFT is 477 ms, above 400 ms" in lines
    order = [lines.index(title) for title in ("Does not serve", "Why", "What would move the limit", "More load")]
    assert order == sorted(order)


def test_terminal_where_nobody_serves_says_what_is_missing(tmp_path: Path) -> None:
    data = read_capacity(nobody(tmp_path))
    text = capacity_text(data.answer, data.rows)
    assert "What is missing\n  - the nearest is l40s tp1" in text and "Serve it with" not in text
    page = write_capacity_report(tmp_path).read_text(encoding="utf-8")
    assert 'id="missing"' in page and 'id="serve"' not in page


def test_words_of_others_stay_words(chats: Path) -> None:
    page = (chats / "report.html").read_text(encoding="utf-8")
    assert "<b>here</b>" not in page and "&lt;b&gt;here" in page
    text = (chats / "report.md").read_text(encoding="utf-8")
    assert text.startswith("# Which GPUs serve chat on \\<i\\>Llama")
    assert "\\<b\\>here\\</b\\> \\| nothing" in text
    shapes: dict[str, set[int]] = {}
    for block in text.split("\n\n"):
        lines = [line.replace("\\|", "") for line in block.splitlines() if line.startswith("|")]
        if lines:
            shapes[lines[0]] = {line.count("|") for line in lines}
    assert len(shapes) == 4 and all(len(counts) == 1 for counts in shapes.values())


def test_script_runs_by_its_hash_alone(chats: Path) -> None:
    page = (chats / "report.html").read_text(encoding="utf-8")
    script = re.search(r"<script>(.*)</script>", page, re.DOTALL)
    assert script is not None
    digest = hashlib.sha256(script[1].encode()).digest()
    assert f"script-src 'sha256-{base64.b64encode(digest).decode()}'" in page


def test_same_bytes_in_another_process_and_over_an_older_report(chats: Path, tmp_path: Path) -> None:
    chat(tmp_path)
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "capacity_old.svg").write_text("of an older search", encoding="utf-8")
    (tmp_path / "plots" / "mine.svg").write_text("a user's", encoding="utf-8")
    command = (
        f"from pathlib import Path; from reports.capacity_page import *; write_capacity_report(Path({str(tmp_path)!r}))"
    )
    subprocess.run([sys.executable, "-c", command], check=True, env={**os.environ, "PYTHONHASHSEED": "7"})
    (tmp_path / "plots" / "mine.svg").unlink()
    assert _hashes(tmp_path) == _hashes(chats)


def test_kvplan_report_redraws_a_search(tmp_path: Path) -> None:
    folder = single(tmp_path)
    assert is_capacity(folder)
    done = CliRunner().invoke(app, ["report", str(folder), "--json"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == {"report": str(folder / "report.html")}
    (folder / "probes.csv").unlink()  # what was simulated is not needed to rank
    assert CliRunner().invoke(app, ["report", str(folder)]).exit_code == 0
    assert not (folder / "plots" / "capacity_knee.svg").exists()
    (folder / "candidates.csv").write_text("candidate\n", encoding="utf-8")
    assert CliRunner().invoke(app, ["report", str(folder)]).exit_code == 2


def test_answer_that_says_nothing_still_makes_a_page(tmp_path: Path) -> None:
    folder = write_capacity(tmp_path, [served(GPUS[0])])
    (folder / "answer.json").write_text("{}", encoding="utf-8")
    page = write_capacity_report(folder).read_text(encoding="utf-8")
    assert "h100-sxm-80gb tp1" in page and (folder / "report.md").read_text(encoding="utf-8").startswith("# Capacity")


def _hashes(folder: Path) -> dict[str, str]:
    files = [folder / "report.html", folder / "report.md", *sorted((folder / "plots").iterdir())]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

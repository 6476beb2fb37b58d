"""The paper's table: what is read of it, what is asked, and that no answer is looked at before ours stand."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator.cli import app
from simulator.errors import InputError
from simulator.verify_paper import verify
from simulator.verify_paper_lab import Lab
from simulator.verify_paper_predict import Prediction, predict
from simulator.verify_paper_questions import (
    BatchQuestion,
    BlockSizeQuestion,
    LatencyQuestion,
    MaxRateQuestion,
    NotAsked,
    Sampling,
    SavingQuestion,
    ShareQuestion,
    question_of,
)
from simulator.verify_paper_result import result_dict, text_table, why
from simulator.verify_paper_row import Row
from simulator.verify_paper_systems import OPT_13B, OPT_66B
from simulator.verify_paper_targets import COLUMNS, Asked, Target, printed_targets, read_targets
from tests.support import DATA, needs_shared

CURVE = "OPT-13B 1xA100-40G ShareGPT"
ROWS = [
    ("Fig 2", "Orca (Max)", "OPT-13B A100-40GB", "ShareGPT", "token_states", "", "20.4", "%"),
    ("Fig 2", "Orca (Max)", "OPT-13B A100-40GB", "ShareGPT", "internal_frag", "", "57.3", "%"),
    ("Fig 13", "Orca (Max)", "OPT-13B A100-40GB", "ShareGPT", "avg_batched_requests", "2 req/s", "7.0", "requests"),
    ("Fig 13", "vLLM", "OPT-13B A100-40GB", "ShareGPT", "avg_batched_requests", "2 req/s", "30.42", "requests"),
    ("curve", "Orca (Max)", CURVE, "", "normalized_latency", "1.5", "1.62", "s/token"),
    ("curve", "vLLM", CURVE, "", "normalized_latency", "1.5", "0.05", "s/token"),
    ("Table 1", "vLLM", "OPT-66B 4xA100-40GB", "", "param_size_GB", "", "132", ""),
    ("text", "vLLM", "OPT-13B", "", "default_block_size", "", "16", ""),
]


def table(path: Path, rows: list[tuple[str, ...]] = ROWS, *, blank: bool = False) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow([*row[:6], "" if blank else row[6], row[7]])
    return path


def asked(**words: str) -> Asked:
    empty = dict.fromkeys(("figure", "system", "model_hw", "dataset", "metric", "x", "unit"), "")
    return Asked(**(empty | words), line=1)


@pytest.mark.parametrize(
    ("words", "question"),
    [
        (
            {"system": "vLLM", "model_hw": CURVE, "metric": "normalized_latency", "x": "1.25"},
            LatencyQuestion(OPT_13B, "vLLM", "ShareGPT", 1.25),
        ),
        (
            {"system": "vLLM", "model_hw": "OPT-66B 4xA100 Alpaca beam=4", "metric": "normalized_latency", "x": "3"},
            LatencyQuestion(OPT_66B, "vLLM", "Alpaca", 3.0, Sampling(4, beam=True)),
        ),
        (
            {"system": "Orca (Max)", "model_hw": "OPT-13B", "dataset": "Alpaca", "metric": "avg_batched_requests"}
            | {"x": "30 req/s"},
            BatchQuestion(OPT_13B, "Orca (Max)", "Alpaca", 30.0),
        ),
        (
            {"system": "vLLM", "model_hw": "OPT-13B", "dataset": "Alpaca", "metric": "memory_saving_parallel_sampling"}
            | {"x": "n=6"},
            SavingQuestion(OPT_13B, "Alpaca", Sampling(6)),
        ),
        (
            {"system": "Orca (Pow2)", "model_hw": CURVE, "metric": "max_rate_at_normalized_latency"}
            | {"x": "0.5 s/token"},
            MaxRateQuestion(OPT_13B, "Orca (Pow2)", "ShareGPT", 0.5),
        ),
        (
            {"system": "red", "model_hw": "latency vs block size (blue=recompute, red=swap)", "x": "64"}
            | {"metric": "normalized_latency"},
            BlockSizeQuestion(OPT_13B, "ShareGPT", 64, "swap"),
        ),
        (
            {"system": "vLLM", "model_hw": "OPT-13B", "dataset": "ShareGPT", "metric": "token_states"},
            ShareQuestion(OPT_13B, "vLLM", "ShareGPT", "tokens"),
        ),
    ],
)
def test_a_row_is_read_from_its_words(words: dict[str, str], question: object) -> None:
    assert question_of(asked(**words)) == question


@pytest.mark.parametrize(
    "words",
    [
        {"metric": "attention_kernel_latency"},
        {"system": "vLLM", "model_hw": "BLOOM-176B ShareGPT", "metric": "normalized_latency", "x": "1"},
        {"system": "Triton", "model_hw": CURVE, "metric": "normalized_latency", "x": "1"},
        {"system": "vLLM", "model_hw": CURVE, "metric": "normalized_latency", "x": "fast"},
        {"system": "vLLM", "model_hw": "OPT-13B", "dataset": "ShareGPT", "metric": "memory_saving_beam", "x": ""},
    ],
)
def test_a_row_that_no_experiment_fits_is_left_out_and_says_why(words: dict[str, str]) -> None:
    found = question_of(asked(**words))
    assert isinstance(found, NotAsked) and found.reason


def test_values_are_numbers_ranges_and_words(tmp_path: Path) -> None:
    rows = [("f", "s", "m", "d", "k", "x", value, "") for value in ("15.7K", "1.7-2.7", "-22", "7.00", "no number", "")]
    targets = read_targets(table(tmp_path / "t.csv", rows))
    assert [(t.low, t.high) for t in targets] == [
        (15_700, 15_700), (1.7, 2.7), (None, 22), (7, 7), (None, None), (None, None)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "fault"), [("a,b\n1,2\n", "has no column"), (",".join(COLUMNS) + "\n", "has no row"), ("\xff", None)]
)
def test_broken_tables_are_refused(tmp_path: Path, text: str, fault: str | None) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=fault):
        read_targets(path)
    with pytest.raises(InputError, match="is not there"):
        read_targets(tmp_path / "absent.csv")


def test_predictions_do_not_see_the_answers(tmp_path: Path) -> None:
    found = [
        [row.ours for row in verify(read_targets(table(tmp_path / "t.csv", blank=blank)), quick=True).rows]
        for blank in (False, True)
    ]
    assert found[0] == found[1]
    assert sum(prediction.value is not None for prediction in found[0]) == 7


@needs_shared
def test_the_shared_table_is_asked_alike_without_its_answers(tmp_path: Path) -> None:
    path = DATA / "pagedattention_targets.csv"
    targets = read_targets(path)
    with path.open(encoding="utf-8", newline="") as file:
        rows = [tuple(row[name] for name in COLUMNS) for row in csv.DictReader(file)]
    blanked = read_targets(table(tmp_path / "t.csv", rows, blank=True))
    assert [question_of(a.asked) for a in targets] == [question_of(b.asked) for b in blanked]
    assert all(target.low is None and target.high is None for target in blanked)
    asked_for = sum(not isinstance(question_of(target.asked), NotAsked) for target in targets)
    assert asked_for > 200


@needs_shared
def test_the_printed_numbers_are_those_of_the_shared_table() -> None:
    def key(target: Target) -> tuple[str, ...]:
        question = question_of(target.asked)
        return (repr(question), f"{target.low}", f"{target.high}")

    shared = {key(target) for target in read_targets(DATA / "pagedattention_targets.csv")}
    assert {key(target) for target in printed_targets()} <= shared


def test_systems_are_ordered_as_in_the_paper() -> None:
    """More of the memory holds tokens, and more requests run, from Max over Pow2 and Oracle to paging."""
    rows = [target.asked for target in printed_targets()]
    answers = predict(rows, Lab(scale=0.1), lambda q: isinstance(q, ShareQuestion | BatchQuestion))
    for metric in ("token_states", "avg_batched_requests"):
        values = [
            answer.value
            for row, answer in zip(rows, answers, strict=True)
            if row.metric == metric and row.dataset == "ShareGPT" and answer.value is not None
        ]
        assert len(values) == 4
        assert values == sorted(values) and values[0] < values[1] < values[3]


def test_tolerances_decide(tmp_path: Path) -> None:
    share = Target(asked(system="vLLM", model_hw="OPT-13B", dataset="ShareGPT", metric="token_states"), 50, 50, "50")
    batch = Target(
        asked(system="vLLM", model_hw="OPT-13B", dataset="ShareGPT", metric="avg_batched_requests", x="2 req/s"),
        100, 100, "100",
    )  # fmt: skip
    for target, good, bad in ((share, 54.9, 55.1), (batch, 114.9, 84.9)):
        question = question_of(target.asked)
        assert Row(target.asked, question, Prediction(good), target).within is True
        assert Row(target.asked, question, Prediction(bad), target).within is False
        assert Row(target.asked, question, Prediction(None, "why"), target).within is None


def test_the_command_writes_a_folder_and_says_what_missed(tmp_path: Path) -> None:
    path, out = table(tmp_path / "t.csv"), tmp_path / "out"
    result = CliRunner().invoke(app, ["verify", "paper", str(path), "--quick", "--json", "--out", str(out)])
    found = json.loads(result.stdout)
    assert result.exit_code == (0 if found["met"] else 4)
    assert found["checked"] == 4 and found["order_compared"] == 1 and found["order_right"] == 1
    assert found["rows"][0]["paper"] == 20.4 and found["rows"][0]["within"] is not None
    assert found["rows"][-1]["ours"] is None and found["rows"][-1]["why"]
    assert json.loads((out / "paper.json").read_text(encoding="utf-8")) == found
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "http-equiv" in page and "<script" not in page and "src=" not in page
    drawn = {drawing.stem for drawing in (out / "plots").glob("*.svg")}
    assert drawn == {"paper_memory_split", "paper_batched_requests", "paper_latency_opt_13b_sharegpt"}
    for name in drawn:
        assert f'id="{name}"' in page


def test_the_table_for_a_terminal_names_each_number(tmp_path: Path) -> None:
    targets = read_targets(table(tmp_path / "t.csv"))
    found = result_dict(verify(targets, quick=True), "t.csv", quick=True)
    text = text_table(found)
    for words in ("Orca (Max), ShareGPT, token states", "30.42", "20.4", "Order of the systems", "within the stated"):
        assert words in text
    assert len(text_table(found, quiet=True).splitlines()) < 5


def test_a_missed_row_names_what_would_bring_it_within() -> None:
    target = Target(
        asked(system="vLLM", model_hw="OPT-13B", dataset="Alpaca", metric="avg_batched_requests", x="30 req/s"),
        100, 100, "100",
    )  # fmt: skip
    rows = [
        Row(target.asked, question_of(target.asked), Prediction(50), target, (49, 51), {"step time": other})
        for other in (90.0, 60.0)
    ]
    assert rows[0].within is False
    assert why(rows[0]) == "within the tolerance with the paper's step time (90)"
    assert why(rows[1]).startswith("outside with every other assumption")
    assert "57.0 ms or more in the paper; ours take 28.5 ms" in why(rows[1])  # 100 or 50 / (30 · 58.45)

"""What a capacity search recommends: never a saturated point, never more than what is allowed, at the right price."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator.cli import app
from simulator.planner.capacity.rates import RateGrid
from tests.capacity_search import OVER, SCENARIO, Capacities, finite_json, searched

LOOSE = SCENARIO[: SCENARIO.index("slo:")] + "slo: {ttft_ms: {p99: 3.6e+6}, tpot_ms: {p99: 3.6e+6}}\n"
HEAD = SCENARIO[: SCENARIO.index("workload:")]
SLO = SCENARIO[SCENARIO.index("slo:") :]


@pytest.fixture(autouse=True)
def _no_knobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Knobs are most of a small search's time, and no verdict here depends on them."""
    monkeypatch.setattr("simulator.planner.capacity.search.try_knobs", lambda planner, sized: [])


@pytest.mark.parametrize("requests", [1, 8, 30])
@pytest.mark.parametrize("change", ["", "capacity={replicas: [1, 2]}", "capacity={goodput_share: 1.0}"])
def test_a_saturated_rate_is_no_winner_however_short_the_run_and_loose_the_limits(requests: int, change: str) -> None:
    """One replica sustains about 44 requests/s; a run of 30 requests at 200 has latencies of a second."""
    sets = [f"workload.num_requests={requests}", *([change] if change else [])]
    answer = searched(LOOSE, sets, rate_rps=200.0)
    one = answer.found.rented[0].sized
    assert one.sustained_rps is not None and 20 < one.sustained_rps < 48  # fewer requests find less, not more
    assert one.knee_rps is None or one.knee_rps <= one.sustained_rps * one.replicas
    if "replicas" in change:
        assert answer.said["winner"] is None
        assert {row["status"] for row in answer.rows} == {"too_slow"}
        return
    assert answer.winner["replicas"] >= 200 / one.sustained_rps
    for probe in answer.probes:
        if probe["purpose"] != "saturation" and probe["rate_rps"] > probe["replicas"] * one.sustained_rps:
            assert not probe["passed"] and "saturated" in probe["why_not"]


def test_a_long_run_at_what_the_search_calls_the_knee_keeps_no_backlog() -> None:
    answer = searched(LOOSE, ["workload.num_requests=30"])
    knee = answer.found.rented[0].sized.knee_rps
    assert knee is not None
    again = searched(LOOSE, ["workload.num_requests=1500", "capacity={replicas: [1]}"], rate_rps=0.97 * knee)
    assert again.said["winner"] is not None


def test_the_knee_stands_on_the_grid_of_the_asked_rate_with_a_failure_above_it() -> None:
    answer = searched(rate_rps=17.0)
    sized = answer.found.rented[0].sized
    assert sized.knee_rps is not None
    grid = RateGrid(17.0)
    index = grid.highest_at_most(sized.knee_rps)
    assert sized.knee_rps == grid.rate_rps(index)
    own = [p for p in answer.probes if p["purpose"] == "knee" and p["requests"] == 40]  # what wins is looked at longer
    (beyond,) = [p for p in own if p["rate_rps"] == grid.rate_rps(index + 1)]
    assert not beyond["passed"]
    (at,) = [p for p in own if p["rate_rps"] == sized.knee_rps]
    assert at["passed"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("{max_gpus: 4, tensor_parallel_size: [8]}", "8 GPUs, and max_gpus is 4"),
        ("{max_gpus: 2, replicas: [4]}", "4 GPUs, and max_gpus is 2"),
        ("{max_gpus: 2, rate_rps: 500}", "2 replicas serve about"),
    ],
)
def test_no_deployment_has_more_gpus_than_are_allowed(change: str, reason: str) -> None:
    answer = searched(sets=[f"capacity={change}"])
    assert answer.said["winner"] is None and reason in answer.rows[0]["reason"]
    assert all(row["gpus"] is None or not row["meets_rate"] for row in answer.rows)


@pytest.mark.parametrize("budget", [20.0, 10.0])
def test_a_budget_bounds_the_price_and_says_what_it_buys(budget: float) -> None:
    """Three replicas of 4.76 USD/h serve 90 requests/s."""
    answer = searched(LOOSE, rate_rps=90.0, budget_usd_per_hour=budget)
    (row,) = answer.rows
    assert row["usd_per_hour"] == pytest.approx(3 * 4.76)
    bought = answer.said["within_budget"]
    assert bought["replicas"] == budget // 4.76 and bought["usd_per_hour"] <= budget
    assert 38 * bought["replicas"] < bought["knee_rps"] < 48 * bought["replicas"]
    if budget >= row["usd_per_hour"]:
        assert answer.winner["replicas"] == 3
    else:
        assert answer.said["winner"] is None and row["status"] == "over_budget"
        assert "14.28 USD/h" in answer.said["missing"][0]


INLINE = """\
  name: mine
  memory_gib: 80
  bandwidth_gb_per_s: 3350
  tflop_per_s: {bf16: 989}
"""


def test_a_gpu_without_a_price_is_ranked_by_gpus_and_no_budget_takes_it() -> None:
    text = SCENARIO.replace("gpu: h100-sxm-80gb\n", "gpu:\n" + INLINE)
    answer = searched(text + OVER)
    assert answer.winner["usd_per_hour"] is None and answer.winner["usd_per_million_tokens"] is None
    assert [row["gpus"] for row in answer.rows] == sorted(row["gpus"] for row in answer.rows)
    bound = searched(text, budget_usd_per_hour=6.0)
    assert bound.said["winner"] is None and "price" in "\n".join(bound.said["missing"])
    priced = searched(text, ["capacity={usd_per_gpu_hour: {mine: 2.5}}"], budget_usd_per_hour=6.0)
    assert priced.winner["usd_per_hour"] == 2.5


def test_own_prices_take_the_place_of_the_catalogues_and_decide() -> None:
    text = SCENARIO + "capacity: {gpus: [h100-sxm-80gb, l40s], usd_per_gpu_hour: {h100-sxm-80gb: 0.5}}\n"
    answer = searched(text)
    assert answer.winner["gpu"] == "h100-sxm-80gb" and answer.winner["usd_per_hour"] == 0.5
    tokens = answer.found.rented[0].sized.facts.built
    assert tokens is not None
    mean = float(tokens.workload.prompt_tokens.mean() + tokens.workload.output_tokens.mean())
    assert answer.winner["usd_per_million_tokens"] == pytest.approx(0.5 / (20 * mean * 3600) * 1e6)


def test_the_cheapest_that_serves_wins_and_is_confirmed_whole() -> None:
    """The same step times on all: the cheapest GPU wins; rows follow by price."""
    answer = searched(SCENARIO + "capacity: {gpus: [h100-sxm-80gb, l4, l40s], tensor_parallel_size: [1, 2]}\n")
    assert answer.winner["candidate"] == "l4 tp1" and answer.winner["confirmed"]
    prices = [row["usd_per_hour"] for row in answer.rows]
    assert prices == sorted(prices) and all(row["status"] == "ok" for row in answer.rows)


def test_goodput_share_counts_besides_the_statistics() -> None:
    """95 % of the requests within every limit is a weaker wish than p99 of each, all of them a stronger one."""
    knees = [
        searched(sets=[f"capacity={{goodput_share: {share}}}"] if share else []).found.rented[0].sized.knee_rps
        for share in (None, 0.5, 1.0)
    ]
    assert knees[0] is not None and knees[1] == knees[0] and knees[2] is not None and knees[2] <= knees[0]
    alone = searched(sets=["slo={tpot_ms: {p50: 12}}", "capacity={goodput_share: 1.0}"]).found.rented[0].sized.knee_rps
    half = searched(sets=["slo={tpot_ms: {p50: 12}}"]).found.rented[0].sized.knee_rps
    assert alone is not None and half is not None and alone < half


@pytest.mark.parametrize("rejected", ["max_rejected_share: 0.5", "max_rejected_share: 0.01"])
def test_requests_that_can_never_be_served_may_be_few(rejected: str) -> None:
    sets = [f"capacity={{{rejected}}}", "engine.max_model_len=600"]
    answer = searched(LOOSE, sets)
    if "0.5" in rejected:
        assert answer.winner["status"] == "ok"
    else:
        assert answer.said["winner"] is None and "can never be served" in answer.rows[0]["reason"]


def test_requests_per_probe_are_those_of_each_simulation_of_one_replica() -> None:
    answer = searched(sets=["capacity={requests_per_probe: 25}"])
    own = [p["requests"] for p in answer.probes if p["purpose"] == "knee" and p["replicas"] == 1]
    assert own[0] == min(own) == 25  # what wins is looked at for longer


def test_each_replica_of_a_larger_deployment_sees_as_many_requests_as_one_alone() -> None:
    answer = searched(LOOSE, rate_rps=300.0)
    assert answer.winner["replicas"] >= 7
    for probe in answer.probes:
        if probe["purpose"] == "confirm":
            assert probe["requests"] >= 40 * probe["replicas"]


@pytest.mark.parametrize("requests", [20, 400])
def test_how_long_requests_stay_does_not_depend_on_how_much_of_a_run_is_its_start_and_end(requests: int) -> None:
    (one,) = searched(rate_rps=20.0, requests=requests).found.rented
    assert one.sized.at_knee is not None
    stays_s = one.sized.at_knee.outcome.facts["mean_e2el_ms"] / 1000.0
    assert one.sized.residence_s == pytest.approx(stays_s, rel=0.02)


TRACE = "arrival_s,prompt_tokens,output_tokens\n" + "".join(
    f"{0.05 * i + 0.01 * (i % 3):.2f},{50 + i % 7 * 40},{5 + i % 11 * 4}\n" for i in range(60)
)
SESSION = "  session: {turns: {kind: uniform, min: 1, max: 4}, think: {mean_s: 1}}\n"
WORLDS = {
    "plain": (SCENARIO, ("--seed", "5", "--rate", "30", "--set", "engine.max_num_seqs=8")),
    "trace": (HEAD + "workload:\n  trace: {path: t.csv, format: csv}\n" + SLO, ()),
    "sessions": (SCENARIO.replace("slo:", SESSION + "slo:"), ("--rate", "6")),
    "variants": (SCENARIO + "variants:\n  small: {engine.max_num_seqs: 4}\n  big: {engine.max_num_seqs: 32}\n", ()),
    "fixed": (SCENARIO + "capacity: {replicas: [2, 4]}\n", ("--rate", "60")),
    "candidates": (SCENARIO + "capacity: {candidates: [{gpu: l4}, {engine.max_num_seqs: 4}]}\n", ()),
    "no rate asked": (SCENARIO.replace("rate_rps: 20", "rate_rps: 7"), ()),
}


@pytest.mark.parametrize("world", WORLDS)
def test_winner_yaml_repeats_the_probe_to_the_last_digit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: str
) -> None:
    """``kvplan run winner.yaml`` gives the very latencies at the asked rate that the answer states."""
    (tmp_path / "t.csv").write_text(TRACE)
    text, options = WORLDS[world]
    capacities = Capacities(tmp_path, monkeypatch)
    done = capacities("--json", "--quiet", *options, text=text)
    assert done.exit_code == 0, done.stderr
    winner = finite_json(done.stdout)["winner"]
    out = tmp_path / "out"
    words = ["run", str(out / "winner.yaml"), "--out", str(tmp_path / "run"), "--no-report", "--quiet"]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    for name in ("p99_ttft_ms", "p99_tpot_ms"):
        assert winner[name] == result[name]
    with (out / "probes.csv").open(newline="") as file:
        probes = [row for row in csv.DictReader(file) if row["candidate"] == winner["candidate"]]
    (at,) = [
        row
        for row in probes
        if row["purpose"] == "confirm"
        and int(row["replicas"]) == winner["replicas"]
        and float(row["rate_rps"]) == result["request_rate"]
    ]
    assert at["passed"] == "true" and int(at["requests"]) == result["num_prompts"]
    compared = [name for name in at if name in result and at[name] and name.endswith(("_ms", "_throughput"))]
    assert len(compared) > 20
    for name in compared:
        assert float(at[name]) == result[name], name


def test_variants_are_candidates_of_their_own() -> None:
    answer = searched(WORLDS["variants"][0] + "capacity: {gpus: [l4, l40s]}\n")
    assert {row["candidate"] for row in answer.rows} == {"small l4", "small l40s", "big l4", "big l40s"}

"""The scenario key ``fleet``: what it builds, what it refuses and where, and that its resolution repeats the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simulator.cli import app
from simulator.fleet_deployment import routing_warnings
from simulator.run_scenario import build, result, run
from simulator.scenario import load_scenario
from tests.running import SCENARIO, result_of, runs_in, same_bytes
from tests.unit.test_routers import named

FAILING = """\
parallelism: {replicas: 3}
router: least_kv
fleet:
  events:
  - {kind: fail, at_s: 0.5, replica: 1, restart_after_s: 0.4}
  - {kind: start, at_s: 0.2, replica: 2}
"""
GROUPS = """\
router: least_outstanding
fleet:
  groups:
  - {name: big, gpu: h200-sxm-141gb}
  - {name: small, replicas: 2, gpu: a100-sxm-80gb, parallelism: {tensor_parallel_size: 2}, engine: {max_num_seqs: 64}}
"""
SCALED = """\
router: central_queue
fleet:
  startup_s: 0.2
  autoscaler: {metric: kv_utilization, target: 0.3, max_replicas: 4, interval_s: 0.1}
"""


@pytest.mark.parametrize("fleet", [FAILING, GROUPS, SCALED])
def test_a_resolved_fleet_repeats_the_run(fleet: str, tmp_path: Path) -> None:
    go = runs_in(tmp_path)
    assert go(text=SCENARIO + fleet).exit_code == 0
    again = CliRunner().invoke(
        app, ["run", str(tmp_path / "out/scenario.resolved.yaml"), "--out", str(tmp_path / "again"), "--no-report"]
    )
    assert again.exit_code == 0, again.output
    same_bytes(tmp_path / "out", tmp_path / "again")
    assert go("--stepwise", text=SCENARIO + fleet, out="steps").exit_code == 0
    same_bytes(tmp_path / "out", tmp_path / "steps")


def test_a_failure_is_in_the_result(tmp_path: Path) -> None:
    assert runs_in(tmp_path)(text=SCENARIO + FAILING).exit_code == 0
    found = result_of(tmp_path / "out")
    assert found["completed"] == 60
    assert found["fleet"]["failures"] == 1
    assert found["fleet"]["rerouted"] >= 1
    assert [entry["up"] for entry in found["fleet"]["scaling"]] == [2, 3, 2, 3]
    assert found["usd_per_hour"] == pytest.approx(4.76 * found["fleet"]["gpu_hours"] / (found["duration"] / 3600))
    assert any("failures of replicas" in warning for warning in found["warnings"])


def test_requests_that_no_replica_is_left_for_are_the_answer_and_no_room_for_more_load(tmp_path: Path) -> None:
    done = runs_in(tmp_path)(text=SCENARIO + "fleet: {events: [{kind: fail, at_s: 0.5, replica: 0}]}\n")
    found = result_of(tmp_path / "out")
    assert found["status"] == "deadlock" and found["unfinished"] == 60 - found["completed"] > 1
    assert f"{found['unfinished']} requests never ended: in the end nothing could admit them" in flat(done.stdout)
    assert "room for more load" not in done.stdout and "on_unservable" not in done.stdout
    assert f"{found['unfinished']} requests still waited at the router" in " ".join(found["warnings"])


def flat(text: str) -> str:
    return " ".join(text.split())


def test_groups_are_reported_apart_and_cost_their_own_price(tmp_path: Path) -> None:
    assert runs_in(tmp_path)(text=SCENARIO + GROUPS).exit_code == 0
    found = result_of(tmp_path / "out")
    big, small = found["fleet"]["groups"]
    assert (big["name"], big["gpu"], big["replicas"], big["gpus_per_replica"]) == ("big", "h200-sxm-141gb", 1, 1)
    assert (small["name"], small["replicas"], small["gpus_per_replica"]) == ("small", 2, 2)
    assert big["completed"] + small["completed"] == found["completed"] == 60
    assert found["usd_per_hour"] == pytest.approx(6.35 + 4 * 2.45)
    assert found["replicas"] == 3
    whole = found["kv"]
    assert whole["peak_utilization"] == max(big["kv"]["peak_utilization"], small["kv"]["peak_utilization"])
    low, high = sorted(group["kv"]["mean_utilization"] for group in (big, small))
    assert low <= whole["mean_utilization"] <= high
    json.dumps(found, allow_nan=False)


def test_a_group_is_what_a_scenario_of_its_own_would_be(tmp_path: Path) -> None:
    """One group with everything patched is the same deployment as the plain scenario with the same keys."""
    plain = "parallelism: {tensor_parallel_size: 2, replicas: 2}\nrouter: random\n"
    patched = "router: random\nfleet: {groups: [{name: all, replicas: 2, parallelism: {tensor_parallel_size: 2}}]}\n"
    go = runs_in(tmp_path)
    assert go(text=SCENARIO + plain, out="plain").exit_code == 0
    assert go(text=SCENARIO + patched, out="patched").exit_code == 0
    for name in ("requests.csv", "timeline.csv"):
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "patched" / name).read_bytes()
    one, other = result_of(tmp_path / "plain"), result_of(tmp_path / "patched")
    assert one["kv"] == other["kv"]
    assert one["usd_per_hour"] == pytest.approx(other["usd_per_hour"])


@pytest.mark.parametrize(
    ("fleet", "place", "what"),
    [
        ("fleet:\n  events: [{kind: fail, at_s: 5, replica: 1}]\n", "12:43", "there is no replica 1"),
        ("fleet:\n  events: [{kind: crash, at_s: 5, replica: 0}]\n", "12:19", "not a kind that events knows"),
        ("fleet:\n  events: [{kind: stop, at_s: -5, replica: 0}]\n", "12:31", "at least 0"),
        ("fleet: {groups: []}\n", "11:17", "give at least 1"),
        ("fleet: {groups: [{name: a, gpu: t5}]}\n", "11:33", "not a GPU of the catalogue"),
        (
            "fleet: {groups: [{name: a, gpu: t4, engine: {num_gpu_blocks_override: null}}]}\n",
            "11:33",
            "does not fit on t4",
        ),
        ("fleet: {groups: [{name: a, engine: {max_num_seq: 3}}]}\n", "11:50", "did you mean max_num_seqs"),
        ("fleet: {groups: [{name: a}, {name: a}]}\n", "11:36", "the name of two groups"),
        ("fleet: {groups: [{name: a, parallelism: {replicas: 2}}]}\n", "11:52", "stands elsewhere"),
        ("parallelism: {replicas: 2}\nfleet: {groups: [{name: a}]}\n", "11:25", "count their own"),
        ("fleet: {autoscaler: {target: 1, max_replicas: 2, min_replicas: 3}}\n", "11:64", "above max_replicas"),
        (
            "fleet: {autoscaler: {metric: kv_utilization, target: 2, max_replicas: 2}}\n",
            "11:54",
            "a share, and its target",
        ),
        (
            "fleet: {events: [{kind: stop, at_s: 1, replica: 0}], autoscaler: {target: 1, max_replicas: 2}}\n",
            "11:25",
            "the autoscaler decides",
        ),
        ("fleet: {groups: [{name: a}, {name: b}], autoscaler: {target: 1, max_replicas: 2}}\n", "11:53", "one kind"),
        ("fleet: {crew: 2}\n", "11:9", "fleet.crew is not an option"),
        ("fleet:\n", "11:1", "fleet is empty"),
        ("mode: admission\nfleet: {startup_s: 1}\n", "12:8", "no clock"),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_place(fleet: str, place: str, what: str, tmp_path: Path) -> None:
    done = runs_in(tmp_path)(text=SCENARIO + fleet)
    assert done.exit_code in (2, 3)
    assert what in done.output
    assert f"chat.yaml:{place}: " in done.output


def test_a_crowded_prefix_is_warned_of() -> None:
    workload = named(["a"] * 9 + [None])
    (warning,) = routing_warnings("prefix_affine", workload, 4)
    assert "90%" in warning
    assert routing_warnings("prefix_affine", named([f"g{i}" for i in range(20)]), 4) == ()
    assert routing_warnings("round_robin", workload, 4) == routing_warnings("prefix_affine", workload, 1) == ()


def test_a_step_hint_needs_replicas_of_one_kind(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(SCENARIO + GROUPS, encoding="utf-8")
    scenario = load_scenario(str(tmp_path / "one.yaml")).scenario
    built = build(scenario)
    assert not built.alike
    assert [member.group for member in built.members()] == ["big", "small", "small"]
    found: dict[str, Any] = result(built, run(built))
    assert found["binding_limit"] == "arrivals"

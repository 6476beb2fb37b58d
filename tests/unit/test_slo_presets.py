"""Named latency limits: what they expand to, what the scenario may state itself, and how a wrong name is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from simulator.cli.schema import scenario_schema
from simulator.errors import InputError
from simulator.scenario import Scenario, read_scenario
from simulator.scenario_settings import Slo
from simulator.scenario_yaml import parse_yaml
from simulator.slo_presets import SLO_PRESETS
from tests.running import SCENARIO, Run, result_of, runs_in, same_bytes
from tests.support import SHARED, needs_shared


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return runs_in(tmp_path)


def load(slo: str, *patches: str) -> Scenario:
    text = SCENARIO + f"slo: {slo}\n"
    return read_scenario(parse_yaml(text, "chat.yaml"), Path("chat.yaml"), patches).scenario


@pytest.mark.parametrize("name", SLO_PRESETS)
def test_a_preset_is_its_limits(name: str) -> None:
    scenario = load(name)
    assert scenario.settings.slo == SLO_PRESETS[name].limits
    assert load(f"{{preset: {name}}}").settings == scenario.settings
    (note,) = [note for note in scenario.notes if "preset" in note]
    assert note.startswith(f"slo = preset {name}: ") and SLO_PRESETS[name].source in note
    for limits in SLO_PRESETS[name].limits.values():
        assert all(f"{limit:g} ms" in note for limit in limits.values())


@needs_shared
def test_the_limits_of_mlperf_are_those_of_the_notes_on_users() -> None:
    """USERS.md section 3.1 lists them as ``Llama-2-70B server 2000/200, interactive 450/40; ...``."""
    text = (SHARED / "USERS.md").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("MLPerf limits")]
    found: dict[str, tuple[float, float]] = {}
    for part in line.partition("): ")[2].partition(". A planner")[0].split("; "):
        model = re.match(r"\S+", part)
        assert model is not None
        for kind, ttft, tpot in re.findall(r"(server|interactive)? ?(\d+)/(\d+)", part):
            found[f"mlperf-{model[0].lower()}-{kind or 'server'}"] = (float(ttft), float(tpot))
    ours = {
        name: (preset.limits["ttft_ms"]["p99"], preset.limits["tpot_ms"]["p99"])
        for name, preset in SLO_PRESETS.items()
        if name.startswith("mlperf")
    }
    assert {name.replace("mixtral-8x7b", "mixtral"): limits for name, limits in ours.items()} == found


@pytest.mark.parametrize(
    ("slo", "limits"),
    [
        ("{preset: chat, ttft_ms: {p99: 400}}", {"ttft_ms": {"p99": 400}, "tpot_ms": {"p99": 50}}),
        ("{preset: chat, ttft_ms: {p90: 400}}", {"ttft_ms": {"p90": 400}, "tpot_ms": {"p99": 50}}),
        ("{preset: chat, tpot_ms: null}", {"ttft_ms": {"p99": 500}}),
        ("{e2el_ms: {mean: 9000}, preset: chat}", {**SLO_PRESETS["chat"].limits, "e2el_ms": {"mean": 9000}}),
        ("{preset: batch, e2el_ms: {p50: 60000}}", {"e2el_ms": {"p50": 60000}}),
    ],
)
def test_what_the_scenario_states_itself_wins(slo: str, limits: dict[str, Any]) -> None:
    assert load(slo).settings.slo == limits


def test_patches_reach_into_a_preset() -> None:
    assert load("chat", "slo.ttft_ms.p99=400").settings.slo == {"ttft_ms": {"p99": 400}, "tpot_ms": {"p99": 50}}
    assert load("chat", "slo=batch").settings.slo == {}
    assert load("{ttft_ms: {p99: 1}}", "slo=chat", "slo.tpot_ms.p99=30").settings.slo["tpot_ms"] == {"p99": 30}
    text = (
        SCENARIO + "slo: chat\nvariants: {tight: {slo.ttft_ms: {p99: 100}}, code: {slo: code-completion}, as_is: {}}\n"
    )
    variants = read_scenario(parse_yaml(text, "chat.yaml"), Path("chat.yaml")).variants
    assert [variants[name].settings.slo["ttft_ms"] for name in ("tight", "code", "as_is")] == [
        {"p99": 100},
        {"p90": 125},
        {"p99": 500},
    ]


CLASSES = """\
  classes:
    - {name: people, slo: {preset: chat, tpot_ms: {p99: 30}}}
    - {name: jobs, slo: batch}
"""


def test_each_class_may_name_one() -> None:
    scenario = read_scenario(parse_yaml(SCENARIO + CLASSES, "chat.yaml"), Path("chat.yaml")).scenario
    people, jobs = scenario.settings.workload.classes
    assert people.slo == {"ttft_ms": {"p99": 500}, "tpot_ms": {"p99": 30}}
    assert jobs.slo == {}
    assert [note.split(" = ")[0] for note in scenario.notes] == [
        "workload.classes[0].slo",
        "workload.classes[1].slo",
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("slo: chatt\n", r"^chat\.yaml:11:6: slo: 'chatt' is not a preset.*\(did you mean chat\?"),
        (
            "slo:\n  preset: MLPerf Llama 3.1 8B server\n",
            r":12:11: slo: .* \(did you mean mlperf-llama-3\.1-8b-server\?",
        ),
        ("slo: xyz\n", r":11:6: .*valid: batch, chat, code-completion, mlperf-"),
        ("slo: {preset: 3}\n", r":11:15: slo\.preset must be the name of a preset, not the number 3"),
        ("slo: {preset: chat, ttf_ms: {p99: 3}}\n", r":11:21: slo\.ttf_ms is not known.*did you mean ttft_ms"),
        ("slo: {preset: chat, ttft_ms: {p99: x}}\n", r":11:36: slo\.ttft_ms\.p99 must be a number"),
        ("slo: {preset: chat, e2el_ms: null}\n", r":11:30: slo\.e2el_ms must be a mapping, not empty"),
        ("slo: chat\n", r":13:25: workload\.classes\[1\]\.slo sets no limit.*move the scenario's slo"),
        ("mode: serve\nslo: [chat]\n", r":12:6: slo must be a mapping, not a list"),
    ],
)
def test_a_fault_has_its_place(lines: str, message: str) -> None:
    classes = CLASSES if lines == "slo: chat\n" else ""
    text = SCENARIO + classes + lines
    with pytest.raises(InputError) as error:
        read_scenario(parse_yaml(text, "chat.yaml"), Path("chat.yaml"))
    assert re.search(message, str(error.value)), str(error.value)


def test_a_run_with_a_preset_repeats_from_its_resolved_scenario(run: Run, tmp_path: Path) -> None:
    assert run("--set", "slo=chat", out="first").exit_code in (0, 4)
    result = result_of(tmp_path / "first")
    assert [(row["metric"], row["stat"], row["limit"]) for row in result["slo"]["limits"]] == [
        ("ttft_ms", "p99", 500),
        ("tpot_ms", "p99", 50),
    ]
    assert "slo = preset chat: ttft p99 500 ms, tpot p99 50 ms" in " ".join(result["assumptions"])
    resolved = (tmp_path / "first" / "scenario.resolved.yaml").read_text(encoding="utf-8")
    assert "preset: chat" not in resolved
    run(out="second", text=resolved)
    same_bytes(tmp_path / "first", tmp_path / "second")


def test_editors_are_told_of_the_presets_and_their_numbers() -> None:
    schema = scenario_schema()
    shown = [schema["properties"]["slo"], schema["$defs"]["ClassConfig"]["properties"]["slo"]]
    for slo in shown:
        names, table = slo["anyOf"]
        assert [option["const"] for option in names["oneOf"]] == list(SLO_PRESETS)
        assert "ttft p99 500 ms" in names["oneOf"][0]["description"]
        assert table["properties"]["preset"] == names
    plain = TypeAdapter(Slo).json_schema()
    assert shown[0]["anyOf"][1]["additionalProperties"] == plain["additionalProperties"]

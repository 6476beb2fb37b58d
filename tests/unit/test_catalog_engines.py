"""``kvplan catalog engines``: every preset's rules, where they stand in our code, and how we know them."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest
from typer.testing import CliRunner

from simulator.catalog.engine_files import EVIDENCE, EngineRule, engine_rules
from simulator.cli import app
from simulator.engine_settings import Preset
from tests.support import ROOT

RULES = engine_rules()
EACH = [(name, rule) for name, known in RULES.items() for rule in known.rules]


def test_every_preset_has_rules() -> None:
    assert set(RULES) == set(get_args(Preset))


@pytest.mark.parametrize(("name", "rule"), EACH, ids=[f"{name}-{rule.rule[:40]}" for name, rule in EACH])
def test_a_rule_points_at_code_that_is_there(name: str, rule: EngineRule) -> None:
    file, _, defined = rule.code.partition(":")
    text = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(rf"^( *(class|def) {defined}\b|{defined}\b)", text, flags=re.MULTILINE), rule.code


def test_only_vllm_was_executed_and_what_is_remembered_says_so() -> None:
    """SCHEDULERS.md's marks: [X] for vLLM v1 alone; [M] is no evidence and is called memory."""
    executed = {name for name, rule in EACH if rule.evidence == "executed"}
    assert executed == {"vllm"}
    for _, rule in EACH:
        assert (rule.evidence == "memory") == ("not verified" in rule.source)
        assert rule.evidence in EVIDENCE


def test_the_list_and_one_engine_and_json() -> None:
    whole = CliRunner().invoke(app, ["catalog", "engines"])
    assert whole.exit_code == 0
    for name in RULES:
        assert f"\n{name}: " in "\n" + whole.stdout
    assert "memory = from memory, not verified" in whole.stdout
    one = CliRunner().invoke(app, ["catalog", "engines", "sglang"])
    assert "vllm:" not in one.stdout and "new_token_ratio" in one.stdout
    found = json.loads(CliRunner().invoke(app, ["catalog", "engines", "vllm-v0", "--json"]).stdout)["engines"]
    assert list(found) == ["vllm-v0"]
    assert found["vllm-v0"]["evidence"]["executed"] == 0
    assert len(found["vllm-v0"]["rules"]) == sum(found["vllm-v0"]["evidence"].values())
    assert found["vllm-v0"]["defaults"]["h100-sxm-80gb"]["max_num_seqs"] == 256
    unknown = CliRunner().invoke(app, ["catalog", "engines", "vlm"])
    assert unknown.exit_code == 2 and "did you mean vllm" in unknown.stderr

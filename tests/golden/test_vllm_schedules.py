"""Recorded schedules of the real vLLM 0.33 scheduler, replayed pass by pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator import verify_schedule
from tests.support import DATA, needs_shared

GOLDEN = DATA / "vllm_golden"
PREFIXES = sorted(path.name.removesuffix(".config.json") for path in GOLDEN.glob("*.config.json"))


@needs_shared
@pytest.mark.parametrize("name", PREFIXES)
def test_a_recorded_case_is_exact(name: str) -> None:
    result = verify_schedule.verify_prefix(GOLDEN / name)
    assert result.exact, result.text


def inputs(name: str) -> tuple[dict, list[dict]]:
    config = json.loads((GOLDEN / f"{name}.config.json").read_text())
    requests = [json.loads(line) for line in (GOLDEN / f"{name}.requests.jsonl").read_text().splitlines()]
    return config, requests


@needs_shared
def test_the_replay_is_blind(tmp_path: Path) -> None:
    """Without the answers, and with other texts in the settings, it makes the same passes."""
    config, requests = inputs("tiny_pool_reserve")
    blank = config | {"name": "", "description": ""}
    assert verify_schedule.replay(blank, requests) == verify_schedule.replay(config, requests)


@needs_shared
def test_a_planted_mistake_is_shown_side_by_side() -> None:
    """One changed number is found, and shown with the state before."""
    ours = verify_schedule.replay(*inputs("saturation_nocache")).passes
    wrong = [dict(row) for row in ours]
    wrong[700]["free"] += 1
    difference = verify_schedule.first_difference(ours, wrong)
    assert difference is not None
    assert "pass 700, differing in free" in difference
    assert "state before" in difference
    assert "ended already" in str(verify_schedule.first_difference(ours[:-1], ours))

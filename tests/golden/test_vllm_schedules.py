"""Recorded schedules of the real vLLM 0.33 scheduler, replayed pass by pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator import verify_schedule
from tests.support import DATA, needs_shared

GOLDEN = DATA / "vllm_golden"
PREFIXES = sorted(path.name.removesuffix(".config.json") for path in GOLDEN.glob("*.config.json"))
# Cases recorded with caching on in which no block is ever hit: without segments, and nobody comes back.
NO_HITS = ("light_load", "long_prefill_lone", "long_prompts_chunked", "max_model_len_cap", "max_num_seqs_8",
           "output_gt_pool", "prompt_gt_pool_reserve")  # fmt: skip


@needs_shared
@pytest.mark.parametrize("name", PREFIXES)
def test_a_case_is_exact_or_refused_by_name(name: str) -> None:
    result = verify_schedule.verify_prefix(GOLDEN / name)
    assert result.exact or result.unsupported, result.text


@needs_shared
def test_the_cases_within_reach_are_exact() -> None:
    results = [verify_schedule.verify_prefix(GOLDEN / name) for name in PREFIXES]
    exact = {result.name for result in results if result.exact}
    assert exact == {r.name for r in results if r.unsupported is None}
    assert {"saturation_nocache", "prompt_gt_pool_livelock"} <= exact


@needs_shared
@pytest.mark.parametrize("name", NO_HITS)
def test_where_the_cache_is_never_hit_the_passes_are_the_same(name: str) -> None:
    config = json.loads((GOLDEN / f"{name}.config.json").read_text())
    requests = [json.loads(line) for line in (GOLDEN / f"{name}.requests.jsonl").read_text().splitlines()]
    ours = verify_schedule.replay(config, requests)
    theirs = verify_schedule._read_lines(GOLDEN / f"{name}.steps.jsonl.gz")
    assert verify_schedule.first_difference(ours.passes, theirs) is None


@needs_shared
def test_a_planted_mistake_is_shown_side_by_side(tmp_path: Path) -> None:
    """The replay never reads the answers, and one changed number in them is found."""
    name = "saturation_nocache"
    config = json.loads((GOLDEN / f"{name}.config.json").read_text())
    requests = [json.loads(line) for line in (GOLDEN / f"{name}.requests.jsonl").read_text().splitlines()]
    ours = verify_schedule.replay(config, requests).passes
    wrong = [dict(row) for row in ours]
    wrong[700]["free"] += 1
    difference = verify_schedule.first_difference(ours, wrong)
    assert difference is not None
    assert "pass 700, differing in free" in difference
    assert "state before" in difference
    assert "ended already" in str(verify_schedule.first_difference(ours[:-1], ours))

"""The vLLM twin repeats every recorded pass of the real vLLM, all keys of every row.

What the simulator is compared with elsewhere is thereby itself compared with vLLM here.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.differential.vllm_twin import twin_run
from tests.support import DATA, needs_shared

GOLDEN = DATA / "vllm_golden"
NAMES = sorted(path.name.removesuffix(".config.json") for path in GOLDEN.glob("*.config.json"))

pytestmark = needs_shared


def _lines(name: str) -> list[dict[str, Any]]:
    raw = (GOLDEN / name).read_bytes()
    text = gzip.decompress(raw) if name.endswith(".gz") else raw
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_the_twin_repeats_every_row(name: str) -> None:
    config = json.loads((GOLDEN / f"{name}.config.json").read_text())
    run = twin_run(config, _lines(f"{name}.requests.jsonl"))
    recorded = _lines(f"{name}.steps.jsonl.gz")
    for ours, theirs in zip(run.passes, recorded, strict=False):
        assert ours == theirs
    assert len(run.passes) == len(recorded)
    summary_path = GOLDEN / f"{name}.summary.json"
    if summary_path.exists():  # the random cases have none
        summary = json.loads(summary_path.read_text())
        assert (run.status, run.rejected) == (summary["status"], summary["rejected"])
    else:
        assert run.status == config["status"]


def test_all_recorded_cases_are_found() -> None:
    assert len(NAMES) >= 54

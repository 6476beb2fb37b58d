"""Parameter counts of small configs of every family, against Hugging Face Transformers' own models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.specs import model_from_config

COUNTS = json.loads((Path(__file__).parent / "transformers_counts.json").read_text(encoding="utf-8"))["models"]


@pytest.mark.parametrize("entry", COUNTS, ids=[entry["config"]["model_type"] for entry in COUNTS])
def test_parameters_as_transformers_builds_them(entry: dict[str, Any]) -> None:
    model = model_from_config(entry["config"], name="m", source="m")
    assert model.parameters == entry["parameters"]
    assert model.parameters_exact


def test_many_families_are_covered() -> None:
    assert len({entry["config"]["model_type"] for entry in COUNTS}) >= 55

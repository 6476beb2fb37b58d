"""Every shipped scenario asks a question in its first line, says what it must in few lines, and loads."""

from __future__ import annotations

import pytest

from simulator.run_scenario import build
from simulator.scenario import load_scenario, shipped_scenarios

SHIPPED = shipped_scenarios()
NEEDS_A_TRACE = {"azure-conversation", "mooncake-conversation"}
TO_RENT = (
    "chat-8b-20rps",
    "llama-70b-which-gpus",
    "rag-8k-prefix",
    "deepseek-v3-8xh200",
    "batch-overnight",
    "contiguous-or-paged",
)
"""What people ask before they rent."""


@pytest.mark.parametrize("name", SHIPPED)
def test_the_first_line_is_a_question(name: str) -> None:
    lines = SHIPPED[name].read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ") and "?" in lines[0], lines[0]
    assert f"name: {name}" in lines
    assert len(lines) <= 50 and max(map(len, lines)) <= 130


@pytest.mark.parametrize("name", sorted(set(SHIPPED) - NEEDS_A_TRACE))
def test_it_loads_and_can_be_built(name: str) -> None:
    loaded = load_scenario(name)
    assert loaded.name == name
    for scenario in loaded.variants.values() or [loaded.scenario]:
        built = build(scenario)
        assert len(built.workload) == (scenario.settings.workload.num_requests or len(built.workload)) > 0
        assert not built.warnings, built.warnings


@pytest.mark.parametrize("name", TO_RENT)
def test_what_people_ask_before_they_rent_has_a_capacity_section(name: str) -> None:
    loaded = load_scenario(name)
    assert loaded.capacity is not None
    for scenario in loaded.variants.values() or [loaded.scenario]:
        assert scenario.settings.slo or name == "batch-overnight"

"""The schema that editors get and the binder that errors come from agree: both are drawn from the same classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from simulator.errors import InputError
from simulator.scenario import load_scenario, read_scenario, shipped_scenarios
from simulator.scenario_resolved import plain
from simulator.scenario_settings import ScenarioSettings
from simulator.scenario_yaml import parse_yaml, read_yaml

PYDANTIC = TypeAdapter(ScenarioSettings)
SHIPPED = sorted(set(shipped_scenarios()) - {"azure-conversation", "mooncake-conversation"})


@pytest.mark.parametrize("name", SHIPPED)
def test_pydantic_reads_the_same_settings(name: str) -> None:
    loaded = load_scenario(name)
    for scenario in loaded.variants.values() or [loaded.scenario]:
        assert PYDANTIC.validate_python(plain(scenario.settings)) == scenario.settings


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rate_rps: 24", "rate_rps: fast"),
        ("kind: poisson", "kind: poison"),
        ("block_size: 16", "block_size: 0"),
        ("num_requests: 2000", "num_requests: [1]"),
        ("gpu_memory_utilization: 0.92", "gpu_memory_utilization: 1.5"),
        ("scheduling_policy: fcfs", "scheduling_policy: lifo"),
    ],
)
def test_pydantic_refuses_what_the_binder_refuses(old: str, new: str) -> None:
    path = shipped_scenarios()["quickstart"]
    text = path.read_text(encoding="utf-8")
    assert old in text
    bad = parse_yaml(text.replace(old, new), "bad.yaml")
    bad.data.pop("variants")
    with pytest.raises(ValidationError):
        PYDANTIC.validate_python(bad.data)
    with pytest.raises(InputError, match=r"bad\.yaml:\d+:\d+"):
        read_scenario(bad, Path("bad.yaml"))


def test_the_same_file_read_twice_is_the_same() -> None:
    path = shipped_scenarios()["quickstart"]
    first, second = (read_scenario(read_yaml(path), path) for _ in range(2))
    assert [s.settings for s in first.variants.values()] == [s.settings for s in second.variants.values()]

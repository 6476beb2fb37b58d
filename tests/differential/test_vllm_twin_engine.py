"""The engine's replay of random cases against the vLLM twin, pass by pass.

The recorded cases prove the twin (tests/golden/test_vllm_twin.py); here it stands in for vLLM on cases nobody recorded.
``python -m tests.differential.vllm_twin_fuzz`` runs as many of them as wanted.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.differential.vllm_twin_fuzz import difference, unsupported
from tests.vllm_cases_random import KINDS, cases, random_case

SEEDS = 25


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_schedules_as_the_twin(kind: str) -> None:
    compared = 0
    for seed in range(SEEDS):
        config, requests = random_case(seed, kind)
        if unsupported(config):
            continue
        found = difference(config, requests)
        assert found is None, f"{kind} {seed}\n{found}"
        compared += 1
    if not compared:
        pytest.skip("the engine models none of these cases yet")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_the_engine_schedules_as_the_twin_on_fresh_cases(kind: str, data: st.DataObject) -> None:
    config, requests = data.draw(cases(kind))
    if unsupported(config):
        return
    found = difference(config, requests)
    assert found is None, found

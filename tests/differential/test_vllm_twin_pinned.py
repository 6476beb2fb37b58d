"""Random cases that alone, among hundreds, meet a rule: kept by number, with what each of them meets."""

from __future__ import annotations

import pytest

from tests.differential.vllm_twin_fuzz import difference
from tests.vllm_cases_random import random_case

CASES = [
    ("hybrid", 113, "async scheduling: the full-sequence rule counts the chunks of two steps in flight"),
    ("mixed", 29, "a prefill that is given tokens and then preempted counts for one pass of the hold only"),
    ("full-async", 96, "a pass that computes nothing does not bring a held prefill nearer"),
]


@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind, seed, _ in CASES])
def test_a_case_that_meets_a_rare_rule_is_the_twins(kind: str, seed: int) -> None:
    found = difference(*random_case(seed, kind))
    assert found is None, found

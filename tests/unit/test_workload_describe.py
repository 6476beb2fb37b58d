"""describe(): hand-worked numbers, and the text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.random_streams import Streams
from workloads.arrivals import AllAtOnce, Arrivals, ClosedLoop, Constant, Gamma, OnOff, Poisson
from workloads.build import build_workload
from workloads.config import WorkloadConfig
from workloads.describe import describe
from workloads.describe_text import describe_text
from workloads.lengths import Fixed, Lengths, Uniform
from workloads.mixes import ClassConfig
from workloads.prefixes import SharedPrefix
from workloads.sessions import Sessions, ThinkTime
from workloads.traces.config import TraceConfig
from workloads.workload import PS_PER_S, Workload


def facts_of(arrivals: Arrivals, n: int = 1000, prompt: Lengths | None = None, **fields: Any) -> dict[str, Any]:
    config = WorkloadConfig(n, None, arrivals, prompt or Fixed(100), Fixed(10), **fields)
    return describe(build_workload(config, Streams(0)))


def test_statistics_by_hand() -> None:
    seconds = [0, 1, 2, 3, 10]
    workload = Workload.from_columns([s * PS_PER_S for s in seconds], [10, 20, 30, 40, 100], [5, 4, 3, 2, 1])
    facts = describe(workload, max_model_len=42)
    assert facts["prompt_tokens"]["mean"] == 40 and facts["prompt_tokens"]["p50"] == 30
    assert facts["prompt_tokens"]["p90"] == 76 and facts["prompt_tokens"]["total"] == 200
    assert facts["prompt_tokens"]["cv"] == pytest.approx(np.std([10, 20, 30, 40, 100]) / 40)
    assert facts["length_rank_correlation"] == pytest.approx(-1)
    arrivals = facts["arrivals"]
    assert arrivals["mean_rate_rps"] == 0.4 and arrivals["gap_mean_s"] == 2.5
    assert arrivals["gap_cv"] == pytest.approx(np.std([1, 1, 1, 7]) / 2.5)
    assert arrivals["peak_rate_rps"] == {"1s": 1.0, "10s": 0.4}
    assert arrivals["index_of_dispersion"] == {"1s": pytest.approx(0.4 * 0.6 / 0.4)}
    over = facts["over_limit"]
    assert (over["prompts_too_long"], over["rows_too_long"]) == (1, 1)
    assert describe(workload, max_model_len=41)["over_limit"]["rows_too_long"] == 2


def test_ties_share_their_rank() -> None:
    workload = Workload.from_columns([0, 1, 2, 3], [1, 1, 2, 3], [5, 5, 6, 9])
    assert describe(workload)["length_rank_correlation"] == pytest.approx(1)


def test_burstiness_orders_the_laws() -> None:
    constant = facts_of(Constant(10), 5000)["arrivals"]
    poisson = facts_of(Poisson(10), 5000)["arrivals"]
    bursty = facts_of(Gamma(10, 0.2), 5000)["arrivals"]
    on_off = facts_of(OnOff(40, 1, 3), 5000)["arrivals"]
    assert constant["gap_cv"] < 1e-9 and constant["index_of_dispersion"]["10s"] < 1e-9
    assert poisson["gap_cv"] == pytest.approx(1, abs=0.06)
    assert bursty["gap_cv"] == pytest.approx(5**0.5, abs=0.2)
    assert on_off["peak_rate_rps"]["1s"] > 2 * poisson["peak_rate_rps"]["10s"]


@pytest.mark.parametrize("law,word", [(AllAtOnce(), "all at one time"), (ClosedLoop(4), "closed loop")])
def test_without_a_clock_there_is_no_rate(law: Arrivals, word: str) -> None:
    facts = facts_of(law)
    assert facts["arrivals"]["mean_rate_rps"] is None and word in describe_text(facts)


def test_one_request_alone_is_described() -> None:
    facts = facts_of(Poisson(1), 1)
    assert facts["arrivals"]["gap_cv"] is None and facts["length_correlation"] is None
    json.dumps(facts, allow_nan=False)
    assert describe_text(facts).isascii()


def test_n_identical_rounds_hit_n_minus_1_over_n() -> None:
    """Published case (Mooncake issue 3317): clients that send the same prompt n times hit 0, 1/2, 2/3, 3/4."""
    for n in (1, 2, 3, 4):
        segments = [((f"client{c}", 0, 640),) for _ in range(n) for c in range(20)]
        workload = Workload.from_columns([0] * 20 * n, [640] * 20 * n, [1] * 20 * n, segments=segments)
        assert describe(workload)["ideal_prefix_hit_rate"] == (n - 1) / n


def test_a_shared_prefix_is_computed_once_a_group() -> None:
    facts = facts_of(Poisson(1), prefix=SharedPrefix(Fixed(160), groups=5))
    # 260 tokens = 17 blocks, 10 of them the prefix; all but the first of each group hit
    assert facts["ideal_prefix_hit_rate"] == 995 * 10 / (1000 * 17)
    assert facts["ideal_cached_token_share"] == 995 * 160 / (1000 * 260)
    assert facts["rows_sharing_a_prefix"] == 995


def test_sessions_find_their_earlier_turns_answers_included() -> None:
    session = Sessions(Fixed(2), ThinkTime(4))
    config = WorkloadConfig(2, None, Poisson(1), Fixed(32), Fixed(17), session=session)
    facts = describe(build_workload(config, Streams(0)))
    # turn 1: 32 tokens, 2 blocks. turn 2: 32 + 17 + 32 = 81, 6 blocks, of which 32 + 16 computed tokens = 3 blocks hit
    assert facts["ideal_prefix_hit_rate"] == 3 / 8
    assert facts["sessions"] == {"sessions": 1, "mean_turns": 2.0, "mean_think_s": 4.0}


def test_private_prompts_hit_nothing_and_a_trace_without_identities_is_unknown(tmp_path: Path) -> None:
    assert facts_of(Poisson(1))["ideal_prefix_hit_rate"] == 0.0
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,5,5\n1,z,5\n")
    config = WorkloadConfig(trace=TraceConfig(path="t.csv"))
    facts = describe(build_workload(config, Streams(0), base_dir=tmp_path))
    assert facts["ideal_prefix_hit_rate"] is None and facts["rows_read"] == 2
    assert facts["dropped"][0]["examples"] == [{"line": 3, "shown": "'z'"}]
    text = describe_text(facts)
    assert "line 3: 'z'" in text and "unknown" in text


def test_classes_and_share_of_prompts_with_a_full_block() -> None:
    classes = (ClassConfig("chat", weight=1), ClassConfig("long", weight=1, prompt_tokens=Fixed(8)))
    facts = facts_of(Poisson(1), prompt=Uniform(16, 99), classes=classes)
    assert facts["classes"]["long"]["mean_prompt_tokens"] == 8
    assert facts["share_of_prompts_with_a_full_block"] == facts["classes"]["chat"]["share"]
    assert "long" in describe_text(facts)

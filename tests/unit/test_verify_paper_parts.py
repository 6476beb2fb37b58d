"""Lengths, windows and the order of systems, each by itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from simulator.cluster import simulate
from simulator.errors import InputError
from simulator.verify_paper_lab import Lab, Load, system_of
from simulator.verify_paper_lengths import ALPACA, DATASETS, MAX_TOKENS, SHAREGPT, LengthShape, fitted_law
from simulator.verify_paper_order import OFF_THE_PLOT_S, compare
from simulator.verify_paper_systems import OPT_13B, Orca, Vllm
from simulator.verify_paper_window import StepColumns, batched_requests, memory_shares, normalized_latency_s
from workloads.workload import PS_PER_S

SAMPLE = 40_000


@pytest.mark.parametrize("shape", [SHAREGPT, ALPACA, SHAREGPT.widened(0.7), SHAREGPT.widened(1.3), ALPACA.widened(1.3)])
def test_lengths_have_the_papers_means_after_the_cut(shape: LengthShape) -> None:
    law = fitted_law(shape)
    prompt_mean, prompt_cv, output_mean, output_cv = law.moments()
    assert math.isclose(prompt_mean, shape.prompt_mean, rel_tol=1e-5)
    assert math.isclose(output_mean, shape.output_mean, rel_tol=1e-5)
    prompt, output = law.draw(np.random.default_rng(1), np.random.default_rng(2), SAMPLE)
    assert (prompt + output).max() <= MAX_TOKENS
    assert min(prompt.min(), output.min()) >= 1
    for drawn, mean, cv in ((prompt, prompt_mean, prompt_cv), (output, output_mean, output_cv)):
        standard_error = mean * cv / math.sqrt(SAMPLE)
        assert abs(drawn.mean() - mean) < 4 * standard_error
        assert math.isclose(drawn.std() / drawn.mean(), cv, rel_tol=0.05)


def test_cutting_only_lowers_the_spread() -> None:
    for shape in DATASETS.values():
        _, prompt_cv, _, output_cv = fitted_law(shape).moments()
        assert 0.6 * shape.prompt_cv < prompt_cv < shape.prompt_cv * 1.001
        assert 0.9 * shape.output_cv < output_cv <= shape.output_cv * 1.001


def test_fewer_requests_are_the_beginning_of_more() -> None:
    lab = Lab()
    few, many = lab.lengths("ShareGPT", 100), lab.lengths("ShareGPT", 9_000)
    for short, long in zip(few, many, strict=True):
        assert (short == long[:100]).all()
    slow, fast = (Lab().workload(Load("ShareGPT", rate, 300)) for rate in (1.0, 2.0))
    assert np.allclose(slow.arrival_ps[:100], 2 * fast.arrival_ps[:100], atol=2)


def test_means_that_do_not_fit_the_context_are_refused() -> None:
    with pytest.raises(InputError, match="fit into 2048 tokens"):
        fitted_law(replace(SHAREGPT, prompt_mean=1500.0, output_mean=1500.0))


def _steps_one_by_one(system: Orca | Vllm, seconds: float) -> tuple[StepColumns, StepColumns, list[object]]:
    load = Load("ShareGPT", 3.0, seconds)
    arguments = (Lab().workload(load), system.engine(OPT_13B), system.pool(OPT_13B), OPT_13B.step_time())
    logs = [simulate(*arguments, stepwise=stepwise) for stepwise in (False, True)]
    windows = [StepColumns.of(log, 10, seconds) for log in logs]
    return windows[0], windows[1], list(logs)


@pytest.mark.parametrize("system", [Orca("max"), Orca("pow2"), Orca("oracle"), Vllm()])
def test_windows_read_the_same_from_leaps_and_single_steps(system: Orca | Vllm) -> None:
    leaps, single, logs = _steps_one_by_one(system, 40)
    for name in ("start_ps", "running", "stored", "used", "saved"):
        assert (getattr(leaps, name) == getattr(single, name)).all(), name
    reservation = system.reservation if isinstance(system, Orca) else None
    shares = [memory_shares(log, steps, reservation) for log, steps in zip(logs, (leaps, single), strict=True)]  # type: ignore[arg-type]
    assert shares[0] == shares[1]


@pytest.mark.parametrize("name", ["Orca (Max)", "Orca (Pow2)", "Orca (Oracle)", "vLLM"])
def test_shares_add_up_and_none_is_negative(name: str) -> None:
    window = Lab(scale=0.1).window(system_of(name, OPT_13B, "ShareGPT"), OPT_13B, Load("ShareGPT", 4.0, 900), 300, 900)
    shares = window.shares
    parts = [shares.tokens, shares.reserved, shares.internal, shares.other]
    assert math.isclose(sum(parts), 1)
    assert min(parts) >= 0
    if name == "Orca (Max)":
        assert window.batched <= 7
        assert math.isclose(shares.other, 1 - 7 * 2048 / 15_700, rel_tol=0.01)  # 7 runs of the context, always


def test_a_window_by_hand() -> None:
    """One request at a time: its tokens, its reservation and its latency can be counted on fingers."""
    lab = Lab()
    workload = lab.workload(Load("ShareGPT", 1.0, 3.0))
    system = Orca("pow2")
    one = replace(
        workload,
        arrival_ps=workload.arrival_ps[:1],
        prompt_tokens=np.array([100]),
        output_tokens=np.array([5]),
        class_index=workload.class_index[:1],
        priority=workload.priority[:1],
        after=workload.after[:1],
        think_ps=workload.think_ps[:1],
    )
    log = simulate(one, system.engine(OPT_13B), system.pool(OPT_13B), OPT_13B.step_time())
    steps = StepColumns.of(log, 0, 100)
    assert steps.running.tolist() == [1] * 5
    assert steps.stored.tolist() == [100, 101, 102, 103, 104]  # the last token's KV is never computed
    assert steps.used.tolist() == [128] * 5  # 100 + 8 reserved, rounded by the buddy allocator
    shares = memory_shares(log, steps, "pow2")
    assert math.isclose(shares.tokens, 102 / 15_700)
    assert math.isclose(shares.reserved, 2 / 15_700)
    assert math.isclose(shares.internal, 4 / 15_700)
    assert batched_requests(steps) == 1
    latency_ps = int(log.request_columns()["finish_ps"][0] - one.arrival_ps[0])
    assert math.isclose(normalized_latency_s(log, 0), latency_ps / 5 / PS_PER_S)


def test_an_empty_window_is_refused() -> None:
    log = simulate(
        Lab().workload(Load("ShareGPT", 1.0, 5.0)),
        Vllm().engine(OPT_13B),
        Vllm().pool(OPT_13B),
        OPT_13B.step_time(),
    )
    with pytest.raises(InputError, match="no step begins"):
        StepColumns.of(log, 5_000, 6_000)


PAPER = {
    "slow": [(1.0, 0.05), (2.0, 0.5), (2.1, 1.6)],
    "fast": [(1.0, 0.05), (3.0, 0.07), (4.0, 1.6)],
}


def test_order_is_compared_where_the_paper_tells_systems_apart() -> None:
    good = {"slow": {1.0: 0.03, 2.0: 0.3, 2.1: 0.9, 3.0: 5.0, 4.0: 9.0}, "fast": {}}
    found = compare(PAPER, lambda system, rate: good["slow"][rate] if system == "slow" else 0.03)
    assert [(c.rate_rps, c.slower, c.faster) for c in found] == [
        (rate, "slow", "fast") for rate in (2.0, 2.1, 3.0, 4.0)
    ]
    assert found[2].paper == (None, 0.07)  # off the plot against a number
    assert all(c.right for c in found)


def test_the_wrong_order_is_found() -> None:
    found = compare(PAPER, lambda system, rate: 0.03 if system == "slow" else 0.05)
    assert found and not any(c.right for c in found)


def test_two_systems_off_the_plot_are_alike() -> None:
    found = compare(PAPER, lambda system, rate: OFF_THE_PLOT_S * (2 if system == "slow" else 3))
    assert found and all(c.right for c in found)


def test_sequences_are_one_request_for_vllm_and_many_for_systems_that_share_nothing() -> None:
    load = Load("Alpaca", 5.0, 20.0, sequences=4)
    together, apart = Lab().workload(load), Lab().workload(load, apart=True)
    assert together.sequences is not None and (together.sequences == 4).all()
    assert len(apart) == 4 * len(together) and apart.sequences is None
    assert (apart.prompt_tokens == np.repeat(together.prompt_tokens, 4)).all()
    assert (apart.arrival_ps == np.repeat(together.arrival_ps, 4)).all()


def test_a_shared_prefix_is_the_same_tokens_in_every_prompt() -> None:
    plain = Lab().workload(Load("WMT16", 5.0, 20.0))
    shared = Lab().workload(Load("WMT16", 5.0, 20.0, prefix_tokens=80))
    assert shared.segments is not None
    assert (shared.prompt_tokens == plain.prompt_tokens + 80).all()
    for row in range(len(shared)):
        segments = shared.segments[row]
        assert segments is not None and segments[0] == ("prefix", 0, 80)
        assert sum(length for _, _, length in segments) == shared.prompt_tokens[row]
    assert len({segments[1][0] for segments in shared.segments if segments}) == len(shared)


def test_sharing_saves_more_with_more_sequences_and_nothing_with_one() -> None:
    def saved(sequences: int, *, beam: bool = False) -> float:
        load = Load("Alpaca", 10.0, 300, sequences, beam)
        return Lab(scale=0.05).window(Vllm(mixed=False), OPT_13B, load, 100, 300).saved

    assert saved(1) == 0
    assert 0 < saved(2) < saved(4) < 0.5
    assert saved(2) < saved(2, beam=True)

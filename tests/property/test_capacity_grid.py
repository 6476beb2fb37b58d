"""The knee that a search finds is that of the dense grid; more replicas never bear less."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from simulator.planner.capacity.facts import facts_of
from simulator.planner.capacity.knee import RANGE
from simulator.planner.capacity.plan import Ask, Planner, Sized
from simulator.planner.capacity.probe import ProbeOutcome
from simulator.planner.capacity.rates import RateGrid
from simulator.planner.capacity.verdicts import why_not
from tests.capacity_search import Asked, asked

ANCHOR_RPS = 10.0
LOW = 60
"""A dense grid begins so many steps (a factor of 5.9) below what is sustained, further down where nothing passes."""


def scenario(number: int) -> str:
    """Small servers that bind for different reasons, and limits that are met up to somewhere."""
    dice = random.Random(f"scenario {number}")
    batch = dice.choice([4, 8, 32])
    engine = [
        f"max_num_seqs: {batch}",
        "max_model_len: 2048",
        f"num_gpu_blocks_override: {dice.choice([150, 4000])}",
        f"max_num_batched_tokens: {dice.choice([128, 2048])}",
        f"enable_prefix_caching: {dice.choice(['true', 'false'])}",
    ]
    base, token = dice.choice([6.0, 15.0]), dice.choice([20.0, 80.0])
    slow_ms = base + token * batch / 1000
    tpot = base + (slow_ms - base) * dice.uniform(0.3, 3.0) + dice.choice([0.5, 2.0])
    limits = dice.choice(
        [
            f"{{ttft_ms: {{p99: {dice.choice([150, 400, 1500])}}}, tpot_ms: {{p90: {tpot:.2f}}}}}",
            f"{{ttft_ms: {{p95: {dice.choice([200, 600])}}}}}",
            f"{{e2el_ms: {{mean: {dice.choice([300, 900])}}}, tpot_ms: {{p99: {2 * tpot:.2f}}}}}",
        ]
    )
    session = "\n  session: {turns: {kind: uniform, min: 1, max: 3}, think: {mean_s: 0.2}}" if number % 5 == 4 else ""
    return f"""\
name: chat
seed: {number}
model: llama-3.1-8b
gpu: h100-sxm-80gb
parallelism: {{tensor_parallel_size: 1}}
engine: {{{", ".join(engine)}}}
step_time: {{kind: linear, base_ms: {base}, per_token_us: {token}, per_context_token_ns: 26.0}}
workload:
  num_requests: {dice.choice([30, 60])}
  arrivals: {{kind: {dice.choice(["poisson", "gamma, burstiness: 0.25"])}, rate_rps: 5}}
  prompt_tokens: {{kind: lognormal, mean: {dice.choice([50, 200])}, cv: 1.0, max: 1000}}
  output_tokens: {{kind: uniform, min: 1, max: {dice.choice([10, 50])}}}{session}
slo: {limits}
"""


def sized_by_search(question: Asked, planner: Planner, replicas: int = 1) -> tuple[Sized, int]:
    """A candidate's own search, and its probes."""
    (facts,) = facts_of(question.candidates, question.patches, question.settings)
    search = planner.size(facts)
    probes = 0
    try:
        asks = next(search)
        while True:
            probes += len(asks)
            asks = search.send([answer(ask) for ask in asks])
    except StopIteration as end:
        sized: Sized = end.value
        return sized, probes


def answer(ask: Ask) -> ProbeOutcome:
    return ask.probe(0).run()


def dense_knee(question: Asked, planner: Planner, sized: Sized) -> float | None:
    """The highest rate of the grid below which every rate passes: each is simulated, from far below upwards."""
    assert sized.sustained_rps is not None
    grid = planner.grid
    top = grid.highest_at_most(sized.sustained_rps)

    def passes(index: int) -> bool:
        rate = grid.rate_rps(index)
        outcome = answer(Ask(sized.facts, question.patches, "knee", 1, rate, question.patches.requests))
        return not why_not(outcome, rate, sized.sustained_rps, question.settings)

    bottom = top - LOW
    while not passes(bottom):
        bottom -= LOW // 2
        if bottom <= top - RANGE:
            return None
    index = bottom
    while index < top and passes(index + 1):
        index += 1
    return grid.rate_rps(index)


@pytest.mark.parametrize("number", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 24))])
def test_the_knee_of_a_search_is_that_of_the_dense_grid(number: int) -> None:
    question = asked(scenario(number))
    planner = Planner(question.patches, question.settings, RateGrid(ANCHOR_RPS))
    sized, probes = sized_by_search(question, planner)
    if sized.sustained_rps is None:  # not even without load
        assert sized.status == "slo_unreachable" and probes == 0
        return
    assert sized.knee_rps == dense_knee(question, planner, sized)
    assert probes <= 1 + 16 + 12 + 16
    assert sized.knee_rps is None or sized.knee_rps <= sized.sustained_rps


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_more_replicas_bear_more_in_the_mean_over_replications(number: int) -> None:
    """The knees of 1, 2 and 4 replicas, each the mean over seeds; and of 4 it is about four times that of one."""
    means = []
    for replicas in (1, 2, 4):
        knees = []
        for seed in range(5):
            question = asked(scenario(number), [f"capacity={{replicas: [{replicas}]}}"], seed=100 + seed)
            planner = Planner(question.patches, question.settings, RateGrid(ANCHOR_RPS))
            sized, _ = sized_by_search(question, planner)
            knees.append(sized.knee_rps or 0.0)
        means.append(fmean(knees))
    assert means[0] < means[1] < means[2]
    assert 3.0 * means[0] < means[2] < 8.0 * means[0]

"""What is known without a clock is never beyond what a simulation gives; what is sustained is what theory says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simulator.errors import KvplanError
from simulator.planner.capacity.bounds import bounds_of
from simulator.planner.capacity.facts import facts_of
from simulator.planner.capacity.plan import Ask, Planner
from simulator.planner.capacity.probe import AT_ONCE_RPS, Probe
from simulator.planner.capacity.rates import RateGrid
from simulator.run_scenario import build, result, run
from tests.capacity_search import asked

LINEAR = "step_time: {kind: linear, base_ms: 6.0, per_token_us: 50.0, per_context_token_ns: 26.0}"
SESSIONS = "session: {turns: {kind: uniform, min: 1, max: 5}, think: {mean_s: 0.5}}"
PREFIX = "prefix: {prefix_tokens: {kind: fixed, tokens: 100}}"


@st.composite
def scenarios(draw: st.DrawFn) -> str:
    """Small runs: idle, busy or all at once; models with and without windows and experts; every preset."""
    preset = draw(st.sampled_from(["vllm"] * 5 + ["vllm-v0", "sglang", "trtllm", "orca-max", "fastertransformer"]))
    models = ["llama-3.1-8b", "gemma-3-27b", "mixtral-8x7b", "gpt-oss-20b", "qwen3-8b"]
    model = draw(st.sampled_from(models)) if preset == "vllm" else "llama-3.1-8b"
    engine = [f"preset: {preset}", "max_model_len: 2048", f"max_num_seqs: {draw(st.sampled_from([1, 4, 64]))}"]
    if (budget := draw(st.sampled_from([None, None, 256, 1024]))) is not None:
        engine.append(f"max_num_batched_tokens: {budget}")
    if draw(st.integers(0, 3)) == 0 and preset != "orca-max":
        engine.append("num_gpu_blocks_override: 90")
    if preset == "vllm":
        engine.append(f"enable_prefix_caching: {str(draw(st.booleans())).lower()}")
    more = draw(st.sampled_from(["", "", SESSIONS, PREFIX])) if preset == "vllm" else ""
    return f"""\
name: chat
seed: {draw(st.integers(0, 10_000))}
model: {model}
gpu: h200-sxm-141gb
parallelism: {{tensor_parallel_size: {draw(st.sampled_from([1, 4]))}}}
engine: {{{", ".join(engine)}}}
{draw(st.sampled_from(["", LINEAR]))}
workload:
  num_requests: 30
  arrivals: {{kind: poisson, rate_rps: {draw(st.sampled_from([0.1, 10, 10_000]))}}}
  prompt_tokens: {{kind: lognormal, mean: {draw(st.sampled_from([30, 600]))}, cv: 1.5, max: 2500}}
  output_tokens: {{kind: uniform, min: 1, max: {draw(st.sampled_from([1, 2, 40]))}}}
  {more}
"""


@settings(max_examples=30)
@given(scenarios())
def test_no_latency_is_below_its_floor_and_no_throughput_above_its_ceiling(text: str) -> None:
    try:
        question = asked(text)
        built = build(question.patches.bound(question.candidates[0], 1, None, None))
        found = result(built, run(built), None)
    except KvplanError:
        assume(False)
    bounds = bounds_of(built.deployment, built.workload)
    assume(found["completed"])
    for name, floor in bounds.floors.items():
        assert found[name] is None or floor <= found[name], name
    if bounds.ceiling_rps is not None:
        sessions = float((built.workload.after < 0).mean())
        assert found["request_throughput"] * sessions <= bounds.ceiling_rps


def test_a_request_alone_on_an_idle_server_meets_its_floors() -> None:
    """The bounds are not only true but tight: with linear step times and nobody else they are the latencies."""
    text = f"""\
model: llama-3.1-8b
gpu: h100-sxm-80gb
parallelism: {{tensor_parallel_size: 1}}
engine: {{max_model_len: 4096, async_scheduling: false, max_num_batched_tokens: 512}}
{LINEAR}
workload:
  num_requests: 4
  arrivals: {{kind: constant, rate_rps: 0.01}}
  prompt_tokens: {{kind: fixed, tokens: 1300}}
  output_tokens: {{kind: fixed, tokens: 50}}
"""
    question = asked(text)
    built = build(question.patches.bound(question.candidates[0], 1, None, None))
    found, bounds = result(built, run(built), None), bounds_of(built.deployment, built.workload)
    assert found["mean_ttft_ms"] == pytest.approx(3 * 6.0 + 1300 * 0.05 + (1300 - 1300) * 0, rel=0.01)
    for name in ("mean_ttft_ms", "p99_tpot_ms", "median_e2el_ms"):
        assert bounds.floors[name] == pytest.approx(found[name], rel=2e-3)
        assert bounds.floors[name] <= found[name]


@pytest.mark.parametrize("kept_out", ["num_gpu_blocks_override: 40", "max_model_len: 600"])
def test_what_is_turned_away_has_no_part_in_the_bounds(kept_out: str) -> None:
    """A long prompt that the pool, or the context, turns away would make the others' floor of the mean too high."""
    text = f"""\
model: llama-3.1-8b
gpu: h100-sxm-80gb
parallelism: {{tensor_parallel_size: 1}}
engine: {{max_model_len: 4096, async_scheduling: false, {kept_out}}}
{LINEAR}
workload:
  num_requests: 60
  arrivals: {{kind: poisson, rate_rps: 0.1}}
  prompt_tokens: {{kind: lognormal, mean: 500, cv: 1.5, max: 4000}}
  output_tokens: {{kind: fixed, tokens: 3}}
""".replace("max_model_len: 4096, async_scheduling: false, max_model_len", "async_scheduling: false, max_model_len")
    question = asked(text)
    built = build(question.patches.bound(question.candidates[0], 1, None, None))
    found, bounds = result(built, run(built), None), bounds_of(built.deployment, built.workload)
    assert found["rejected"] > 3
    for name in ("mean_ttft_ms", "p99_ttft_ms", "p99_e2el_ms"):
        assert bounds.floors[name] == pytest.approx(found[name], rel=0.15)
        assert bounds.floors[name] <= found[name]


@pytest.mark.parametrize("preset", ["orca-max", "vllm-v0", "sglang"])
def test_steps_that_may_be_larger_than_the_token_budget_do_not_break_the_bounds(preset: str) -> None:
    """Orca computes a prompt whole; others' decodes come on top of the budget of their prompts."""
    text = f"""\
model: llama-3.1-8b
gpu: h100-sxm-80gb
parallelism: {{tensor_parallel_size: 1}}
engine: {{preset: {preset}, max_model_len: 2048, max_num_batched_tokens: 256}}
{LINEAR}
workload:
  num_requests: 30
  arrivals: {{kind: poisson, rate_rps: 0.1}}
  prompt_tokens: {{kind: fixed, tokens: {1000 if preset == "orca-max" else 200}}}
  output_tokens: {{kind: fixed, tokens: 3}}
"""
    question = asked(text)
    for rate in (0.1, 1000.0):
        built = build(question.patches.bound(question.candidates[0], 1, rate, None))
        found, bounds = result(built, run(built), None), bounds_of(built.deployment, built.workload)
        assert found["rejected"] == 0 and bounds.ceiling_rps is not None
        assert bounds.floors["mean_ttft_ms"] <= found["mean_ttft_ms"]
        assert found["request_throughput"] <= bounds.ceiling_rps


def saturated_rps(batch: int, prompt: int, output: int, base_s: float, token_s: float, context_s: float) -> float:
    """Requests a second of a server whose batch of ``batch`` is always full, lengths being fixed.

    A request is in the batch for ``output`` steps: one that computes its prompt (and samples its first token), then
    output - 1 steps of one token, whose contexts are prompt + 1 ... prompt + output - 1, the token itself included.
    In a steady state each of these is met by batch / output requests in every step, so that a step lasts

        base + per_token * batch/output * (prompt + output - 1)
             + per_context * batch/output * (prompt + Σ (prompt + k), k = 1 ... output - 1)

    and batch / output requests end in it.
    """
    share = batch / output
    contexts = prompt + sum(prompt + k for k in range(1, output))
    step_s = base_s + token_s * share * (prompt + output - 1) + context_s * share * contexts
    return share / step_s


def sizes_text(batch: int, prompt: int, output: int, requests: int) -> str:
    return f"""\
model: llama-3.1-8b
gpu: h100-sxm-80gb
parallelism: {{tensor_parallel_size: 1}}
engine: {{max_model_len: 4096, max_num_seqs: {batch}, async_scheduling: false, enable_prefix_caching: false}}
{LINEAR}
workload:
  num_requests: {requests}
  arrivals: {{kind: poisson, rate_rps: 1}}
  prompt_tokens: {{kind: fixed, tokens: {prompt}}}
  output_tokens: {{kind: fixed, tokens: {output}}}
"""


def sustained(text: str, **options: Any) -> tuple[float, Any]:
    """What the search's own saturation probe says, and the question."""
    question = asked(text, **options)
    (facts,) = facts_of(question.candidates, question.patches, question.settings)
    requests = Planner(question.patches, question.settings, RateGrid(1.0))._saturating_requests(facts)
    outcome = Ask(facts, question.patches, "saturation", 1, AT_ONCE_RPS, requests).probe(0).run()
    assert outcome.status == "ok", outcome.error
    return float(outcome.facts["sustained_rps"]), question


@pytest.mark.parametrize(("batch", "prompt", "output"), [(16, 100, 50), (64, 500, 40), (64, 50, 20), (8, 1000, 2)])
@pytest.mark.parametrize("requests", [30, 400])
def test_what_is_sustained_with_fixed_lengths_is_the_closed_form(
    batch: int, prompt: int, output: int, requests: int
) -> None:
    """Within 2 %, however few requests the scenario has."""
    found, _ = sustained(sizes_text(batch, prompt, output, requests))
    assert found == pytest.approx(saturated_rps(batch, prompt, output, 6e-3, 50e-6, 26e-9), rel=0.02)


SPREAD = """\
model: llama-3.1-8b
gpu: h100-sxm-80gb
parallelism: {tensor_parallel_size: 1}
engine: {max_model_len: 4096, max_num_seqs: 24, num_gpu_blocks_override: 4000}
step_time: {kind: linear, base_ms: 20.0, per_token_us: 5.0, per_context_token_ns: 5.0}
workload:
  num_requests: 150
  arrivals: {kind: poisson, rate_rps: 1}
  prompt_tokens: {kind: lognormal, mean: 200, cv: 1.0, max: 2000}
  output_tokens: {kind: lognormal, mean: 60, cv: 1.0, max: 600}
"""


def mean_waiting(question: Any, rate_rps: float, requests: int) -> float:
    scenario = question.patches.bound(question.candidates[0], 1, rate_rps, requests)
    return float(Probe(0, scenario, None, False).run().facts["mean_waiting"])


@pytest.mark.parametrize(("batch", "prompt", "output"), [(16, 100, 20), (64, 500, 10)])
def test_a_backlog_grows_five_per_cent_above_what_is_sustained_and_not_five_per_cent_below(
    batch: int, prompt: int, output: int
) -> None:
    """Above, those who wait are as many more as the run is longer; below, they are as few."""
    rate, question = sustained(sizes_text(batch, prompt, output, 30).replace("poisson", "constant"))
    above = [mean_waiting(question, 1.05 * rate, requests) for requests in (2000, 8000)]
    below = [mean_waiting(question, 0.95 * rate, requests) for requests in (2000, 8000)]
    assert above[1] > 3 * above[0] > 60
    assert below[1] < 5 and below[1] < below[0] + 1


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_the_short_answers_that_end_first_do_not_make_a_server_look_faster(seed: int) -> None:
    """A batch filled at once ends its short answers first: what is sustained is still within 8 % of a long run's."""
    short, question = sustained(SPREAD, seed=seed)
    long_run = Probe(0, question.patches.bound(question.candidates[0], 1, AT_ONCE_RPS, 3000), None, True).run()
    assert short == pytest.approx(long_run.facts["sustained_rps"], rel=0.08)


def test_what_sessions_sustain_does_not_depend_on_how_long_users_think() -> None:
    text = SPREAD + "  session: {turns: {kind: fixed, tokens: 4}, think: {mean_s: MEAN}}\n"
    found = [sustained(text.replace("MEAN", str(mean)))[0] for mean in (0.001, 60)]
    alone, _ = sustained(SPREAD)
    assert found[0] == pytest.approx(found[1], rel=0.01)
    assert 0.15 * alone < found[0] < 0.35 * alone  # a session is four requests, with the earlier turns before them

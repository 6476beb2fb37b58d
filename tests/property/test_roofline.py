"""Properties of the roofline: leaps can be cut anywhere, nothing beats the hardware, more work is never faster."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.calibration import Calibration
from simulator.specs import GpuSpec, ModelSpec, Parallelism
from simulator.step_time.attention_cost import causal_pairs, keys_read
from simulator.step_time.base import UNBOUNDED_STEPS
from simulator.step_time.roofline import Roofline
from tests.step_time_strategies import CHUNKS, CONTEXTS, DEFAULT, RANKS, calibrations, gpus, models
from tests.step_time_support import batch_of


@settings(max_examples=150, deadline=None)
@given(models(), gpus(), RANKS, calibrations(), CONTEXTS, st.data())
def test_a_leap_asked_in_its_middle_continues_exactly(
    model: ModelSpec, gpu: GpuSpec, ranks: int, calibration: Calibration, contexts: list[int], data: st.DataObject
) -> None:
    roofline = Roofline(model, gpu, Parallelism(ranks), calibration)
    whole = roofline.segment(batch_of(contexts, [], roofline.windows))
    assert whole.steps == UNBOUNDED_STEPS
    room = [w - c for w in roofline.windows for c in contexts if c < w]  # the engine ends a leap before one fills
    last = min(room, default=10_000) - 1
    for i in {0, last, data.draw(st.integers(0, last)), data.draw(st.integers(0, last))}:
        later = roofline.segment(batch_of([c + i for c in contexts], [], roofline.windows))
        assert later == (whole.duration_ps + i * whole.growth_ps, whole.growth_ps, whole.steps)


@settings(max_examples=60, deadline=None)
@given(models(), gpus(), RANKS, CONTEXTS, CHUNKS)
def test_a_model_has_no_memory(
    model: ModelSpec, gpu: GpuSpec, ranks: int, contexts: list[int], chunks: list[tuple[int, int]]
) -> None:
    asked = Roofline(model, gpu, Parallelism(ranks), DEFAULT)
    batch = batch_of(contexts, chunks, asked.windows)
    first = asked.segment(batch)
    for other in (batch_of([1], [], asked.windows), batch_of(contexts[:1], [(9, 9)], asked.windows)):
        asked.segment(other)
    fresh = Roofline(model, gpu, Parallelism(ranks), DEFAULT)
    assert asked.segment(batch) == first == fresh.segment(batch)
    assert (first.steps == 1) == bool(chunks)


@settings(max_examples=150, deadline=None)
@given(models(), gpus(), RANKS, calibrations(), CONTEXTS, CHUNKS, st.booleans(), st.booleans())
def test_no_setting_reads_the_weights_faster_than_the_memory(
    model: ModelSpec,
    gpu: GpuSpec,
    ranks: int,
    calibration: Calibration,
    contexts: list[int],
    chunks: list[tuple[int, int]],
    perfect: bool,
    samples: bool,
) -> None:
    if perfect:  # the best that a calibration can claim
        shares = {n: 1.0 for n in calibration.__dataclass_fields__ if "efficiency" in n}
        calibration = replace(calibration, overhead_ms=0.0, layer_overhead_us=0.0, per_request_us=0.0, **shares)
    roofline = Roofline(model, gpu, Parallelism(ranks), calibration)
    batch = batch_of(contexts, chunks, roofline.windows, sampled=None if samples else 0)
    least_bytes = Fraction(model.dense_linear_parameters) * Fraction(model.linear_weight_bytes_per_parameter)
    if samples:
        least_bytes += 2 * model.lm_head_parameters
    if model.num_experts:  # a token hits k experts at least
        least_bytes += Fraction(model.expert_weight_bytes_per_parameter) * (
            model.num_moe_layers * model.experts_per_token * model.parameters_per_expert
        )
    floor_ps = 10**12 * least_bytes / ranks / Fraction(gpu.bandwidth_bytes_per_s)
    duration = roofline.segment(batch).duration_ps
    assert duration >= int(floor_ps)
    assert duration >= roofline.floor_ps(batch) >= int(floor_ps) - 1


@settings(max_examples=150, deadline=None)
@given(models(), gpus(), RANKS, calibrations(), CONTEXTS, CHUNKS, st.integers(1, 3000), st.data())
def test_more_work_is_never_faster(
    model: ModelSpec,
    gpu: GpuSpec,
    ranks: int,
    calibration: Calibration,
    contexts: list[int],
    chunks: list[tuple[int, int]],
    more: int,
    data: st.DataObject,
) -> None:
    roofline = Roofline(model, gpu, Parallelism(ranks), calibration)

    def duration(contexts: list[int], chunks: list[tuple[int, int]], sampled: int | None = None) -> int:
        return roofline.segment(batch_of(contexts, chunks, roofline.windows, sampled)).duration_ps

    now = duration(contexts, chunks)
    i = data.draw(st.integers(0, len(contexts) - 1))
    assert duration([c + more * (j == i) for j, c in enumerate(contexts)], chunks) >= now  # a longer context
    assert duration([*contexts, more], chunks) >= now  # one more decode
    assert duration(contexts, [*chunks, (more, more)]) >= now  # one more prefill
    for k, (chunk, after) in enumerate(chunks):
        longer, older = list(chunks), list(chunks)
        longer[k] = (chunk + more, after + more)
        older[k] = (chunk, after + more)
        assert duration(contexts, longer) >= now
        assert duration(contexts, older) >= now
    assert duration(contexts, chunks, sampled=0) <= now


@settings(max_examples=80, deadline=None)
@given(models(), gpus(), RANKS, calibrations(), CONTEXTS, CHUNKS, st.data())
def test_a_better_share_is_never_slower(
    model: ModelSpec,
    gpu: GpuSpec,
    ranks: int,
    calibration: Calibration,
    contexts: list[int],
    chunks: list[tuple[int, int]],
    data: st.DataObject,
) -> None:
    name = data.draw(st.sampled_from([n for n in calibration.__dataclass_fields__ if "efficiency" in n]))
    better = replace(calibration, **{name: data.draw(st.floats(getattr(calibration, name), 1.0))})
    before, after = (Roofline(model, gpu, Parallelism(ranks), c) for c in (calibration, better))
    batch = batch_of(contexts, chunks, before.windows)
    assert after.segment(batch).duration_ps <= before.segment(batch).duration_ps


@settings(max_examples=300)
@given(st.integers(1, 60), st.one_of(st.none(), st.integers(1, 40)), st.data())
def test_causal_pairs_are_counted_one_by_one(chunk: int, window: int | None, data: st.DataObject) -> None:
    before = data.draw(st.integers(0, 2 * window + 3 if window else 100))  # often on either side of the window
    limit = window or 1 << 60
    positions = range(before + 1, before + chunk + 1)
    assert causal_pairs(chunk, before + chunk, window) == sum(min(p, limit) for p in positions)
    seen = {key for p in positions for key in range(max(1, p - limit + 1), p + 1)}
    assert keys_read(chunk, before + chunk, window) == len(seen)

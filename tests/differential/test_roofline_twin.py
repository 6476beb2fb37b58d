"""The roofline in integers against a slow twin in floats that is written straight from the shapes."""

from __future__ import annotations

from hypothesis import given, settings

from simulator.calibration import Calibration
from simulator.specs import GpuSpec, ModelSpec, Parallelism
from simulator.step_time.roofline import Roofline
from tests.step_time_strategies import CHUNKS, CONTEXTS, RANKS, calibrations, gpus, models
from tests.step_time_support import batch_of
from tests.step_time_twin import step_s


@settings(max_examples=200, deadline=None)
@given(models(), gpus(), RANKS, calibrations(), CONTEXTS, CHUNKS)
def test_integers_agree_with_floats_within_rounding(
    model: ModelSpec,
    gpu: GpuSpec,
    ranks: int,
    calibration: Calibration,
    contexts: list[int],
    chunks: list[tuple[int, int]],
) -> None:
    for kv_dtype_bytes in (2.0, 1.0):
        roofline = Roofline(model, gpu, Parallelism(ranks), calibration, kv_dtype_bytes=kv_dtype_bytes)
        for sampled in (len(contexts) + len(chunks), 0):
            batch = batch_of(contexts, chunks, roofline.windows, sampled)
            twin = step_s(model, gpu, ranks, calibration, contexts, chunks, sampled, kv_dtype_bytes) * 1e12
            coefficients = 1 + len(roofline.windows)
            rounding = 4 + len(contexts) * 6000 * coefficients  # 1 ps a coefficient, times what it multiplies
            rounding += sum(chunk * after for chunk, after in chunks) * len(model.attention) // 10**6 + 1
            ours = roofline.segment(batch).duration_ps
            assert abs(ours - twin) <= 0.5 * rounding + 1e-12 * twin + len(contexts) + 4

"""Every model of the catalogue on every GPU of it: a step has a time, above its floor."""

from __future__ import annotations

import pytest

from simulator.calibration import find_calibration
from simulator.catalog import find_gpu, find_model, gpu_names, model_names
from simulator.specs import Parallelism
from simulator.step_time.roofline import Roofline
from tests.step_time_support import batch_of

DEFAULT = find_calibration("default")
GPUS = [find_gpu(name) for name in gpu_names()]


@pytest.mark.parametrize("model", model_names())
def test_every_model_has_step_times_on_every_gpu(model: str) -> None:
    spec = find_model(model)
    for gpu in GPUS:
        for ranks in (1, 8):
            built = Roofline(spec, gpu, Parallelism(ranks), DEFAULT)
            batch = batch_of([1000] * 32, [], built.windows)
            decode, prefill = built.segment(batch), built.segment(batch_of([], [(2048, 2048)], built.windows))
            assert built.floor_ps(batch) < decode.duration_ps < prefill.duration_ps < 10**14
            assert decode.growth_ps > 0

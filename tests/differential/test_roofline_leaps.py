"""Leaps against single steps on the real engine, with a roofline whose layers have windows and preempting pools."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.allocators.pools import PagedPool
from simulator.cluster import simulate
from simulator.schedulers.config import EngineConfig
from simulator.specs import AttentionLayers
from simulator.step_time.config import RooflineConfig, build_step_time
from tests.step_time_support import GPUS, model
from workloads.workload import Workload

HYBRID = model(
    (
        AttentionLayers(12, "full", 64, 8, 64, 64),
        AttentionLayers(12, "sliding", 64, 8, 64, 64, window_tokens=128),
        AttentionLayers(6, "chunked", 64, 8, 64, 64, window_tokens=200),
        AttentionLayers(3, "mla", 64, 1, 576, 0, latent_rank=512, prefill_head_dim_qk=192, prefill_head_dim_v=128),
        AttentionLayers(3, "linear", 0, 0, 0, 0, state_bytes=1_000_000),
    ),
    hidden_size=2880,
    experts=32,
    experts_per_token=4,
    parameters_per_expert=25_000_000,
    moe_layers=24,
)


@pytest.mark.parametrize("seed", range(4))
def test_leaps_and_steps_end_at_the_same_picosecond(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = 120
    nothing = np.zeros(n, dtype=np.int64)
    workload = Workload(
        arrival_ps=np.cumsum(random.exponential(2e10, n)).astype(np.int64),
        prompt_tokens=random.integers(1, 400, n),
        output_tokens=random.integers(1, 300, n),
        class_index=nothing,
        priority=nothing,
        after=nothing - 1,
        think_ps=nothing,
    )
    engine = EngineConfig(max_model_len=4096, max_num_seqs=32, max_num_batched_tokens=256)
    step_time = build_step_time(RooflineConfig(), model=HYBRID, gpu=GPUS["h100_sxm"])
    assert step_time.windows == (128, 200)
    leaps, steps = (
        simulate(workload, engine, PagedPool(200 + 200 * seed, 16), step_time, stepwise=stepwise)
        for stepwise in (False, True)
    )
    for name, column in leaps.request_columns().items():
        assert (column == steps.request_columns()[name]).all(), name
    rows = [len(log.replicas[0].segment_columns()["step"]) for log in (leaps, steps)]
    assert rows[0] < rows[1] / 2  # or nothing was leapt

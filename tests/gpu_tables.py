"""Tables of measurements made from a known calibration, for tests of the fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpu_validate.layer_shapes import model_shapes
from gpu_validate.measurements import Measurements, Point
from gpu_validate.plans import plan
from gpu_validate.step_prediction import step_seconds
from gpu_validate.timing import Timing
from simulator.calibration import Calibration
from simulator.specs import GpuSpec, ModelSpec

GEMM_S, ATTENTION_S, SMALL_S, PROMPT_S = 4e-6, 7e-6, 2e-6, 9e-6


def table(
    truth: Calibration, gpu: GpuSpec, model: ModelSpec, *, noise: float, seed: int = 0, prompts: bool = True
) -> Measurements:
    """What a card of this calibration would have given, each median off by normal ``noise``, as a share."""
    rng = np.random.default_rng(seed)

    def point(kind: str, shape: dict[str, Any], seconds: float, *, flops: float = 0.0, held_out: bool = False) -> Point:
        us = 1e6 * seconds * (1 + noise * rng.standard_normal())
        return Point(kind, shape, Timing(us, us, us, 1), flops=flops, held_out=held_out)

    made = [
        *_products(truth, gpu, model),
        *_attention(truth, gpu),
        *_small(truth, gpu, model),
        *_steps(truth, gpu, model),
    ]
    made += _prompts(truth, gpu) if prompts else []
    points = tuple(
        point(kind, shape, seconds, flops=flops, held_out=held) for kind, shape, seconds, flops, held in made
    )
    return Measurements({"name": "NVIDIA H200"}, "2026-11-30", gpu.name, "0" * 16, points)


Row = tuple[str, dict[str, Any], float, float, bool]


def _products(truth: Calibration, gpu: GpuSpec, model: ModelSpec) -> Iterator[Row]:
    sizes = plan("full", layers=32)
    for gemm in model_shapes(model).distinct_gemms:
        for rows in (*sizes.rows, *sizes.held_out_rows):
            read = 2.0 * gemm.parameters / (gpu.bandwidth_bytes_per_s * truth.memory_efficiency)
            computed = gemm.flops(rows) / (gpu.flop_per_s["bf16"] * truth.compute_efficiency)
            shape = {
                "name": gemm.name,
                "rows": rows,
                "inputs": gemm.inputs,
                "outputs": gemm.outputs,
                "dtype": "bfloat16",
            }
            yield "gemm", shape, GEMM_S + max(read, computed), gemm.flops(rows), rows in sizes.held_out_rows
    fp8 = {"name": "square", "rows": 8192, "inputs": 8192, "outputs": 8192, "dtype": "fp8_e4m3"}
    flops = 2.0 * 8192**3
    yield "gemm", fp8, flops / (gpu.flop_per_s["fp8"] * truth.compute_efficiency_8bit), flops, False


def _attention(truth: Calibration, gpu: GpuSpec) -> Iterator[Row]:
    sizes = plan("full", layers=32)
    for held, shapes in ((False, sizes.attention), (True, sizes.held_out_attention)):
        for one in shapes:
            v = one.variant
            share = truth.kv_read_efficiency_8bit if v.kv_dtype == "fp8_e4m3" else truth.kv_read_efficiency
            shape = {"batch": one.batch, "context": one.context, "block_size": v.block_size, "kv_heads": one.kv_heads}
            shape |= {
                "group": v.group,
                "head_dim": v.head_dim,
                "dtype": v.dtype,
                "kv_dtype": v.kv_dtype,
                "paged": v.paged,
            }
            slow = 1.3 if v.block_size < 16 else 1.0  # small blocks cost more, and must not reach the fit
            yield (
                "attention",
                shape,
                slow * (ATTENTION_S + one.kv_bytes / (gpu.bandwidth_bytes_per_s * share)),
                0.0,
                held,
            )


def _prompts(truth: Calibration, gpu: GpuSpec) -> Iterator[Row]:
    for tokens in (512, 1024, 2048, 4096):
        flops = 4.0 * tokens * tokens / 2 * 32 * 128
        seconds = PROMPT_S + flops / (gpu.flop_per_s["bf16"] * truth.attention_compute_efficiency)
        yield "prefill_attention", {"tokens": tokens}, seconds, flops, False


def _small(truth: Calibration, gpu: GpuSpec, model: ModelSpec) -> Iterator[Row]:
    passes = {"rms_norm": truth.replicated_activation_passes / 2}
    passes |= {"rope": 0.25 * truth.sharded_activation_passes, "activation": 0.75 * truth.sharded_activation_passes}
    for kernel, count in passes.items():
        for rows in plan("full", layers=32).rows:
            moved = 2.0 * rows * model.hidden_size * count
            shape = {"kernel": kernel, "rows": rows, "hidden_size": model.hidden_size, "tensor_parallel_size": 1}
            yield "small", shape, SMALL_S + moved / (gpu.bandwidth_bytes_per_s * truth.memory_efficiency), 0.0, False


def _steps(truth: Calibration, gpu: GpuSpec, model: ModelSpec) -> Iterator[Row]:
    for step in plan("full", layers=model.num_layers).steps:
        shape = {"model": model.name, "tensor_parallel_size": 1, "batch": step.batch, "context": step.context}
        shape |= {"layers": step.layers}
        yield "step", shape, step_seconds(truth, model, gpu, shape), 0.0, step.held_out

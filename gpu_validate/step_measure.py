"""Whole decode steps of a catalogue model, layer by layer as a server runs them: weights, cache and all, on one card.

A layer: norm, query-key-value product, rotary embedding, KV append, decode attention, output product, norm, product up,
activation, product down. Then the last norm and the LM head. Every layer has weights and a cache of its own, so that
nothing is found in the L2 that a server would not find there. Sampling and the host are not part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpu_validate.attention_bench import launched_variant, random_tables
from gpu_validate.cuda_device import CudaDevice
from gpu_validate.cuda_gemm import CudaGemm
from gpu_validate.launches import DecodeArrays, Launch, append_launch, decode_launches
from gpu_validate.layer_shapes import LayerShapes, ModelShapes
from gpu_validate.measurements import Point
from gpu_validate.plans import AttentionShape, Plan, StepShape
from gpu_validate.random_bits import random_bits
from gpu_validate.step_kernels import activation_launch, norm_launch, rope_launch, turns
from gpu_validate.timing import Stopwatch
from gpu_validate.variants import Variant

Work = Callable[[], None]
_DEVIATION = 0.02  # of weights: activations then neither vanish nor overflow over the layers


@dataclass(frozen=True)
class StepMemory:
    """Bytes of weights and cache that steps of a plan need at most."""

    weight_bytes: int
    kv_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes


def step_memory(shapes: ModelShapes, step: StepShape, kv_value_bytes: int = 2) -> StepMemory:
    """Of one step."""
    layers = shapes.layers[: step.layers]
    weights = 2 * (sum(gemm.parameters for layer in layers for gemm in layer.gemms) + shapes.head.parameters)
    values = sum(2 * layer.kv_heads * layer.head_dim for layer in layers)
    return StepMemory(weights, step.batch * (step.context + 256) * values * kv_value_bytes)


class StepMeasure:
    """Times steps of one model; weights are made once, caches for each shape."""

    def __init__(self, device: CudaDevice, watch: Stopwatch, shapes: ModelShapes, variant: Variant) -> None:
        self.device, self.watch, self.shapes, self.variant = device, watch, shapes, variant
        self._gemm = CudaGemm(device, variant.dtype)
        self._weights: list[list[Any]] = []
        self._head: Any = self._made(shapes.head.outputs, shapes.head.inputs, seed=9)
        self._norm_weight: Any = random_bits(device.cupy, (shapes.layers[0].hidden_size,), variant.dtype)

    def points(self, plan: Plan) -> Iterator[Point | str]:
        """A point for each step of the plan, or why it was left out."""
        room = plan.memory_share * self.device.facts.memory_bytes
        for step in sorted(plan.steps, key=lambda step: step.layers):
            needed = step_memory(self.shapes, step).total_bytes
            if needed > room:
                yield f"step {step.batch} x {step.context} x {step.layers} layers needs {needed >> 30} GiB: left out"
            else:
                yield self.point(step)

    def point(self, step: StepShape) -> Point:
        """Times one step."""
        self.device.cupy.get_default_memory_pool().free_all_blocks()  # caches of the shape before
        timing = self.watch.time(self.work(step))
        shape = {
            "model": self.shapes.name,
            "tensor_parallel_size": self.shapes.tensor_parallel_size,
            "batch": step.batch,
            "context": step.context,
            "layers": step.layers,
        }
        memory = step_memory(self.shapes, step)
        return Point("step", shape, timing, bytes=float(memory.total_bytes), held_out=step.held_out)

    def work(self, step: StepShape) -> Work:
        """All launches of a step, in order."""
        cupy, hidden = self.device.cupy, self.shapes.layers[0].hidden_size
        while len(self._weights) < step.layers:
            layer = self.shapes.layers[len(self._weights)]
            gemms = enumerate(layer.gemms)
            self._weights.append([self._made(gemm.outputs, gemm.inputs, seed=i) for i, gemm in gemms])
        x = random_bits(cupy, (step.batch, hidden), self.variant.dtype, seed=7)
        residual = random_bits(cupy, (step.batch, hidden), self.variant.dtype, seed=8)
        parts: list[Work] = []
        made: dict[LayerShapes, dict[str, Any]] = {}
        for layer, weights in zip(self.shapes.layers[: step.layers], self._weights, strict=False):
            if layer not in made:
                made[layer] = self._activations(layer, step)
            parts += self._layer(layer, weights, made[layer], x, residual, step)
        normed, logits = cupy.empty_like(x), cupy.empty((step.batch, self.shapes.head.outputs), dtype=np.uint16)
        parts.append(self._launched(self.variant, norm_launch(normed, residual, x, self._norm_weight)))
        parts.append(lambda: self._gemm(logits, normed, self._head))

        def work() -> None:
            for part in parts:
                part()

        return work

    def _layer(
        self, layer: LayerShapes, weights: list[Any], a: dict[str, Any], x: Any, residual: Any, step: StepShape
    ) -> list[Work]:
        variant, (keys, values), decode = self._attention(layer, a, step)
        gemm = self._gemm
        attended = a["attended"].reshape(step.batch, -1)
        to_cache = append_launch(keys, values, (a["k"], a["v"]), a["tables"], a["positions"])
        turned = rope_launch(a["q"], a["k"], a["v"], a["qkv"], a["positions"], a["turns"])
        return [
            self._launched(variant, norm_launch(a["normed"], residual, x, self._norm_weight)),
            lambda: gemm(a["qkv"], a["normed"], weights[0]),
            self._launched(variant, turned, to_cache, *decode),
            lambda: gemm(x, attended, weights[1]),
            self._launched(variant, norm_launch(a["normed"], residual, x, self._norm_weight)),
            lambda: gemm(a["up"], a["normed"], weights[2]),
            self._launched(variant, activation_launch(a["down"], a["up"], gated=layer.gated)),
            lambda: gemm(x, a["down"], weights[3]),
        ]

    def _attention(
        self, layer: LayerShapes, a: dict[str, Any], step: StepShape
    ) -> tuple[Variant, tuple[Any, Any], tuple[Launch, ...]]:
        """The layer's own pools, and the launches that read them."""
        cupy = self.device.cupy
        base = replace(self.variant, head_dim=layer.head_dim, group=layer.group, window=layer.window or 0)
        variant = launched_variant(
            AttentionShape(base, step.batch, step.context, layer.kv_heads), self.device.facts.processors
        )
        blocks = int(a["tables"].size)
        pool = (blocks, variant.block_size, layer.kv_heads, layer.head_dim)
        keys, values = (random_bits(cupy, pool, variant.kv_dtype, seed=seed) for seed in (1, 2))
        launches = decode_launches(
            variant,
            DecodeArrays(a["q"], keys, values, a["tables"], a["lengths"]),
            a["attended"],
            lambda shape: cupy.empty(shape, dtype=np.float32),
            scale=layer.head_dim**-0.5,
        )
        return variant, (keys, values), launches

    def _activations(self, layer: LayerShapes, step: StepShape) -> dict[str, Any]:
        """Arrays between kernels, which layers of one shape share as a server's do."""
        cupy, rows, dtype = self.device.cupy, step.batch, np.uint16
        row_blocks = -(-step.context // self.variant.block_size)
        heads, kv = (rows, layer.query_heads, layer.head_dim), (rows, layer.kv_heads, layer.head_dim)
        qkv, _, up, down = layer.gemms
        return {
            "normed": cupy.empty((rows, layer.hidden_size), dtype=dtype),
            "qkv": cupy.empty((rows, qkv.outputs), dtype=dtype),
            "q": cupy.empty(heads, dtype=dtype),
            "k": cupy.empty(kv, dtype=dtype),
            "v": cupy.empty(kv, dtype=dtype),
            "attended": cupy.empty(heads, dtype=dtype),
            "up": cupy.empty((rows, up.outputs), dtype=dtype),
            "down": cupy.empty((rows, down.inputs), dtype=dtype),
            "tables": random_tables(cupy, rows, row_blocks),
            "lengths": cupy.asarray(np.full(rows, step.context, dtype=np.int32)),
            "positions": cupy.asarray(np.full(rows, step.context - 1, dtype=np.int32)),
            "turns": cupy.asarray(turns(step.context, layer.head_dim)),
        }

    def _launched(self, variant: Variant, *launches: Any) -> Work:
        device = self.device
        device.prepare((launch.kernel, variant) for launch in launches)

        def work() -> None:
            for launch in launches:
                device.launch(launch, variant)

        return work

    def _made(self, outputs: int, inputs: int, *, seed: int) -> Any:
        shape = (outputs, inputs)
        return random_bits(self.device.cupy, shape, self.variant.dtype, seed=seed, deviation=_DEVIATION)


def gemm_points(device: CudaDevice, watch: Stopwatch, shapes: ModelShapes, plan: Plan) -> Iterator[Point]:
    """Each matrix product of the model alone, by rows."""
    gemm = CudaGemm(device, plan.step_variant.dtype)
    for one in shapes.distinct_gemms:
        weights = random_bits(device.cupy, (one.outputs, one.inputs), plan.step_variant.dtype, deviation=_DEVIATION)
        for rows in sorted((*plan.rows, *plan.held_out_rows)):
            inputs = random_bits(device.cupy, (rows, one.inputs), plan.step_variant.dtype, seed=1)
            outputs = device.cupy.empty((rows, one.outputs), dtype=np.uint16)
            work = lambda x=inputs, y=outputs, w=weights: gemm(y, x, w)  # noqa: E731
            yield Point(
                "gemm",
                {"name": one.name, "rows": rows, "inputs": one.inputs, "outputs": one.outputs, "dtype": "bfloat16"},
                watch.time(work),
                bytes=one.moved_bytes(rows),
                flops=one.flops(rows),
                held_out=rows in plan.held_out_rows,
            )


def small_points(device: CudaDevice, watch: Stopwatch, shapes: ModelShapes, plan: Plan) -> Iterator[Point]:
    """Norm, rotary embedding and activation alone, by rows."""
    cupy, layer, variant = device.cupy, shapes.layers[0], replace(plan.step_variant, head_dim=shapes.layers[0].head_dim)
    for rows in plan.rows:
        bits = {
            name: random_bits(cupy, shape, variant.dtype, seed=i)
            for i, (name, shape) in enumerate(
                {
                    "x": (rows, layer.hidden_size),
                    "residual": (rows, layer.hidden_size),
                    "out": (rows, layer.hidden_size),
                    "weight": (layer.hidden_size,),
                    "qkv": (rows, layer.gemms[0].outputs),
                    "q": (rows, layer.query_heads, layer.head_dim),
                    "k": (rows, layer.kv_heads, layer.head_dim),
                    "v": (rows, layer.kv_heads, layer.head_dim),
                    "up": (rows, layer.gemms[2].outputs),
                    "down": (rows, layer.mlp_inputs),
                }.items()
            )
        }
        positions = cupy.asarray(np.arange(rows, dtype=np.int32))
        table = cupy.asarray(turns(rows, layer.head_dim))
        launches = (
            norm_launch(bits["out"], bits["residual"], bits["x"], bits["weight"]),
            rope_launch(bits["q"], bits["k"], bits["v"], bits["qkv"], positions, table),
            activation_launch(bits["down"], bits["up"], gated=layer.gated),
        )
        moved = (4 * layer.hidden_size, 2 * layer.gemms[0].outputs, layer.gemms[2].outputs + layer.mlp_inputs)
        for launch, numbers in zip(launches, moved, strict=True):
            work = lambda launch=launch: device.launch(launch, variant)  # noqa: E731
            ranks = shapes.tensor_parallel_size
            shape = {
                "kernel": launch.kernel,
                "rows": rows,
                "hidden_size": layer.hidden_size,
                "tensor_parallel_size": ranks,
            }
            yield Point("small", shape, watch.time(work), bytes=2.0 * rows * numbers)

"""A decode step as the simulator times it, cut to what a bare card can run: no host of a server, no other rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from simulator.calibration import Calibration, find_calibration
from simulator.specs import AttentionLayers, GpuSpec, ModelSpec, Parallelism
from simulator.step_time.base import Batch
from simulator.step_time.rank_work import ACTIVATION_BYTES
from simulator.step_time.roofline import Roofline

_PS_PER_S = 1e12


def first_layers(model: ModelSpec, count: int) -> ModelSpec:
    """The model cut to its first layers, embedding and head as they are."""
    groups: dict[AttentionLayers, int] = {}
    for layer in model.layers[:count]:
        groups[layer.attention] = groups.get(layer.attention, 0) + layer.attention.count
    attention = tuple(replace(group, count=layers) for group, layers in groups.items())
    return replace(model, num_layers=count, layers=model.layers[:count], attention=attention)


def without_host(calibration: Calibration) -> Calibration:
    """The calibration less the shipped default's allowance for a server's host, which a bare step does not have."""
    host = find_calibration("default")
    return replace(
        calibration,
        overhead_ms=max(0.0, calibration.overhead_ms - host.overhead_ms),
        per_request_us=max(0.0, calibration.per_request_us - host.per_request_us),
    )


def with_host(calibration: Calibration) -> Calibration:
    """The opposite: what a scenario needs."""
    host = find_calibration("default")
    return replace(
        calibration,
        overhead_ms=calibration.overhead_ms + host.overhead_ms,
        per_request_us=calibration.per_request_us + host.per_request_us,
    )


def step_seconds(
    calibration: Calibration, model: ModelSpec, gpu: GpuSpec, shape: Mapping[str, Any], *, kv_value_bytes: float = 2.0
) -> float:
    """Simulated time of a measured step's shape (``batch``, ``context``, ``layers``, ``tensor_parallel_size``).

    All-reduces are taken off: one rank ran alone. ``calibration`` is taken as it is, see ``without_host``.
    """
    batch, context, tp = int(shape["batch"]), int(shape["context"]), int(shape.get("tensor_parallel_size", 1))
    cut = first_layers(model, int(shape["layers"]))
    roofline = Roofline(cut, gpu, Parallelism(tensor_parallel_size=tp), calibration, kv_dtype_bytes=kv_value_bytes)
    tokens = batch * context
    windowed = tuple((batch * min(context, window), batch if context < window else 0) for window in roofline.windows)
    step = Batch(
        tokens=batch,
        requests=batch,
        sampled=batch,
        context=tokens,
        decodes=batch,
        decode_context=tokens,
        windowed=windowed,
    )
    alone = roofline.segment(step).duration_ps / _PS_PER_S
    row_bytes = ACTIVATION_BYTES * cut.hidden_size * batch
    reduces = 2 * cut.num_layers * roofline.collective.all_reduce_s(row_bytes)
    return alone - reduces - roofline.collective.gather_s(ACTIVATION_BYTES * cut.vocab_size * batch)

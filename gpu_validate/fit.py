"""From measured points to the simulator's numbers: a calibration, and how far each point lies from it.

Parts first, each with a constant of its own that stays out of the calibration::

    matrix product   = c + max(weight bytes / (bandwidth · memory_efficiency), FLOPs / (peak · compute_efficiency))
    decode attention = c + KV bytes / (bandwidth · kv_read_efficiency), 16-bit and 8-bit apart
    prompt attention = c + FLOPs / (peak · attention_compute_efficiency)
    small kernels    = c + rows · hidden bytes · passes / (bandwidth · memory_efficiency)

then what whole steps take beyond these parts: overhead + layers · layer_overhead + requests · per_request. Errors are
relative, coefficients cannot be negative, and held-out points are never looked at. A number whose side of a roofline
fewer than three points show keeps the shipped default's value, and its source says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpu_validate.measurements import Measurements, Point
from gpu_validate.number_formats import FORMATS
from gpu_validate.regression import TwoSided, non_negative, two_sided
from gpu_validate.residuals import Residual
from gpu_validate.step_prediction import step_seconds, with_host
from simulator.calibration import Calibration, find_calibration
from simulator.errors import InputError
from simulator.specs import GpuSpec, ModelSpec

_ENOUGH = 3
_LONGEST_KV_BLOCK = 16  # smaller blocks are timed for their own sake: servers use 16 and more


@dataclass(frozen=True)
class Fit:
    """A fit.

    Attributes:
        calibration: for scenarios: the card's numbers and the default's allowance for a server's host.
        device: the same of the bare card, against which ``residuals`` are.
        fitted: names of the numbers that the points determined; the others are the shipped default's.
        constants_us: launch and ramp of one kernel by kind, which no number of the calibration holds alone.
    """

    calibration: Calibration
    device: Calibration
    fitted: tuple[str, ...]
    constants_us: dict[str, float]
    residuals: tuple[Residual, ...]


class _Numbers:
    """Values and sources gathered on the way."""

    def __init__(self, default: Calibration, card: str) -> None:
        self.values: dict[str, float] = {}
        kept = "not measured on this card: the shipped default"
        self.sources = {number: f"{kept} ({text})" for number, text in default.sources.items()}
        self._card = card

    def share(self, number: str, value: float, source: str) -> None:
        """A share of a peak; above 1 it is cut, and its source says so."""
        cut = f"; measured {value:.3f} of the data sheet's figure, cut to 1" if value > 1.0 else ""
        self.amount(number, min(1.0, value), source + cut)

    def amount(self, number: str, value: float, source: str) -> None:
        self.values[number] = value
        self.sources[number] = f"{self._card}: {source}"


def fit(measurements: Measurements, gpu: GpuSpec, model: ModelSpec) -> Fit:
    """Raises InputError where there is too little to fit anything."""
    seen = [point for point in measurements.points if not point.held_out]
    default = find_calibration("default")
    numbers = _Numbers(default, f"measured by gpu_validate on {measurements.facts.get('name', 'an unnamed GPU')}")
    parts: dict[str, Callable[[Point], float]] = {}
    products = _products(seen, gpu, numbers)
    if products is None:
        raise InputError("the table has too few matrix products", remedy="measure with --plan full")
    parts["gemm"] = lambda point: (
        float("nan") if _is_square(point) else products.seconds(_weight_bytes(point), point.flops)
    )
    constants = {"gemm": products.constant_s}
    constants |= _attention(seen, gpu, numbers, parts)
    _small(seen, gpu, numbers, default)
    values: dict[str, Any] = dict(numbers.values)
    device = replace(
        default, name=gpu.name, measured_on=measurements.gpu, measured_at=measurements.measured_at, **values
    )
    device = _overheads(seen, gpu, model, device, numbers)
    parts["step"] = lambda point: step_seconds(device, model, gpu, point.shape)
    device = replace(device, sources=numbers.sources)
    return Fit(
        calibration=with_host(device),
        device=device,
        fitted=tuple(numbers.values),
        constants_us={kind: 1e6 * seconds for kind, seconds in constants.items()},
        residuals=_residuals(measurements.points, parts),
    )


def _products(seen: list[Point], gpu: GpuSpec, numbers: _Numbers) -> TwoSided | None:
    """16-bit linear layers; and the share of the fp8 peak that one large product reaches."""
    points = [p for p in seen if p.kind == "gemm" and not _is_square(p)]
    if len(points) < _ENOUGH:
        return None
    peak, bandwidth = gpu.flop_per_s["bf16"], gpu.bandwidth_bytes_per_s
    moved = np.array([_weight_bytes(p) for p in points])
    flops, seconds = np.array([p.flops for p in points]), np.array([p.seconds for p in points])
    fitted = two_sided(moved, flops, seconds, start=(1 / bandwidth, 1 / peak))
    if fitted.by_bytes >= _ENOUGH:
        text = f"{fitted.by_bytes} linear layers that the reading of weights rules, cold L2"
        numbers.share("memory_efficiency", 1 / (fitted.byte_s * bandwidth), text)
    if fitted.by_flops >= _ENOUGH:
        text = f"{fitted.by_flops} linear layers that arithmetic rules"
        numbers.share("compute_efficiency", 1 / (fitted.flop_s * peak), text)
    for point in seen:
        if point.kind == "gemm" and point.shape["dtype"] == "fp8_e4m3" and "fp8" in gpu.flop_per_s:
            text = f"one fp8 product of {point.shape['rows']} x {point.shape['inputs']} x {point.shape['outputs']}"
            numbers.share("compute_efficiency_8bit", point.flop_per_s / gpu.flop_per_s["fp8"], text)
    return fitted


def _attention(
    seen: list[Point], gpu: GpuSpec, numbers: _Numbers, parts: dict[str, Callable[[Point], float]]
) -> dict[str, float]:
    """KV reads of both widths, and prompts where they were timed; gives the constants."""
    lines: dict[str, tuple[float, float]] = {}
    for number, is_narrow in (("kv_read_efficiency", False), ("kv_read_efficiency_8bit", True)):
        points = [p for p in seen if p.kind == "attention" and _is_usual(p) and _is_narrow(p) == is_narrow]
        line = _line(points, [_kv_bytes(p) for p in points])
        if line is not None:
            lines[number] = line
            text = f"{len(points)} decode-attention shapes, paged, cold L2"
            numbers.share(number, 1 / (line[1] * gpu.bandwidth_bytes_per_s), text)
    prompts = [p for p in seen if p.kind == "prefill_attention"]
    prompt_line = _line(prompts, [p.flops for p in prompts])
    if prompt_line is not None:
        share = 1 / (prompt_line[1] * gpu.flop_per_s["bf16"])
        numbers.share("attention_compute_efficiency", share, f"{len(prompts)} prompt-attention shapes")
        parts["prefill_attention"] = lambda p: prompt_line[0] + p.flops * prompt_line[1]

    def decode(point: Point) -> float:
        line = lines.get("kv_read_efficiency_8bit" if _is_narrow(point) else "kv_read_efficiency")
        return line[0] + _kv_bytes(point) * line[1] if line and _is_usual(point) else float("nan")

    parts["attention"] = decode
    return {number.replace("kv_read_efficiency", "attention"): line[0] for number, line in lines.items()}


def _small(seen: list[Point], gpu: GpuSpec, numbers: _Numbers, default: Calibration) -> None:
    """Passes over a hidden vector: slope of the small kernels' time over the rows."""
    slopes: dict[str, float] = {}
    points = [p for p in seen if p.kind == "small"]
    bandwidth = gpu.bandwidth_bytes_per_s * numbers.values.get("memory_efficiency", default.memory_efficiency)
    for kernel in dict.fromkeys(p.shape["kernel"] for p in points):
        some = [p for p in points if p.shape["kernel"] == kernel]
        line = _line(some, [2.0 * p.shape["rows"] * p.shape["hidden_size"] for p in some])
        if line is not None:
            slopes[kernel] = line[1] * bandwidth
    if "rms_norm" in slopes:
        text = "twice the slope of the norm's time over its rows"
        numbers.amount("replicated_activation_passes", 2 * slopes["rms_norm"], text)
    if {"rope", "activation"} <= slopes.keys():
        tp = next(iter(p.shape.get("tensor_parallel_size", 1) for p in points))
        passes = tp * (slopes["rope"] + slopes["activation"])
        numbers.amount("sharded_activation_passes", passes, "slopes of rotary embedding and activation over their rows")


def _overheads(
    seen: list[Point], gpu: GpuSpec, model: ModelSpec, device: Calibration, numbers: _Numbers
) -> Calibration:
    """What whole steps take beyond bytes and FLOPs: a constant, a time per layer, a time per request."""
    steps = [p for p in seen if p.kind == "step"]
    if len(steps) < _ENOUGH:
        return replace(device, overhead_ms=0.0, per_request_us=0.0)
    bare = replace(device, overhead_ms=0.0, layer_overhead_us=0.0, per_request_us=0.0)
    beyond = np.array([p.seconds - step_seconds(bare, model, gpu, p.shape) for p in steps])
    measured = np.array([p.seconds for p in steps])
    columns = np.array([[1.0, p.shape["layers"], p.shape["batch"]] for p in steps])
    # Relative to the whole step: what is left of a long one is small beside its own spread.
    constant, layer, request = (float(x) for x in non_negative(columns, beyond, measured))
    host = "; a server's host is not measured here: the shipped default's allowance is added"
    numbers.amount("overhead_ms", 1e3 * constant, f"{len(steps)} whole decode steps{host}")
    numbers.amount("layer_overhead_us", 1e6 * layer, f"{len(steps)} whole decode steps of 2 or more depths")
    numbers.amount("per_request_us", 1e6 * request, f"{len(steps)} whole decode steps{host}")
    return replace(device, overhead_ms=1e3 * constant, layer_overhead_us=1e6 * layer, per_request_us=1e6 * request)


def _line(points: list[Point], amounts: Iterable[float]) -> tuple[float, float] | None:
    """(constant, slope) of time over an amount; None where the points cannot tell."""
    x = np.array(list(amounts))
    if len(points) < _ENOUGH or len(set(x)) < 2:
        return None
    constant, slope = non_negative(np.stack((np.ones(len(x)), x), axis=1), np.array([p.seconds for p in points]))
    return (float(constant), float(slope)) if slope > 0 else None


def _weight_bytes(point: Point) -> float:
    return float(FORMATS[point.shape["dtype"]].size_bytes * point.shape["inputs"] * point.shape["outputs"])


def _kv_bytes(point: Point) -> float:
    s = point.shape
    numbers = s["batch"] * s["context"] * s["kv_heads"] * s["head_dim"]
    return float(2 * numbers * FORMATS[s["kv_dtype"]].size_bytes)


def _is_square(point: Point) -> bool:
    """A ceiling, and no linear layer of a model."""
    return bool(point.shape["name"] == "square")


def _is_narrow(point: Point) -> bool:
    return bool(point.shape["kv_dtype"] == "fp8_e4m3")


def _is_usual(point: Point) -> bool:
    """As servers run it: paged, in blocks of 16 and more, groups that leave reading the longer side."""
    return bool(point.shape["paged"] and point.shape["block_size"] >= _LONGEST_KV_BLOCK and point.shape["group"] <= 16)


def _residuals(points: Iterable[Point], parts: dict[str, Callable[[Point], float]]) -> tuple[Residual, ...]:
    rows = []
    for point in points:
        if point.kind in parts:
            predicted = parts[point.kind](point)
            if predicted == predicted:
                rows.append(Residual(point.kind, point.label, 1e6 * point.seconds, 1e6 * predicted, point.held_out))
    return tuple(rows)

"""Measure a card, fit the simulator's numbers to it, and write everything into one folder."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gpu_validate import kernel_source, residuals
from gpu_validate.attention_bench import attention_points, cache_points, launched_variant
from gpu_validate.card_names import card_of
from gpu_validate.ceilings import measure_ceilings
from gpu_validate.cuda_device import CudaDevice
from gpu_validate.fit import Fit, fit
from gpu_validate.goals import ceiling_lines, goals, paged_lines
from gpu_validate.layer_shapes import ModelShapes, model_shapes
from gpu_validate.measurements import Measurements, Point
from gpu_validate.plans import Plan, StepShape, plan
from gpu_validate.predict import Prediction, predict
from gpu_validate.step_measure import StepMeasure, gemm_points, small_points
from gpu_validate.timing import Stopwatch
from simulator.calibration import save_calibration
from simulator.catalog import find_gpu, find_model
from simulator.errors import InputError
from simulator.specs import GpuSpec, ModelSpec

Say = Callable[[str], None]
TABLE, _CALIBRATION, _FIT, _PREDICTION = "measurements.json", "calibration.yaml", "fit.json", "prediction.json"
FAILED = "FAILED"
"""Begins the note of a part that broke."""


@dataclass(frozen=True)
class Wish:
    """What to measure.

    Attributes:
        gpu: of the catalogue; None = by the name that the driver gives.
        tensor_parallel_size: one rank's share of the model is timed.
        limit_s: after so long no further part is begun; what was measured is fitted.
    """

    model: str = "llama-3.1-8b"
    gpu: str | None = None
    tensor_parallel_size: int = 1
    plan: str = "full"
    limit_s: float = 420.0


@dataclass(frozen=True)
class Outcome:
    """A finished calibration."""

    measurements: Measurements
    fit: Fit
    prediction: Prediction | None

    def text(self) -> str:
        """The screen that a user reads."""
        lines = [f"{self.measurements.gpu}: {self.measurements.facts['name']}, {len(self.measurements.points)} points"]
        lines += [f"  {number:<30}{getattr(self.fit.calibration, number):>10.4g}" for number in self.fit.fitted]
        lines += ["", *ceiling_lines(self.measurements), "", residuals.text(self.fit.residuals), ""]
        lines += [goal.text() for goal in goals(self.measurements, self.prediction)]
        lines += ["", *paged_lines(self.measurements), ""]
        lines += [f"note: {note}" for note in self.measurements.notes]
        return "\n".join(lines)

    def write(self, folder: Path) -> tuple[Path, ...]:
        """calibration.yaml, fit.json and, where steps were timed, prediction.json; gives their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        save_calibration(self.fit.calibration, folder / _CALIBRATION)
        document = {
            "schema": "kvplan-gpu-fit",
            "schema_version": 1,
            "fitted": list(self.fit.fitted),
            "constants_us": self.fit.constants_us,
            "goals": [asdict(goal) for goal in goals(self.measurements, self.prediction)],
            **residuals.document(self.fit.residuals),
        }
        (folder / _FIT).write_text(json.dumps(document, indent=1) + "\n")
        if self.prediction:
            (folder / _PREDICTION).write_text(json.dumps(self.prediction.as_document(), indent=1) + "\n")
        return tuple(folder / name for name in (_CALIBRATION, _FIT, _PREDICTION) if (folder / name).exists())


def calibrate(wish: Wish, device: CudaDevice, folder: Path, *, say: Say = lambda line: None) -> Outcome:
    """Measures, writes the raw table into ``folder`` at once, and fits.

    Raises InputError for a card or model that nothing is known of, and where too little could be measured.
    """
    model = find_model(wish.model)
    gpu = find_gpu(card_of(device, wish.gpu))
    measured = measure(wish, device, model, gpu, say=say)
    measured.write(folder / TABLE)
    return outcome(measured, gpu, model)


def outcome(measured: Measurements, gpu: GpuSpec, model: ModelSpec) -> Outcome:
    """The fit of a table, and its prediction of the steps in it."""
    fitted = fit(measured, gpu, model)
    steps = measured.of("step")
    return Outcome(measured, fitted, predict(steps, fitted.calibration, model, gpu) if steps else None)


def measure(
    wish: Wish, device: CudaDevice, model: ModelSpec, gpu: GpuSpec, *, say: Say = lambda line: None
) -> Measurements:
    """The raw table of one card."""
    start = time.monotonic()
    shapes = model_shapes(model, wish.tensor_parallel_size)
    sizes = plan(wish.plan, layers=len(shapes.layers))
    compile_first(device, sizes, shapes)
    say(f"compiled after {time.monotonic() - start:.0f} s")
    watch = Stopwatch(device, repeats=sizes.repeats)
    ceilings = measure_ceilings(device, watch, sizes)
    points, notes = list(ceilings.points), list(ceilings.notes)
    parts: dict[str, Callable[[], Iterator[Point | str]]] = {
        "matrix products": lambda: gemm_points(device, watch, shapes, sizes),
        "attention": lambda: attention_points(device, watch, sizes),
        "small kernels": lambda: small_points(device, watch, shapes, sizes),
        "append and copies": lambda: cache_points(device, watch, sizes),
        "whole steps": lambda: StepMeasure(device, watch, shapes, sizes.step_variant).points(sizes),
    }
    for name, part in parts.items():
        say(f"{name} after {time.monotonic() - start:.0f} s")
        try:
            for found in part():
                if isinstance(found, str):
                    notes.append(found)
                else:
                    points.append(found)
                if time.monotonic() - start > wish.limit_s:
                    notes.append(f"{name}: cut off after {wish.limit_s:.0f} s")
                    break
        except Exception as error:  # an hour of a rented card: what the other parts give is kept
            notes.append(f"{FAILED} {name}: {type(error).__name__}: {str(error)[:500]}")
    return Measurements(
        facts=asdict(device.facts),
        measured_at=datetime.datetime.now(datetime.UTC).date().isoformat(),
        gpu=gpu.name,
        kernel_hash=kernel_source.digest(),
        points=tuple(points),
        notes=tuple(notes),
    )


def compile_first(device: CudaDevice, sizes: Plan, shapes: ModelShapes) -> None:
    """Every kernel of the plan on all cores, so that no timing waits for a compiler."""
    wanted = [(kernel, sizes.step_variant) for kernel in kernel_source.FILES]
    for shape in (*sizes.attention, *sizes.held_out_attention):
        variant = launched_variant(shape, device.facts.processors)
        wanted += [(kernel, variant) for kernel in ("paged_decode", "merge_splits")]
    device.prepare(wanted, workers=16)


def measure_steps(device: CudaDevice, model: ModelSpec, sizes: list[tuple[int, int]]) -> tuple[Point, ...]:
    """Whole steps of (batch, context) alone, which no fit has seen. Raises InputError where one does not fit."""
    shapes = model_shapes(model)
    layers = len(shapes.layers)
    steps = tuple(StepShape(batch, context, layers, held_out=True) for batch, context in sizes)
    wanted = replace(plan("full", layers=layers), steps=steps)
    measure = StepMeasure(device, Stopwatch(device, repeats=wanted.repeats), shapes, wanted.step_variant)
    points = []
    for one in measure.points(wanted):
        if isinstance(one, str):
            raise InputError(one, where="--step", remedy="take fewer requests, less context or a smaller model")
        points.append(one)
    return tuple(points)

"""The raw table of a calibration: one point a measurement, read and written as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpu_validate.timing import Timing
from simulator.errors import InputError

SCHEMA = "kvplan-gpu-measurements"
SCHEMA_VERSION = 1
KINDS = ("copy", "gemm", "attention", "prefill_attention", "append", "copy_blocks", "swap", "small", "launch", "step")


@dataclass(frozen=True)
class Point:
    """One timed shape.

    Attributes:
        kind: one of ``KINDS``.
        shape: what was timed: batch, context, rows, dtype ..., by name.
        bytes: that it must move through device memory at least, inputs once and outputs once. 0 where nobody counts.
        flops: that it must compute.
        held_out: the fit does not see it.
    """

    kind: str
    shape: Mapping[str, Any]
    timing: Timing
    bytes: float = 0.0
    flops: float = 0.0
    held_out: bool = False

    @property
    def seconds(self) -> float:
        return self.timing.median_us * 1e-6

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def flop_per_s(self) -> float:
        return self.flops / self.seconds if self.seconds else 0.0

    @property
    def label(self) -> str:
        """``attention batch=64 context=8192``."""
        return " ".join((self.kind, *(f"{name}={value}" for name, value in self.shape.items())))

    def has(self, **shape: Any) -> bool:
        """Whether the shape has all of these."""
        return all(self.shape.get(name) == value for name, value in shape.items())


@dataclass(frozen=True)
class Measurements:
    """Everything that was timed on one card.

    Attributes:
        facts: device, driver, versions.
        notes: what could not be measured, and why.
    """

    facts: dict[str, Any]
    measured_at: str
    gpu: str
    kernel_hash: str
    points: tuple[Point, ...]
    notes: tuple[str, ...] = field(default=())

    def of(self, kind: str, **shape: Any) -> tuple[Point, ...]:
        """Points of a kind that have all of ``shape``."""
        return tuple(point for point in self.points if point.kind == kind and point.has(**shape))

    def write(self, path: Path) -> None:
        """Writes the table as JSON, one point a line."""
        head = {key: value for key, value in asdict(self).items() if key != "points"}
        text = json.dumps({"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **head}, indent=1)
        rows = ",\n".join(f"  {json.dumps(asdict(point))}" for point in self.points)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{text[:-2]},\n "points": [\n{rows}\n ]\n}}\n')


def read_measurements(path: Path) -> Measurements:
    """Reads a table. Raises InputError where it is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot be read: {error}", where=str(path), remedy="give a file that calibrate wrote"
        ) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError("is not a table of measurements", where=str(path), remedy="give a file that calibrate wrote")
    if document["schema_version"] != SCHEMA_VERSION:
        raise InputError(f"schema_version is {document['schema_version']}", where=str(path), remedy="measure again")
    points = tuple(Point(**{**row, "timing": Timing(**row["timing"])}) for row in document["points"])
    return Measurements(
        facts=document["facts"],
        measured_at=document["measured_at"],
        gpu=document["gpu"],
        kernel_hash=document["kernel_hash"],
        points=points,
        notes=tuple(document["notes"]),
    )

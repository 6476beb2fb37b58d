"""What the kernels are held to on a real card, against ceilings of the same run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu_validate.measurements import Measurements, Point
from gpu_validate.predict import GOAL, Prediction


@dataclass(frozen=True)
class Goal:
    """One goal. ``reached`` is None where its shapes were not timed.

    Attributes:
        at_least: the goal is a floor; else a ceiling.
    """

    name: str
    wanted: float
    reached: float | None
    at_least: bool

    @property
    def met(self) -> bool | None:
        if self.reached is None:
            return None
        return self.reached >= self.wanted if self.at_least else self.reached <= self.wanted

    def text(self) -> str:
        """``met   decode attention ...: 91.2 % (at least 90 %)``."""
        verdict = {None: "not timed", True: "met", False: "MISSED"}[self.met]
        reached = "" if self.reached is None else f": {self.reached:.1%}"
        return f"{verdict:<10}{self.name}{reached} ({'at least' if self.at_least else 'at most'} {self.wanted:.0%})"


def goals(measured: Measurements, prediction: Prediction | None) -> tuple[Goal, ...]:
    """Decode bandwidth, paged beside contiguous, one long sequence, whole steps."""
    copies = measured.of("copy")
    ceiling = max((point.bytes_per_s for point in copies), default=0.0)
    usual = {"head_dim": 128, "dtype": "bfloat16", "kv_dtype": "bfloat16", "paged": True}
    base = measured.of("attention", **usual, block_size=16, group=4, kv_heads=8)
    many = [p for p in base if p.shape["batch"] >= 64 and p.shape["context"] >= 2048]
    single = [p for p in base if p.has(batch=1, context=131072)]
    unseen = prediction.unseen if prediction else ()
    return (
        Goal("decode attention over copy bandwidth, batch >= 64, context >= 2,048", 0.9, _least(many, ceiling), True),
        Goal("the same, one sequence of 131,072", 0.7, _least(single, ceiling), True),
        Goal("paged over contiguous, block size 16", 0.05, _overhead(measured, 16), False),
        Goal("paged over contiguous, block size 64", 0.02, _overhead(measured, 64), False),
        Goal("whole steps not seen by the fit", GOAL, max((abs(row.error) for row in unseen), default=None), False),
    )


def paged_overheads(measured: Measurements, block_size: int) -> list[tuple[Point, float]]:
    """Each paged shape of a block size, and how much longer it takes than the same contiguous one."""
    return [
        (paged, paged.timing.median_us / straight.timing.median_us - 1.0)
        for paged in measured.of("attention", paged=True, block_size=block_size)
        for straight in measured.of("attention", **_beside(paged), paged=False)
    ]


def paged_lines(measured: Measurements) -> list[str]:
    """A line for each shape that was timed both ways."""
    sizes = sorted({point.shape["block_size"] for point in measured.of("attention", paged=True)})
    return [
        f"block size {size:>3}, batch {paged.shape['batch']}, context {paged.shape['context']}: paged takes "
        f"{overhead:+.1%} beside contiguous"
        for size in sizes
        for paged, overhead in paged_overheads(measured, size)
    ]


def ceiling_lines(measured: Measurements) -> list[str]:
    """What the card itself reaches: copies, products, PCIe, launches."""
    lines = [f"copy within the card {p.bytes_per_s / 1e12:.2f} TB/s, read and written" for p in measured.of("copy")]
    for point in measured.of("gemm", name="square"):
        side = point.shape["rows"]
        lines.append(f"product of {side} x {side} {point.shape['dtype']} {point.flop_per_s / 1e12:.0f} TFLOP/s")
    for point in measured.of("swap"):
        size, rate = point.shape["piece_bytes"] >> 10, point.bytes_per_s / 1e9
        lines.append(f"swap {point.shape['direction']} in pieces of {size} KiB {rate:.1f} GB/s")
    for point in measured.of("launch"):
        each = point.timing.median_us / point.shape["kernels"]
        lines.append(f"small kernels follow at {each:.2f} µs; the host needs {point.shape['host_us_each']} µs for each")
    return lines


def _beside(paged: Point) -> dict[str, Any]:
    return {key: value for key, value in paged.shape.items() if key not in ("paged", "splits")}


def _overhead(measured: Measurements, block_size: int) -> float | None:
    return max((overhead for _, overhead in paged_overheads(measured, block_size)), default=None)


def _least(points: list[Point], ceiling: float) -> float | None:
    return min((point.bytes_per_s / ceiling for point in points), default=None) if ceiling else None

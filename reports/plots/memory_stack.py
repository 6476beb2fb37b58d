"""Where each GPU's memory goes: a bar a candidate, GiB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.numbers import GIB, plain, short
from reports.style import EXTERNAL, FREE, INTERNAL, LINES, NARROW_INCHES, TOKENS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
MOST_BARS = 8
PARTS = (
    ("weights", ("weights",), TOKENS, "", "#ffffff"),
    ("KV pool", ("KV pool",), "#2FB58C", "", "#000000"),
    ("activations", ("activation peak",), INTERNAL, "//", None),
    (
        "runtime, graphs",
        ("runtime buffers (cuBLAS, NCCL)", "CUDA graphs", "CUDA context"),
        LINES[3][0],
        "xx",
        None,
    ),
    ("other", (), EXTERNAL, "\\\\", None),
    ("reserve", ("kept by the driver", "left outside the fraction"), FREE, "..", None),
    ("unused", ("left free", "unused"), FREE, None, None),
)
"""Label, names of rows, colour, hatch (None: pale), and the colour of the number where there is room for one."""

ROOM_FOR_NUMBER = 0.11
"""Share of the axis."""


@dataclass(frozen=True)
class MemoryStack:
    """The drawing: candidates by name, each with GiB by label of ``PARTS``."""

    bars: tuple[tuple[str, dict[str, float]], ...]
    left_out: int = 0
    name: str = "capacity_memory"
    title: str = "Memory of each GPU"

    @property
    def caption(self) -> str:
        """What is not drawn."""
        words = "Reserve: kept by the driver and left outside the memory fraction. Exact numbers stand below."
        return f"{words} {self.left_out} more candidates are left out." if self.left_out else words

    def size(self) -> tuple[float, float]:
        """Inches."""
        return NARROW_INCHES, 1.45 + 0.55 * len(self.bars)

    def alt_text(self) -> str:
        """Every bar."""
        parts = [
            f"{name}: " + ", ".join(f"{label} {short(size)}" for label, size in sizes.items())
            for name, sizes in self.bars
        ]
        return f"Stacked bars of GiB, one a candidate. {'; '.join(parts)}."

    def draw(self, figure: Figure) -> None:
        """Names stand above their bars, for they are long."""
        axes = figure.subplots()
        widest = max(sum(max(size, 0.0) for size in sizes.values()) for _, sizes in self.bars)
        for label, _, colour, hatch, ink in PARTS:
            sizes = [max(bar.get(label, 0.0), 0.0) for _, bar in self.bars]
            if not any(sizes):
                continue
            left = [_before(bar, label) for _, bar in self.bars]
            alpha = 0.25 if hatch is None else 0.9
            axes.barh(
                range(len(sizes)), sizes, 0.5, left, label=label, color=colour, hatch=hatch, alpha=alpha, linewidth=0
            )
            for row, (size, start) in enumerate(zip(sizes, left, strict=True)):
                if ink is not None and size > ROOM_FOR_NUMBER * widest:
                    axes.text(start + size / 2, row, short(size), color=ink, ha="center", va="center", fontsize=10)
        for row, (name, _) in enumerate(self.bars):
            axes.annotate(name, (0, row - 0.25), (0, 2), textcoords="offset points", va="bottom", fontsize=10)
        axes.set_yticks([])
        axes.set_ylim(len(self.bars) - 0.6, -0.75)
        axes.set_xlim(0, 1.02 * widest)
        axes.set_xlabel("GiB")
        axes.xaxis.set_major_formatter(lambda value, _: plain(value))
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, columnspacing=1.2, handlelength=1.6)


def memory_stack(rows: list[Row], memory: dict[str, Any]) -> MemoryStack | None:
    """The drawing of the first candidates whose memory is known, by its parts or by weights and KV pool alone."""
    bars = []
    for row in rows:
        known = (memory.get(row["candidate"]) or {}).get("rows")
        sizes = _by_part(known) if known else _from_columns(row)
        if sizes:
            bars.append((str(row["candidate"]), sizes))
    return MemoryStack(tuple(bars[:MOST_BARS]), max(len(bars) - MOST_BARS, 0)) if bars else None


def _by_part(rows: list[Row]) -> dict[str, float]:
    label_of = {name: label for label, names, *_ in PARTS for name in names}
    sizes: dict[str, float] = {}
    for row in rows:
        label = label_of.get(str(row["name"]), "other")
        sizes[label] = sizes.get(label, 0.0) + row["bytes"] / GIB
    return {label: sizes[label] for label, *_ in PARTS if label in sizes}


def _from_columns(row: Row) -> dict[str, float]:
    found = {"weights": row.get("weight_gib_per_gpu"), "KV pool": row.get("kv_pool_gib_per_gpu")}
    return {label: float(size) for label, size in found.items() if size}


def _before(sizes: dict[str, float], label: str) -> float:
    """Where a part begins."""
    start = 0.0
    for name, *_ in PARTS:
        if name == label:
            break
        start += max(sizes.get(name, 0.0), 0.0)
    return start

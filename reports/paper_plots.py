"""Drawings of the PagedAttention paper's numbers beside ours: memory split, batched requests, latency against rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.numbers import plain
from reports.style import EXTERNAL, FREE, INK, INTERNAL, LINES, RESERVED, TOKENS, WIDTH_INCHES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Result = dict[str, Any]
SYSTEMS = ("FasterTransformer", "Orca (Max)", "Orca (Pow2)", "Orca (Oracle)", "vLLM")
MARKERS = (".", "x", "^", "s", "o")
PARTS = (
    ("token_states", "tokens", TOKENS, ""),
    ("reservation", "reserved for tokens to come", RESERVED, "//"),
    ("internal_frag", "internal waste", INTERNAL, "xx"),
    ("external_frag_and_others", "external and others", EXTERNAL, ".."),
)
TOP_S = 1.0
"""The paper's plots end at one second a token."""


@dataclass(frozen=True)
class MemorySplit:
    """Where the KV memory goes, the paper's bar above ours for each system."""

    rows: tuple[Result, ...]
    name: str = "paper_memory_split"
    title: str = "Where the KV memory goes (Fig. 2)"
    caption: str = (
        "Shares of the KV slots of an overloaded server. The paper's bar of each system is the upper one. What vLLM's "
        "bar lacks in the paper's printed numbers is not split further there."
    )

    def size(self) -> tuple[float, float]:
        return WIDTH_INCHES, 1.5 + 0.8 * len(self._systems())

    def alt_text(self) -> str:
        return "Stacked bars. " + "; ".join(
            f"{row['system']} {row['metric'].replace('_', ' ')}: paper {row['paper_text']} %, ours {row['ours']:.1f} %"
            for row in self.rows
        )

    def draw(self, figure: Figure) -> None:
        axes = figure.subplots()
        names = []
        for place, system in enumerate(self._systems()):
            for offset, key in enumerate(("paper", "ours")):
                height = 2.6 * place + offset
                names.append((height, f"{system}, {key}" if key == "paper" else key))
                self._bar(axes, system, key, height)
        axes.set_yticks([height for height, _ in names], [name for _, name in names])
        axes.invert_yaxis()
        axes.set_xlim(0, 100)
        axes.set_xlabel("% of the KV slots")
        axes.grid(axis="y", visible=False)
        handles, labels = axes.get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        figure.legend(unique.values(), unique.keys(), loc="outside upper center", ncols=2)

    def _systems(self) -> list[str]:
        return [system for system in SYSTEMS if any(row["system"] == system for row in self.rows)]

    def _bar(self, axes: Axes, system: str, key: str, height: float) -> None:
        left = 0.0
        values = {row["metric"]: row[key] for row in self.rows if row["system"] == system}
        for metric, label, colour, hatch in PARTS:
            value = values.get(metric)
            if value is None:
                continue
            axes.barh(height, value, left=left, height=0.9, label=label, color=colour, hatch=hatch, alpha=0.9)
            if value >= 6:
                box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.0}
                words = f"{value:.1f}"
                axes.text(left + value / 2, height, words, ha="center", va="center", fontsize=8.5, color="k", bbox=box)
            left += value
        if left < 99.5:
            axes.barh(height, 100 - left, left=left, height=0.9, label="not split further", color=FREE, alpha=0.25)


@dataclass(frozen=True)
class Batched:
    """Mean batched requests, the paper's beside ours, a panel a load."""

    rows: tuple[Result, ...]
    name: str = "paper_batched_requests"
    title: str = "Requests in the batch (Fig. 13)"
    caption: str = (
        "Ours with the shipped calibration; the whisker spans lengths with coefficients of variation 30 % lower and "
        "higher. A third bar, where there is one, takes the paper's own step time: an explanation, not a prediction."
    )

    def size(self) -> tuple[float, float]:
        return WIDTH_INCHES, 3.4 * len(self._loads())

    def alt_text(self) -> str:
        return "Bars. " + "; ".join(
            f"{row['dataset']} {row['x']}, {row['system']}: paper {row['paper_text']}, ours {row['ours']:.1f}"
            for row in self.rows
        )

    def draw(self, figure: Figure) -> None:
        panels = figure.subplots(len(self._loads()), 1, squeeze=False)[:, 0]
        for axes, (dataset, x) in zip(panels, self._loads(), strict=True):
            rows = [row for row in self.rows if (row["dataset"], row["x"]) == (dataset, x)]
            self._panel(axes, rows)
            axes.set_title(f"{dataset}, {x}")
            axes.set_ylabel("requests")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)

    def _panel(self, axes: Axes, rows: list[Result]) -> None:
        kinds: list[tuple[str, str, str, str]] = [("paper", "paper", FREE, ""), ("ours", "ours", TOKENS, "//")]
        if all("step time" in row["explained"] for row in rows):
            rows = [row | {"step time": row["explained"]["step time"]} for row in rows]
            kinds.append(("step time", "ours with the paper's step time", INTERNAL, "xx"))
        width = 0.8 / len(kinds)
        for place, (key, label, colour, hatch) in enumerate(kinds):
            at = [i + (place - (len(kinds) - 1) / 2) * width for i in range(len(rows))]
            values = [row[key] or 0.0 for row in rows]
            axes.bar(at, values, width=width * 0.92, label=label, color=colour, hatch=hatch, alpha=0.9)
            for x, value in zip(at, values, strict=True):
                axes.annotate(f"{value:.1f}", (x, value), (0, 2), textcoords="offset points", ha="center", fontsize=8)
            if key == "ours" and all(row["ours_narrower_lengths"] is not None for row in rows):
                for x, row in zip(at, rows, strict=True):
                    ends = sorted((row["ours_narrower_lengths"], row["ours_wider_lengths"]))
                    axes.plot([x + width * 0.3] * 2, ends, color=INK, linewidth=1.2)
        axes.set_xticks(range(len(rows)), [row["system"] for row in rows])
        axes.grid(axis="x", visible=False)

    def _loads(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys((row["dataset"], row["x"]) for row in self.rows))


@dataclass(frozen=True)
class LatencyCurves:
    """Normalised latency against rate, the paper dashed, ours solid; one drawing a plot of the paper."""

    heading: str
    name: str
    paper: dict[str, tuple[tuple[float, float], ...]]
    ours: dict[str, tuple[tuple[float, float], ...]]

    @property
    def title(self) -> str:
        return f"Normalised latency against rate: {self.heading}"

    @property
    def caption(self) -> str:
        return (
            "Mean over requests of end-to-end latency / output tokens. Dashed: the paper; solid: ours, with the "
            "shipped calibration, not fitted to the paper. Where a line leaves the plot, the queue grows as long as "
            "requests come."
        )

    def size(self) -> tuple[float, float]:
        return WIDTH_INCHES, 3.9

    def alt_text(self) -> str:
        words = []
        for kind, curves in (("paper", self.paper), ("ours", self.ours)):
            for system, points in curves.items():
                under = [rate for rate, latency in points if latency <= TOP_S]
                words.append(f"{system}, {kind}: below {TOP_S:g} s a token up to {max(under, default=0):.3g} req/s")
        return "Lines. " + "; ".join(words) + "."

    def draw(self, figure: Figure) -> None:
        from matplotlib.lines import Line2D

        axes = figure.subplots()
        handles = []
        for place, system in enumerate(SYSTEMS):
            colour = LINES[place][0]
            shown = False
            for curves, style in ((self.paper, (0, (4, 2))), (self.ours, "solid")):
                if system in curves:
                    rates, latencies = zip(*curves[system], strict=True)
                    axes.plot(rates, latencies, color=colour, linestyle=style, marker=MARKERS[place], markersize=4)
                    shown = True
            if shown:
                handles.append(Line2D([], [], color=colour, marker=MARKERS[place], label=system))
        handles.append(Line2D([], [], color=INK, linestyle=(0, (4, 2)), label="paper"))
        handles.append(Line2D([], [], color=INK, linestyle="solid", label="ours"))
        axes.set_ylim(0, TOP_S)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(lambda value, _: plain(value))
        axes.set_xlabel("requests per second")
        axes.set_ylabel("s per output token")
        figure.legend(handles=handles, loc="outside upper center", ncols=3)


Drawing = MemorySplit | Batched | LatencyCurves


def drawings(result: Result) -> list[Drawing]:
    """The drawings of a verification: those whose rows it has."""
    rows = [row for row in result["rows"] if row["ours"] is not None]
    found: list[Drawing] = []
    if split := tuple(row for row in rows if row["kind"] == "share"):
        found.append(MemorySplit(split))
    if batched := tuple(row for row in rows if row["kind"] == "batch"):
        found.append(Batched(batched))
    return found + latency_curves(result)


def latency_curves(result: Result) -> list[Drawing]:
    """A drawing for each model, dataset and way of sampling that has points of both, or of ours alone."""
    paper: dict[tuple[Any, ...], dict[str, dict[float, float]]] = {}
    ours: dict[tuple[Any, ...], dict[str, dict[float, float]]] = {}
    for row in result["rows"]:
        if row["kind"] != "latency" or row["ours"] is None:
            continue
        key = (row["plot_model"], row["plot_dataset"], row["sequences"], row["beam"], row["prefix_tokens"])
        ours.setdefault(key, {}).setdefault(row["system"], {})[row["rate_rps"]] = row["ours"]
        if row["paper"] is not None:
            paper.setdefault(key, {}).setdefault(row["system"], {})[row["rate_rps"]] = row["paper"]
    for curve in result["curves"]:
        key = (curve["model"], curve["dataset"], 1, False, 0)
        ours.setdefault(key, {}).setdefault(curve["system"], {}).update(dict(map(tuple, curve["points"])))
    return [
        LatencyCurves(_heading(*key), "paper_latency_" + _slug(*key), _sorted(paper.get(key, {})), _sorted(curves))
        for key, curves in ours.items()
    ]


def _sorted(curves: dict[str, dict[float, float]]) -> dict[str, tuple[tuple[float, float], ...]]:
    return {system: tuple(sorted(points.items())) for system, points in curves.items()}


def _heading(model: str, dataset: str, sequences: int, beam: bool, prefix_tokens: int) -> str:
    words = f"{model.upper()}, {dataset}"
    if sequences > 1:
        words += f", {'beam width' if beam else 'parallel samples'} {sequences}"
    return words + (f", a shared prefix of {prefix_tokens} tokens" if prefix_tokens else "")


def _slug(model: str, dataset: str, sequences: int, beam: bool, prefix_tokens: int) -> str:
    end = "" if sequences == 1 else f"_{'beam' if beam else 'n'}{sequences}"
    end += f"_prefix{prefix_tokens}" if prefix_tokens else ""
    return f"{model}_{dataset}{end}".lower().replace("-", "_")

"""The PagedAttention paper's numbers beside ours.

Predictions are blind: ``predict`` sees what each row asks (``Asked``), never what came out. Answers are looked at
afterwards, to compare, and once more to explain: the host overhead of a step that the paper's least loaded point
implies is put into a second set of predictions, which are shown beside the first and never counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.calibration import find_calibration
from simulator.errors import KvplanError
from simulator.verify_paper_explain import EXPLANATIONS, bands, explained, implied_overhead
from simulator.verify_paper_lab import Lab, system_of
from simulator.verify_paper_lengths import DATASETS, fitted_law
from simulator.verify_paper_order import OFF_THE_PLOT_S, Comparison, Curve, compare
from simulator.verify_paper_predict import OnRow, UnansweredError, answer, predict
from simulator.verify_paper_questions import (
    PAGED,
    LatencyQuestion,
    MaxRateQuestion,
    RatioQuestion,
    Sampling,
    question_of,
)
from simulator.verify_paper_row import Row
from simulator.verify_paper_systems import Server
from simulator.verify_paper_targets import Asked, Target

QUICK_SCALE = 0.05


@dataclass
class Verification:
    """All rows, the order of the systems plot by plot, and what the difference in step time would explain."""

    rows: list[Row]
    order: dict[str, list[Comparison]]
    curves: dict[tuple[str, str, str], Curve]  # (server's model, dataset, system) to our simulated points
    assumptions: list[str]
    overhead_ms: float | None = None
    overhead_from: str | None = None

    @property
    def missed(self) -> list[str]:
        """The stated tolerances that are missed, a line each."""
        lines = [f"{_name(row.asked)}: {row.ours.value:.4g}" for row in self.rows if row.within is False]
        wrong = [
            f"order in {plot} at {c.rate_rps:g} req/s: {c.slower} should be slower than {c.faster}"
            for plot, comparisons in self.order.items()
            for c in comparisons
            if not c.right
        ]
        return lines + wrong


def verify(targets: list[Target], *, quick: bool = False, on_row: OnRow = lambda: None) -> Verification:
    """Predicts every row, then compares.

    Args:
        quick: short traces, without sensitivity and explanation: for tests and a first look.
        on_row: told after each row of each of the ``passes``.
    """
    lab = Lab(scale=QUICK_SCALE if quick else 1.0)
    asked = [target.asked for target in targets]
    ours = predict(asked, lab, on_row=on_row)
    spreads: list[tuple[float, float] | None] = [None] * len(asked)
    others: list[dict[str, float]] = [{} for _ in asked]
    overhead = None
    if not quick:
        spreads = bands(asked, on_row)
        overhead = implied_overhead(targets, lab)
        others = explained(asked, None if overhead is None else overhead[0], on_row)
    rows = [
        Row(target.asked, question_of(target.asked), prediction, target, band, other)
        for target, prediction, band, other in zip(targets, ours, spreads, others, strict=True)
    ]
    return Verification(
        rows,
        _order(targets, lab),
        _curves(rows, lab),
        _assumptions(lab),
        None if overhead is None else overhead[0],
        None if overhead is None else overhead[1],
    )


def passes(*, quick: bool) -> int:
    """How often ``verify`` goes through the rows at most: once, with two other spreads, and for each explanation."""
    return 1 if quick else 3 + len(EXPLANATIONS)


def _plots(targets: list[Target]) -> dict[tuple[Server, str, Sampling, int], dict[str, Curve]]:
    """The paper's curves, by plot and system."""
    plots: dict[tuple[Server, str, Sampling, int], dict[str, Curve]] = {}
    for target in targets:
        question = question_of(target.asked)
        if isinstance(question, LatencyQuestion) and target.low is not None:
            plot = plots.setdefault((question.server, question.dataset, question.sampling, question.prefix_tokens), {})
            plot.setdefault(question.system, []).append((question.rate_rps, target.low))
    return {key: {system: sorted(curve) for system, curve in plot.items()} for key, plot in plots.items()}


def _order(targets: list[Target], lab: Lab) -> dict[str, list[Comparison]]:
    found = {}
    for (server, dataset, sampling, prefix), plot in _plots(targets).items():
        name = plot_name(server, dataset, sampling, prefix)
        latency_s = _Monotone(lab, server, dataset, sampling, prefix)
        try:
            found[name] = compare(plot, latency_s)
        except (UnansweredError, KvplanError):
            continue
    return found


@dataclass
class _Monotone:
    """Our latency at a rate. Once a system is off the plot it is not simulated at higher rates: it stays there."""

    lab: Lab
    server: Server
    dataset: str
    sampling: Sampling
    prefix_tokens: int
    off: dict[str, float] = field(default_factory=dict)

    def __call__(self, system: str, rate_rps: float) -> float:
        if rate_rps >= self.off.get(system, float("inf")):
            return float("inf")
        question = LatencyQuestion(self.server, system, self.dataset, rate_rps, self.sampling, self.prefix_tokens)
        latency = answer(question, self.lab)
        if latency > OFF_THE_PLOT_S:
            self.off[system] = rate_rps
        return latency


def _curves(rows: list[Row], lab: Lab) -> dict[tuple[str, str, str], Curve]:
    """Everything that was simulated of plain requests, for the plots."""
    drawn: dict[tuple[Server, str, str], None] = {}
    for question in (row.question for row in rows):
        if isinstance(question, LatencyQuestion | MaxRateQuestion):
            drawn[question.server, question.dataset, question.system] = None
        elif isinstance(question, RatioQuestion):
            drawn[question.server, question.dataset, PAGED] = None
            drawn[question.server, question.dataset, question.against] = None
    curves = {
        (server.model, dataset, name): lab.curve(system_of(name, server, dataset), server, dataset)
        for server, dataset, name in drawn
    }
    return {key: points for key, points in curves.items() if points}


def plot_name(server: Server, dataset: str, sampling: Sampling, prefix_tokens: int) -> str:
    """A plot in words."""
    words = f"{server.model.upper()}, {dataset}"
    if sampling.sequences > 1:
        words += f", {'beam width' if sampling.beam else 'parallel samples'} {sampling.sequences}"
    return words + (f", a prefix of {prefix_tokens} tokens" if prefix_tokens else "")


def _name(asked: Asked) -> str:
    return ", ".join(part for part in (asked.figure, asked.system, asked.dataset, asked.metric, asked.x) if part)


def _assumptions(lab: Lab) -> list[str]:
    lines = []
    for shape in DATASETS.values():
        law = fitted_law(shape)
        _, prompt_cv, _, output_cv = law.moments()
        lines.append(
            f"{shape.name}: log-normal lengths with the paper's means {shape.prompt_mean:g} and {shape.output_mean:g} "
            f"tokens and coefficients of variation {shape.prompt_cv:.2f} and {shape.output_cv:.2f}, those of "
            f"{shape.cv_source}; after leaving out pairs beyond 2,048 tokens {prompt_cv:.2f} and {output_cv:.2f}"
        )
    calibration = find_calibration("default")
    lines += [
        "Poisson arrivals; one hour a trace as in the paper, or its beginning where that has more than "
        "7,500 requests (three minutes at the least); latencies leave out the "
        "requests of the first minute",
        f"step times: roofline of OPT in fp16 with the shipped calibration {calibration.name!r}, not fitted to the "
        f"paper: host overhead {calibration.overhead_ms:g} ms a step, {calibration.layer_overhead_us:g} us a layer",
        "slots: the paper's Table 1; blocks of 16 tokens; vLLM's scheduler as of 2023: prompts in the steps of the "
        "decodes, 2,560 tokens a step, 256 sequences, a watermark of 1 %, preemption by recompute; requests of several "
        "sequences are swapped over PCIe at its data sheet's rate",
        "Orca: prompt plus reserved output from a buddy allocator, first come first served, never preempted; "
        "FasterTransformer: batches of 5 (ShareGPT) and 14 (Alpaca) requests, as in the authors' scripts",
        "memory split: 4 req/s for 900 s, steps from 300 s on, and other rates and windows as in the authors' scripts "
        "(sosp-ae-39/sosp-ae-astra) where the paper states none; a buddy block's rounding counts as external",
    ]
    return lines

"""The PagedAttention paper's numbers beside ours.

Predictions are blind: ``predict`` sees what each row asks (``Asked``), never what came out. Answers are looked at
afterwards, to compare, and once more to explain: the host overhead of a step that the paper's least loaded point
implies is put into a second set of predictions, which are shown beside the first and never counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from simulator.calibration import find_calibration
from simulator.verify_paper_lab import Lab, system_of
from simulator.verify_paper_lengths import DATASETS, fitted_law
from simulator.verify_paper_order import OFF_THE_PLOT_S, Comparison, Curve, compare
from simulator.verify_paper_predict import UnansweredError, answer
from simulator.verify_paper_questions import (
    ORCAS,
    PAGED,
    BatchQuestion,
    LatencyQuestion,
    MaxRateQuestion,
    NotAsked,
    Question,
    RatioQuestion,
    Sampling,
    ShareQuestion,
    question_of,
)
from simulator.verify_paper_systems import Server
from simulator.verify_paper_targets import Asked, Target

SHARE_POINTS = 5.0
BATCH_SHARE = 0.15
CV_FACTORS = (0.7, 1.3)


@dataclass(frozen=True)
class Prediction:
    """Our number for a row, or why there is none."""

    value: float | None
    reason: str | None = None


@dataclass(frozen=True)
class Row:
    """A row of the table: asked, ours, the paper's.

    ``within``: None where the issue states no tolerance or a number is missing. ``band``: ours with narrower and with
    wider lengths. ``explained``: ours with the host overhead that the paper's unloaded server implies.
    """

    asked: Asked
    question: Question | NotAsked
    ours: Prediction
    target: Target
    band: tuple[float, float] | None = None
    explained: float | None = None

    @property
    def tolerance(self) -> str | None:
        """What is asked of the row, in words."""
        if isinstance(self.question, ShareQuestion):
            return f"{SHARE_POINTS:g} points"
        if isinstance(self.question, BatchQuestion):
            return f"{BATCH_SHARE:.0%}"
        return None

    @property
    def within(self) -> bool | None:
        """Whether ours is within the tolerance."""
        return self.meets(self.ours.value)

    def meets(self, value: float | None) -> bool | None:
        """Whether a number would be within the tolerance of the row."""
        paper = self.target.low
        if value is None or paper is None or self.tolerance is None:
            return None
        if isinstance(self.question, ShareQuestion):
            return abs(value - paper) <= SHARE_POINTS
        return abs(value - paper) <= BATCH_SHARE * paper


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


OnRow = Callable[[], None]


def predict(
    asked: Iterable[Asked],
    lab: Lab,
    wanted: Callable[[Question], bool] | None = None,
    on_row: OnRow = lambda: None,
) -> list[Prediction]:
    """Our answers to rows that have none. ``wanted``: the questions to answer; the others get no number."""
    found = []
    for row in asked:
        on_row()
        question = question_of(row)
        if isinstance(question, NotAsked):
            found.append(Prediction(None, question.reason))
        elif wanted is not None and not wanted(question):
            found.append(Prediction(None, "left out"))
        else:
            try:
                found.append(Prediction(answer(question, lab)))
            except UnansweredError as error:
                found.append(Prediction(None, str(error)))
    return found


def verify(targets: list[Target], *, quick: bool = False, on_row: OnRow = lambda: None) -> Verification:
    """Predicts every row, then compares.

    Args:
        quick: short traces, without sensitivity and explanation: for tests and a first look.
        on_row: told after each row of each of the ``passes``.
    """
    scale = QUICK_SCALE if quick else 1.0
    lab = Lab(scale=scale)
    asked = [target.asked for target in targets]
    ours = predict(asked, lab, on_row=on_row)
    bands = [None] * len(asked) if quick else _bands(asked, on_row)
    overhead = None if quick else _implied_overhead(targets, lab)
    explained: list[float | None] = [None] * len(asked)
    if overhead is not None:
        second = Lab(step_overhead_ms=overhead[0])
        explained = [prediction.value for prediction in predict(asked, second, _load_matters, on_row)]
    rows = [
        Row(target.asked, question_of(target.asked), prediction, target, band, other)
        for target, prediction, band, other in zip(targets, ours, bands, explained, strict=True)
    ]
    return Verification(
        rows,
        _order(targets, lab),
        _curves(rows, lab),
        _assumptions(lab),
        None if overhead is None else overhead[0],
        None if overhead is None else overhead[1],
    )


QUICK_SCALE = 0.05


def passes(*, quick: bool) -> int:
    """How often ``verify`` goes through the rows: once, and with narrower, wider and slower ones."""
    return 1 if quick else 4


def _load_matters(question: Question) -> bool:
    """Whether a step's length moves the answer and it is worth running again."""
    return isinstance(question, ShareQuestion | BatchQuestion | RatioQuestion | MaxRateQuestion)


def _bands(asked: list[Asked], on_row: OnRow) -> list[tuple[float, float] | None]:
    """Ours with the coefficients of variation 30 % lower and higher, for the rows with a tolerance."""
    sides = [
        predict(asked, Lab(cv_factor=factor), lambda q: isinstance(q, ShareQuestion | BatchQuestion), on_row)
        for factor in CV_FACTORS
    ]
    return [
        None if low.value is None or high.value is None else (low.value, high.value)
        for low, high in zip(*sides, strict=True)
    ]


def _implied_overhead(targets: list[Target], lab: Lab) -> tuple[float, str] | None:
    """(host overhead of a step in ms, where from): what the least loaded point of the paper's own engine implies.

    Nearly nobody waits there, so that a token takes a step: what its latency has beyond ours is what its steps took
    longer. FasterTransformer is another engine and is not looked at. None where the table has no such point.
    """
    points = [
        (question.rate_rps, target.low, question)
        for target in targets
        if isinstance(question := question_of(target.asked), LatencyQuestion)
        and question.system in (*ORCAS, PAGED)
        and question.sampling == Sampling()
        and target.low is not None
    ]
    if not points:
        return None
    rate, paper_s, question = min(points, key=lambda point: point[:2])
    ours_s = answer(question, lab)
    extra_ms = max(0.0, 1000 * (paper_s - ours_s))
    where = (
        f"{question.system} at {rate:g} req/s of {question.dataset} takes {paper_s:.4g} s a token in the paper and "
        f"{ours_s:.4g} s in ours"
    )
    return find_calibration("default").overhead_ms + extra_ms, where


def _plots(targets: list[Target]) -> dict[tuple[Server, str, Sampling], dict[str, Curve]]:
    """The paper's curves, by plot and system."""
    plots: dict[tuple[Server, str, Sampling], dict[str, Curve]] = {}
    for target in targets:
        question = question_of(target.asked)
        if isinstance(question, LatencyQuestion) and target.low is not None:
            plot = plots.setdefault((question.server, question.dataset, question.sampling), {})
            plot.setdefault(question.system, []).append((question.rate_rps, target.low))
    return {key: {system: sorted(curve) for system, curve in plot.items()} for key, plot in plots.items()}


def _order(targets: list[Target], lab: Lab) -> dict[str, list[Comparison]]:
    found = {}
    for (server, dataset, sampling), plot in _plots(targets).items():
        name = plot_name(server, dataset, sampling)
        latency_s = _Monotone(lab, server, dataset, sampling)
        try:
            found[name] = compare(plot, latency_s)
        except UnansweredError:
            continue
    return found


@dataclass
class _Monotone:
    """Our latency at a rate. Once a system is off the plot it is not simulated at higher rates: it stays there."""

    lab: Lab
    server: Server
    dataset: str
    sampling: Sampling
    off: dict[str, float] = field(default_factory=dict)

    def __call__(self, system: str, rate_rps: float) -> float:
        if rate_rps >= self.off.get(system, float("inf")):
            return float("inf")
        latency = answer(LatencyQuestion(self.server, system, self.dataset, rate_rps, self.sampling), self.lab)
        if latency > OFF_THE_PLOT_S:
            self.off[system] = rate_rps
        return latency


def _curves(rows: list[Row], lab: Lab) -> dict[tuple[str, str, str], Curve]:
    """Everything that was simulated with one sequence a request, for the plots."""
    kinds = LatencyQuestion | MaxRateQuestion | RatioQuestion
    servers = {row.question.server for row in rows if isinstance(row.question, kinds)}
    found = {}
    for server in sorted(servers, key=lambda server: server.model):
        for dataset in DATASETS:
            for name in ("FasterTransformer", *ORCAS, PAGED):
                points = lab.curve(system_of(name, server, dataset), server, dataset)
                if points:
                    found[server.model, dataset, name] = points
    return found


def plot_name(server: Server, dataset: str, sampling: Sampling) -> str:
    """A plot in words."""
    words = f"{server.model.upper()}, {dataset}"
    if sampling.sequences > 1:
        words += f", {'beam width' if sampling.beam else 'parallel samples'} {sampling.sequences}"
    return words


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
        "Poisson arrivals; one hour a trace as in the paper, or its first 20,000 requests; latencies leave out the "
        "requests of the first minute",
        f"step times: roofline of OPT in fp16 with the shipped calibration {calibration.name!r}, not fitted to the "
        f"paper: host overhead {calibration.overhead_ms:g} ms a step, {calibration.layer_overhead_us:g} us a layer",
        "slots: the paper's Table 1; blocks of 16 tokens; vLLM's scheduler as of 2023: prompts in the steps of the "
        "decodes, 2,560 tokens a step, 256 sequences, a watermark of 1 %, preemption by recompute",
        "Orca: prompt plus reserved output from a buddy allocator, first come first served, never preempted; "
        "FasterTransformer: batches of 5 (ShareGPT) and 14 (Alpaca) requests, as in the authors' scripts",
        "memory split: 4 req/s for 900 s, steps from 300 s on, and other rates and windows as in the authors' scripts "
        "(sosp-ae-39/sosp-ae-astra) where the paper states none; a buddy block's rounding counts as external",
    ]
    return lines

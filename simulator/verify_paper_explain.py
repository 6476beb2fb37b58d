"""The same rows under other assumptions: how much the lengths matter, and what explains a miss.

None of this is a prediction. The paper's answers are looked at in one place, ``implied_overhead``.
"""

from __future__ import annotations

from simulator.calibration import find_calibration
from simulator.verify_paper_lab import Lab
from simulator.verify_paper_lengths import DATASETS, SHAREGPT_AS_LMSYS
from simulator.verify_paper_predict import OnRow, answer, predict
from simulator.verify_paper_questions import (
    ORCAS,
    PAGED,
    BatchQuestion,
    BlockSizeQuestion,
    LatencyQuestion,
    MaxRateQuestion,
    Question,
    RatioQuestion,
    Sampling,
    ShareQuestion,
    question_of,
)
from simulator.verify_paper_targets import Asked, Target

CV_FACTORS = (0.7, 1.3)
EXPLANATIONS = {
    "lengths": "ShareGPT's lengths spread as those of LMSYS-Chat",
    "step time": "the paper's step time",
    "both": "both",
}
"""Other assumptions under which missed rows are computed again: explanations, never predictions."""


def explained(asked: list[Asked], overhead_ms: float | None, on_row: OnRow) -> list[dict[str, float]]:
    """Each row under each other assumption whose numbers are known."""
    spread = {**DATASETS, SHAREGPT_AS_LMSYS.name: SHAREGPT_AS_LMSYS}
    labs = {"lengths": (Lab(shapes=spread), _memory_matters)}
    if overhead_ms is not None:
        labs["step time"] = (Lab(step_overhead_ms=overhead_ms), _load_matters)
        labs["both"] = (Lab(shapes=spread, step_overhead_ms=overhead_ms), _memory_matters)
    found: list[dict[str, float]] = [{} for _ in asked]
    for name, (lab, matters) in labs.items():
        for row, prediction in zip(found, predict(asked, lab, matters, on_row), strict=True):
            if prediction.value is not None:
                row[name] = prediction.value
    return found


def _load_matters(question: Question) -> bool:
    """Whether a step's length moves the answer: not in an overloaded server, where memory decides.

    Of the rates only those of plain requests at 0.2 s a token are run again, of the block sizes ShareGPT's.
    """
    if isinstance(question, RatioQuestion | MaxRateQuestion):
        return question.latency_s == 0.2 and not question.prefix_tokens
    return isinstance(question, BatchQuestion) or (
        isinstance(question, BlockSizeQuestion) and question.dataset == SHAREGPT_AS_LMSYS.name
    )


def _memory_matters(question: Question) -> bool:
    """Whether ShareGPT's lengths move the answer to a question that a tolerance is stated for."""
    return isinstance(question, ShareQuestion | BatchQuestion) and question.dataset == SHAREGPT_AS_LMSYS.name


def bands(asked: list[Asked], on_row: OnRow) -> list[tuple[float, float] | None]:
    """Ours with the coefficients of variation 30 % lower and higher, for the rows with a tolerance."""
    sides = [
        predict(asked, Lab(cv_factor=factor), lambda q: isinstance(q, ShareQuestion | BatchQuestion), on_row)
        for factor in CV_FACTORS
    ]
    return [
        None if low.value is None or high.value is None else (low.value, high.value)
        for low, high in zip(*sides, strict=True)
    ]


def implied_overhead(targets: list[Target], lab: Lab) -> tuple[float, str] | None:
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
        and not question.prefix_tokens
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

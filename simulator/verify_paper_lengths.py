"""Request lengths of the PagedAttention paper's two datasets, of which only the means are published.

The shape is fixed beforehand: a log-normal law for the prompt and one for the output, drawn independently, with the
coefficients of variation of a public trace. Pairs longer than the model's context are left out, as the paper leaves
them out, and the means are the paper's *after* that cut: the laws' own means are a little higher, found by arithmetic
on whole numbers of tokens, no sampling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError
from workloads.workload import IntColumn

FloatColumn = NDArray[np.float64]

MAX_TOKENS = 2048
"""Context of the OPT models: prompt + output of a request."""

_ROUNDS = 200
_DRAWN_AT_ONCE = 4096
_GOOD_ENOUGH = 1e-6
_LONGEST_TAIL = 1 << 13
"""The laws are tabulated up to here; what is longer does not survive the cut."""


@dataclass(frozen=True)
class LengthShape:
    """Means in tokens after the cut, and coefficients of variation (standard deviation / mean) before it.

    ``cv_source`` says where the two coefficients come from; the means are the paper's (its Fig. 11).
    """

    name: str
    prompt_mean: float
    prompt_cv: float
    output_mean: float
    output_cv: float
    cv_source: str

    def widened(self, factor: float) -> LengthShape:
        """The same means with both coefficients of variation multiplied: how much does the shape matter?"""
        return replace(self, prompt_cv=self.prompt_cv * factor, output_cv=self.output_cv * factor)


SHAREGPT = LengthShape(
    name="ShareGPT",
    prompt_mean=161.31,
    prompt_cv=2.0382,
    output_mean=337.99,
    output_cv=0.5966,
    cv_source=(
        "5,678 first turns of ShareGPT conversations (rows whose prompt is too short to contain the row before), "
        "project-etalon/etalon, Llama-2 tokenizer"
    ),
)
ALPACA = LengthShape(
    name="Alpaca",
    prompt_mean=19.31,
    prompt_cv=1.9244,
    output_mean=58.45,
    output_cv=0.8998,
    cv_source="1,024 requests of LMSYS-Chat, single short turns (the nearest at hand), microsoft/apex_plus",
)
SHAREGPT_AS_LMSYS = replace(
    SHAREGPT,
    prompt_cv=ALPACA.prompt_cv,
    output_cv=ALPACA.output_cv,
    cv_source="LMSYS-Chat as for Alpaca: its outputs are not cut at 1,024 tokens, as those of the ShareGPT trace are",
)
"""Another answer to how ShareGPT's lengths spread, for explanations alone."""
WMT16 = LengthShape(
    name="WMT16",
    prompt_mean=30.0,
    prompt_cv=0.55,
    output_mean=42.0,
    output_cv=0.6,
    cv_source="assumed, means too: the paper gives none; news sentences of about 21 words, in LLaMA's tokens",
)
DATASETS = {shape.name: shape for shape in (SHAREGPT, ALPACA, WMT16)}


@dataclass(frozen=True)
class CutLaw:
    """Probabilities of every prompt and output length before the cut; index i is the length i + 1."""

    prompt: FloatColumn
    output: FloatColumn
    max_tokens: int

    def moments(self) -> tuple[float, float, float, float]:
        """(prompt mean, prompt cv, output mean, output cv) of what survives prompt + output <= max_tokens."""
        return (
            *_cut_moments(self.prompt, self.output, self.max_tokens),
            *_cut_moments(self.output, self.prompt, self.max_tokens),
        )

    def draw(self, prompts: np.random.Generator, outputs: np.random.Generator, n: int) -> tuple[IntColumn, IntColumn]:
        """The first ``n`` pairs that survive the cut: fewer pairs are the beginning of more.

        Each generator gives one number for each pair that is tried.
        """
        prompt_steps, output_steps = np.cumsum(self.prompt), np.cumsum(self.output)
        pairs = np.zeros((0, 2), dtype=np.int64)
        while len(pairs) < n:
            prompt = _pick(prompt_steps, prompts.random(_DRAWN_AT_ONCE))
            output = _pick(output_steps, outputs.random(_DRAWN_AT_ONCE))
            fits = prompt + output <= self.max_tokens
            pairs = np.concatenate([pairs, np.stack([prompt[fits], output[fits]], axis=1)])
        return pairs[:n, 0].copy(), pairs[:n, 1].copy()


def fitted_law(shape: LengthShape, max_tokens: int = MAX_TOKENS) -> CutLaw:
    """The two log-normal laws whose cut has the shape's means.

    Raises:
        InputError: the means cannot be reached, because the context is too short for the shape.
    """
    asked = (shape.prompt_mean, shape.output_mean)
    before = list(asked)
    for _ in range(_ROUNDS):
        law = CutLaw(_lognormal(before[0], shape.prompt_cv), _lognormal(before[1], shape.output_cv), max_tokens)
        prompt, _, output, _ = law.moments()
        if max(abs(prompt / asked[0] - 1), abs(output / asked[1] - 1)) < _GOOD_ENOUGH:
            return law
        before = [before[0] * asked[0] / prompt, before[1] * asked[1] / output]
        if max(before) > _LONGEST_TAIL:
            break
    raise InputError(
        f"no log-normal lengths with prompts of {shape.prompt_mean:g} (cv {shape.prompt_cv:g}) and outputs of "
        f"{shape.output_mean:g} tokens (cv {shape.output_cv:g}) fit into {max_tokens} tokens",
        where=f"lengths of {shape.name}",
        remedy="use smaller means or coefficients of variation",
    )


def _lognormal(mean: float, cv: float) -> FloatColumn:
    """Probabilities of 1, 2, ... tokens: the law rounded to whole tokens, below 1 counted as 1."""
    variance = math.log1p(cv * cv)
    mu, sigma = math.log(mean) - variance / 2, math.sqrt(variance)
    edges = np.arange(1, _LONGEST_TAIL) + 0.5  # a law rounds to i + 1 between edges i - 1 and i
    below = np.array([0.5 * math.erfc((mu - math.log(edge)) / (sigma * math.sqrt(2))) for edge in edges.tolist()])
    return np.diff(below, prepend=0.0)


def _cut_moments(one: FloatColumn, other: FloatColumn, max_tokens: int) -> tuple[float, float]:
    """Mean and cv of the first length, given that both together stay within the cut."""
    lengths = np.arange(1, max_tokens)
    room = np.cumsum(other)[max_tokens - lengths - 1]  # P(other <= max_tokens - length)
    weight = one[: max_tokens - 1] * room
    total = weight.sum()
    mean = float((weight * lengths).sum() / total)
    variance = float((weight * lengths * lengths).sum() / total) - mean * mean
    return mean, math.sqrt(variance) / mean


def _pick(steps: FloatColumn, numbers: FloatColumn) -> IntColumn:
    return np.minimum(np.searchsorted(steps, numbers, side="right"), len(steps) - 1).astype(np.int64) + 1

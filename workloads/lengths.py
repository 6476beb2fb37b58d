"""How long prompts and outputs are: one frozen dataclass a law, and one function that draws tokens.

Each law takes one random number a request from its own stream, so that a changed mean or another neighbour keeps
the order of long and short requests (common random numbers).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from workloads.checks import a_choice, a_count, a_number
from workloads.errors import WorkloadError
from workloads.workload import IntColumn

_MAX_TOKENS = 1 << 31


@dataclass(frozen=True)
class Fixed:
    """Always ``tokens``."""

    tokens: int
    kind: Literal["fixed"] = "fixed"


@dataclass(frozen=True)
class Uniform:
    """Every whole number from ``min`` to ``max``, both included, equally often."""

    min: int
    max: int
    kind: Literal["uniform"] = "uniform"


@dataclass(frozen=True)
class Lognormal:
    """exp(N(mu, sigma)) with sigma^2 = ln(1 + cv^2) and mu = ln(mean) - sigma^2/2, rounded, then clipped.

    ``mean`` and ``cv`` are those of the law before clipping to [min, max]; :func:`expected_tokens` gives the mean
    after it, and a workload notes it where it differs by more than 1 %.
    """

    mean: float
    cv: float
    min: int = 1
    max: int | None = None
    kind: Literal["lognormal"] = "lognormal"


@dataclass(frozen=True)
class Empirical:
    """Sampled with replacement from ``values``, or from the numbers in the file ``path``.

    The file: one number a line, or a table of which ``column`` is read (default: the only column).
    """

    values: tuple[int, ...] | None = None
    path: str | None = None
    column: str | None = None
    kind: Literal["empirical"] = "empirical"


Lengths = Fixed | Uniform | Lognormal | Empirical


@dataclass(frozen=True)
class Pairs:
    """Prompt and output drawn together, so that their correlation stays.

    From ``pairs`` or from the trace file ``path`` (any format that ``trace`` reads). ``order: sample`` draws with
    replacement; ``in_order`` takes them one after another and starts again at the end.
    """

    pairs: tuple[tuple[int, int], ...] | None = None
    path: str | None = None
    order: Literal["sample", "in_order"] = "sample"
    kind: Literal["pairs"] = "pairs"


def check_lengths(law: Lengths, where: str) -> None:
    """Raises WorkloadError for the first value of ``law`` that makes no sense."""
    if isinstance(law, Fixed):
        a_count(law.tokens, f"{where}.tokens", at_most=_MAX_TOKENS)
    elif isinstance(law, Uniform):
        a_count(law.min, f"{where}.min", at_most=_MAX_TOKENS)
        a_count(law.max, f"{where}.max", at_least=law.min, at_most=_MAX_TOKENS)
    elif isinstance(law, Lognormal):
        a_number(law.mean, f"{where}.mean", above=0, at_most=_MAX_TOKENS)
        a_number(law.cv, f"{where}.cv", at_least=0, at_most=100)
        a_count(law.min, f"{where}.min", at_most=_MAX_TOKENS)
        if law.max is not None:
            a_count(law.max, f"{where}.max", at_least=law.min, at_most=_MAX_TOKENS)
    else:
        _check_empirical(law, where)


def check_pairs(law: Pairs, where: str) -> None:
    """Raises WorkloadError for the first value of ``law`` that makes no sense."""
    a_choice(law.order, f"{where}.order", ("sample", "in_order"))
    if (law.pairs is None) == (law.path is None):
        raise WorkloadError("needs either pairs or path", where=where, remedy="give one of the two")
    if law.pairs is not None and not law.pairs:
        raise WorkloadError("is empty", where=f"{where}.pairs", remedy="give at least one [prompt, output]")
    for i, (prompt, output) in enumerate(law.pairs or ()):
        a_count(prompt, f"{where}.pairs.{i}.0", at_most=_MAX_TOKENS)
        a_count(output, f"{where}.pairs.{i}.1", at_most=_MAX_TOKENS)


def draw_lengths(
    law: Lengths, rng: np.random.Generator, n: int, *, base_dir: Path | None = None, where: str = "lengths"
) -> IntColumn:
    """``n`` lengths in tokens, each >= 1. ``base_dir``: what relative paths start from."""
    if isinstance(law, Fixed):
        return np.full(n, law.tokens, dtype=np.int64)
    if isinstance(law, Uniform):
        offset = np.floor(rng.random(n) * (law.max - law.min + 1)).astype(np.int64)
        return law.min + offset
    if isinstance(law, Lognormal):
        mu, sigma = _mu_sigma(law)
        drawn = np.exp(mu + sigma * rng.standard_normal(n))
        top = _MAX_TOKENS if law.max is None else law.max
        return np.clip(np.rint(np.minimum(drawn, top)), law.min, top).astype(np.int64)
    values = empirical_values(law, base_dir=base_dir, where=where)
    picked: IntColumn = values[np.floor(rng.random(n) * len(values)).astype(np.int64)]
    return picked


def expected_tokens(law: Lengths, *, base_dir: Path | None = None) -> float:
    """The mean of what :func:`draw_lengths` gives.

    For a lognormal X clipped to [a, b] (Phi: normal distribution function, z(x) = (ln x - mu)/sigma):
    E = a*Phi(z(a)) + mean*(Phi(z(b) - sigma) - Phi(z(a) - sigma)) + b*(1 - Phi(z(b))).
    Rounding to whole tokens is left out; it moves the mean by a small part of a token.
    """
    if isinstance(law, Fixed):
        return float(law.tokens)
    if isinstance(law, Uniform):
        return (law.min + law.max) / 2
    if isinstance(law, Lognormal):
        mu, sigma = _mu_sigma(law)
        low, high = float(law.min), float(law.max if law.max is not None else _MAX_TOKENS)
        if sigma == 0:
            return min(max(law.mean, low), high)
        za, zb = (math.log(low) - mu) / sigma, (math.log(high) - mu) / sigma
        middle = law.mean * (_normal_cdf(zb - sigma) - _normal_cdf(za - sigma))
        return low * _normal_cdf(za) + middle + high * (1 - _normal_cdf(zb))
    return float(empirical_values(law, base_dir=base_dir).mean())


def empirical_values(law: Empirical, *, base_dir: Path | None = None, where: str = "lengths") -> IntColumn:
    """The lengths an empirical law samples from."""
    if law.values is not None:
        return np.asarray(law.values, dtype=np.int64)
    from workloads.traces.numbers_file import read_numbers

    path = Path(law.path or "")
    return read_numbers(path if base_dir is None else base_dir / path, column=law.column, where=f"{where}.path")


def _check_empirical(law: Empirical, where: str) -> None:
    if (law.values is None) == (law.path is None):
        raise WorkloadError("needs either values or path", where=where, remedy="give one of the two")
    if law.values is not None and not law.values:
        raise WorkloadError("is empty", where=f"{where}.values", remedy="give at least one length")
    if law.column is not None and law.path is None:
        raise WorkloadError("names a column, but there is no file", where=f"{where}.column", remedy="give path")
    for i, value in enumerate(law.values or ()):
        a_count(value, f"{where}.values.{i}", at_most=_MAX_TOKENS)


def _mu_sigma(law: Lognormal) -> tuple[float, float]:
    variance = math.log1p(law.cv**2)
    return math.log(law.mean) - variance / 2, math.sqrt(variance)


def _normal_cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))

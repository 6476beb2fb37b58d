"""Prompts that begin alike: groups of requests with one common prefix (a system prompt, a shared document)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from workloads.checks import a_choice, a_count, a_number
from workloads.lengths import Lengths, check_lengths, draw_lengths
from workloads.workload import IntColumn


@dataclass(frozen=True)
class SharedPrefix:
    """``groups`` prefixes; each request takes one of them, and its own ``prompt_tokens`` follow.

    Attributes:
        prefix_tokens: length of a group's prefix, drawn once a group.
        popularity: ``uniform``, or ``zipf``: group g (from 1) has weight g**-zipf_exponent.
        share: part of the requests that have a prefix at all.
    """

    prefix_tokens: Lengths = field(metadata={"discriminator": "kind"})
    groups: int = 1
    popularity: Literal["uniform", "zipf"] = "uniform"
    zipf_exponent: float = 1.0
    share: float = 1.0
    kind: Literal["shared_prefix"] = "shared_prefix"


def check_prefix(prefix: SharedPrefix, where: str) -> None:
    """Raises WorkloadError for the first value of ``prefix`` that makes no sense."""
    check_lengths(prefix.prefix_tokens, f"{where}.prefix_tokens")
    a_count(prefix.groups, f"{where}.groups", at_most=10_000_000)
    a_choice(prefix.popularity, f"{where}.popularity", ("uniform", "zipf"))
    a_number(prefix.zipf_exponent, f"{where}.zipf_exponent", above=0)
    a_number(prefix.share, f"{where}.share", at_least=0, at_most=1)


def draw_groups(prefix: SharedPrefix, rng: np.random.Generator, n: int) -> IntColumn:
    """The group of each of ``n`` requests, or -1 for a request without a prefix."""
    ranks = np.arange(1, prefix.groups + 1, dtype=np.float64)
    weights = ranks**-prefix.zipf_exponent if prefix.popularity == "zipf" else np.ones_like(ranks)
    edges = np.cumsum(weights) / weights.sum()
    uniforms = rng.random((n, 2))  # two numbers a request, so that more requests continue the sequence
    groups = np.minimum(np.searchsorted(edges, uniforms[:, 0], side="right"), prefix.groups - 1)
    return np.where(uniforms[:, 1] < prefix.share, groups, -1).astype(np.int64)


def draw_prefix_tokens(prefix: SharedPrefix, rng: np.random.Generator) -> IntColumn:
    """Tokens of each group's prefix."""
    return draw_lengths(prefix.prefix_tokens, rng, prefix.groups)

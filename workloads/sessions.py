"""Conversations: a user sends a turn, reads the answer, thinks, and sends the next turn with all that came before."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from workloads.checks import a_choice, a_count, a_number
from workloads.lengths import Lengths, check_lengths
from workloads.workload import PS_PER_S, IntColumn


@dataclass(frozen=True)
class ThinkTime:
    """Pause between an answer's end and the next turn: seconds, ``constant``, ``exponential`` or ``lognormal``."""

    mean_s: float
    law: Literal["constant", "exponential", "lognormal"] = "constant"
    cv: float = 1.0


@dataclass(frozen=True)
class Sessions:
    """Every arrival opens a session of ``turns`` requests.

    Turn t's prompt is the prompt of turn t-1, its output, and ``prompt_tokens`` new tokens; it arrives ``think``
    after the end of turn t-1. ``max_context_tokens`` ends a session before the turn whose prompt and output would
    pass it (the first turn always stands).
    """

    turns: Lengths = field(metadata={"discriminator": "kind"})
    think: ThinkTime = field(default_factory=lambda: ThinkTime(mean_s=0.0))
    max_context_tokens: int | None = None
    kind: Literal["multi_turn"] = "multi_turn"


def check_sessions(sessions: Sessions, where: str) -> None:
    """Raises WorkloadError for the first value of ``sessions`` that makes no sense."""
    check_lengths(sessions.turns, f"{where}.turns")
    a_number(sessions.think.mean_s, f"{where}.think.mean_s", at_least=0, at_most=1e6)
    a_choice(sessions.think.law, f"{where}.think.law", ("constant", "exponential", "lognormal"))
    a_number(sessions.think.cv, f"{where}.think.cv", at_least=0, at_most=100)
    if sessions.max_context_tokens is not None:
        a_count(sessions.max_context_tokens, f"{where}.max_context_tokens", at_least=2)


def draw_think_ps(think: ThinkTime, rng: np.random.Generator, n: int) -> IntColumn:
    """``n`` pauses in picoseconds."""
    if think.law == "constant":
        seconds = np.full(n, think.mean_s)
    elif think.law == "exponential":
        seconds = think.mean_s * rng.standard_exponential(n)
    else:
        variance = math.log1p(think.cv**2)
        seconds = think.mean_s * np.exp(math.sqrt(variance) * rng.standard_normal(n) - variance / 2)
    # the clock holds 9.2e6 s
    pauses: IntColumn = np.rint(np.minimum(seconds, 9e6) * PS_PER_S).astype(np.int64)
    return pauses

"""Prompt and output lengths drawn together."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from workloads.lengths import Pairs
from workloads.workload import IntColumn


def draw_pairs(
    law: Pairs, rng: np.random.Generator, n: int, *, base_dir: Path | None = None, where: str = "lengths"
) -> IntColumn:
    """``n`` rows of (prompt tokens, output tokens), shape (n, 2)."""
    if law.pairs is not None:
        known = np.asarray(law.pairs, dtype=np.int64)
    else:
        from workloads.traces.config import TraceConfig
        from workloads.traces.load import load_trace

        rows = load_trace(TraceConfig(path=law.path or ""), base_dir=base_dir, where=where)
        known = np.stack([rows.prompt_tokens, rows.output_tokens], axis=1)
    if law.order == "in_order":
        index = np.arange(n) % len(known)
    else:
        index = np.floor(rng.random(n) * len(known)).astype(np.int64)
    return known[index]

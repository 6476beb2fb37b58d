"""What a benchmark tool measured on a real server: figures to hold a prediction against; no simulation reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatColumn = NDArray[np.float64]

LATENCIES = ("ttft", "tpot", "itl", "e2el")
STATISTICS = {"mean": None, "median": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}
"""Those of ``result.json`` that tools state too, and their percentiles."""

KEYS = (
    *("duration", "request_throughput", "output_throughput", "total_token_throughput"),
    *(f"{statistic}_{name}_ms" for name in LATENCIES for statistic in STATISTICS),
)
"""Keys of ``result.json`` that can be compared, in the order in which they are shown."""


@dataclass(frozen=True)
class Measured:
    """Figures of one benchmark of a real server.

    Attributes:
        tool: who measured.
        model: the model's name as the tool knew it; empty where it does not say.
        values: by key of ``result.json`` (one of ``KEYS``, in their order): ms, seconds, or per second.
        from_details: the keys that the tool itself does not state: computed here, from its request details, with
            vLLM's formulas and linear percentiles.
        requests: successful requests behind the values.
        failed: requests that failed or were cut off; they loaded the server, and are not simulated.
        itl: what the percentiles of ``itl`` are of: all ``gaps`` between tokens, or ``request_means``, each
            request's mean gap with the number of its gaps as weight (guidellm). The mean is the same.
        notes: what else to know of the figures.
        differs: how the simulated load differs from the measured one, one sentence each; empty where it does not.
    """

    tool: str
    values: dict[str, float]
    from_details: tuple[str, ...]
    requests: int
    failed: int = 0
    model: str = ""
    itl: Literal["gaps", "request_means"] = "gaps"
    notes: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()


def statistics(name: str, values_ms: list[float] | FloatColumn) -> dict[str, float]:
    """The statistics of one latency; empty where it was not measured (a tool without streaming writes zeros)."""
    column = np.asarray(values_ms, dtype=np.float64)
    if len(column) == 0 or column.max() <= 0:
        return {}
    with np.errstate(all="ignore"):  # damaged files hold 1e308
        return {
            f"{statistic}_{name}_ms": float(column.mean() if percent is None else np.percentile(column, percent))
            for statistic, percent in STATISTICS.items()
        }


def combined(stated: dict[str, float], computed: dict[str, float]) -> tuple[dict[str, float], tuple[str, ...]]:
    """The tool's own figures, completed by computed ones, in the order of ``KEYS``; and which are computed.

    What is not above zero and finite was not measured.
    """
    both = computed | stated
    kept = {key: both[key] for key in KEYS if key in both and 0 < both[key] < np.inf}
    return kept, tuple(key for key in kept if key not in stated)

"""One small load, as every benchmark tool would have sent it, and what must be read from its result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.random_streams import Streams
from tests.bench_results import Served
from workloads.build import build_workload
from workloads.config import WorkloadConfig
from workloads.traces.config import TraceConfig
from workloads.traces.load import TraceRows, load_trace
from workloads.workload import PS_PER_S, Workload

SERVED = [
    Served(0.0, 100, 11, 0.050, 0.010),
    Served(0.5, 200, 1, 0.070),
    Served(0.75, 30, 5, 0.100, 0.030, error="Traceback (most recent call last):\nTimeoutError"),
    Served(2.0, 40, 21, 0.080, 0.020),
]
GOOD = [one for one in SERVED if not one.error]
MS = PS_PER_S // 1000


def put(folder: Path, value: Any, name: str = "result.json") -> str:
    lines = "\n".join(json.dumps(row) for row in value) if isinstance(value, list) else json.dumps(value)
    (folder / name).write_text(lines)
    return str(folder / name)


def load(folder: Path, value: Any, name: str = "result.json", **options: Any) -> TraceRows:
    return load_trace(TraceConfig(path=put(folder, value, name), **options))


def build(path: str, *, trace: dict[str, Any] | None = None, **fields: Any) -> Workload:
    return build_workload(WorkloadConfig(trace=TraceConfig(path=path, **(trace or {})), **fields), Streams(0))


def check_load(rows: TraceRows, file_format: str) -> None:
    assert rows.facts.format == file_format and rows.facts.rows_read == 4 and rows.facts.rows_dropped == 1
    assert rows.prompt_tokens.tolist() == [100, 200, 40] and rows.output_tokens.tolist() == [11, 1, 21]
    assert rows.measured is not None and rows.measured.requests == 3 and rows.measured.failed == 1


def check_details(rows: TraceRows) -> None:
    """Latencies that follow from the requests, worked out here from what was served."""
    assert rows.measured is not None
    values = rows.measured.values
    expected = {
        "ttft": [1000 * one.ttft_s for one in GOOD],
        "tpot": [1000 * one.gap_s for one in GOOD if one.output > 1],
        "e2el": [1000 * one.latency_s for one in GOOD],
    }
    if rows.facts.format != "guidellm":
        expected["itl"] = [1000 * gap for one in GOOD for gap in one.gaps_s]
    for name, column in expected.items():
        for statistic, value in (
            ("mean", np.mean(column)),
            ("median", np.median(column)),
            ("p90", np.percentile(column, 90)),
            ("p95", np.percentile(column, 95)),
            ("p99", np.percentile(column, 99)),
        ):
            key = f"{statistic}_{name}_ms"
            assert key in rows.measured.from_details, key
            assert values[key] == pytest.approx(float(value), rel=1e-6), key


def differs_of(workload: Workload) -> str:
    assert workload.measured is not None
    return "; ".join(workload.measured.differs)

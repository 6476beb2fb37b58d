"""Workloads from a trace file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from workloads.config import WorkloadConfig
from workloads.errors import WorkloadError
from workloads.traces.config import TraceConfig
from workloads.workload import Workload


def workload_from_trace(
    config: WorkloadConfig,
    trace: TraceConfig,
    streams: Callable[[str], np.random.Generator],
    *,
    base_dir: Path | None,
    where: str,
) -> Workload:
    """The workload of a checked configuration with a trace."""
    raise WorkloadError("traces cannot be read yet", where=f"{where}.trace")

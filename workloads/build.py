"""The one entrance: a workload's configuration to its columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from workloads.config import WorkloadConfig, check_workload
from workloads.from_trace import workload_from_trace
from workloads.pace import paced
from workloads.synthetic import synthesize
from workloads.workload import Workload

__all__ = ["Streams", "WorkloadConfig", "build_workload", "check_workload"]

Streams = Callable[[str], np.random.Generator]
"""A fresh generator for a name: the same name always starts the same sequence."""


def build_workload(
    config: WorkloadConfig, streams: Streams, *, base_dir: Path | None = None, where: str = "workload"
) -> Workload:
    """The columns of ``config``.

    Args:
        streams: gives each consumer its own generator, named for what it draws (``workload.arrivals``,
            ``workload.prompt_tokens``, ``workload.classes.chat.output_tokens``, ...), so that adding one shifts
            no other.
        base_dir: the folder that relative paths start from (default: the current one).
        where: dotted path of ``config``, for errors.

    Raises:
        WorkloadError: a value that makes no sense, a file that cannot be read, or an empty workload.
    """
    check_workload(config, where)
    if config.trace is not None:
        found = workload_from_trace(config, config.trace, streams, base_dir=base_dir, where=where)
    else:
        found = synthesize(config, streams, base_dir=base_dir, where=where)
    if config.rate_rps is not None:
        found = paced(found, config.rate_rps, f"{where}.rate_rps")
    sequences = max(config.n, config.beam_width)
    if sequences == 1:
        return found
    searched = config.beam_width > 1
    what = f"keeps {sequences} beams" if searched else f"asks for {sequences} answers"
    return replace(
        found,
        sequences=np.full(len(found), sequences, dtype=np.int64),
        beam=np.full(len(found), searched),
        notes=(*found.notes, f"each request {what}, all as long as output_tokens says"),
    )

"""What a workload and the members of a fleet must be before they can run together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.errors import InputError
from simulator.members import Member
from simulator.schedulers.config import EngineConfig
from workloads.workload import Workload


def limits_of(members: Sequence[Member]) -> dict[str, int]:
    """The engines' limits, the highest where they differ."""
    engines = list(dict.fromkeys(member.engine for member in members))
    return {
        "max_num_seqs": max(engine.running_limit for engine in engines),
        "max_num_batched_tokens": max(engine.max_num_batched_tokens for engine in engines),
        "max_model_len": max(engine.max_model_len for engine in engines),
    }


def check_workload(workload: Workload, members: Sequence[Member]) -> None:
    """Raises InputError: arrivals out of order, or sequences that a member's engine does not know."""
    _check_order(workload)
    for engine in dict.fromkeys(member.engine for member in members):
        _check_sequences(workload, engine)


def _check_order(workload: Workload) -> None:
    """Rows that wait for no other must stand in order of arrival: whoever sends them reads them in turn."""
    alone = workload.after < 0
    gaps = np.diff(workload.arrival_ps[alone])
    if (gaps < 0).any():
        row = int(alone.nonzero()[0][int((gaps < 0).argmax()) + 1])
        raise InputError(
            f"request {workload.request_id(row)!r} arrives before the one in front of it",
            where=f"workload row {row}",
            remedy="sort the rows by arrival (Workload.sorted_by_arrival)",
        )


def _check_sequences(workload: Workload, engine: EngineConfig) -> None:
    """Only vLLM v0 has requests of several sequences."""
    if workload.sequences is None or engine.policy.kind == "vllm-v0" or (workload.sequences == 1).all():
        return
    row = int((workload.sequences != 1).argmax())
    raise InputError(
        f"request {workload.request_id(row)!r} asks for {workload.sequences[row]} sequences, which "
        f"{engine.policy.kind} serves as requests of their own",
        where=f"workload row {row}",
        remedy="expand the workload first (workloads.samples.expand_samples)",
    )

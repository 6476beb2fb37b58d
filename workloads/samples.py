"""Requests for several answers, written out as one request for each: for servers that know no groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from workloads.errors import WorkloadError
from workloads.lazy_rows import LazyRows, Row
from workloads.workload import Workload


def expand_samples(workload: Workload) -> Workload:
    """One row per sequence: ids ``<id>-0``, ``<id>-1``, ..., the arrival, lengths and prompt of the request.

    vLLM v1's front end sends n child requests in the same way; Orca and FasterTransformer reserve memory for each.
    The prompts of the rows of one request are the same tokens, so a prefix cache shares them. Beams become
    independent samples: without groups nothing can follow them. A request with one sequence keeps its id. A closed
    loop's ``max_concurrency`` counts rows.

    Raises:
        WorkloadError: rows that follow others (sessions): which answer the next turn continues is not known.
    """
    sequences = workload.sequences
    if sequences is None or (sequences == 1).all():
        return replace(workload, sequences=None, beam=None)
    if (workload.after >= 0).any():
        raise WorkloadError(
            "a session's next turn continues one answer, but requests here ask for several",
            where="workload.sequences",
            remedy="ask for one sequence, or leave sessions out",
        )
    parent = np.repeat(np.arange(len(workload)), sequences)
    sample = np.arange(len(parent)) - np.repeat(np.cumsum(sequences) - sequences, sequences)
    several = sequences[parent] > 1
    names = [
        f"{workload.request_id(row)}-{i}" if more else workload.request_id(row)
        for row, i, more in zip(parent.tolist(), sample.tolist(), several.tolist(), strict=True)
    ]
    return replace(
        workload,
        arrival_ps=workload.arrival_ps[parent],
        prompt_tokens=workload.prompt_tokens[parent],
        output_tokens=workload.output_tokens[parent],
        class_index=workload.class_index[parent],
        priority=workload.priority[parent],
        after=workload.after[parent],
        think_ps=workload.think_ps[parent],
        request_ids=names,
        segments=_PromptsOfParents(workload, parent.tolist()),
        sequences=None,
        beam=None,
    )


class _PromptsOfParents(LazyRows):
    """The prompt of each row's parent; one that is private to the parent is its stream ``p:<id>``."""

    def __init__(self, workload: Workload, parent: list[int]) -> None:
        self._workload = workload
        self._parent = parent

    def __len__(self) -> int:
        return len(self._parent)

    def _row(self, row: int) -> Row:
        workload, parent = self._workload, self._parent[row]
        segments = None if workload.segments is None else workload.segments[parent]
        if segments is not None:
            return segments
        return ((f"p:{workload.request_id(parent)}", 0, int(workload.prompt_tokens[parent])),)

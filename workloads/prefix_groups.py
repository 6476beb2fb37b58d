"""Which requests begin alike: the prefix that each session names, for routers that keep such requests together."""

from __future__ import annotations

import numpy as np

from workloads.prompt_segments import PromptSegments
from workloads.workload import IntColumn, Workload


def session_roots(workload: Workload) -> IntColumn:
    """The first row of each row's session: the row itself where it follows nobody."""
    roots = np.arange(len(workload), dtype=np.int64)
    follows = workload.after >= 0
    while follows.any():  # as often as the longest session has turns, at most
        before = np.where(workload.after[roots] >= 0, workload.after[roots], roots)
        if np.array_equal(before, roots):
            break
        roots = before
    return roots


def prefix_groups(workload: Workload) -> tuple[IntColumn, list[str]]:
    """(group of each row, names of the groups): rows are in one group if their prompts begin with the same stream.

    A group of -1: the workload names no prefix for the row, or only one that is the row's own. All turns of a session
    are in the group of its first turn.
    """
    rows = workload.segments
    if rows is None:
        return np.full(len(workload), -1, dtype=np.int64), []
    if isinstance(rows, PromptSegments):
        groups, names = rows.prefixes()
        return groups[session_roots(workload)], names
    numbers: dict[str, int] = {}
    groups = np.full(len(workload), -1, dtype=np.int64)
    roots = session_roots(workload)
    for row in np.unique(roots).tolist():
        segments = rows[row]
        name = segments[0][0] if segments else None
        if name is not None and name != f"p:{workload.request_id(row)}" and name != f"r:{row}":
            groups[row] = numbers.setdefault(name, len(numbers))
    return groups[roots], list(numbers)

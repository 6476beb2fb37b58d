"""Errors of the workloads room, which knows nothing of the simulator's own tree."""

from __future__ import annotations


class WorkloadError(ValueError):
    """A workload that cannot be built: what is wrong, where, and a change that would work.

    The CLI turns it into exit code 2 (bad input), as ``simulator.errors.InputError``.
    """

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head} ({self.remedy})" if self.remedy else head

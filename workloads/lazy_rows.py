"""Token identities of prompts, made a row at a time when asked for: a million rows hold no tuples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import overload

from workloads.workload import Segment

Row = tuple[Segment, ...] | None


class LazyRows(Sequence[Row]):
    """A sequence whose rows ``_row`` makes, from 0 to ``len`` - 1."""

    @abstractmethod
    def _row(self, row: int) -> Row: ...

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [self._row(i) for i in range(*index.indices(len(self)))]
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(index)
        return self._row(row)

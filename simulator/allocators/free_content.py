"""What the free blocks of a cache still hold, oldest first: single blocks that may be shared, and runs that cannot.

Popping takes the oldest content; within a request's run that is its end, because a freed table enters last block
first. Free blocks without content are alike. Where they stand before all others they need no place here; where they
wait their turn with the rest (vLLM before May 2026) they are *blank* runs.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

NOBODY = -1


@dataclass(slots=True)
class PrivateRun:
    """Free cached blocks ``start`` to ``end`` - 1 of a row; nobody else can have this content.

    A blank run is a number of blocks without content, of row ``NOBODY``.
    """

    row: int
    start: int
    end: int


class FreeContent:
    """The free cached blocks in the order in which they will be reused. An *item* is a block or a run.

    Invariant: ``blocks`` counts the blocks of all items; no run is empty, and a row has one at most (blank ones apart).
    """

    __slots__ = ("_order", "_runs", "blocks")

    def __init__(self) -> None:
        self._order: OrderedDict[int, PrivateRun | None] = OrderedDict()  # item -> its run; None: a single block
        self._runs: dict[int, int] = {}  # row -> item
        self.blocks = 0

    def __contains__(self, item: int) -> bool:
        return item in self._order

    def run(self, row: int) -> PrivateRun | None:
        """The row's run."""
        item = self._runs.get(row)
        return None if item is None else self._order[item]

    def add(self, block: int) -> None:
        """A single block is free from now on."""
        self._order[block] = None
        self.blocks += 1

    def add_run(self, item: int, run: PrivateRun) -> None:
        """A run is free from now on."""
        self._order[item] = run
        self._runs[run.row] = item
        self.blocks += run.end - run.start

    def add_blank(self, item: int, blocks: int) -> None:
        """So many blocks without content are free from now on."""
        if blocks:
            self._order[item] = PrivateRun(NOBODY, 0, blocks)
            self.blocks += blocks

    def remove(self, block: int) -> None:
        """A single block is in use again."""
        del self._order[block]
        self.blocks -= 1

    def take_run(self, run: PrivateRun) -> None:
        """All of a run is in use again."""
        del self._order[self._runs.pop(run.row)]
        self.blocks -= run.end - run.start

    def single_out(self, run: PrivateRun) -> int:
        """Leaves only the last block of a run, as a single block in the run's place; the others are in use again."""
        item = self._runs.pop(run.row)
        self._order[item] = None
        self.blocks -= run.end - run.start - 1
        return item

    def pop(self, count: int) -> tuple[list[int], int]:
        """Reuses the ``count`` oldest blocks, which must be there.

        Returns the single ones among them, and how many of all had content.
        """
        order = self._order
        self.blocks -= count
        singles: list[int] = []
        cached = count
        while count:
            item = next(iter(order))
            run = order[item]
            if run is None:
                singles.append(item)
                count -= 1
            else:
                taken = min(count, run.end - run.start)
                count -= taken
                if run.row == NOBODY:
                    cached -= taken
                if run.start + taken < run.end:
                    run.end -= taken
                    break
                if run.row != NOBODY:
                    del self._runs[run.row]
            del order[item]
        return singles, cached

    def check(self) -> None:
        """Raises AssertionError when the invariant is broken."""
        runs = {run.row: item for item, run in self._order.items() if run and run.row != NOBODY}
        assert runs == self._runs
        assert all(run.start < run.end for run in self._order.values() if run is not None)
        lengths = [1 if run is None else run.end - run.start for run in self._order.values()]
        assert self.blocks == sum(lengths)

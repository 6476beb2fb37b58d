"""Real free extents over a row of slots: first fit, best fit and buddy, so that holes really happen.

Slots are numbered 0 .. num_slots - 1. An *extent* is a run of slots in a row. Every pool keeps one promise:
the free extents and the extents handed out together cover every slot exactly once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

Fit = Literal["first", "best", "buddy"]


@dataclass(frozen=True, order=True)
class Extent:
    """A run of ``length`` slots from slot ``start``. A buddy pool's may be longer than was asked for."""

    start: int
    length: int

    @property
    def end(self) -> int:
        """The first slot after the run."""
        return self.start + self.length


class ExtentPool(Protocol):
    """What a contiguous layout asks of its slots."""

    num_slots: int

    @property
    def free_slots(self) -> int:
        """Slots that nobody holds."""
        ...

    @property
    def largest_free_run(self) -> int:
        """Length of the longest extent that an allocation could get now; 0 when nothing is free."""
        ...

    @property
    def largest_when_empty(self) -> int:
        """Length of the longest extent that an allocation could ever get."""
        ...

    def free_extents(self) -> list[Extent]:
        """The free extents, by address."""
        ...

    def allocate(self, slots: int) -> Extent | None:
        """An extent of at least ``slots`` slots, or None with nothing changed."""
        ...

    def release(self, extent: Extent) -> None:
        """Takes back an extent exactly as ``allocate`` gave it. Raises ValueError for any other."""
        ...

    def check(self) -> None:
        """Raises AssertionError when slots are lost, listed twice or not joined."""
        ...


def external_fragmentation(pool: ExtentPool) -> float:
    """Share of the free slots outside the longest free run: 1 - largest / free; 0 when nothing is free."""
    free = pool.free_slots
    return 1 - pool.largest_free_run / free if free else 0.0


def binary_pieces(slots: int) -> list[int]:
    """The powers of two that sum to ``slots``, largest first: 20 -> [16, 4]."""
    return [1 << bit for bit in reversed(range(slots.bit_length())) if slots >> bit & 1]


def power_of_two_at_least(slots: int) -> int:
    """The smallest power of two >= ``slots``; 1 for ``slots`` <= 1."""
    return 1 << max(0, slots - 1).bit_length()


def extent_pool(num_slots: int, fit: Fit) -> ExtentPool:
    """An empty pool with the named rule for choosing a free extent."""
    return BuddyExtents(num_slots) if fit == "buddy" else FitExtents(num_slots, fit)


def _check_size(slots: int, what: str) -> None:
    if slots < 1:
        raise ValueError(f"{what} must be at least 1 slot, got {slots}")


def _check_cover(num_slots: int, free: list[Extent], taken: list[Extent]) -> None:
    position = 0
    for extent in sorted([*free, *taken]):
        assert extent.length >= 1, f"{extent} is empty"
        assert extent.start == position, f"slots {position} to {extent.start} are lost or listed twice"
        position = extent.end
    assert position == num_slots, f"the extents end at slot {position} of {num_slots}"


class FitExtents:
    """First fit (lowest address) or best fit (shortest that is long enough, then lowest address).

    Invariant: free extents never touch each other (they are joined on release); ``_starts`` (addresses,
    ascending) and ``_by_size`` ((length, start), ascending) list the same extents; with ``_taken`` they cover
    every slot once.
    """

    def __init__(self, num_slots: int, fit: Literal["first", "best"]) -> None:
        _check_size(num_slots, "a pool")
        self.num_slots = num_slots
        self.fit = fit
        self.free_slots = 0
        self._starts: list[int] = []
        self._length_at: dict[int, int] = {}
        self._by_size: list[tuple[int, int]] = []
        self._taken: dict[int, int] = {}
        self._insert(0, num_slots)

    @property
    def largest_free_run(self) -> int:
        return self._by_size[-1][0] if self._by_size else 0

    @property
    def largest_when_empty(self) -> int:
        return self.num_slots

    def free_extents(self) -> list[Extent]:
        return [Extent(start, self._length_at[start]) for start in self._starts]

    def allocate(self, slots: int) -> Extent | None:
        _check_size(slots, "an extent")
        if slots > self.largest_free_run:
            return None
        if self.fit == "first":
            start = next(start for start in self._starts if self._length_at[start] >= slots)
        else:
            start = self._by_size[bisect_left(self._by_size, (slots, 0))][1]
        length = self._remove(start)
        if length > slots:
            self._insert(start + slots, length - slots)
        self._taken[start] = slots
        return Extent(start, slots)

    def release(self, extent: Extent) -> None:
        if self._taken.get(extent.start) != extent.length:
            raise ValueError(f"{extent} is not an extent that this pool handed out")
        del self._taken[extent.start]
        start, end = extent.start, extent.end
        right = bisect_left(self._starts, start)
        if right < len(self._starts) and self._starts[right] == end:
            end += self._remove(end)
        if right > 0 and (left := self._starts[right - 1]) + self._length_at[left] == start:
            self._remove(left)
            start = left
        self._insert(start, end - start)

    def check(self) -> None:
        free = self.free_extents()
        _check_cover(self.num_slots, free, [Extent(start, length) for start, length in self._taken.items()])
        assert all(a.end < b.start for a, b in pairwise(free)), "free extents are not joined"
        assert self._by_size == sorted((e.length, e.start) for e in free), "the size list differs"
        assert self.free_slots == sum(e.length for e in free), "the count of free slots differs"
        assert len(self._length_at) == len(free)

    def _insert(self, start: int, length: int) -> None:
        insort(self._starts, start)
        insort(self._by_size, (length, start))
        self._length_at[start] = length
        self.free_slots += length

    def _remove(self, start: int) -> int:
        length = self._length_at.pop(start)
        del self._starts[bisect_left(self._starts, start)]
        del self._by_size[bisect_left(self._by_size, (length, start))]
        self.free_slots -= length
        return length


class BuddyExtents:
    """Buddy allocator: extents are powers of two; a request for n slots gets the next power of two >= n.

    A pool that is not a power of two is cut into its binary pieces, largest first (20 = 16 + 4), so that each
    piece starts at a multiple of its own length and a block's buddy is ``start XOR length`` everywhere: the
    buddy of a whole piece lies past the pool or starts a longer piece, and is never free at that length.

    Invariant: every extent is a power of two at a multiple of its length; two buddies are never both free
    (they are joined on release); free and taken extents cover every slot once.
    """

    def __init__(self, num_slots: int) -> None:
        _check_size(num_slots, "a pool")
        self.num_slots = num_slots
        self.free_slots = num_slots
        self._free: dict[int, list[int]] = {1 << bit: [] for bit in range(num_slots.bit_length())}
        self._taken: dict[int, int] = {}
        start = 0
        for length in binary_pieces(num_slots):
            self._free[length].append(start)
            start += length

    @property
    def largest_free_run(self) -> int:
        """The longest free buddy block: neighbours that are not buddies cannot be handed out as one."""
        return max((length for length, starts in self._free.items() if starts), default=0)

    @property
    def largest_when_empty(self) -> int:
        return binary_pieces(self.num_slots)[0]

    def free_extents(self) -> list[Extent]:
        return sorted(Extent(start, length) for length, starts in self._free.items() for start in starts)

    def allocate(self, slots: int) -> Extent | None:
        _check_size(slots, "an extent")
        wanted = power_of_two_at_least(slots)
        # Lengths ascend in the dict, so this is the shortest block that is long enough.
        length = next((n for n, starts in self._free.items() if n >= wanted and starts), None)
        if length is None:
            return None
        start = self._free[length].pop(0)
        while length > wanted:
            length //= 2
            insort(self._free[length], start + length)
        self._taken[start] = wanted
        self.free_slots -= wanted
        return Extent(start, wanted)

    def release(self, extent: Extent) -> None:
        if self._taken.get(extent.start) != extent.length:
            raise ValueError(f"{extent} is not an extent that this pool handed out")
        del self._taken[extent.start]
        self.free_slots += extent.length
        start, length = extent.start, extent.length
        while self._drop_free(start ^ length, length):
            start = min(start, start ^ length)
            length *= 2
        insort(self._free[length], start)

    def check(self) -> None:
        free = self.free_extents()
        taken = [Extent(start, length) for start, length in self._taken.items()]
        _check_cover(self.num_slots, free, taken)
        assert self.free_slots == sum(e.length for e in free), "the count of free slots differs"
        for extent in [*free, *taken]:
            assert extent.length & (extent.length - 1) == 0, f"{extent} is not a power of two"
            assert extent.start % extent.length == 0, f"{extent} is not aligned to its length"
        known = set(free)
        for e in free:
            assert Extent(e.start ^ e.length, e.length) not in known, f"{e} and its buddy are not joined"
        for starts in self._free.values():
            assert starts == sorted(starts), "a free list is out of order"

    def _drop_free(self, start: int, length: int) -> bool:
        starts = self._free[length]
        at = bisect_left(starts, start)
        if at == len(starts) or starts[at] != start:
            return False
        del starts[at]
        return True

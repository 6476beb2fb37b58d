"""What every allocator of KV slots offers, at the level of data: no clock and no scheduler.

A *slot* holds the keys and values of one token. Slots are numbered 0 .. total_slots - 1 (a paged pool with a
null block numbers that block's slots too). A refused operation raises ``CacheFull`` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from simulator.errors import KvplanError

RequestId = Hashable


class CacheFull(KvplanError):
    """An operation that the free slots cannot serve; nothing has changed."""


@dataclass(frozen=True)
class MemoryUsage:
    """Where the slots are. token + reserved + internal + free = total; external is a part of free.

    Attributes:
        total_slots: usable slots of the pool.
        token_slots: slots that hold a token; a slot that several requests share counts once.
        reserved_slots: empty slots that their request will fill before it ends.
        internal_slots: empty slots inside a request's holding that it will never fill.
        external_slots: free slots outside the longest run that could be handed out (0 in a paged pool).
        free_slots: slots that nobody holds.
    """

    total_slots: int
    token_slots: int
    reserved_slots: int
    internal_slots: int
    external_slots: int
    free_slots: int

    @property
    def allocated_slots(self) -> int:
        """Slots that requests hold, filled or not."""
        return self.token_slots + self.reserved_slots + self.internal_slots

    @property
    def wasted_slots(self) -> int:
        """Allocated slots minus stored tokens: the lesson's "wasted" column."""
        return self.reserved_slots + self.internal_slots


@dataclass(frozen=True)
class Placement:
    """Where an appended token goes.

    Attributes:
        slot: the token's slot.
        copied: (from block, to block) when the write first copies a shared block, else None.
    """

    slot: int
    copied: tuple[int, int] | None = None


class KvAllocator(Protocol):
    """One pool of slots and the requests that hold them.

    Unknown request ids raise KeyError, an id that is already there or a negative size ValueError.
    """

    @property
    def total_slots(self) -> int:
        """Usable slots of the pool."""
        ...

    def requests(self) -> list[RequestId]:
        """Ids of the requests that hold slots, in the order in which they came."""
        ...

    def add(
        self,
        request_id: RequestId,
        prompt_tokens: int,
        output_tokens: int = 0,
        *,
        stored_tokens: int | None = None,
    ) -> None:
        """Places a request that will end with ``prompt_tokens + output_tokens`` tokens.

        ``stored_tokens``: how many it stores at once (default: its prompt). Raises CacheFull.
        """
        ...

    def append(self, request_id: RequestId) -> Placement:
        """Stores one more token. Raises CacheFull."""
        ...

    def free(self, request_id: RequestId) -> None:
        """Gives back what the request holds."""
        ...

    def tokens(self, request_id: RequestId) -> int:
        """Tokens that the request stores."""
        ...

    def slots(self, request_id: RequestId) -> list[int]:
        """The slot of each stored token, by position."""
        ...

    def usage(self) -> MemoryUsage:
        """Where all the slots are."""
        ...

    def check(self) -> None:
        """Raises AssertionError when a slot is lost, double-booked or listed twice."""
        ...


@runtime_checkable
class Forks(Protocol):
    """An allocator whose requests can share slots."""

    def fork(self, parent_id: RequestId, child_id: RequestId) -> None:
        """A new request that shares all the parent's tokens and has the parent's size; takes no slot."""
        ...


def checked_store(prompt_tokens: int, output_tokens: int, stored_tokens: int | None) -> int:
    """Tokens stored at once (default: the prompt). Raises ValueError for sizes that make no sense."""
    stored = prompt_tokens if stored_tokens is None else stored_tokens
    if prompt_tokens < 0 or output_tokens < 0:
        raise ValueError(f"negative size: {prompt_tokens} prompt and {output_tokens} output tokens")
    if not 0 <= stored <= prompt_tokens + output_tokens:
        raise ValueError(f"{stored} stored tokens of a request of {prompt_tokens} + {output_tokens}")
    return stored

"""What one prefill batch of SGLang may still take: memory, input tokens and the chunk."""

from __future__ import annotations

from enum import Enum

from simulator.allocators.kv_cache import KvCache

CLIP_NEW_TOKENS = 4096
"""Estimates take no request for longer than this many output tokens."""


class Verdict(Enum):
    """What an attempt to add a request says of the next one."""

    CONTINUE = 0
    NO_TOKEN = 1  # memory is promised away
    OTHER = 2  # the batch has its tokens


class PrefillBudget:
    """The budgets of one pass (SGLang 0.5.23, ``PrefillAdder`` and ``PrefillBudget``); all in tokens.

    ``promised`` is what running requests may still grow to plus what this pass has given away; ``taken`` is the part
    of it that this pass takes at once. ``chunk`` None is chunked prefill off. Cached tokens that nobody uses count as
    free: they make room for whoever needs it.
    """

    __slots__ = ("_kv", "_page", "chunk", "input", "promised", "taken")

    def __init__(self, kv: KvCache, promised: float, input_tokens: int, chunk: int | None) -> None:
        self._kv = kv
        self._page = kv.pool.block_size
        self.promised = promised
        self.taken = 0
        self.input = input_tokens
        self.chunk = chunk

    def paged(self, tokens: int) -> int:
        """Rounded up to whole pages."""
        return -(-tokens // self._page) * self._page

    @property
    def remaining(self) -> float:
        """Tokens that nobody was promised."""
        return self._kv.free_units * self._page - self.promised

    @property
    def remaining_now(self) -> int:
        """Tokens that nobody has; some of them are promised."""
        return self._kv.free_units * self._page - self.taken

    def charge(self, tokens: int, new_tokens: int) -> None:
        """A request joins the batch with ``tokens`` to compute; ``new_tokens`` are promised to its output."""
        paged = self.paged(tokens)
        self.promised += paged + self._page + new_tokens
        self.taken += paged + self._page
        self.input -= paged
        if self.chunk is not None:
            self.chunk -= paged

    def verdict(self) -> Verdict:
        """Whether the batch takes more."""
        if self.remaining <= 0 or self.remaining_now <= 0:
            return Verdict.NO_TOKEN
        if self.input <= 0 or (self.chunk is not None and self.chunk <= 0):
            return Verdict.OTHER
        return Verdict.CONTINUE

"""What one KV group needs, lets go of and keeps cached: full attention and sliding windows (SCHEDULERS.md 8)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from simulator.allocators.group_shape import KvGroupShape


@dataclass(frozen=True)
class GroupRules:
    """The rules of one group; token counts are of one request.

    Attributes:
        block_size: tokens of a block.
        window_tokens: how far back the layers see, the current token included; None: everything.
        alignment_tokens: hits end on multiples of this (the least common multiple of all groups' block sizes).
        admission_blocks: most blocks that the full-sequence rule counts here; None: all that the tokens need.
        retention_tokens: a window group keeps a cached tail once in so many tokens; 0: only where prompts end and
            shared prefixes part; None: at every multiple of ``alignment_tokens``.
    """

    block_size: int
    window_tokens: int | None
    alignment_tokens: int
    admission_blocks: int | None
    retention_tokens: int | None

    @classmethod
    def of(
        cls,
        shape: KvGroupShape,
        alignment_tokens: int,
        retention_tokens: int | None,
        max_model_len: int,
        tokens_in_flight: int,
    ) -> GroupRules:
        """``tokens_in_flight``: most tokens that the batches under way compute together."""
        cap = None
        if shape.window_tokens is not None:
            seen = min(shape.window_tokens - 1 + tokens_in_flight, max_model_len)
            cap = -(-seen // shape.block_size) + 1
        return cls(shape.block_size, shape.window_tokens, alignment_tokens, cap, retention_tokens)

    @property
    def tail_blocks(self) -> int:
        """Blocks before a position that must be cached for a hit there (window groups)."""
        assert self.window_tokens is not None
        return -(-(self.window_tokens - 1) // self.block_size)

    def blocks(self, tokens: int) -> int:
        """Blocks that ``tokens`` tokens fill, those out of the window included."""
        return -(-tokens // self.block_size)

    def admission_need(self, tokens: int) -> int:
        """Blocks that the full-sequence rule counts."""
        blocks = self.blocks(tokens)
        return blocks if self.admission_blocks is None else min(blocks, self.admission_blocks)

    def skipped_blocks(self, done_tokens: int) -> int:
        """Blocks wholly out of the window once ``done_tokens`` tokens are computed."""
        if self.window_tokens is None:
            return 0
        return max(0, done_tokens - self.window_tokens + 1) // self.block_size

    def kept(self, start: int, end: int, prompt_tokens: int, junction_tokens: int) -> Iterable[int]:
        """Which of the full blocks ``start`` to ``end`` - 1 of a request are to be cached, ascending.

        ``junction_tokens``: where a prefix that it shares ends, as far as another type of layers has it cached;
        0: nowhere.
        """
        if self.window_tokens is None:
            return range(start, end)
        tail = self.tail_blocks
        kept: set[int] = set()
        segment = self.alignment_tokens if self.retention_tokens is None else self.retention_tokens
        if segment:
            period = segment // self.block_size
            if tail >= period:
                return range(start, end)
            kept.update(i for i in range(start, end) if i % period >= period - tail)
        if self.retention_tokens is not None:
            for boundary in (prompt_tokens - 1, junction_tokens):
                last = boundary // self.alignment_tokens * self.alignment_tokens // self.block_size
                kept.update(range(max(start, last - tail), min(end, last)))
        return sorted(kept)

"""The shape of one KV group: which blocks a group of layers draws from the shared pool."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KvGroupShape:
    """A group of layers that draws its own blocks from the pool: each holds ``block_size`` tokens of these layers.

    ``window_tokens``: layers that see only so many tokens back; None: layers that keep every token.
    """

    block_size: int
    window_tokens: int | None = None

"""The shape of one KV group: which blocks a group of layers draws from the shared pool."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from simulator.errors import InputError


@dataclass(frozen=True)
class KvGroupShape:
    """A group of layers that draws its own blocks from the pool: each holds ``block_size`` tokens of these layers.

    ``window_tokens``: layers that see only so many tokens back; None: layers that keep every token.
    """

    block_size: int
    window_tokens: int | None = None


def check_shapes(
    groups: tuple[KvGroupShape, ...], alignment_tokens: int, retention_interval: int | None, *, caching: bool
) -> None:
    """Raises InputError for group sizes that vLLM refuses too."""
    smallest = gcd(*(shape.block_size for shape in groups))
    if smallest < 1:
        raise InputError("block_size must be at least 1", where="engine.block_size", remedy="set block_size: 16")
    for shape in groups:
        if shape.window_tokens is not None and shape.window_tokens < 1:
            raise InputError(
                f"a sliding window of {shape.window_tokens} tokens",
                where="kv_groups",
                remedy="give the window its size in tokens, or none to keep every token",
            )
    sliding = any(shape.window_tokens is not None for shape in groups)
    if caching and sliding and retention_interval and retention_interval % alignment_tokens:
        raise InputError(
            f"prefix_cache_retention_interval {retention_interval} is no multiple of {alignment_tokens}, "
            "where hits can end",
            where="engine.prefix_cache_retention_interval",
            remedy=f"set a multiple of {alignment_tokens}, or 0",
        )

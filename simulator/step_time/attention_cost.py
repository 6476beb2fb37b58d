"""Attention as integers: picoseconds per context token of decodes, and the time of prefill chunks."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.step_time.rank_work import RankAttention
from simulator.step_time.rates import Rates

PS_PER_S = 10**12
AS_PER_PS = 10**6
_AS_PER_S = 10**18


def causal_pairs(chunk_tokens: int, context_after: int, window: int | None) -> int:
    """(query, key) pairs of a chunk whose last token sees ``context_after`` tokens: Σ min(j, window), exactly."""
    first = context_after - chunk_tokens  # tokens in the cache before the chunk
    if window is None or context_after <= window:
        return _triangle(context_after) - _triangle(first)
    if first >= window:
        return chunk_tokens * window
    return _triangle(window) - _triangle(first) + (context_after - window) * window


def keys_read(chunk_tokens: int, context_after: int, window: int | None) -> int:
    """Context tokens whose K and V a chunk needs: each once, tiles of queries share them."""
    return context_after if window is None else min(context_after, window + chunk_tokens - 1)


def _triangle(n: int) -> int:
    return n * (n + 1) // 2


@dataclass(frozen=True)
class PrefillCost:
    """Prefill attention of the layers with one window, in attoseconds: a (query, key) pair is about 1 ps.

    ``cached_as`` is per token that the cache held before the chunk: what it takes to project K and V up from latents
    (MLA), again for every chunk; those of the chunk's own tokens are made by its linear layers.
    """

    window: int | None
    pair_as: int
    key_as: int
    cached_as: int

    def chunk_as(self, chunk_tokens: int, context_after: int) -> int:
        """max(FLOPs, KV read) of one request's chunk, over all layers of the group."""
        attention_as = max(
            self.pair_as * causal_pairs(chunk_tokens, context_after, self.window),
            self.key_as * keys_read(chunk_tokens, context_after, self.window),
        )
        return attention_as + self.cached_as * (context_after - chunk_tokens)


def prefill_key_s(group: RankAttention, rates: Rates) -> float:
    """Seconds to read K and V of one context token in one layer, in the form that prompts attend to."""
    if group.expanded_bytes:
        return group.expanded_bytes / rates.activations_bytes_per_s
    return group.kv_bytes / rates.kv_bytes_per_s


def cached_sides_s(group: RankAttention, rates: Rates) -> tuple[float, float]:
    """Seconds (by bytes, by FLOPs) to project K and V of one cached token up: latent read, K and V written."""
    if not group.up_flops:
        return 0.0, 0.0
    bytes_s = group.kv_bytes / rates.kv_bytes_per_s + group.expanded_bytes / rates.activations_bytes_per_s
    return bytes_s, group.up_flops / rates.dense.flop_per_s


@dataclass(frozen=True)
class AttentionCost:
    """Integer coefficients, each rounded once.

    Attributes:
        context_ps: per token of the decodes' context, layers without a window. Both sides of the roofline are
            proportional to the context, so one of them wins for good: no knot.
        windows: distinct windows, rising.
        window_ps: per token of Σ min(context, window), in the order of ``windows``.
        request_ps: per scheduled request: recurrent state, read and written once.
        prefill: one per group of layers.
    """

    context_ps: int
    windows: tuple[int, ...]
    window_ps: tuple[int, ...]
    request_ps: int
    prefill: tuple[PrefillCost, ...]

    def prefill_ps(self, prefills: list[tuple[int, int]]) -> int:
        """Attention of (chunk_tokens, context_after) of every prefilling request."""
        total = sum(cost.chunk_as(chunk, context) for cost in self.prefill for chunk, context in prefills)
        return -(-total // AS_PER_PS)


def attention_cost(groups: tuple[RankAttention, ...], rates: Rates) -> AttentionCost:
    """Coefficients of one rank's attention layers."""
    attending = [group for group in groups if group.kv_bytes > 0.0]
    windows = tuple(sorted({group.window for group in attending if group.window is not None}))

    def decode_ps(window: int | None) -> int:
        return round(
            PS_PER_S
            * sum(
                group.count * max(group.kv_bytes / rates.kv_bytes_per_s, group.flops / rates.attention_flop_per_s)
                for group in attending
                if group.window == window
            )
        )

    state_bytes = sum(group.count * group.state_bytes for group in groups)
    return AttentionCost(
        context_ps=decode_ps(None),
        windows=windows,
        window_ps=tuple(decode_ps(window) for window in windows),
        request_ps=round(PS_PER_S * 2.0 * state_bytes / rates.activations_bytes_per_s),
        prefill=tuple(
            PrefillCost(
                window=group.window,
                pair_as=round(_AS_PER_S * group.count * group.prefill_flops / rates.attention_flop_per_s),
                key_as=round(_AS_PER_S * group.count * prefill_key_s(group, rates)),
                cached_as=round(_AS_PER_S * group.count * max(cached_sides_s(group, rates))),
            )
            for group in attending
        ),
    )

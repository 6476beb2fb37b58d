"""KV cache groups: how the layers of one model share one pool of blocks (vLLM's rules, SCHEDULERS.md sections 7, 8).

Layers that keep the same thing form a type. One type: one group, a block holds ``block_size`` tokens of all its
layers. Several types: groups of equally many layers, so that a block of any group takes the same bytes; a request
needs the sum over the groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from simulator.specs import DTYPE_BITS, AttentionLayers, ModelSpec

KERNEL_BLOCK_TOKENS = 16  # attention kernels want multiples of this
SPARSE_FP8 = "fp8_ds_mla"
_LATENT_SCALE_GROUP = 128  # fp8_ds_mla: one float32 scale per 128 latent values, rotary part in 16 bit
# Recurrent groups: the running state, and with prefix caching one checkpoint beside it. Vouched for by vLLM's logs of
# Qwen3.6-35B-A3B (0.24: 567,978 tokens from 5.98 GiB) and Qwen3.6-27B.
_STATE_BLOCKS = 1
_STATE_BLOCKS_CACHING = 2


@dataclass(frozen=True)
class LayerPage:
    """What one layer keeps on one rank: bytes a token, or a fixed state a sequence."""

    kind: str  # full | sliding | chunked | linear
    token_bytes: Fraction
    state_bytes: int = 0
    window_tokens: int | None = None

    @property
    def type_key(self) -> tuple[str, int | None, Fraction, int]:
        return self.kind, self.window_tokens, self.token_bytes, self.state_bytes


@dataclass(frozen=True)
class KvGroup:
    """Layers that live in the same blocks. ``layers`` are indices into the model's layers."""

    kind: str
    block_tokens: int
    layers: tuple[int, ...]
    window_tokens: int | None = None
    state_blocks: int = 0

    def blocks(self, tokens: int, batched_tokens: int) -> int:
        """Blocks a request of ``tokens`` tokens needs here at most, computed in chunks of ``batched_tokens``."""
        if self.kind == "linear":
            return self.state_blocks
        if self.kind == "sliding" and self.window_tokens is not None:
            seen = min(self.window_tokens - 1 + batched_tokens, tokens)
            return _ceil_div(seen, self.block_tokens) + 1
        return _ceil_div(tokens, self.block_tokens)


@dataclass(frozen=True)
class KvLayout:
    """The groups of a model on the ranks of one pipeline stage.

    Attributes:
        bytes_per_block: on one rank, whatever the group.
        block_size: tokens a block of the first attention group holds.
    """

    groups: tuple[KvGroup, ...]
    bytes_per_block: int
    block_size: int
    notes: tuple[str, ...] = ()

    def blocks_per_request(self, tokens: int, batched_tokens: int) -> int:
        return sum(group.blocks(tokens, batched_tokens) for group in self.groups)


def effective_kv_dtype(model: ModelSpec, kv_cache_dtype: str) -> str:
    """Sparse MLA (DeepSeek-V3.2, GLM-5) keeps fp8 with scales and a 16-bit rotary part: the layout fp8_ds_mla."""
    sparse = any(group.indexer_bytes for group in model.attention)
    return SPARSE_FP8 if sparse and kv_cache_dtype.startswith("fp8") else kv_cache_dtype


def kv_value_bytes(kv_cache_dtype: str) -> Fraction:
    """Bytes a cached value takes; 4-bit formats with their scales."""
    if kv_cache_dtype in ("nvfp4", "fp4"):
        return Fraction(9, 16)  # 4 bits and one fp8 scale per 16 values
    if kv_cache_dtype == SPARSE_FP8:
        return Fraction(1)
    return Fraction(DTYPE_BITS[kv_cache_dtype], 8)


def layer_page(
    shape: AttentionLayers, tensor_parallel_size: int, kv_cache_dtype: str, *, windows: bool = True
) -> LayerPage | None:
    """What a layer keeps on one rank; None where it keeps nothing. ``windows=False`` counts every token.

    KV heads are split over the ranks and replicated where there are fewer; MLA's one latent stands on every rank.
    """
    if shape.kind in ("none", "cross"):
        return None
    if shape.kind == "linear":
        return LayerPage("linear", Fraction(0), _ceil_div(shape.state_bytes, tensor_parallel_size))
    value = kv_value_bytes(kv_cache_dtype)
    if shape.kind == "mla":
        return LayerPage("full", latent_bytes(shape, kv_cache_dtype, value) + shape.indexer_bytes)
    heads = max(1, shape.kv_heads // tensor_parallel_size)
    token_bytes = heads * (shape.head_dim_k + shape.head_dim_v) * value
    # vLLM sizes chunked layers as full ones: its hybrid manager is off for chunked local attention.
    if shape.kind == "sliding" and windows:
        return LayerPage("sliding", token_bytes, window_tokens=shape.window_tokens)
    return LayerPage("full", token_bytes)


def latent_bytes(shape: AttentionLayers, kv_cache_dtype: str, value: Fraction) -> Fraction:
    if kv_cache_dtype == SPARSE_FP8:
        rank = shape.latent_rank
        rope = shape.head_dim_k - rank
        return Fraction(rank + _ceil_div(rank, _LATENT_SCALE_GROUP) * 4 + 2 * rope)
    return shape.head_dim_k * value


def kv_layout(
    model: ModelSpec,
    *,
    tensor_parallel_size: int,
    block_size: int,
    kv_cache_dtype: str,
    stage: range | None = None,
    windows: bool = True,
    prefix_caching: bool = True,
    max_model_len: int | None = None,
) -> KvLayout:
    """The groups of the whole model, and what a block weighs on a rank of ``stage`` (default: all layers)."""
    kv_cache_dtype = effective_kv_dtype(model, kv_cache_dtype)
    pages = {
        index: page
        for index, layer in enumerate(model.layers)
        if (page := layer_page(layer.attention, tensor_parallel_size, kv_cache_dtype, windows=windows))
    }
    here = stage if stage is not None else range(model.num_layers)
    types: dict[tuple[str, int | None, Fraction, int], list[int]] = {}
    for index, page in pages.items():
        types.setdefault(page.type_key, []).append(index)
    if not pages:
        return KvLayout((), 0, block_size)
    kinds = {(page.kind, page.window_tokens) for page in pages.values()}
    state_blocks = _STATE_BLOCKS_CACHING if prefix_caching else _STATE_BLOCKS
    if len(kinds) == 1:
        return _uniform(pages, here, block_size, state_blocks, max_model_len or model.max_model_len)
    return _hybrid(pages, list(types.values()), here, block_size, state_blocks)


def _uniform(pages: dict[int, LayerPage], here: range, block_size: int, state_blocks: int, length: int) -> KvLayout:
    """One type: a block holds block_size tokens of every layer, or one sequence's state of all layers."""
    first = next(iter(pages.values()))
    members = tuple(pages)
    if first.kind == "linear":
        group = KvGroup("linear", length, members, state_blocks=state_blocks)
        return KvLayout((group,), sum(pages[i].state_bytes for i in members if i in here), length)
    group = KvGroup(first.kind, block_size, members, first.window_tokens)
    size = block_size * sum((pages[i].token_bytes for i in members if i in here), Fraction(0))
    return KvLayout((group,), int(size), block_size)


def _hybrid(
    pages: dict[int, LayerPage], types: list[list[int]], here: range, block_size: int, state_blocks: int
) -> KvLayout:
    """Several types: equal groups, one page size."""
    counts = [len(members) for members in types]
    size = max(counts) if max(counts) < 1.5 * min(counts) else min(counts)
    token_bytes = max(page.token_bytes for page in pages.values())
    state = max(page.state_bytes for page in pages.values())
    notes: list[str] = []
    if state:
        least = KERNEL_BLOCK_TOKENS * _ceil_div(state, int(KERNEL_BLOCK_TOKENS * token_bytes))
        if least > block_size:
            notes.append(f"block_size raised from {block_size} to {least}: one block must hold a recurrent state")
            block_size = least
    page_bytes = int(block_size * token_bytes)
    groups: list[KvGroup] = []
    for members in types:
        page = pages[members[0]]
        tokens = block_size
        if page.token_bytes and page.token_bytes < token_bytes:
            # The smaller type gets more tokens a block; what does not divide is padding.
            tokens = block_size * int(token_bytes // page.token_bytes)
        number = _ceil_div(len(members), size)
        kept = state_blocks if page.kind == "linear" else 0
        groups += [
            KvGroup(page.kind, tokens, tuple(members[start::number]), page.window_tokens, kept)
            for start in range(number)
        ]
    most = max(sum(1 for index in group.layers if index in here) for group in groups)
    return KvLayout(tuple(groups), page_bytes * most, block_size, tuple(notes))


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)

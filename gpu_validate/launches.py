"""What is launched, whatever the machine: kernel, grid, threads, arguments in the order of the kernel's parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_validate.variants import Variant

Array = Any  # a NumPy array, or a CuPy array of the same shape


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes:
        kernel: its name, in ``kernel_source.FILES`` and in the source.
        shared_bytes: of dynamic shared memory.
        arguments: arrays, and NumPy scalars of the kernel's own types (int32, float32).
        outputs: places of the arrays that the kernel writes.
    """

    kernel: str
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    arguments: tuple[Any, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class DecodeArrays:
    """A case's arrays where the kernel reads them, see ``cases.Case``; bits, not floats."""

    queries: Array
    k_pool: Array
    v_pool: Array
    tables: Array
    lengths: Array


def decode_launches(
    variant: Variant,
    arrays: DecodeArrays,
    output: Array,
    empty: Callable[[tuple[int, ...]], Array],
    *,
    scale: float,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> tuple[Launch, ...]:
    """Decode attention into ``output``: one launch, and the merge after it where there are splits.

    Args:
        empty: makes a float32 array of a shape, for the splits' partial results.
    """
    batch, heads, head_dim = arrays.queries.shape
    kv_heads, splits, row_blocks = heads // variant.group, variant.splits, arrays.tables.shape[1]
    parts = (batch, heads, splits) if splits > 1 else (1, 1, 1)
    partials, stats = empty((*parts, head_dim)), empty((*parts, 2))
    geometry = variant.geometry()
    decode = Launch(
        "paged_decode",
        (kv_heads, batch, splits),
        geometry.threads,
        geometry.shared_bytes,
        (
            output,
            partials,
            stats,
            arrays.queries,
            arrays.k_pool,
            arrays.v_pool,
            arrays.tables,
            arrays.lengths,
            np.int32(row_blocks),
            np.float32(scale),
            np.float32(k_scale),
            np.float32(v_scale),
        ),
        (0, 1, 2),
    )
    if splits == 1:
        return (decode,)
    arguments = (output, partials, stats, np.int32(splits), np.float32(v_scale))
    return decode, Launch("merge_splits", (heads, batch, 1), -(-head_dim // 32) * 32, 0, arguments, (0,))


def append_launch(
    k_pool: Array,
    v_pool: Array,
    new: tuple[Array, Array],
    tables: Array,
    positions: Array,
    *,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> Launch:
    """One token a sequence: ``new`` = keys and values [batch, kv_heads, head_dim] in the queries' format."""
    batch, kv_heads = new[0].shape[:2]
    numbers = (np.int32(tables.shape[1]), np.int32(kv_heads), np.float32(k_scale), np.float32(v_scale))
    return Launch("append", (batch, 1, 1), 128, 0, (k_pool, v_pool, *new, tables, positions, *numbers), (0, 1))


def copy_launch(k_pool: Array, v_pool: Array, pairs: Array) -> Launch:
    """Whole blocks from ``pairs[:, 0]`` to ``pairs[:, 1]`` in both pools."""
    block_vectors = k_pool[0].nbytes // 16
    pieces = max(1, min(16, block_vectors // 1024))  # four vectors a thread
    return Launch(
        "copy_blocks", (len(pairs), 2, pieces), 256, 0, (k_pool, v_pool, pairs, np.int32(block_vectors)), (0, 1)
    )

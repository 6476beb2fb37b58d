"""One decode step's writes: what a BlockManager does when each sequence stores a token, as work for the kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpu_validate.cases import Case, Shape, case_of, fill, pool_bits, tables_of
from gpu_validate.number_formats import Bits, Floats, to_bits, to_floats
from gpu_validate.variants import Variant


@dataclass(frozen=True)
class AppendCase:
    """Pools before and after, and what the kernels are told.

    Attributes:
        before: pools as they stand, tables as they are after the blocks were taken.
        pairs: [n, 2] blocks to copy first (copy-on-write).
        new: keys and values [batch, kv_heads, head_dim] of the tokens, in the queries' format.
        positions: [batch] int32, negative for a sequence that stores nothing.
        k_copied, v_copied: pools after the copies. k_after, v_after: after the tokens too.
    """

    before: Case
    pairs: NDArray[np.int32]
    new: tuple[Bits, Bits]
    positions: NDArray[np.int32]
    k_copied: Bits
    v_copied: Bits
    k_after: Bits
    v_after: Bits


def append_shape(variant: Variant, seed: int) -> Shape:
    """Sequences that share a half-full block, fill one, begin one, and one of no token."""
    size = variant.block_size
    prefix = size + (size + 1) // 2
    lengths = (prefix, 0, prefix, size, 2 * size - 1, prefix, 2 * size + 1, 1)
    return Shape(lengths, kv_heads=3, prefix=prefix, seed=seed)


def make_append_case(variant: Variant, shape: Shape) -> AppendCase:
    """A step in which every sequence but the last stores one token."""
    rng = np.random.default_rng([shape.seed, 1, variant.head_dim, variant.block_size])
    manager, batch = fill(variant, shape, rng), len(shape.lengths)
    before = case_of(variant, shape, manager, rng)
    new_shape = (2, batch, shape.kv_heads, variant.head_dim)
    spread = np.where(rng.random(new_shape) < 0.02, 2000.0, 4.0)  # fp8 saturates, and has small numbers
    numbers = rng.standard_normal(new_shape) * spread * rng.random(new_shape) ** 4
    numbers[:, 0, 0, :4] = np.inf, -np.inf, np.nan, 448.0
    new = to_bits(numbers, variant.dtype)
    stored = [_stored(new[i], scale, variant) for i, scale in enumerate((before.k_scale, before.v_scale))]
    pairs, positions = [], np.full(batch, -1, dtype=np.int32)
    for i in range(batch - 1):
        old = list(manager.tables[i])
        positions[i] = manager.lengths[i]
        manager.append(i, stored[0][i].reshape(-1), stored[1][i].reshape(-1))
        changed = manager.tables[i]
        if len(changed) == len(old) and changed != old:
            pairs.append((old[-1], changed[-1]))
    copied = [pool.copy() for pool in (before.k_pool, before.v_pool)]
    for source, target in pairs:
        for pool in copied:
            pool[target] = pool[source]
    return AppendCase(
        before=replace(before, tables=tables_of(manager, batch)),
        pairs=np.array(pairs, dtype=np.int32).reshape(-1, 2),
        new=(new[0], new[1]),
        positions=positions,
        k_copied=copied[0],
        v_copied=copied[1],
        k_after=pool_bits(manager.k_pool, variant, shape.kv_heads),
        v_after=pool_bits(manager.v_pool, variant, shape.kv_heads),
    )


def _stored(new: Bits, scale: float, variant: Variant) -> Floats:
    """What the cache keeps of a token: itself, or the nearest fp8 of the float32 quotient by the scale."""
    values = to_floats(new, variant.dtype)
    if variant.kv_dtype != "fp8_e4m3":
        return values
    quotient = values.astype(np.float32) / np.float32(scale)
    return to_floats(to_bits(quotient.astype(np.float64), variant.kv_dtype), variant.kv_dtype)

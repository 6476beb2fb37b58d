"""Test cases for the kernels: caches that a BlockManager filled, with everything that a wrong kernel could trip on.

A case's blocks lie in a random order, sequences are built in turns so that their blocks alternate, some share a prefix
whose last block was copied on write, and every slot that no sequence owns is not-a-number, the tails of last blocks
too. Table entries past a sequence's end name a block that does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu_validate.number_formats import Bits, Floats, round_to, to_bits
from gpu_validate.reference import BlockManager
from gpu_validate.variants import Variant

_NO_BLOCK = 1 << 20  # read as a table entry, it leads outside every pool


@dataclass(frozen=True)
class Case:
    """One launch's inputs, as bits, and the same numbers as floats.

    Attributes:
        queries: [batch, num_heads, head_dim] bits.
        k_pool, v_pool: [num_blocks, block_size, kv_heads, head_dim] bits; contiguous: [batch, row_blocks, ...].
        tables: [batch, row_blocks] int32; unread by a contiguous kernel.
        lengths: [batch] int32.
        scale: of the softmax, a float32. k_scale, v_scale: what a stored key and value count.
        keys, values: of each sequence [tokens, kv_heads, head_dim], exactly the stored numbers (scales not applied).
    """

    queries: Bits
    k_pool: Bits
    v_pool: Bits
    tables: NDArray[np.int32]
    lengths: NDArray[np.int32]
    scale: float
    k_scale: float
    v_scale: float
    keys: tuple[Floats, ...]
    values: tuple[Floats, ...]

    @property
    def batch(self) -> int:
        return len(self.lengths)

    @property
    def kv_heads(self) -> int:
        return int(self.k_pool.shape[-2])

    @property
    def row_blocks(self) -> int:
        """Entries a row of the tables, blocks a row of contiguous pools."""
        return int(self.tables.shape[1])


@dataclass(frozen=True)
class Shape:
    """What a case has beside its variant.

    Attributes:
        lengths: tokens of each sequence.
        prefix: tokens that all sequences long enough share; 0 for none.
        spread: standard deviation of the scores. Near 0 all tokens weigh alike, at 3 a few outweigh the rest.
        level: mean of the scores. Far below 0 they vanish where a maximum does not begin at minus infinity.
    """

    lengths: tuple[int, ...]
    kv_heads: int = 2
    prefix: int = 0
    spread: float = 1.0
    level: float = 0.0
    seed: int = 0


def lengths_around(block_size: int, *, longest: int) -> tuple[int, ...]:
    """0, 1, a full last block, one of each end of a block and of a tile, and a long one."""
    edges = [block_size - 1, block_size, block_size + 1, 2 * block_size + block_size // 2, 15, 16, 17, 65, longest]
    return tuple(dict.fromkeys([0, 1, *(min(max(edge, 0), longest) for edge in edges)]))


def every_last_block(block_size: int) -> tuple[int, ...]:
    """Lengths whose last blocks hold 1 to ``block_size`` tokens."""
    return tuple(block_size + filled for filled in range(1, block_size + 1))


def make_case(variant: Variant, shape: Shape) -> Case:
    """Builds a case; the same arguments give the same bits."""
    rng = np.random.default_rng([shape.seed, variant.head_dim, variant.block_size, variant.group])
    return case_of(variant, shape, fill(variant, shape, rng), rng)


def case_of(variant: Variant, shape: Shape, manager: BlockManager, rng: np.random.Generator) -> Case:
    """The case of sequences 0, 1, ... that a manager holds, with random queries."""
    batch, heads = len(shape.lengths), (shape.kv_heads, variant.head_dim)
    k_scale, v_scale = (0.5, 0.75) if variant.kv_dtype == "fp8_e4m3" else (1.0, 1.0)
    scale = float(np.float32(variant.head_dim**-0.5))
    keys, values = zip(*(manager.gather(i) for i in range(batch)), strict=True)
    # A score sums head_dim products: its deviation is that of a query times that of a key times sqrt(head_dim).
    deviation = shape.spread / (variant.head_dim**0.5 * scale * _stored_deviation(variant) * k_scale)
    queries = rng.standard_normal((batch, shape.kv_heads * variant.group, variant.head_dim)) * deviation
    if shape.level:  # the first number of every key is the same, see _rows
        queries[..., 0] = shape.level / (scale * k_scale * 2 * _stored_deviation(variant))
    return Case(
        queries=to_bits(queries, variant.dtype),
        k_pool=pool_bits(manager.k_pool, variant, shape.kv_heads),
        v_pool=pool_bits(manager.v_pool, variant, shape.kv_heads),
        tables=tables_of(manager, batch),
        lengths=np.array(shape.lengths, dtype=np.int32),
        scale=scale,
        k_scale=k_scale,
        v_scale=v_scale,
        keys=tuple(rows.reshape(-1, *heads) for rows in keys),
        values=tuple(rows.reshape(-1, *heads) for rows in values),
    )


def contiguous_case(case: Case, variant: Variant) -> Case:
    """The same sequences, each in one stretch of a pool [batch, row_blocks, block_size, kv_heads, head_dim]."""
    shape = (case.batch, case.row_blocks * variant.block_size, *case.k_pool.shape[-2:])
    pools = []
    for rows in (case.keys, case.values):
        pool = np.full(shape, np.nan)
        for sequence, row in enumerate(rows):
            pool[sequence, : len(row)] = row
        pools.append(
            to_bits(pool, variant.kv_dtype).reshape(case.batch, case.row_blocks, variant.block_size, *shape[2:])
        )
    return Case(**{**vars(case), "k_pool": pools[0], "v_pool": pools[1]})


def pool_bits(pool: Floats, variant: Variant, kv_heads: int) -> Bits:
    """A manager's pool as bits [num_blocks, block_size, kv_heads, head_dim]."""
    return to_bits(pool, variant.kv_dtype).reshape(len(pool), variant.block_size, kv_heads, variant.head_dim)


def _stored_deviation(variant: Variant) -> float:
    return 4.0 if variant.kv_dtype == "fp8_e4m3" else 1.0  # in the middle of fp8's range


def fill(variant: Variant, shape: Shape, rng: np.random.Generator) -> BlockManager:
    """A manager that holds the sequences 0, 1, ...: appended in turns, after a shared prefix where long enough."""
    width = shape.kv_heads * variant.head_dim
    blocks = sum(-(-length // variant.block_size) for length in shape.lengths) + len(shape.lengths) + 3
    order = rng.permutation(blocks).tolist()
    manager = BlockManager(blocks, variant.block_size, width, free_order=order, unused=np.nan)
    sharers = [i for i, length in enumerate(shape.lengths) if 0 < shape.prefix <= length]
    if sharers:
        manager.add_request("prefix")
        for row in _rows(rng, shape.prefix, shape, variant):
            manager.append("prefix", *row)
    for i in range(len(shape.lengths)):
        if i in sharers:
            manager.fork("prefix", i)
        else:
            manager.add_request(i)
    if sharers:
        manager.free("prefix")
    rows = {i: list(_rows(rng, length - manager.lengths[i], shape, variant)) for i, length in enumerate(shape.lengths)}
    for turn in range(max((len(left) for left in rows.values()), default=0)):
        for i, left in rows.items():
            if turn < len(left):
                manager.append(i, *left[turn])
    manager.check()
    return manager


def _rows(rng: np.random.Generator, count: int, shape: Shape, variant: Variant) -> Sequence[Floats]:
    """Keys and values [count, 2, kv_heads x head_dim] that the KV format holds exactly."""
    spread = _stored_deviation(variant)
    numbers = rng.standard_normal((count, 2, shape.kv_heads * variant.head_dim)) * spread
    if shape.level:
        numbers[:, 0, :: variant.head_dim] = 2 * spread
    numbers[:, 1] += 0.25 * spread  # values with a mean: a missing or doubled token shows in every output
    return list(round_to(numbers, variant.kv_dtype))


def tables_of(manager: BlockManager, batch: int) -> NDArray[np.int32]:
    """Block tables [batch, row_blocks] of sequences 0, 1, ...; entries past an end name no block."""
    widest = max(1, *(len(manager.tables[i]) for i in range(batch)))
    tables = np.full((batch, widest), _NO_BLOCK, dtype=np.int32)
    for i in range(batch):
        tables[i, : len(manager.tables[i])] = manager.tables[i]
    return tables

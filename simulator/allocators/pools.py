"""KV pools as configuration: the union of the kinds is the registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.allocators.counting_kv import CountingKv
from simulator.allocators.kv_cache import KvCache
from simulator.errors import DoesNotFitError, InputError
from simulator.schedulers.config import EngineConfig


@dataclass(frozen=True)
class PagedPool:
    """``num_gpu_blocks`` includes vLLM's null block, so one less is usable."""

    num_gpu_blocks: int
    block_size: int = 16
    bytes_per_token: int = 0
    kind: Literal["paged"] = "paged"


@dataclass(frozen=True)
class ContiguousPool:
    """``num_slots`` slots; each request reserves one run of them for its whole life."""

    num_slots: int
    reservation: Literal["max", "pow2", "oracle"] = "max"
    fit: Literal["first", "best", "buddy"] = "first"
    bytes_per_token: int = 0
    kind: Literal["contiguous"] = "contiguous"


PoolConfig = PagedPool | ContiguousPool


def make_cache(pool: PoolConfig, engine: EngineConfig) -> KvCache:
    """The cache that a scheduler asks.

    Raises:
        InputError: a pool or block of no size.
        DoesNotFitError: not even an empty pool takes one block.
    """
    if isinstance(pool, ContiguousPool):
        from simulator.allocators.contiguous_kv import ContiguousKv

        if pool.num_slots < 1:
            raise DoesNotFitError("the KV pool has no slot", remedy="give the cache more memory")
        return ContiguousKv(pool.num_slots, engine.max_model_len, pool.reservation, pool.fit, pool.bytes_per_token)
    if pool.block_size < 1:
        raise InputError("block_size must be at least 1", where="engine.block_size", remedy="set block_size: 16")
    if pool.num_gpu_blocks < 2:
        raise DoesNotFitError(
            f"{pool.num_gpu_blocks} KV blocks: one is the null block, so none is usable",
            remedy="give the cache more memory or use smaller blocks",
        )
    return CountingKv(
        pool.num_gpu_blocks,
        pool.block_size,
        engine.max_model_len,
        watermark=engine.watermark,
        reserve_full_sequence=engine.scheduler_reserve_full_isl,
        bytes_per_token=pool.bytes_per_token,
    )

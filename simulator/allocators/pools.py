"""KV pools as configuration: the union of the kinds is the registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.allocators.content import TokenContent
from simulator.allocators.counting_kv import CountingKv
from simulator.allocators.group_shape import KvGroupShape as KvGroupShape
from simulator.allocators.kv_cache import KvCache
from simulator.errors import DoesNotFitError, InputError
from simulator.schedulers.config import EngineConfig


@dataclass(frozen=True)
class PagedPool:
    """``num_gpu_blocks`` includes the null block, where there is one (vLLM), so one less is usable.

    ``groups``: the KV groups of a hybrid or sliding-window model; empty is one group that keeps every token.
    """

    num_gpu_blocks: int
    block_size: int = 16
    bytes_per_token: int = 0
    groups: tuple[KvGroupShape, ...] = ()
    null_block: bool = True
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


def make_cache(pool: PoolConfig, engine: EngineConfig, content: TokenContent, *, stages: int = 1) -> KvCache:
    """The cache that a scheduler asks; with pipeline ``stages`` as many batches may be in flight.

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
    if pool.num_gpu_blocks < 1 + pool.null_block:
        null_block = ": one is the null block, so none is usable" if pool.null_block else ""
        raise DoesNotFitError(
            f"{pool.num_gpu_blocks} KV blocks{null_block}", remedy="give the cache more memory or use smaller blocks"
        )
    if engine.policy.kind == "vllm-v1" and (engine.enable_prefix_caching or pool.groups):
        return _vllm_v1(pool, engine, content, stages)
    if engine.policy.kind == "vllm-v0":
        return _vllm_v0(pool, engine, content)
    if engine.policy.kind == "sglang":
        return _sglang_cache(pool, engine, content)
    if engine.policy.kind == "trtllm" and engine.enable_prefix_caching:
        from simulator.allocators.reusing_kv import ReusingKv

        return ReusingKv(
            pool.num_gpu_blocks,
            pool.block_size,
            engine.max_model_len,
            content,
            watermark=0.0,
            reserve_full_sequence=False,  # its own capacity scheduler counts ahead
            lag=0,
            bytes_per_token=pool.bytes_per_token,
            null_block=pool.null_block,
        )
    return CountingKv(
        pool.num_gpu_blocks,
        pool.block_size,
        engine.max_model_len,
        watermark=engine.watermark,
        reserve_full_sequence=engine.scheduler_reserve_full_isl,
        bytes_per_token=pool.bytes_per_token,
        null_block=pool.null_block,
    )


def _vllm_v1(pool: PagedPool, engine: EngineConfig, content: TokenContent, stages: int) -> KvCache:
    """vLLM v1 with prefix caching or KV groups: block by block, but fast where one group keeps every token."""
    from simulator.allocators.block_pool import VLLM_V1, VLLM_V1_2025
    from simulator.allocators.caching_kv import CachingKv
    from simulator.allocators.grouped_kv import GroupedKv

    groups = pool.groups or (KvGroupShape(pool.block_size),)
    plain = len(groups) == 1 and groups[0].window_tokens is None
    if plain and engine.enable_prefix_caching:
        return CachingKv(
            pool.num_gpu_blocks,
            groups[0].block_size,
            engine.max_model_len,
            content,
            watermark=engine.watermark,
            reserve_full_sequence=engine.scheduler_reserve_full_isl,
            lag=int(engine.async_scheduling),
            bytes_per_token=pool.bytes_per_token,
            blank_first=engine.version == "0.33",
        )
    return GroupedKv(
        pool.num_gpu_blocks,
        groups,
        engine.max_model_len,
        content,
        caching=engine.enable_prefix_caching,
        retention_interval=engine.prefix_cache_retention_interval,
        watermark=engine.watermark,
        reserve_full_sequence=engine.scheduler_reserve_full_isl,
        batched_tokens=engine.max_num_batched_tokens * stages,
        lag=int(engine.async_scheduling),
        bytes_per_token=pool.bytes_per_token,
        policy=VLLM_V1 if engine.version == "0.33" else VLLM_V1_2025,
    )


def _vllm_v0(pool: PagedPool, engine: EngineConfig, content: TokenContent) -> KvCache:
    """vLLM v0: groups of sequences over shared blocks, and a CPU pool for swapped ones."""
    from simulator.allocators.sequence_kv import SequenceKv

    policy = engine.policy
    assert policy.kind == "vllm-v0"
    return SequenceKv(
        pool.num_gpu_blocks,
        pool.block_size,
        engine.max_model_len,
        watermark=policy.watermark,
        swap_blocks=policy.swap_blocks,
        chunked=engine.enable_chunked_prefill,
        beam_diversity=policy.beam_diversity,
        beam_seed=policy.beam_seed,
        name=content.workload.request_id,
        bytes_per_token=pool.bytes_per_token,
        null_block=pool.null_block,
    )


def _sglang_cache(pool: PagedPool, engine: EngineConfig, content: TokenContent) -> KvCache:
    """SGLang's pool of pages; ``null_block`` means nothing to it."""
    from simulator.allocators.radix_kv import RadixKv
    from simulator.allocators.sglang_kv import SglangKv

    # Where it looks ahead to each request's very end, it rounds the prompt up to pages as well.
    to_the_end = engine.policy.kind == "sglang" and engine.policy.ignore_eos and not engine.enable_prefix_caching
    spare_tokens, facts = pool.block_size * (2 if to_the_end else 1), (pool.num_gpu_blocks, pool.block_size)
    if engine.enable_prefix_caching:
        return RadixKv(
            *facts, engine.max_model_len, content, spare_tokens=spare_tokens, bytes_per_token=pool.bytes_per_token
        )
    return SglangKv(*facts, engine.max_model_len, spare_tokens=spare_tokens, bytes_per_token=pool.bytes_per_token)

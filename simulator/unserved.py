"""A run in which nobody can be served is no result: what stands in the way, and a setting that would let all in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from simulator.allocators.content import TokenContent
from simulator.allocators.pools import ContiguousPool, PagedPool, make_cache
from simulator.deployment import Deployment
from simulator.errors import DoesNotFitError, InputError, KvplanError
from simulator.schedulers.servable import prefilled_at_once
from workloads.workload import Workload

if TYPE_CHECKING:
    from simulator.allocators.sequence_kv import SequenceKv


def serves_nobody(result: dict[str, Any]) -> bool:
    """Whether a ``result.json`` of either mode has no request that was served or admitted."""
    return int(result["admitted"] if result.get("mode") == "admission" else result["completed"]) == 0


def unserved_error(deployment: Deployment, workload: Workload) -> KvplanError:
    """The error of a run that serves nobody: InputError for a token budget, DoesNotFitError for the KV pool."""
    engine = deployment.engine
    short = workload.prompt_tokens < engine.max_model_len
    final = np.minimum(workload.prompt_tokens + workload.output_tokens, engine.max_model_len)[short]
    smallest, largest = int(final.min()), int(final.max())
    at_once = prefilled_at_once(engine, workload.prompt_tokens[short], final - 1)
    if int(at_once.min()) > engine.max_num_batched_tokens:
        return InputError(
            f"no request can be served: each has {at_once.min()} tokens or more to prefill at once, and "
            f"max_num_batched_tokens is {engine.max_num_batched_tokens}",
            where="engine.max_num_batched_tokens",
            remedy=f"set enable_chunked_prefill: true, or max_num_batched_tokens: {largest} or more",
        )
    if workload.sequences is not None and int(workload.sequences.min()) > engine.running_limit:
        return InputError(
            f"no request can be served: each asks for {workload.sequences.min()} sequences or more at once, and "
            f"max_num_seqs is {engine.max_num_seqs}",
            where="engine.max_num_seqs",
            remedy=f"set max_num_seqs: {workload.sequences.max()} or more",
        )
    pool = deployment.pool
    held = f"reserves a run of {engine.max_model_len} tokens at most" if isinstance(pool, ContiguousPool) else "grows"
    where, remedy = _larger_pool(deployment, workload, largest)
    return DoesNotFitError(
        f"no request can be served: the KV pool holds {deployment.pool_slots} tokens, and a request {held} "
        f"({smallest} to {largest} tokens at its end)",
        where=where,
        remedy=remedy,
    )


def _larger_pool(deployment: Deployment, workload: Workload, largest: int) -> tuple[str, str]:
    """(the setting that made the pool small, its value that takes every request of the workload)."""
    pool, engine = deployment.pool, deployment.settings.engine
    block_size = engine.block_size or 1
    if isinstance(pool, ContiguousPool):
        slots = deployment.engine.max_model_len  # no reservation is larger
        if pool.fit == "buddy":
            slots = 1 << (slots - 1).bit_length()
        blocks = -(-slots // block_size)
    else:
        blocks = _least_blocks(deployment, pool, workload, largest)
        block_size = pool.block_size
        slots = (blocks - pool.null_block) * block_size
    if engine.num_gpu_blocks_override is not None:
        return "engine.num_gpu_blocks_override", f"set num_gpu_blocks_override: {blocks} or more"
    if engine.max_total_tokens is not None:
        return "engine.max_total_tokens", f"set max_total_tokens: {-(-slots // block_size) * block_size} or more"
    if engine.kv_cache_memory_bytes is not None:
        size = blocks * block_size * pool.bytes_per_token
        return "engine.kv_cache_memory_bytes", f"set kv_cache_memory_bytes: {size} or more"
    if isinstance(pool, ContiguousPool) and pool.fit == "buddy":
        return "engine.allocator", "set fit: first, which needs no power of two, or a smaller max_model_len"
    return "engine.max_model_len", f"set allocator: {{kind: paged}}, or max_model_len: {largest}"


def _least_blocks(deployment: Deployment, pool: PagedPool, workload: Workload, largest: int) -> int:
    """Blocks that the cache itself says are enough for the largest request, by its own rules."""
    blocks = -(-largest // pool.block_size) + pool.null_block
    if deployment.settings.mode == "admission":
        return blocks
    final = np.minimum(workload.prompt_tokens + workload.output_tokens, deployment.engine.max_model_len)
    prompt = int(workload.prompt_tokens[final == largest].max())
    content, sequences = TokenContent(workload), 1 if workload.sequences is None else int(workload.sequences.max())
    while True:
        cache = make_cache(replace(pool, num_gpu_blocks=blocks), deployment.engine, content)
        if sequences > 1:
            refused = cast("SequenceKv", cache).group_unservable(prompt, largest, sequences)
        else:
            refused = cache.unservable(prompt, largest)
        if refused is None:
            return blocks
        blocks += 1 + blocks // 64

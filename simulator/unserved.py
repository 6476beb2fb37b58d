"""A run in which nobody can be served is no result: what stands in the way, and a setting that would let all in."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.allocators.pools import ContiguousPool
from simulator.deployment import Deployment
from simulator.errors import DoesNotFitError, InputError, KvplanError
from workloads.workload import Workload


def serves_nobody(result: dict[str, Any]) -> bool:
    """Whether a ``result.json`` of either mode has no request that was served or admitted."""
    return int(result["admitted"] if result.get("mode") == "admission" else result["completed"]) == 0


def unserved_error(deployment: Deployment, workload: Workload) -> KvplanError:
    """The error of a run that serves nobody: InputError for a token budget, DoesNotFitError for the KV pool."""
    engine = deployment.engine
    short = workload.prompt_tokens < engine.max_model_len
    final = np.minimum(workload.prompt_tokens + workload.output_tokens, engine.max_model_len)[short]
    smallest, largest = int(final.min()), int(final.max())
    if not engine.enable_chunked_prefill and smallest - 1 > engine.max_num_batched_tokens:
        return InputError(
            f"no request can be served: each has {smallest - 1} tokens or more to prefill at once, and "
            f"max_num_batched_tokens is {engine.max_num_batched_tokens}",
            where="engine.max_num_batched_tokens",
            remedy=f"set enable_chunked_prefill: true, or max_num_batched_tokens: {largest} or more",
        )
    pool = deployment.pool
    held = f"reserves a run of {engine.max_model_len} tokens at most" if isinstance(pool, ContiguousPool) else "grows"
    where, remedy = _larger_pool(deployment, largest)
    return DoesNotFitError(
        f"no request can be served: the KV pool holds {deployment.pool_slots} tokens, and a request {held} "
        f"({smallest} to {largest} tokens at its end)",
        where=where,
        remedy=remedy,
    )


def _larger_pool(deployment: Deployment, largest: int) -> tuple[str, str]:
    """(the setting that made the pool small, its value that takes every request of the workload)."""
    pool, engine = deployment.pool, deployment.settings.engine
    block_size = engine.block_size or 1
    if isinstance(pool, ContiguousPool):
        slots = deployment.engine.max_model_len  # no reservation is larger
        if pool.fit == "buddy":
            slots = 1 << (slots - 1).bit_length()
        blocks = -(-slots // block_size)
    else:
        slots = largest
        blocks = -(-slots // block_size) + 1  # with the null block
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

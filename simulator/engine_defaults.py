"""What each engine does with settings left out: SCHEDULERS.md section 6 and 9, USERS.md section 3.2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulator.errors import InputError
from simulator.specs import GpuSpec, ModelSpec, Parallelism

_GIB = 1 << 30
_MIB = 1 << 20
ENGINES = ("vllm", "sglang", "trtllm")
"""Engines whose memory arithmetic is known."""

_MLA_BLOCK_TOKENS = 64  # FlashMLA
_OLD_FRACTION = 0.9  # vLLM's gpu_memory_utilization until early 2026


def engine_defaults(
    engine: str,
    gpu: GpuSpec | None,
    model: ModelSpec | None = None,
    parallelism: Parallelism | None = None,
) -> dict[str, Any]:
    """gpu_memory_utilization, max_num_batched_tokens, max_num_seqs and block_size of an engine on a GPU.

    Args:
        engine: one of ``ENGINES``, or an older or other system of ``SIZES``.
    Raises:
        InputError: there is no such engine.
    """
    if engine not in SIZES:
        raise InputError(f"engine {engine!r} is not known", where="engine", remedy=f"choose of {', '.join(ENGINES)}")
    return SIZES[engine](gpu, model, parallelism or Parallelism())


def _vllm(gpu: GpuSpec | None, model: ModelSpec | None, parallelism: Parallelism) -> dict[str, Any]:
    """vLLM 0.33's server: the token budget and the batch follow the GPU's memory."""
    memory = gpu.memory_bytes if gpu else 0
    if memory >= 160 * _GIB:
        tokens, seqs = 16384, 1024
    elif gpu is not None and memory >= 70 * _GIB and "a100" not in gpu.name.lower():
        tokens, seqs = 8192, 1024
    else:
        tokens, seqs = 2048, 256
    latent = model is not None and any(group.kind == "mla" for group in model.attention)
    return {
        "gpu_memory_utilization": 0.92,
        "max_num_batched_tokens": tokens,
        "max_num_seqs": seqs,
        "block_size": _MLA_BLOCK_TOKENS if latent else 16,
    }


def _vllm_2025(gpu: GpuSpec | None, model: ModelSpec | None, parallelism: Parallelism) -> dict[str, Any]:
    """vLLM 0.8 to 0.13 [from memory, not verified]."""
    return _vllm(gpu, model, parallelism) | {"gpu_memory_utilization": _OLD_FRACTION}


def _vllm_v0(gpu: GpuSpec | None, model: ModelSpec | None, parallelism: Parallelism) -> dict[str, Any]:
    """vLLM v0: a whole prompt is one step, so that the budget is raised to the context [from memory, not verified]."""
    return {
        "gpu_memory_utilization": _OLD_FRACTION,
        "max_num_batched_tokens": 2048,
        "max_num_seqs": 256,
        "block_size": 16,
    }


def _trtllm(gpu: GpuSpec | None, model: ModelSpec | None, parallelism: Parallelism) -> dict[str, Any]:
    """TensorRT-LLM: the usual defaults [from memory, not verified]."""
    return {
        "gpu_memory_utilization": 0.9,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 2048,
        "block_size": 32,
    }


def _slots(gpu: GpuSpec | None, model: ModelSpec | None, parallelism: Parallelism) -> dict[str, Any]:
    """Systems before paging: the cache is slots of one token. The rest as in vLLM v0, to which they were compared."""
    return _vllm_v0(gpu, model, parallelism) | {"block_size": 1}


def _sglang(gpu: GpuSpec | None, model: ModelSpec | None, parallelism: Parallelism) -> dict[str, Any]:
    """SGLang 0.5.23: what the fraction leaves must hold activations and graphs."""
    memory = gpu.memory_bytes if gpu else 0
    chunk = 2048 if memory < 20 * _GIB else 4096 if memory < 60 * _GIB else 8192 if memory < 160 * _GIB else 16384
    wide = parallelism.tensor_parallel_size >= 4
    if memory < 20 * _GIB:
        graph_batch = 8
    elif memory < 35 * _GIB:
        graph_batch = 80 if wide else 24
    elif memory < 60 * _GIB:
        graph_batch = 160 if wide else 32
    else:
        graph_batch = 512 if wide or memory >= 160 * _GIB else 256
    gpus = parallelism.tensor_parallel_size * parallelism.pipeline_parallel_size
    reserved_mib = 512 + 1.5 * max(chunk, 2048) + 2 * graph_batch + 128 * gpus
    if memory > 60 * _GIB:
        reserved_mib = max(reserved_mib, 10 * 1024)
    fraction = 1 - reserved_mib * _MIB / memory if memory else 0.88
    return {
        "gpu_memory_utilization": round(fraction, 3),
        "max_num_batched_tokens": chunk,
        "max_num_seqs": 2048,
        "block_size": 1,
    }


SIZES: dict[str, Callable[[GpuSpec | None, ModelSpec | None, Parallelism], dict[str, Any]]] = {
    "vllm": _vllm,
    "vllm-2025": _vllm_2025,
    "vllm-v0": _vllm_v0,
    "sglang": _sglang,
    "trtllm": _trtllm,
    "orca": _slots,
    "fastertransformer": _slots,
}
"""What depends on the GPU, by system."""

SLOTS = ("orca", "fastertransformer")
"""Of these, the systems without blocks."""

BOUND_TOGETHER = ("vllm", "vllm-2025", "vllm-v0")
"""Of these, the systems whose token budget must not be below the number of sequences."""

"""What each engine does with settings left out: SCHEDULERS.md section 6 and 9, USERS.md section 3.2."""

from __future__ import annotations

from typing import Any

from simulator.errors import InputError
from simulator.specs import GpuSpec, ModelSpec, Parallelism

_GIB = 1 << 30
_MIB = 1 << 20
ENGINES = ("vllm", "sglang", "trtllm")
_MLA_BLOCK_TOKENS = 64  # FlashMLA


def engine_defaults(
    engine: str,
    gpu: GpuSpec | None,
    model: ModelSpec | None = None,
    parallelism: Parallelism | None = None,
) -> dict[str, Any]:
    """gpu_memory_utilization, max_num_batched_tokens, max_num_seqs and block_size of an engine on a GPU.

    Raises:
        InputError: the engine is not one of ``ENGINES``.
    """
    if engine == "vllm":
        return _vllm(gpu, model)
    if engine == "sglang":
        return _sglang(gpu, parallelism or Parallelism())
    if engine == "trtllm":
        return {
            "gpu_memory_utilization": 0.9,
            "max_num_batched_tokens": 8192,
            "max_num_seqs": 2048,
            "block_size": 32,
        }
    raise InputError(f"engine {engine!r} is not known", where="engine", remedy=f"choose of {', '.join(ENGINES)}")


def _vllm(gpu: GpuSpec | None, model: ModelSpec | None) -> dict[str, Any]:
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


def _sglang(gpu: GpuSpec | None, parallelism: Parallelism) -> dict[str, Any]:
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

"""Flags of ``vllm serve``: as in vLLM's arg_utils.py (0.33) and its page on data-parallel deployment.

Those of vLLM v0 (``--swap-space``, ``--preemption-mode``) are from memory.
"""

from __future__ import annotations

from simulator.deployment import Deployment
from simulator.engine_defaults import engine_defaults
from simulator.engine_presets import preset_of
from simulator.servers.draft import (
    NODE_GPUS,
    Draft,
    Server,
    caching,
    changed,
    kv_dtype_asked,
    pool_tokens,
    sizes_of_replica,
    stated,
    weights,
)


def _flags(draft: Draft, deployment: Deployment) -> None:
    engine, parallelism = deployment.settings.engine, deployment.parallelism
    sizes_of_replica(draft, deployment, "--tensor-parallel-size", "--pipeline-parallel-size")
    if parallelism.enable_expert_parallel:
        draft.flag("--enable-expert-parallel")
    weights(draft, deployment, "vLLM")
    if (kv_dtype := kv_dtype_asked(deployment)) is not None:
        if kv_dtype == "int8":
            kv_dtype = "int8_per_token_head"
            draft.comments.append("vLLM's int8 cache adds a scale a token and head, which kvplan does not count")
        draft.flag("--kv-cache-dtype", kv_dtype)
    for key in ("max_model_len", "max_num_seqs", "max_num_batched_tokens"):
        if (value := stated(draft, deployment, key)) is not None:
            draft.flag("--" + key.replace("_", "-"), value)
    if draft.own:
        _memory(draft, deployment)
        _scheduler(draft, deployment)
    elif (tokens := pool_tokens(deployment)) is not None:
        draft.flag("--num-gpu-blocks-override", tokens // 16 + 1)
    caching(draft, deployment, "--no-enable-prefix-caching")
    if engine.enforce_eager:
        draft.flag("--enforce-eager")


def _memory(draft: Draft, deployment: Deployment) -> None:
    engine = deployment.settings.engine
    usual = engine_defaults(preset_of(engine).sizes, deployment.gpu, deployment.model, deployment.parallelism)
    if engine.block_size != usual["block_size"]:
        draft.flag("--block-size", engine.block_size)
    if engine.num_gpu_blocks_override is not None:
        draft.flag("--num-gpu-blocks-override", engine.num_gpu_blocks_override)
    elif engine.max_total_tokens is not None:
        draft.flag("--num-gpu-blocks-override", getattr(deployment.pool, "num_gpu_blocks", engine.max_total_tokens))
    elif engine.kv_cache_memory_bytes is not None:
        draft.flag("--kv-cache-memory-bytes", engine.kv_cache_memory_bytes)
    else:
        draft.flag("--gpu-memory-utilization", engine.gpu_memory_utilization)


_SWITCHES = (
    "async_scheduling",
    "enable_chunked_prefill",
    "scheduler_reserve_full_isl",
    "long_prefill_token_threshold_adaptive",
    "disable_hybrid_kv_cache_manager",
)
_VALUES = (
    "scheduling_policy",
    "long_prefill_token_threshold",
    "watermark",
    "prefill_schedule_interval",
    "max_num_active_seqs",
    "prefix_cache_retention_interval",
    "swap_space",
)


def _scheduler(draft: Draft, deployment: Deployment) -> None:
    engine = deployment.settings.engine
    for key in _SWITCHES:
        if (value := changed(deployment, key)) is not None:
            draft.flag(f"--{'' if value else 'no-'}{key.replace('_', '-')}")
    for key in _VALUES:
        value = changed(deployment, key)
        if value is None:
            continue
        if engine.preset == "vllm-v0" and key == "watermark":
            draft.comments.append(f"the watermark of {value:g} has no flag in vLLM v0, where it is always 0.01")
        else:
            draft.flag("--" + key.replace("_", "-"), "None" if value == "none" else value)
    if engine.preset == "vllm-v0":
        if engine.preemption_mode != "auto":
            draft.flag("--preemption-mode", engine.preemption_mode)
        draft.comments.append("vLLM v0 is in vLLM up to 0.10, with VLLM_USE_V1=0 [from memory, not verified]")


def _replicas(draft: Draft, deployment: Deployment) -> bool:
    """vLLM's own data parallelism, where its ranks are independent: of a model without experts, on one machine."""
    total = deployment.parallelism.gpus
    if deployment.model.num_experts or total > NODE_GPUS or deployment.settings.engine.preset == "vllm-v0":
        return False
    draft.flag("--data-parallel-size", deployment.parallelism.replicas)
    draft.comments.append(
        "--data-parallel-size sends a request to the replica with the fewest in its queue; simulated with "
        f"router: {deployment.settings.router}"
    )
    return True


VLLM = Server("vLLM", ("vllm", "serve"), _flags, _replicas)

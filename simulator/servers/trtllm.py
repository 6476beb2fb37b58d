"""Flags of ``trtllm-serve`` and its configuration file: TensorRT-LLM's commands/serve.py, read in November 2026."""

from __future__ import annotations

from simulator.deployment import Deployment
from simulator.servers.draft import (
    Draft,
    Server,
    changed,
    named_kv_dtype,
    pool_tokens,
    sizes_of_replica,
    stated,
    weights,
)


def _flags(draft: Draft, deployment: Deployment) -> None:
    engine, parallelism = deployment.settings.engine, deployment.parallelism
    sizes_of_replica(draft, deployment, "--tp_size", "--pp_size")
    if parallelism.enable_expert_parallel:
        draft.flag("--ep_size", parallelism.tensor_parallel_size)
    weights(draft, deployment, "TensorRT-LLM")
    cache = draft.config.setdefault("kv_cache_config", {})
    named_kv_dtype(draft, deployment, _KV, lambda name: cache.__setitem__("dtype", name))
    for key, flag in (
        ("max_model_len", "--max_seq_len"),
        ("max_num_seqs", "--max_batch_size"),
        ("max_num_batched_tokens", "--max_num_tokens"),
    ):
        if (value := stated(draft, deployment, key)) is not None:
            draft.flag(flag, value)
    if (pool := pool_tokens(deployment)) is not None:
        cache["max_tokens"] = pool
    elif draft.own:
        draft.flag("--kv_cache_free_gpu_memory_fraction", engine.gpu_memory_utilization)
    if draft.own and engine.block_size != 32:
        cache["tokens_per_block"] = engine.block_size
    if not engine.enable_prefix_caching:
        cache["enable_block_reuse"] = False
    if engine.enable_chunked_prefill:  # the others cut prompts without being told
        draft.flag("--enable_chunked_prefill")
    policies = draft.config.setdefault("scheduler_config", {})
    for key in ("capacity_scheduler_policy", "context_chunking_policy"):
        if draft.own and (value := changed(deployment, key)) is not None:
            policies[key] = str(value).upper()


_KV = {"fp8": "fp8", "fp8_e4m3": "fp8", "nvfp4": "nvfp4"}


TRTLLM = Server("TensorRT-LLM", ("trtllm-serve",), _flags, lambda draft, deployment: False)

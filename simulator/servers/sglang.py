"""Flags of ``sglang.launch_server``: as on SGLang's page "Server Arguments", read in November 2026."""

from __future__ import annotations

from simulator.deployment import Deployment
from simulator.servers.draft import (
    NODE_GPUS,
    Draft,
    Server,
    caching,
    changed,
    named_kv_dtype,
    pool_tokens,
    sizes_of_replica,
    stated,
    weights,
)


def _flags(draft: Draft, deployment: Deployment) -> None:
    engine, parallelism = deployment.settings.engine, deployment.parallelism
    sizes_of_replica(draft, deployment, "--tp-size", "--pp-size")
    if parallelism.enable_expert_parallel:
        draft.flag("--ep-size", parallelism.tensor_parallel_size)
    weights(draft, deployment, "SGLang")
    named_kv_dtype(draft, deployment, _KV, lambda name: draft.flag("--kv-cache-dtype", name))
    if (length := stated(draft, deployment, "max_model_len")) is not None:
        draft.flag("--context-length", length)
    if (seqs := stated(draft, deployment, "max_num_seqs")) is not None:
        draft.flag("--max-running-requests", seqs)
    if draft.own and not engine.enable_chunked_prefill and changed(deployment, "enable_chunked_prefill") is not None:
        draft.flag("--chunked-prefill-size", -1)
    elif (tokens := stated(draft, deployment, "max_num_batched_tokens")) is not None:
        draft.flag("--chunked-prefill-size", tokens)
    if (pool := pool_tokens(deployment)) is not None:
        draft.flag("--max-total-tokens", pool)
    elif draft.own:
        draft.flag("--mem-fraction-static", engine.gpu_memory_utilization)
    if draft.own and engine.block_size != 1:
        draft.flag("--page-size", engine.block_size)
    if draft.own:
        for key in ("schedule_policy", "schedule_conservativeness", "max_prefill_tokens"):
            if (value := changed(deployment, key)) is not None:
                draft.flag("--" + key.replace("_", "-"), value)
    caching(draft, deployment, "--disable-radix-cache")
    if engine.enforce_eager:
        draft.flag("--disable-cuda-graph")


_KV = {"fp8": "fp8_e4m3", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2", "bfloat16": "bfloat16"}
_BALANCE = {"round_robin": "round_robin", "least_outstanding": "total_requests"}


def _replicas(draft: Draft, deployment: Deployment) -> bool:
    """SGLang's own data parallelism on one machine, with its nearest way to spread requests."""
    if deployment.parallelism.gpus > NODE_GPUS:
        return False
    draft.flag("--dp-size", deployment.parallelism.replicas)
    router = deployment.settings.router
    if router in _BALANCE:
        draft.flag("--load-balance-method", _BALANCE[router])
    else:
        draft.comments.append(f"--load-balance-method knows no router {router}; SGLang's gateway may")
    return True


SGLANG = Server("SGLang", ("python", "-m", "sglang.launch_server", "--model-path"), _flags, _replicas)

"""The text of `kvplan size`: tables in GiB, plain ASCII."""

from __future__ import annotations

from simulator.kv_groups import kv_value_bytes
from simulator.memory_budget import MemoryBudget
from simulator.specs import ModelSpec

_GIB = 1 << 30
_MIB = 1 << 20
_WIDTH = 46


def model_text(
    model: ModelSpec,
    kv_cache_dtype: str,
    kv_bytes_per_token: int,
    sliding_cap_bytes: int,
    weight_bytes: int,
    formula: tuple[str, ...],
) -> str:
    """What follows from the model alone."""
    about = "" if model.parameters_exact else " (estimated)"
    active = f", {model.active_parameters / 1e9:.2f} B active a token" if model.num_experts else ""
    lines = [
        f"{model.name}: {model.num_layers} layers, {model.parameters / 1e9:.2f} B parameters{about}{active}",
        f"  weights        {weight_bytes / _GIB:10.2f} GiB",
        f"  KV per token   {kv_bytes_per_token:10d} B ({kv_cache_dtype}, every attention layer)",
    ]
    lines += [f"    = {line}" for line in formula]
    if sliding_cap_bytes:
        growth = model.kv_bytes_per_token_full_layers(float(kv_value_bytes(kv_cache_dtype)))
        cap = sliding_cap_bytes / _MIB
        lines.append(f"  windows cap a sequence at {cap:.1f} MiB there; beyond, it grows by {growth} B a token")
    if model.indexer_bytes_per_token():
        lines.append(f"  indexer keys   {model.indexer_bytes_per_token():10d} B a token on top")
    if model.state_bytes_per_sequence():
        lines.append(
            f"  recurrent state {model.state_bytes_per_sequence() / _MIB:.1f} MiB a sequence, whatever its length"
        )
    return "\n".join(lines) + "\n"


def budget_text(found: MemoryBudget) -> str:
    """The table that adds up, vLLM's lines, fits or not, remedies and warnings."""
    settings = found.settings
    gpus = found.parallelism.tensor_parallel_size * found.parallelism.pipeline_parallel_size
    title = f"Memory of one {found.gpu.name} (of {gpus}; {settings.engine}, TP {found.parallelism.tensor_parallel_size}"
    lines = [f"{title}, PP {found.parallelism.pipeline_parallel_size}), GiB", "-" * 78]
    for row in found.rows:
        note = f"  {row.note}" if row.note else ""
        lines.append(f"  {row.name:<{_WIDTH - 14}}{row.bytes / _GIB:10.2f}  {row.basis:<9}{note}".rstrip())
    total = sum(row.bytes for row in found.rows)
    lines += ["-" * 78, f"  {'total (nvidia-smi)':<{_WIDTH - 14}}{total / _GIB:10.2f}", ""]
    lines += [f"  {line}" for line in found.formula]
    lines += ["", *_vllm_lines(found), ""]
    lines += _verdict(found)
    lines += [f"warning: {warning}" for warning in found.warnings]
    return "\n".join(lines) + "\n"


def _vllm_lines(found: MemoryBudget) -> list[str]:
    return [
        f"GPU KV cache size: {found.kv_cache_tokens:,} tokens",
        f"Maximum concurrency for {found.settings.max_model_len:,} tokens per request: {found.max_concurrency:.2f}x",
    ]


def _verdict(found: MemoryBudget) -> list[str]:
    length = found.settings.max_model_len
    if found.fits:
        return [f"Fits: {found.num_gpu_blocks} blocks of {found.block_size} tokens on every GPU."]
    missing = found.blocks_per_request * found.bytes_per_block - found.kv_pool_bytes_per_gpu
    pool = min(rank.pool_bytes for rank in found.ranks)
    if pool < 0:
        lines = [f"Does not fit: {-pool / _GIB:.2f} GiB a GPU are missing before any KV cache."]
    elif missing > 0:
        needed = found.blocks_per_request * found.bytes_per_block / _GIB
        lines = [
            f"Does not fit: one request of {length} tokens needs {needed:.2f} GiB of KV a GPU, "
            f"{found.kv_pool_bytes_per_gpu / _GIB:.2f} GiB are there "
            f"(largest max_model_len: {found.largest_max_model_len})."
        ]
    else:
        lines = ["Does not fit: nothing is left for activations outside the fraction."]
    if found.remedies:
        lines.append("What would make it fit:")
        lines += [f"  - {remedy.change}" for remedy in found.remedies]
    else:
        lines.append("No single change or pair of changes tried makes it fit; use a smaller or quantised model.")
    return lines

"""The ``engine`` section of a scenario: vLLM's flag names, and other engines' spellings of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from simulator.document import Document
from simulator.errors import InputError

Preset = Literal["vllm", "vllm-v0", "sglang", "trtllm", "orca-max", "orca-pow2", "orca-oracle", "fastertransformer"]

MOST = 1 << 50
"""No count or size of a server is larger, and sums of them stay exact in 64 bits."""

Count = Annotated[int, Ge(1), Le(MOST)]
Fraction = Annotated[float, Gt(0), Le(1)]


@dataclass(frozen=True)
class PagedAllocator:
    """Blocks handed out as a request grows."""

    kind: Literal["paged"] = "paged"


@dataclass(frozen=True)
class ContiguousAllocator:
    """One extent of slots a request, reserved at admission."""

    kind: Literal["contiguous"] = "contiguous"
    reservation: Literal["max", "pow2", "oracle"] = "max"
    fit: Literal["first", "best", "buddy"] = "first"


@dataclass(frozen=True)
class EngineSettings:
    """What the server is started with; None takes the engine's own default, which the run then lists.

    Lengths in tokens. ``max_model_len`` -1 is the largest that fits. ``max_total_tokens`` (SGLang, TensorRT-LLM)
    states the cache in tokens and becomes ``num_gpu_blocks_override``.

    Attributes:
        version: of vLLM's rules: "0.33", or "2025" (0.8 to 0.13).
        prefix_cache_retention_interval: "none" is vLLM's None.
        release: of vLLM v0's rules: "2024", or "2023-06" (0.1, the paper's).
        beam_diversity: probability that a beam goes on from its own text; else its parent is any beam.
        swap_space: GiB of CPU memory a GPU for the blocks of preempted requests (vLLM v0).
    """

    preset: Preset = "vllm"
    version: Literal["0.33", "2025"] | None = None
    gpu_memory_utilization: Fraction | None = None
    max_model_len: Annotated[int, Ge(-1), Le(1 << 31)] | None = None
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    allocator: PagedAllocator | ContiguousAllocator | None = None
    block_size: Annotated[int, Ge(1), Le(1 << 20)] | None = None
    kv_cache_dtype: str | None = None
    weight_dtype: str | None = None
    enable_prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    enable_chunked_prefill: bool | None = None
    scheduling_policy: Literal["fcfs", "priority"] | None = None
    num_gpu_blocks_override: Annotated[int, Ge(2), Le(1 << 40)] | None = None
    kv_cache_memory_bytes: Count | None = None
    max_total_tokens: Count | None = None
    enforce_eager: bool = False
    disable_hybrid_kv_cache_manager: bool | None = None
    on_unservable: Literal["reject", "faithful"] = "reject"
    long_prefill_token_threshold: Annotated[int, Ge(0), Le(MOST)] | None = None
    long_prefill_token_threshold_adaptive: bool | None = None
    scheduler_reserve_full_isl: bool | None = None
    watermark: Annotated[float, Ge(0), Le(1)] | None = None
    prefill_schedule_interval: Count | None = None
    max_num_active_seqs: Count | None = None
    prefix_cache_retention_interval: Annotated[int, Ge(0), Le(MOST)] | Literal["none"] | None = None
    # vLLM v0
    swap_space: Annotated[float, Ge(0), Le(1 << 20)] | None = None
    preemption_mode: Literal["auto", "recompute", "swap"] | None = None
    release: Literal["2024", "2023-06"] | None = None
    beam_diversity: Annotated[float, Ge(0), Le(1)] | None = None
    # SGLang
    schedule_policy: Literal["fcfs", "lpm"] | None = None
    schedule_conservativeness: Annotated[float, Gt(0), Le(100)] | None = None
    max_prefill_tokens: Count | None = None
    ignore_eos: bool | None = None
    # TensorRT-LLM
    capacity_scheduler_policy: Literal["guaranteed_no_evict", "max_utilization", "static_batch"] | None = None
    context_chunking_policy: Literal["first_come_first_served", "equal_progress"] | None = None


ALIASES = {
    "mem_fraction_static": ("gpu_memory_utilization", "SGLang"),
    "free_gpu_memory_fraction": ("gpu_memory_utilization", "TensorRT-LLM"),
    "page_size": ("block_size", "SGLang"),
    "tokens_per_block": ("block_size", "TensorRT-LLM"),
    "max_running_requests": ("max_num_seqs", "SGLang"),
    "max_batch_size": ("max_num_seqs", "TensorRT-LLM"),
    "chunked_prefill_size": ("max_num_batched_tokens", "SGLang"),
    "max_num_tokens": ("max_num_batched_tokens", "TensorRT-LLM"),
    "context_length": ("max_model_len", "SGLang"),
    "max_seq_len": ("max_model_len", "TensorRT-LLM"),
    "max_tokens": ("max_total_tokens", "TensorRT-LLM"),
    "enable_block_reuse": ("enable_prefix_caching", "TensorRT-LLM"),
    "enable_chunked_context": ("enable_chunked_prefill", "TensorRT-LLM"),
}
PARALLEL_ALIASES = {
    "tp": "tensor_parallel_size",
    "tp_size": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "dp": "replicas",
    "data_parallel_size": "replicas",
}


def read_aliases(document: Document) -> list[str]:
    """Renames other engines' keys to vLLM's in place; a note for each. Raises InputError where both stand."""
    notes = []
    for name, (ours, engine) in ALIASES.items():
        if _rename(document, ("engine", name), ours):
            notes.append(f"engine.{name} ({engine}'s name) is read as vLLM's {ours}, with vLLM's meaning")
    if _rename(document, ("engine", "disable_radix_cache"), "enable_prefix_caching"):
        engine = document.data["engine"]
        if isinstance(engine["enable_prefix_caching"], bool):
            engine["enable_prefix_caching"] = not engine["enable_prefix_caching"]
        notes.append("engine.disable_radix_cache (SGLang's name) is read as the opposite of enable_prefix_caching")
    _refuse_data_parallel_attention(document)
    for name, ours in PARALLEL_ALIASES.items():
        if _rename(document, ("parallelism", name), ours):
            notes.append(f"parallelism.{name} is read as {ours}")
    return notes


def _refuse_data_parallel_attention(document: Document) -> None:
    """Replicas that share the experts out among them (vLLM: data_parallel_size with expert parallelism)."""
    table = document.data.get("parallelism")
    if not isinstance(table, dict) or table.get("enable_expert_parallel") is not True:
        return
    for name in ("dp", "data_parallel_size"):
        size = table.get(name, 1)
        if isinstance(size, int) and size > 1:
            ranks = size * next((table[key] for key in ("tensor_parallel_size", "tp_size", "tp") if key in table), 1)
            raise InputError(
                f"parallelism.{name} with enable_expert_parallel (every rank has the whole attention, the experts are "
                "shared out over all of them) is not simulated",
                where=document.key_place(("parallelism", name)),
                remedy=f"write tensor_parallel_size: {ranks} with enable_expert_parallel: true, which splits attention "
                f"too, or replicas: {size} without it, each of which holds all experts",
            )


def _rename(document: Document, steps: tuple[str, str], ours: str) -> bool:
    section, name = steps
    table = document.data.get(section)
    if not isinstance(table, dict) or name not in table:
        return False
    if ours in table:
        raise InputError(
            f"{section}.{name} and {section}.{ours} mean the same",
            where=document.key_place(steps),
            remedy=f"delete {name}",
        )
    document.data[section] = {ours if key == name else key: value for key, value in table.items()}
    for places in (document.keys, document.values):
        for old in [s for s in places if s[:2] == steps]:
            places[(section, ours, *old[2:])] = places.pop(old)
    return True

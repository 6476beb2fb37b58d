"""The ``engine`` section of a scenario: vLLM's flag names, other engines' spellings, and what is not there yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from simulator.document import Document, Steps
from simulator.errors import InputError
from simulator.suggestions import did_you_mean

Preset = Literal["vllm", "vllm-v0", "sglang", "trtllm", "orca-max", "orca-pow2", "orca-oracle", "fastertransformer"]
PRESETS = ("vllm", "vllm-v0", "sglang", "trtllm", "orca-max", "orca-pow2", "orca-oracle", "fastertransformer")

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
    """

    preset: str = "vllm"
    gpu_memory_utilization: Fraction | None = None
    max_model_len: Annotated[int, Ge(-1), Le(1 << 31)] | None = None
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    allocator: PagedAllocator | ContiguousAllocator = field(default_factory=PagedAllocator)
    block_size: Annotated[int, Ge(1), Le(1 << 20)] | None = None
    kv_cache_dtype: str | None = None
    weight_dtype: str | None = None
    enable_prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    enable_chunked_prefill: bool = True
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    num_gpu_blocks_override: Annotated[int, Ge(2), Le(1 << 40)] | None = None
    kv_cache_memory_bytes: Count | None = None
    max_total_tokens: Count | None = None
    enforce_eager: bool = False
    disable_hybrid_kv_cache_manager: bool = False
    on_unservable: Literal["reject", "faithful"] = "reject"
    long_prefill_token_threshold: Annotated[int, Ge(0), Le(MOST)] = 0
    long_prefill_token_threshold_adaptive: bool = False
    scheduler_reserve_full_isl: bool = True
    watermark: Annotated[float, Ge(0), Le(1)] = 0.0
    prefill_schedule_interval: Count = 1
    max_num_active_seqs: Count | None = None


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
    "schedule_policy": ("scheduling_policy", "SGLang"),
    "enable_block_reuse": ("enable_prefix_caching", "TensorRT-LLM"),
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
    for name, ours in PARALLEL_ALIASES.items():
        if _rename(document, ("parallelism", name), ours):
            notes.append(f"parallelism.{name} is read as {ours}")
    return notes


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


def refuse_what_is_not_there(document: Document) -> None:
    """Refuses options that are known but not in this version, each with a change that works."""
    engine = document.data.get("engine")
    if isinstance(engine, dict):
        _refuse_preset(document, engine.get("preset", "vllm"))
        for key, what in (
            ("enable_prefix_caching", "prefix caching"),
            ("async_scheduling", "async scheduling"),
        ):
            if engine.get(key) is True:
                _refuse(document, ("engine", key), f"{what} is not in this version", f"set {key}: false")
        for key in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
            if key in engine:
                ours = PARALLEL_ALIASES.get(key, key)
                remedy = f"write parallelism: {{{ours}: ...}}"
                place = document.key_place(("engine", key))
                raise InputError(f"engine.{key} stands elsewhere", where=place, remedy=remedy)


def _refuse_preset(document: Document, preset: object) -> None:
    if preset == "vllm":
        return
    steps = ("engine", "preset")
    if not isinstance(preset, str) or preset not in PRESETS:
        _refuse(document, steps, f"engine.preset: {preset!r} is not known", did_you_mean(str(preset), PRESETS))
    reservation = str(preset).partition("orca-")[2]
    remedy = "use preset: vllm"
    if reservation:
        remedy += f" with allocator: {{kind: contiguous, reservation: {reservation}, fit: buddy}}"
    _refuse(document, steps, f"engine.preset: {preset} is not in this version", remedy)


def _refuse(document: Document, steps: Steps, what: str, remedy: str) -> None:
    raise InputError(what, where=document.place(steps), remedy=remedy)

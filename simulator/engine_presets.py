"""The systems that a scenario can name: whose rules, whose cache, whose defaults. Adding one is one entry here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from simulator.engine_settings import ContiguousAllocator, EngineSettings, PagedAllocator
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.policies import (
    IterationLevelPolicy,
    Policy,
    RequestLevelPolicy,
    SglangPolicy,
    TrtLlmPolicy,
    VllmV0Policy,
    VllmV1Policy,
)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


COMMON = _names(
    "preset gpu_memory_utilization max_model_len max_num_seqs max_num_batched_tokens allocator "
    "block_size kv_cache_dtype weight_dtype enable_prefix_caching num_gpu_blocks_override "
    "kv_cache_memory_bytes max_total_tokens enforce_eager on_unservable"
)
"""Settings that every preset knows."""

WITHOUT_EFFECT: Mapping[str, Any] = {
    "async_scheduling": False,
    "enable_chunked_prefill": False,
    "scheduling_policy": "fcfs",
    "disable_hybrid_kv_cache_manager": False,
}
"""Values that say what a preset without the setting does anyway."""


@dataclass(frozen=True)
class EnginePreset:
    """One system.

    Attributes:
        title: its name for readers.
        policy: whose scheduling rules hold; ``EngineSettings`` gives those of its fields that it has a name for.
        sizes: whose defaults of sizes are taken (``engine_defaults.SIZES``).
        memory: whose memory arithmetic holds (``engine_defaults.ENGINES``).
        keys: settings that it knows besides ``COMMON``.
        defaults: of its settings; a run lists those that were left out.
        allocator: its cache; ``allocators`` are the kinds that it can run over.
        prefix_caching: what it does by default; None where it is simulated without.
        null_block: whether one block of the pool is never used (vLLM v1).
        windows: whether sliding-window layers give up what they no longer see.
        covers_context: where prompts are not cut, a token budget that is left out is raised to max_model_len.
        graphs_in_budget: whether CUDA graphs are subtracted from the pool.
        notes: what a result must say of it.
    """

    title: str
    policy: type[Policy]
    sizes: str
    memory: str = "vllm"
    keys: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    allocator: PagedAllocator | ContiguousAllocator = field(default_factory=PagedAllocator)
    allocators: tuple[str, ...] = ("paged",)
    prefix_caching: bool | None = None
    null_block: bool = False
    windows: bool = False
    covers_context: bool = False
    graphs_in_budget: bool = True
    notes: tuple[str, ...] = ()


_VLLM = EnginePreset(
    title="vLLM v1 (0.33)",
    policy=VllmV1Policy,
    sizes="vllm",
    keys=_names(
        "version async_scheduling enable_chunked_prefill scheduling_policy max_num_active_seqs "
        "long_prefill_token_threshold long_prefill_token_threshold_adaptive "
        "scheduler_reserve_full_isl watermark prefill_schedule_interval "
        "prefix_cache_retention_interval disable_hybrid_kv_cache_manager"
    ),
    defaults={"async_scheduling": True},
    allocators=("paged", "contiguous"),
    prefix_caching=True,
    null_block=True,
    windows=True,
    covers_context=True,
)

_SLOTS = (
    "token budget and batch limit as in vLLM v0: the system itself states none, and its memory is counted as vLLM's"
)
_ORCA = EnginePreset(
    title="Orca",
    policy=IterationLevelPolicy,
    sizes="orca",
    allocators=("contiguous", "paged"),
    covers_context=True,
    notes=(f"Orca: {_SLOTS}",),
)

PRESETS: dict[str, EnginePreset] = {
    "vllm": _VLLM,
    "vllm-2025": replace(
        _VLLM,
        title="vLLM v1 of 2025 (0.8 to 0.13)",
        sizes="vllm-2025",
        defaults={
            "async_scheduling": False,
            "scheduler_reserve_full_isl": False,
            "prefix_cache_retention_interval": "none",
        },
        graphs_in_budget=False,
    ),
    "vllm-v0": EnginePreset(
        title="vLLM v0 (2023 to 2025)",
        policy=VllmV0Policy,
        sizes="vllm-v0",
        keys=_names("enable_chunked_prefill watermark swap_space preemption_mode release beam_diversity"),
        defaults={
            "enable_chunked_prefill": False,
            "watermark": 0.01,
            "swap_space": 4.0,
            "preemption_mode": "auto",
            "release": "2024",
        },
        covers_context=True,
        graphs_in_budget=False,
    ),
    "sglang": EnginePreset(
        title="SGLang 0.5.23",
        policy=SglangPolicy,
        sizes="sglang",
        memory="sglang",
        keys=_names("enable_chunked_prefill schedule_policy schedule_conservativeness max_prefill_tokens ignore_eos"),
        defaults={"schedule_policy": "fcfs", "schedule_conservativeness": 1.0, "max_prefill_tokens": 16384},
        prefix_caching=True,
    ),
    "trtllm": EnginePreset(
        title="TensorRT-LLM",
        policy=TrtLlmPolicy,
        sizes="trtllm",
        memory="trtllm",
        allocators=("paged", "contiguous"),
        keys=_names("enable_chunked_prefill capacity_scheduler_policy context_chunking_policy"),
        defaults={
            "enable_chunked_prefill": False,
            "capacity_scheduler_policy": "guaranteed_no_evict",
            "context_chunking_policy": "first_come_first_served",
        },
        prefix_caching=True,
    ),
    "orca-max": replace(_ORCA, title="Orca (Max)", allocator=ContiguousAllocator(reservation="max", fit="buddy")),
    "orca-pow2": replace(_ORCA, title="Orca (Pow2)", allocator=ContiguousAllocator(reservation="pow2", fit="buddy")),
    "orca-oracle": replace(
        _ORCA, title="Orca (Oracle)", allocator=ContiguousAllocator(reservation="oracle", fit="buddy")
    ),
    "fastertransformer": EnginePreset(
        title="FasterTransformer",
        policy=RequestLevelPolicy,
        sizes="fastertransformer",
        allocator=ContiguousAllocator(reservation="max", fit="first"),
        allocators=("contiguous", "paged"),
        covers_context=True,
        notes=(f"FasterTransformer: {_SLOTS}",),
    ),
}
"""By the name of the preset; ``vllm-2025`` is ``preset: vllm`` with ``version: "2025"``."""


def preset_of(engine: EngineSettings) -> EnginePreset:
    """The system that the settings name."""
    return PRESETS[f"{engine.preset}-{engine.version}" if engine.version not in (None, "0.33") else engine.preset]


def presets_that_know(key: str) -> list[str]:
    """Names of the presets that have a setting."""
    return [name for name, preset in PRESETS.items() if key in COMMON | preset.keys and name != "vllm-2025"]


def quiet_defaults(preset: EnginePreset) -> dict[str, Any]:
    """Defaults of a preset's own settings that nobody misses: as the scheduler's settings have them."""
    known = [f for cls in (EngineConfig, preset.policy) for f in fields(cls) if f.default is not MISSING]
    return {f.name: f.default for f in known if f.name in preset.keys}

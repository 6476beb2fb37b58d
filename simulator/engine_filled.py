"""Engine settings with what was left out filled in, and what the scheduler is told of them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from simulator.engine_presets import WITHOUT_EFFECT, EnginePreset, preset_of, quiet_defaults
from simulator.engine_settings import EngineSettings, PagedAllocator
from simulator.kv_groups import KvLayout
from simulator.memory_settings import Resolved
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.policies import Policy
from simulator.specs import GpuSpec

_GIB = 1 << 30
_PS_PER_S = 10**12
_PCIE_BYTES_PER_S = 32e9  # PCIe 4.0 x16, one way
SIZES = ("gpu_memory_utilization", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "block_size")


def with_defaults(engine: EngineSettings, *, clock: bool) -> tuple[EngineSettings, list[str]]:
    """The settings with the preset's own defaults, and a line for each that matters.

    Args:
        clock: False in mode admission, where nobody shares a prefix and nothing is scheduled.
    """
    preset = preset_of(engine)
    allocator = engine.allocator or preset.allocator
    caching, notes = _caching(engine, preset, paged=isinstance(allocator, PagedAllocator))
    values: dict[str, Any] = {"allocator": allocator, "enable_prefix_caching": caching if clock else False}
    if not clock:
        values["async_scheduling"] = False
    for key, default in (quiet_defaults(preset) | dict(preset.defaults)).items():
        if getattr(engine, key) is None and key not in values:
            values[key] = default
            if key in preset.defaults:
                shown = str(default).lower() if isinstance(default, bool) else default
                notes.append(f"{key} = {shown} ({preset.sizes}'s default)")
    if engine.allocator is not None and preset.allocator != allocator and preset.allocator != PagedAllocator():
        notes.append(f"engine.allocator is stated, instead of the {_words(preset.allocator)} of preset {engine.preset}")
    return replace(engine, **values), [*notes, *preset.notes] if clock else []


def _caching(engine: EngineSettings, preset: EnginePreset, *, paged: bool) -> tuple[bool, list[str]]:
    """Whether prefixes are cached, and why, where the settings do not say it."""
    if engine.enable_prefix_caching is not None:
        return engine.enable_prefix_caching, []
    if preset.prefix_caching and paged:
        return True, [f"enable_prefix_caching = true ({preset.sizes}'s default)"]
    if preset.prefix_caching:
        return False, ["enable_prefix_caching = false (a contiguous cache shares nothing between requests)"]
    return False, []


def _words(allocator: Any) -> str:
    return " ".join(str(getattr(allocator, f.name)) for f in fields(allocator))


def keeps_windows(engine: EngineSettings) -> bool:
    """Whether sliding-window layers give up what they no longer see: in vLLM v1's paged cache, unless told not to."""
    preset = preset_of(engine)
    paged = isinstance(engine.allocator or preset.allocator, PagedAllocator)
    return preset.windows and paged and not engine.disable_hybrid_kv_cache_manager


def with_sizes(engine: EngineSettings, resolved: Resolved) -> EngineSettings:
    """The settings with the sizes that follow from GPU and model."""
    return replace(engine, **{key: getattr(resolved, key) for key in SIZES})


def engine_config(
    engine: EngineSettings, layout: KvLayout, gpu: GpuSpec | None, seed: int
) -> tuple[EngineConfig, list[str]]:
    """What the scheduler is told, and what was assumed for it; ``engine`` has no gap left.

    A value that says what the preset does anyway changes nothing: the scheduler is not told of it.
    """
    shared = {f.name for f in fields(EngineConfig)} & {f.name for f in fields(EngineSettings)}
    shared -= WITHOUT_EFFECT.keys() - preset_of(engine).keys
    given = {name: getattr(engine, name) for name in shared if getattr(engine, name) is not None}
    if given.get("prefix_cache_retention_interval") == "none":
        given["prefix_cache_retention_interval"] = None
    policy, notes = _policy(engine, layout, gpu, seed)
    return EngineConfig(**given, policy=policy), notes


def _policy(engine: EngineSettings, layout: KvLayout, gpu: GpuSpec | None, seed: int) -> tuple[Policy, list[str]]:
    """The preset's policy, with the settings that bear its fields' names, and what swapping costs."""
    cls = preset_of(engine).policy
    names = {f.name for f in fields(cls)}
    values = {name: getattr(engine, name) for name in names & {f.name for f in fields(EngineSettings)}}
    values = {name: value for name, value in values.items() if value is not None}
    notes = []
    if "beam_seed" in names:
        values["beam_seed"] = seed
    if "swap_blocks" in names:
        assert engine.swap_space is not None  # with_defaults
        speed = gpu.pcie_bytes_per_s if gpu else _PCIE_BYTES_PER_S
        values["swap_blocks"] = int(engine.swap_space * _GIB) // layout.bytes_per_block
        values["swap_ps_per_block"] = round(layout.bytes_per_block / speed * _PS_PER_S)
        if engine.swap_space:
            source = "PCIe of the GPU" if gpu else "assumed: no GPU is given"
            room = f"{values['swap_blocks']} of them fit into swap_space"
            notes.append(f"swapped blocks move at {speed / 1e9:g} GB/s each way ({source}); {room}")
    return cls(**values), notes

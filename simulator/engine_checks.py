"""What the ``engine`` section of a scenario may not say: settings of other presets, and what is not simulated."""

from __future__ import annotations

from typing import Any, get_args

from simulator.document import Document, Steps
from simulator.engine_presets import COMMON, PRESETS, WITHOUT_EFFECT, EnginePreset, presets_that_know
from simulator.engine_settings import PARALLEL_ALIASES, Preset
from simulator.errors import InputError
from simulator.suggestions import did_you_mean

NAMES = get_args(Preset)


def check_engine(document: Document) -> None:
    """Refuses what no preset, or not the chosen one, knows; each with a change that works. Raises InputError."""
    engine = document.data.get("engine")
    if not isinstance(engine, dict):
        return
    for key in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        if key in engine:
            ours = PARALLEL_ALIASES.get(key, key)
            place = document.key_place(("engine", key))
            remedy = f"write parallelism: {{{ours}: ...}}"
            raise InputError(f"engine.{key} stands elsewhere", where=place, remedy=remedy)
    name = engine.get("preset", "vllm")
    if name not in NAMES:
        _refuse(document, ("engine", "preset"), f"engine.preset: {name!r} is not known", did_you_mean(str(name), NAMES))
    preset = PRESETS[name]
    for key, value in engine.items():
        if value is not None and not _knows(preset, key, value):
            _refuse_key(document, name, key)
    _check_values(document, engine, name, preset)


def _knows(preset: EnginePreset, key: str, value: Any) -> bool:
    if key in COMMON | preset.keys or not presets_that_know(key):  # what nobody knows is named by the binder
        return True
    return key in WITHOUT_EFFECT and value == WITHOUT_EFFECT[key]


def _refuse_key(document: Document, name: str, key: str) -> None:
    known = presets_that_know(key)
    raise InputError(
        f"engine.{key} means nothing to preset {name}",
        where=document.key_place(("engine", key)),
        remedy=f"delete it; it is a setting of {', '.join(known)}",
    )


def _check_values(document: Document, engine: dict[str, Any], name: str, preset: EnginePreset) -> None:
    """Values of settings that all presets have, and that this one cannot serve."""
    allocator = engine.get("allocator")
    kind = allocator.get("kind") if isinstance(allocator, dict) else None
    if kind in ("paged", "contiguous") and kind not in preset.allocators:
        what = f"engine.allocator: preset {name} cannot run over a {kind} cache"
        remedy = f"delete the line; {kind} runs with {', '.join(_that_run_over(kind))}"
        _refuse(document, ("engine", "allocator"), what, remedy)
    if engine.get("enable_prefix_caching") is not True:
        return
    steps = ("engine", "enable_prefix_caching")
    if preset.prefix_caching is None:
        what = f"engine.enable_prefix_caching: preset {name} is simulated without prefix caching"
        able = ", ".join(other for other in NAMES if PRESETS[other].prefix_caching is not None)
        _refuse(document, steps, what, f"set enable_prefix_caching: false, or use preset: {able}")
    if kind == "contiguous":
        what = "engine.enable_prefix_caching: a contiguous cache shares nothing between requests"
        _refuse(document, steps, what, "set enable_prefix_caching: false, or allocator: {kind: paged}")


def _that_run_over(kind: str) -> list[str]:
    return [name for name in NAMES if kind in PRESETS[name].allocators]


def _refuse(document: Document, steps: Steps, what: str, remedy: str) -> None:
    raise InputError(what, where=document.place(steps), remedy=remedy)

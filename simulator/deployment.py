"""From settings to what ``simulate()`` takes: specs from the catalogue, memory, pool, scheduler, step time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from simulator.allocators.pools import ContiguousPool, PagedPool, PoolConfig
from simulator.catalog import find_gpu, find_model
from simulator.engine_settings import ContiguousAllocator, EngineSettings
from simulator.errors import DoesNotFitError, InputError, KvplanError
from simulator.kv_groups import KvLayout, kv_layout, kv_value_bytes
from simulator.memory_budget import MemoryBudget, budget
from simulator.memory_settings import MemorySettings, Resolved, resolve
from simulator.routers import ROUTERS
from simulator.scenario_settings import InlineGpu, ScenarioSettings
from simulator.schedulers.config import EngineConfig
from simulator.specs import GpuSpec, ModelSpec, Parallelism, model_from_config
from simulator.step_time.base import StepTimeModel
from simulator.step_time.config import build_step_time
from simulator.suggestions import did_you_mean
from simulator.weight_dtype import with_weight_dtype

GIB = 1 << 30


@dataclass(frozen=True)
class Deployment:
    """What serves the workload.

    Attributes:
        settings: the scenario's settings with every default of the engine written out.
        memory: None where the pool is stated without a GPU.
        pool_slots: tokens that the pool of one replica holds before it is cut into blocks, the null block's included.
        step_time: None in mode admission.
        assumptions, warnings: lines for the result.
    """

    settings: ScenarioSettings
    model: ModelSpec
    gpu: GpuSpec | None
    parallelism: Parallelism
    memory: MemoryBudget | None
    engine: EngineConfig
    pool: PoolConfig
    pool_slots: int
    step_time: StepTimeModel | None
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]


def build_deployment(settings: ScenarioSettings) -> Deployment:
    """Looks everything up and does the memory arithmetic.

    Raises:
        InputError: with the dotted path of the setting that is wrong.
        DoesNotFitError: the model, or one request of max_model_len, does not fit.
    """
    if settings.router not in ROUTERS:
        remedy = did_you_mean(settings.router, ROUTERS)
        raise InputError(f"{settings.router!r} is not known", where="router", remedy=remedy)
    model, gpu = find_model_spec(settings.model), find_gpu_spec(settings.gpu)
    parallelism = Parallelism(**vars(settings.parallelism))
    _refuse_unsimulated(settings, model)
    with _sections():
        if settings.engine.max_model_len == -1:
            settings = replace(settings, engine=_largest_context(settings.engine, model, gpu, parallelism))
        asked = memory_settings(settings.engine)
        resolved = resolve(asked, model, gpu, parallelism)
        memory = budget(model, gpu, parallelism, asked) if gpu else None
        layout = _layout(model, parallelism, resolved)
        pool, slots, warnings = _pool(settings.engine, layout, memory, resolved)
        held = with_weight_dtype(model, resolved.weight_dtype)
        step_time = _step_time(settings, held, gpu, parallelism, resolved)
    engine, notes = _filled(settings.engine, resolved)
    return Deployment(
        replace(settings, engine=engine),
        model,
        gpu,
        parallelism,
        memory,
        _engine_config(engine),
        pool,
        slots,
        step_time,
        assumptions=(
            *notes,
            *(memory.assumptions if memory else resolved.assumptions),
            *getattr(step_time, "assumptions", ()),
        ),
        warnings=(*warnings, *(memory.warnings if memory else resolved.warnings)),
    )


def find_model_spec(model: str | dict[str, Any]) -> ModelSpec:
    """By catalogue name, by path, or from the keys of a config.json written inline."""
    try:
        if isinstance(model, str):
            return find_model(model)
        config = {key: value for key, value in model.items() if key != "name"}
        return model_from_config(config, name=str(model.get("name", "inline")), source="inline in the scenario")
    except InputError as error:
        what = f"{error.where}: {error.what}" if error.where else error.what
        raise InputError(what, where="model", remedy=error.remedy or "see kvplan catalog models") from None


def find_gpu_spec(gpu: str | InlineGpu | None) -> GpuSpec | None:
    """By catalogue name, or from inline numbers."""
    if gpu is None:
        return None
    if isinstance(gpu, str):
        try:
            return find_gpu(gpu)
        except InputError as error:
            raise InputError(error.what, where="gpu", remedy=error.remedy or "see kvplan catalog gpus") from None
    return GpuSpec(
        name=gpu.name,
        memory_bytes=round(gpu.memory_gib * 2**30),
        bandwidth_bytes_per_s=gpu.bandwidth_gb_per_s * 1e9,
        flop_per_s={dtype: rate * 1e12 for dtype, rate in gpu.tflop_per_s.items()},
        link_bytes_per_s=None if gpu.link_gb_per_s is None else gpu.link_gb_per_s * 1e9,
        pcie_bytes_per_s=gpu.pcie_gb_per_s * 1e9,
        usd_per_hour=gpu.usd_per_hour,
        sources={"all": "inline in the scenario"},
    )


def memory_settings(engine: EngineSettings) -> MemorySettings:
    """The part of the engine's settings that decides memory."""
    return MemorySettings(
        engine=engine.preset,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        max_model_len=engine.max_model_len,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        block_size=engine.block_size,
        kv_cache_dtype=engine.kv_cache_dtype,
        weight_dtype=engine.weight_dtype,
        enforce_eager=engine.enforce_eager,
        num_gpu_blocks_override=engine.num_gpu_blocks_override,
        kv_cache_memory_bytes=engine.kv_cache_memory_bytes,
        windows=not engine.disable_hybrid_kv_cache_manager,
        enable_prefix_caching=bool(engine.enable_prefix_caching),
    )


def _refuse_unsimulated(settings: ScenarioSettings, model: ModelSpec) -> None:
    """What can be sized and not simulated: other KV groups than one that keeps every token, and pipelines."""
    kinds = {group.kind for group in model.attention}
    odd = sorted(kinds & {"linear", "cross"})
    if odd:
        raise InputError(
            f"{model.name} has {' and '.join(odd)} attention layers, whose cache is not simulated in this version",
            where="model",
            remedy="size it with kvplan size, or choose a model with full attention",
        )
    if kinds & {"sliding", "chunked"} and not settings.engine.disable_hybrid_kv_cache_manager:
        raise InputError(
            f"{model.name} has sliding-window layers, whose own KV group is not simulated in this version",
            where="model",
            remedy="set engine.disable_hybrid_kv_cache_manager: true, and all layers keep every token, as in vLLM",
        )
    if settings.parallelism.pipeline_parallel_size > 1 and settings.mode == "serve":
        raise InputError(
            "pipeline parallelism is not simulated in this version",
            where="parallelism.pipeline_parallel_size",
            remedy="set pipeline_parallel_size: 1 and a larger tensor_parallel_size",
        )


def _largest_context(
    engine: EngineSettings, model: ModelSpec, gpu: GpuSpec | None, parallelism: Parallelism
) -> EngineSettings:
    """``max_model_len: -1``: the longest request that the pool holds, at most the model's context."""
    asked = memory_settings(replace(engine, max_model_len=None))
    if gpu is not None:
        found = budget(model, gpu, parallelism, asked)
        longest = min(found.largest_max_model_len, model.max_model_len)
        if longest < 1:
            raise DoesNotFitError(f"{model.name} does not fit on {gpu.name}", where="gpu", remedy=remedies(found))
    else:
        resolved = resolve(asked, model, None, parallelism)
        pool, _, _ = _pool(engine, _layout(model, parallelism, resolved), None, resolved)
        slots = pool.num_slots if isinstance(pool, ContiguousPool) else (pool.num_gpu_blocks - 1) * pool.block_size
        longest = min(slots, model.max_model_len)
    return replace(engine, max_model_len=longest)


def _layout(model: ModelSpec, parallelism: Parallelism, resolved: Resolved) -> KvLayout:
    return kv_layout(
        model,
        tensor_parallel_size=parallelism.tensor_parallel_size,
        block_size=resolved.block_size,
        kv_cache_dtype=resolved.kv_cache_dtype,
        windows=resolved.windows,
        prefix_caching=False,
        max_model_len=resolved.max_model_len,
    )


def _pool(
    engine: EngineSettings, layout: KvLayout, memory: MemoryBudget | None, resolved: Resolved
) -> tuple[PoolConfig, int, list[str]]:
    """The KV pool of one replica, from memory or as the settings state it; its slots; warnings."""
    warnings: list[str] = []
    per_token = layout.bytes_per_block // layout.block_size
    if engine.num_gpu_blocks_override is not None:
        blocks = engine.num_gpu_blocks_override
        slots = blocks * layout.block_size
    elif engine.max_total_tokens is not None:
        blocks = engine.max_total_tokens // layout.block_size + 1  # the null block comes on top
        slots = engine.max_total_tokens
    elif memory is not None:
        _refuse_what_does_not_fit(memory)
        blocks, slots = memory.num_gpu_blocks, memory.kv_pool_bytes_per_gpu // per_token
    else:
        assert engine.kv_cache_memory_bytes is not None  # scenario.needs_gpu
        blocks = engine.kv_cache_memory_bytes // layout.bytes_per_block
        slots = engine.kv_cache_memory_bytes // per_token
    asked_bytes = blocks * layout.bytes_per_block
    if memory is not None and asked_bytes > memory.kv_pool_bytes_per_gpu:
        warnings.append(
            f"the KV pool that is asked for, {blocks} blocks, takes {asked_bytes / GIB:.2f} GiB a GPU; by the memory "
            f"table {memory.gpu.name} has {memory.kv_pool_bytes_per_gpu / GIB:.2f} GiB for it: the real server may "
            "run out of memory"
        )
    if slots < resolved.max_model_len:
        warnings.append(
            f"the KV pool of {slots} tokens is smaller than one request of max_model_len {resolved.max_model_len}: "
            "the real server would refuse to start (lower engine.max_model_len)"
        )
    if isinstance(engine.allocator, ContiguousAllocator):
        return ContiguousPool(slots, engine.allocator.reservation, engine.allocator.fit, per_token), slots, warnings
    if engine.max_total_tokens is not None:
        slots = blocks * layout.block_size
    return PagedPool(blocks, layout.block_size, per_token), slots, warnings


def _refuse_what_does_not_fit(memory: MemoryBudget) -> None:
    if memory.fits:
        return
    length = memory.settings.max_model_len
    what = f"{memory.model.name} with one request of {length} tokens does not fit on {memory.gpu.name}"
    raise DoesNotFitError(f"{what}: {memory.formula[0]}", where="gpu", remedy=remedies(memory))


def remedies(memory: MemoryBudget) -> str:
    """The changes that were found to work, in one line."""
    changes = [remedy.change for remedy in memory.remedies]
    return "what would work: " + "; ".join(changes) if changes else "choose a larger GPU or a smaller model"


def _step_time(
    settings: ScenarioSettings, model: ModelSpec, gpu: GpuSpec | None, parallelism: Parallelism, resolved: Resolved
) -> StepTimeModel | None:
    if settings.mode == "admission":
        return None
    try:
        return build_step_time(
            settings.step_time,
            model=model,
            gpu=gpu,
            parallelism=parallelism,
            kv_dtype_bytes=float(kv_value_bytes(resolved.kv_cache_dtype)),
        )
    except InputError as error:
        if error.where is None or error.where.split(".")[0] in {field.name for field in fields(ScenarioSettings)}:
            raise
        what = f"{error.where}: {error.what}"  # a fault inside the calibration file
        raise InputError(what, where="step_time.calibration", remedy=error.remedy) from None


def _filled(engine: EngineSettings, resolved: Resolved) -> tuple[EngineSettings, list[str]]:
    """The settings with what was left out written down, and a line for what is not as in the real server."""
    values: dict[str, Any] = {
        key: getattr(resolved, key)
        for key in ("gpu_memory_utilization", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "block_size")
    }
    notes = []
    for key, what in (("enable_prefix_caching", "prefix caching"), ("async_scheduling", "async scheduling")):
        if getattr(engine, key) is None:
            values[key] = False
            notes.append(f"{key} = false (the real server's default is true; {what} is not in this version)")
    if not engine.enable_chunked_prefill:
        # vLLM then raises a budget that was not set to the context, so that every prompt fits one step.
        budget_tokens = engine.max_num_batched_tokens or max(resolved.max_num_batched_tokens, resolved.max_model_len)
        values["max_num_batched_tokens"] = budget_tokens
    return replace(engine, **values), notes


def _engine_config(engine: EngineSettings) -> EngineConfig:
    shared = {field.name for field in fields(EngineConfig)} & {field.name for field in fields(EngineSettings)}
    return EngineConfig(**{name: getattr(engine, name) for name in shared})


@contextmanager
def _sections() -> Iterator[None]:
    """Errors of rooms that know no sections get the dotted path of the scenario."""
    try:
        yield
    except KvplanError as error:
        for section, cls in (("engine", EngineSettings), ("parallelism", Parallelism)):
            if error.where in {field.name for field in fields(cls)}:
                error.where = f"{section}.{error.where}"
        raise

"""From settings to what ``simulate()`` takes: specs from the catalogue, memory, pool, scheduler, step time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace

from simulator.allocators.pools import ContiguousPool, PoolConfig
from simulator.engine_filled import engine_config, keeps_windows, with_defaults, with_sizes
from simulator.engine_presets import preset_of
from simulator.engine_settings import ContiguousAllocator, EngineSettings
from simulator.errors import DoesNotFitError, InputError, KvplanError
from simulator.kv_groups import KvLayout, kv_layout, kv_value_bytes
from simulator.kv_pool import groups_note, make_pool, remedies
from simulator.members import Member
from simulator.memory_budget import MemoryBudget, budget
from simulator.memory_settings import MemorySettings, Resolved, resolve
from simulator.rank_memory import pipeline_stages
from simulator.routers import ROUTERS
from simulator.scenario_settings import ScenarioSettings
from simulator.scenario_specs import find_gpu_spec, find_model_spec
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.policies import VllmV1Policy
from simulator.specs import GpuSpec, ModelSpec, Parallelism
from simulator.step_time.base import StepTimeModel
from simulator.step_time.config import build_step_time
from simulator.suggestions import did_you_mean
from simulator.weight_dtype import with_weight_dtype


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

    def members(self, group: str = "") -> list[Member]:
        """Its replicas, by number, all alike."""
        assert self.step_time is not None  # only mode admission has none
        gpus = self.parallelism.gpus_per_replica
        return [Member(self.engine, self.pool, self.step_time, group, gpus)] * self.parallelism.replicas

    @property
    def usd_per_gpu_hour(self) -> float | None:
        """As the scenario states it, else the catalogue's example; None where neither knows."""
        asked = self.settings.cost.usd_per_gpu_hour
        return asked if asked is not None else self.gpu.usd_per_hour if self.gpu else None


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
    parallelism = _parallelism(settings)
    _refuse_unsimulated(settings, model)
    asked_for, notes = with_defaults(_synchronous(settings), clock=settings.mode == "serve")
    if settings.mode == "serve" and _synchronous(settings) is not settings.engine:
        notes = [*notes, "async_scheduling = false: over pipeline stages a pass waits for the tokens of its requests"]
    settings = replace(settings, engine=asked_for)
    with _sections():
        if settings.engine.max_model_len == -1:
            settings = replace(settings, engine=_largest_context(settings.engine, model, gpu, parallelism))
        asked = memory_settings(settings.engine)
        resolved = resolve(asked, model, gpu, parallelism)
        memory = budget(model, gpu, parallelism, asked) if gpu else None
        layout = _layout(settings.engine, model, parallelism, resolved, memory)
        pool, slots, warnings = make_pool(settings.engine, layout, memory, resolved)
        held = with_weight_dtype(model, resolved.weight_dtype)
        step_time = _step_time(settings, held, gpu, parallelism, resolved)
    engine = with_sizes(settings.engine, resolved)
    found, more = engine_config(engine, layout, gpu, settings.seed)
    windows_note = (*_windows_note(settings.engine, model), *groups_note(pool))
    return Deployment(
        replace(settings, engine=engine),
        model,
        gpu,
        parallelism,
        memory,
        found,
        pool,
        slots,
        step_time,
        assumptions=(
            *notes,
            *more,
            *windows_note,
            *(memory.assumptions if memory else resolved.assumptions),
            *getattr(step_time, "assumptions", ()),
        ),
        warnings=(*warnings, *(memory.warnings if memory else resolved.warnings)),
    )


def memory_settings(engine: EngineSettings) -> MemorySettings:
    """The part of the engine's settings that decides memory."""
    preset = preset_of(engine)
    return MemorySettings(
        engine=preset.memory,
        system=preset.sizes,
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
        windows=keeps_windows(engine),
        enable_prefix_caching=bool(engine.enable_prefix_caching),
        graphs_in_budget=preset.graphs_in_budget,
        whole_prompts=preset.covers_context and not engine.enable_chunked_prefill,
    )


def _refuse_unsimulated(settings: ScenarioSettings, model: ModelSpec) -> None:
    """What can be sized and not simulated: recurrent states, KV groups without a clock, pipelines of other systems."""
    kinds = {group.kind for group in model.attention}
    odd = sorted(kinds & {"linear", "cross"})
    if odd:
        raise InputError(
            f"{model.name} has {' and '.join(odd)} attention layers, whose cache is not simulated in this version",
            where="model",
            remedy="size it with kvplan size, or choose a model with full attention",
        )
    if settings.mode == "admission" and "sliding" in kinds and keeps_windows(settings.engine):
        raise InputError(
            f"{model.name} has sliding-window layers, whose own KV group mode admission does not place",
            where="model",
            remedy="set engine.disable_hybrid_kv_cache_manager: true, and all layers keep every token, as in vLLM",
        )
    if settings.parallelism.pipeline_parallel_size > 1 and settings.mode == "serve":
        _refuse_pipeline(settings)


def _refuse_pipeline(settings: ScenarioSettings) -> None:
    """Pipelines are simulated under vLLM v1's rules, without asynchronous scheduling."""
    if preset_of(settings.engine).policy is not VllmV1Policy:
        raise InputError(
            f"pipeline parallelism is simulated for preset vllm only, and the preset is {settings.engine.preset}",
            where="parallelism.pipeline_parallel_size",
            remedy="set engine.preset: vllm, or pipeline_parallel_size: 1 and a larger tensor_parallel_size",
        )
    if settings.engine.async_scheduling:
        raise InputError(
            "async_scheduling over pipeline stages is not simulated: every pass waits for the tokens of its requests",
            where="engine.async_scheduling",
            remedy="leave it out or set it to false, or set parallelism.pipeline_parallel_size: 1",
        )


def _synchronous(settings: ScenarioSettings) -> EngineSettings:
    """The engine's settings; over several pipeline stages asynchronous scheduling is off unless asked for."""
    engine = settings.engine
    piped = settings.parallelism.pipeline_parallel_size > 1 and "async_scheduling" in preset_of(engine).keys
    return replace(engine, async_scheduling=False) if piped and engine.async_scheduling is None else engine


def _parallelism(settings: ScenarioSettings) -> Parallelism:
    asked = settings.parallelism
    return Parallelism(
        asked.tensor_parallel_size,
        asked.pipeline_parallel_size,
        asked.replicas,
        bool(asked.enable_expert_parallel),
    )


def _largest_context(
    engine: EngineSettings, model: ModelSpec, gpu: GpuSpec | None, parallelism: Parallelism
) -> EngineSettings:
    """``max_model_len: -1``: the longest request that the pool holds, at most the model's context."""
    asked = memory_settings(replace(engine, max_model_len=None))
    resolved = resolve(asked, model, gpu, parallelism)
    layout = _layout(engine, model, parallelism, resolved)
    preset, allocator = preset_of(engine), engine.allocator
    if gpu is not None and engine.max_total_tokens is None:
        found = budget(model, gpu, parallelism, asked)
        blocks, slots = found.num_gpu_blocks, found.num_gpu_blocks * found.block_size
    else:
        pool, slots, _ = make_pool(engine, layout, None, resolved)
        blocks = pool.num_slots // layout.block_size if isinstance(pool, ContiguousPool) else pool.num_gpu_blocks
    if isinstance(allocator, ContiguousAllocator):
        whole = slots if allocator.fit != "buddy" or not slots else 1 << (slots.bit_length() - 1)
        longest = min(whole, model.max_model_len)
    else:
        lengths, batched = range(1, model.max_model_len + 1), resolved.max_num_batched_tokens
        usable = blocks - preset.null_block
        longest = bisect_right(lengths, usable, key=lambda length: layout.blocks_per_request(length, batched))
    if longest < 1:
        if gpu is None:
            raise DoesNotFitError("the KV pool holds no token", where="engine", remedy="give it more blocks or bytes")
        found = budget(model, gpu, parallelism, asked)
        raise DoesNotFitError(f"{model.name} does not fit on {gpu.name}", where="gpu", remedy=remedies(found))
    return replace(engine, max_model_len=longest)


def _layout(
    engine: EngineSettings,
    model: ModelSpec,
    parallelism: Parallelism,
    resolved: Resolved,
    memory: MemoryBudget | None = None,
) -> KvLayout:
    """The KV groups, and the bytes of a block on one GPU: of the pipeline stage that decides how many there are.

    That is the stage of the memory table; without one, GPUs have equal pools, and the one that keeps the most decides.
    """
    layouts = [
        kv_layout(
            model,
            tensor_parallel_size=parallelism.tensor_parallel_size,
            block_size=resolved.block_size,
            kv_cache_dtype=resolved.kv_cache_dtype,
            stage=stage.layers,
            windows=resolved.windows,
            prefix_caching=bool(engine.enable_prefix_caching),
            max_model_len=resolved.max_model_len,
        )
        for stage in pipeline_stages(model.num_layers, parallelism.pipeline_parallel_size)
    ]
    if memory is not None:
        layouts = [layout for layout in layouts if layout.bytes_per_block == memory.bytes_per_block] or layouts
    return max(layouts, key=lambda layout: layout.bytes_per_block)


def _windows_note(engine: EngineSettings, model: ModelSpec) -> tuple[str, ...]:
    """Said where layers keep what they will not look at again, and nobody asked for it."""
    windowed = any(group.kind == "sliding" for group in model.attention)
    if not windowed or keeps_windows(engine) or engine.disable_hybrid_kv_cache_manager:
        return ()
    return (f"sliding-window layers of {model.name} keep every token (with this preset and allocator)",)


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

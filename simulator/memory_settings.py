"""Settings of a deployment that decide its memory, and what an engine makes of those left out."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.engine_defaults import BOUND_TOGETHER, ENGINES, SLOTS, engine_defaults
from simulator.errors import InputError
from simulator.specs import DTYPE_BITS, GpuSpec, ModelSpec, Parallelism
from simulator.weight_dtype import check_weight_dtype, weight_dtype_note

_MOST = 1 << 50
KV_DTYPES = ("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla", "int8", "nvfp4")


@dataclass(frozen=True)
class MemorySettings:
    """What a user may set; None = the engine's default.

    Attributes:
        gpu_memory_utilization: the engine's memory fraction: of the total (vLLM, SGLang), of what is free after
            loading (TensorRT-LLM).
        max_model_len: None = the model's own context.
        weight_dtype: None or "auto" = as the checkpoint states.
        kv_cache_memory_bytes: replaces the computed pool of one GPU.
        num_gpu_blocks_override: replaces the number of blocks.
        graphs_in_budget: vLLM 0.21 and later subtract CUDA graphs from the pool, earlier ones did not.
        windows: False sizes sliding layers as full ones (vLLM's --disable-hybrid-kv-cache-manager).
        whole_prompts: prompts are never cut, so that a token budget left out is raised to max_model_len.
        system: whose defaults are taken, of ``engine_defaults.SIZES``; None = the engine's.
    """

    engine: str = "vllm"
    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    block_size: int | None = None
    kv_cache_dtype: str | None = None
    weight_dtype: str | None = None
    enforce_eager: bool = False
    num_gpu_blocks_override: int | None = None
    kv_cache_memory_bytes: int | None = None
    graphs_in_budget: bool = True
    windows: bool = True
    enable_prefix_caching: bool = True
    whole_prompts: bool = False
    system: str | None = None


@dataclass(frozen=True)
class Resolved:
    """MemorySettings with every default filled in; ``assumptions`` says which and why."""

    engine: str
    gpu_memory_utilization: float
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int
    kv_cache_dtype: str
    weight_dtype: str | None
    windows: bool
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]


def resolve(settings: MemorySettings, model: ModelSpec, gpu: GpuSpec | None, parallelism: Parallelism) -> Resolved:
    """Fills in defaults and checks ranges.

    Raises:
        InputError: a value out of range, an unknown dtype or engine.
    """
    if settings.engine not in ENGINES:
        remedy = f"choose of {', '.join(ENGINES)}"
        raise InputError(f"engine {settings.engine!r} is not known", where="engine", remedy=remedy)
    system = settings.system or settings.engine
    defaults = engine_defaults(system, gpu, model, parallelism)
    _check_ranges(settings)
    assumptions: list[str] = []
    warnings: list[str] = []
    chosen: dict[str, float] = {}
    length = model.max_model_len if settings.max_model_len is None else settings.max_model_len
    if settings.whole_prompts:
        defaults["max_num_batched_tokens"] = max(defaults["max_num_batched_tokens"], length)
    for key, default in defaults.items():
        given = getattr(settings, key)
        chosen[key] = default if given is None else given
        if given is None and not (key == "block_size" and system in SLOTS):
            assumptions.append(f"{key} = {default} ({system}'s default)")
    fraction = float(chosen["gpu_memory_utilization"])
    if settings.max_model_len is None:
        assumptions.append(f"max_model_len = {length} (the model's context)")
    elif length > model.max_model_len:
        warnings.append(
            f"max_model_len {length} exceeds the model's context of {model.max_model_len}: "
            "an engine refuses it unless positions are extended"
        )
    tokens, seqs = _scheduler_limits(settings, chosen, length)
    kv_dtype, kv_note = _kv_dtype(settings, model)
    assumptions += kv_note
    weight_dtype = None if settings.weight_dtype in (None, "auto") else settings.weight_dtype
    if weight_dtype is not None:
        check_weight_dtype(weight_dtype)
        assumptions.append(weight_dtype_note(model, weight_dtype))
    return Resolved(
        settings.engine,
        fraction,
        length,
        tokens,
        seqs,
        int(chosen["block_size"]),
        kv_dtype,
        weight_dtype,
        settings.windows,
        tuple(assumptions),
        tuple(warnings),
    )


def _check_ranges(settings: MemorySettings) -> None:
    names = (
        "max_model_len",
        "max_num_batched_tokens",
        "max_num_seqs",
        "block_size",
        "num_gpu_blocks_override",
        "kv_cache_memory_bytes",
    )
    fraction = settings.gpu_memory_utilization
    if fraction is not None and not 0 < fraction <= 1:
        raise InputError(
            f"gpu_memory_utilization must lie in (0, 1], got {fraction}",
            where="gpu_memory_utilization",
            remedy="0.9 is usual",
        )
    for name in names:
        value = getattr(settings, name)
        if value is not None and (isinstance(value, bool) or value < 1):
            raise InputError(
                f"{name} must be at least 1, got {value}", where=name, remedy="leave it out for the default"
            )
        if value is not None and value > _MOST:
            raise InputError(f"{name} is more than any server has", where=name, remedy="leave it out for the default")


def _scheduler_limits(settings: MemorySettings, chosen: dict[str, float], length: int) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs): in vLLM defaults give way to each other."""
    tokens = int(chosen["max_num_batched_tokens"])
    seqs = int(chosen["max_num_seqs"])
    if (settings.system or settings.engine) not in BOUND_TOGETHER:
        return tokens, seqs
    if settings.max_num_batched_tokens is None:
        tokens = max(min(tokens, seqs * length), 1)
    if settings.max_num_seqs is None:
        seqs = min(seqs, tokens)
    if tokens < seqs:
        raise InputError(
            f"max_num_batched_tokens ({tokens}) is less than max_num_seqs ({seqs})",
            where="max_num_batched_tokens",
            remedy=f"set it to {seqs} or more, or max_num_seqs to {tokens}",
        )
    return tokens, seqs


def _kv_dtype(settings: MemorySettings, model: ModelSpec) -> tuple[str, list[str]]:
    given = settings.kv_cache_dtype or "auto"
    if given not in KV_DTYPES:
        raise InputError(
            f"kv_cache_dtype {given!r} is not known", where="kv_cache_dtype", remedy=f"choose of {', '.join(KV_DTYPES)}"
        )
    if given != "auto":
        return given, []
    if model.kv_cache_dtype:
        return model.kv_cache_dtype, [f"kv_cache_dtype = {model.kv_cache_dtype} (the checkpoint asks for it)"]
    wide = DTYPE_BITS[model.dtype] == 16
    dtype = model.dtype if wide else "bfloat16"
    return dtype, [f"kv_cache_dtype = {dtype} (as the model computes)"]

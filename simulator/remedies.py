"""Changes that make a deployment fit: each one is computed, none is a rule of thumb."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

from simulator.catalog import find_gpu, gpu_names
from simulator.engine_defaults import engine_defaults
from simulator.memory_budget import MemoryBudget, Remedy, compute
from simulator.memory_settings import MemorySettings
from simulator.rank_memory import valid_tensor_parallel_sizes
from simulator.specs import DTYPE_BITS, GpuSpec, ModelSpec, Parallelism

_HIGHEST_FRACTION = 0.97  # above it the CUDA context has no room on most GPUs
_MOST_GPUS = 64
_ENOUGH = 3
_LOOSE = ("gpu_memory_utilization", "max_num_batched_tokens", "max_num_seqs", "block_size")
_SHORTEST = 16  # a context below this is no remedy


def find_remedies(
    model: ModelSpec, gpu: GpuSpec, parallelism: Parallelism, settings: MemorySettings, found: MemoryBudget
) -> tuple[Remedy, ...]:
    """Single changes that work; where they are fewer than three, also pairs (smaller weights or more GPUs, and a
    shorter context); where there is none, the engine's own defaults for what was set, alone or with one of those."""
    remedies = [remedy for remedy in _single(model, gpu, parallelism, settings, found) if remedy]
    if len(remedies) < _ENOUGH:
        remedies += [remedy for remedy in _pairs(model, gpu, parallelism, settings, found) if remedy]
    return tuple(remedies or _from_defaults(model, gpu, parallelism, settings))


def _from_defaults(model: ModelSpec, gpu: GpuSpec, parallelism: Parallelism, settings: MemorySettings) -> list[Remedy]:
    """Settings that cannot hold anything, such as a fraction of 0.05, give way to the defaults first."""
    given = [key for key in _LOOSE if getattr(settings, key) is not None]
    if not given:
        return []
    usual = compute(model, gpu, parallelism, MemorySettings(**{**asdict(settings), **dict.fromkeys(given)})).settings
    changed: dict[str, object] = {
        key: getattr(usual, key) for key in given if getattr(usual, key) != getattr(settings, key)
    }
    if not changed:
        return []
    plain = MemorySettings(**{**asdict(settings), **changed})
    now = compute(model, gpu, parallelism, plain)
    words = ", ".join(f"{key} {value:g}" for key, value in changed.items())
    if now.fits:
        return [remedy for remedy in [_remedy(now, words, changed)] if remedy]
    more = [remedy for remedy in _single(model, gpu, parallelism, plain, now) if remedy]
    more = more or [remedy for remedy in _pairs(model, gpu, parallelism, plain, now) if remedy]
    return [replace(r, change=f"{words} and {r.change}", settings={**changed, **r.settings}) for r in more]


def _single(
    model: ModelSpec, gpu: GpuSpec, parallelism: Parallelism, settings: MemorySettings, found: MemoryBudget
) -> Iterator[Remedy | None]:
    resolved = found.settings
    yield _shorter(model, gpu, parallelism, settings, found)
    yield _stated_cache(model, gpu, parallelism, settings, found)
    yield _lower_fraction(model, gpu, parallelism, settings, found)
    yield _higher_fraction(model, gpu, parallelism, settings, resolved.gpu_memory_utilization)
    yield _smaller_steps(model, gpu, parallelism, settings, found)
    usual = engine_defaults(settings.engine, gpu, model, parallelism)["block_size"]
    if resolved.block_size > usual:
        yield _try(model, gpu, parallelism, settings, "block_size", usual, f"block_size {usual:g}")
    if DTYPE_BITS.get(resolved.kv_cache_dtype, 8) > 8:
        yield _try(model, gpu, parallelism, settings, "kv_cache_dtype", "fp8", "fp8 KV cache")
    for dtype in _smaller_weights(model, found):
        yield _try(model, gpu, parallelism, settings, "weight_dtype", dtype, f"{dtype} weights")
    yield _wider(model, gpu, parallelism, settings, "")
    yield _larger_gpu(model, gpu, parallelism, settings)


def _pairs(
    model: ModelSpec, gpu: GpuSpec, parallelism: Parallelism, settings: MemorySettings, found: MemoryBudget
) -> Iterator[Remedy | None]:
    for dtype in _smaller_weights(model, found):
        changed = replace(settings, weight_dtype=dtype)
        now = compute(model, gpu, parallelism, changed)
        yield _shorter(model, gpu, parallelism, changed, now, {"weight_dtype": dtype}, f"{dtype} weights and ")
    for size in _wider_sizes(model, parallelism):
        wider = replace(parallelism, tensor_parallel_size=size)
        now = compute(model, gpu, wider, settings)
        more: dict[str, object] = {"tensor_parallel_size": size}
        shorter = _shorter(model, gpu, wider, settings, now, more, f"tensor_parallel_size {size} and ")
        if shorter:
            yield shorter
            break
    if "fp8" in _smaller_weights(model, found):
        low = replace(settings, weight_dtype="fp8", kv_cache_dtype="fp8")
        keys: dict[str, object] = {"weight_dtype": "fp8", "kv_cache_dtype": "fp8"}
        yield _wider(model, gpu, parallelism, low, "with fp8 weights and fp8 KV cache", keys)
    yield _larger_and_wider(model, gpu, parallelism, settings)


def _smaller_weights(model: ModelSpec, found: MemoryBudget) -> list[str]:
    """Formats in which the weights would take clearly less than they do."""
    if found.settings.weight_dtype is not None:
        return []
    now = model.weight_bytes / model.parameters
    return [dtype for dtype in ("fp8", "int4") if now > DTYPE_BITS[dtype] / 8 * 1.5]


def _try(
    model: ModelSpec,
    gpu: GpuSpec,
    parallelism: Parallelism,
    settings: MemorySettings,
    key: str,
    value: object,
    words: str,
) -> Remedy | None:
    changed = MemorySettings(**{**asdict(settings), key: value})
    return _remedy(compute(model, gpu, parallelism, changed), words, {key: value})


def _remedy(found: MemoryBudget, change: str, settings: dict[str, object]) -> Remedy | None:
    if not found.fits:
        return None
    text = (
        f"{change}: {found.kv_pool_bytes_per_gpu / (1 << 30):.2f} GiB of KV a GPU, {found.kv_cache_tokens:,} tokens, "
        f"{found.max_concurrency:.2f}x at {found.settings.max_model_len} tokens"
    )
    return Remedy(text, settings, found.kv_cache_tokens, found.max_concurrency)


def _shorter(
    model: ModelSpec,
    gpu: GpuSpec,
    parallelism: Parallelism,
    settings: MemorySettings,
    found: MemoryBudget,
    keys: dict[str, object] | None = None,
    words: str = "",
) -> Remedy | None:
    longest = found.largest_max_model_len
    if not _SHORTEST <= longest < found.settings.max_model_len:
        return None
    text = f"{words}max_model_len {longest} (the largest that fits)"
    now = compute(model, gpu, parallelism, replace(settings, max_model_len=longest))
    return _remedy(now, text, {**(keys or {}), "max_model_len": longest})


def _stated_cache(
    model: ModelSpec, gpu: GpuSpec, parallelism: Parallelism, settings: MemorySettings, found: MemoryBudget
) -> Remedy | None:
    """A cache that the settings state: as large as one request, or left to the engine where that is too much."""
    need = found.blocks_per_request
    key, least = "num_gpu_blocks_override", need
    if settings.num_gpu_blocks_override is None:
        key, least = "kv_cache_memory_bytes", need * max(rank.layout.bytes_per_block for rank in found.ranks)
        if settings.kv_cache_memory_bytes is None:
            return None
    if getattr(settings, key) == least:
        return None
    return _try(model, gpu, parallelism, settings, key, least, f"{key} {least}")


def _lower_fraction(
    model: ModelSpec, gpu: GpuSpec, parallelism: Parallelism, settings: MemorySettings, found: MemoryBudget
) -> Remedy | None:
    """Where the fraction leaves too little for what lies outside it (SGLang's activations): the highest that does."""
    if min(rank.pool_bytes for rank in found.ranks) < 0:
        return None
    for percent in range(int(found.settings.gpu_memory_utilization * 100), 0, -1):
        fraction = percent / 100
        words = f"gpu_memory_utilization {fraction:g}"
        if fraction < found.settings.gpu_memory_utilization:
            remedy = _try(model, gpu, parallelism, settings, "gpu_memory_utilization", fraction, words)
            if remedy:
                return remedy
    return None


def _higher_fraction(
    model: ModelSpec, gpu: GpuSpec, parallelism: Parallelism, settings: MemorySettings, now: float
) -> Remedy | None:
    percent = int(now * 100) + 1
    while percent <= int(_HIGHEST_FRACTION * 100):
        fraction = percent / 100
        words = f"gpu_memory_utilization {fraction:g}"
        remedy = _try(model, gpu, parallelism, settings, "gpu_memory_utilization", fraction, words)
        if remedy:
            return remedy
        percent += 1
    return None


def _smaller_steps(
    model: ModelSpec, gpu: GpuSpec, parallelism: Parallelism, settings: MemorySettings, found: MemoryBudget
) -> Remedy | None:
    """A smaller step needs less activation memory: token budget and batch halved until it fits."""
    tokens, seqs = found.settings.max_num_batched_tokens, found.settings.max_num_seqs
    while tokens > 512 or seqs > 16:
        tokens, seqs = max(512, tokens // 2), max(16, seqs // 2)
        changed = replace(settings, max_num_batched_tokens=max(tokens, seqs), max_num_seqs=seqs)
        words = f"max_num_batched_tokens {max(tokens, seqs)} and max_num_seqs {seqs}"
        keys: dict[str, object] = {"max_num_batched_tokens": max(tokens, seqs), "max_num_seqs": seqs}
        remedy = _remedy(compute(model, gpu, parallelism, changed), words, keys)
        if remedy:
            return remedy
    return None


def _wider(
    model: ModelSpec,
    gpu: GpuSpec,
    parallelism: Parallelism,
    settings: MemorySettings,
    words: str,
    keys: dict[str, object] | None = None,
) -> Remedy | None:
    """The smallest larger tensor-parallel size that fits."""
    for size in _wider_sizes(model, parallelism):
        wider = replace(parallelism, tensor_parallel_size=size)
        change = f"tensor_parallel_size {size} {words}".strip()
        more: dict[str, object] = {**(keys or {}), "tensor_parallel_size": size}
        remedy = _remedy(compute(model, gpu, wider, settings), change, more)
        if remedy:
            return remedy
    return None


def _wider_sizes(model: ModelSpec, parallelism: Parallelism) -> list[int]:
    """Powers of two above the present size that divide the heads."""
    now = parallelism.tensor_parallel_size
    return [s for s in valid_tensor_parallel_sizes(model, _MOST_GPUS) if s > now and s & (s - 1) == 0]


def _larger_gpu(model: ModelSpec, gpu: GpuSpec, parallelism: Parallelism, settings: MemorySettings) -> Remedy | None:
    """The GPU of the catalogue with the least memory that fits."""
    larger = [other for other in map(find_gpu, gpu_names()) if other.memory_bytes > gpu.memory_bytes]
    for other in sorted(larger, key=lambda spec: (spec.memory_bytes, spec.name)):
        words = f"GPU {other.name} ({other.memory_bytes / (1 << 30):.1f} GiB)"
        remedy = _remedy(compute(model, other, parallelism, settings), words, {"gpu": other.name})
        if remedy:
            return remedy
    return None


def _larger_and_wider(
    model: ModelSpec, gpu: GpuSpec, parallelism: Parallelism, settings: MemorySettings
) -> Remedy | None:
    """Fewest GPUs of a larger kind, then the smallest kind."""
    larger = [other for other in map(find_gpu, gpu_names()) if other.memory_bytes > gpu.memory_bytes]
    for size in _wider_sizes(model, parallelism):
        wider = replace(parallelism, tensor_parallel_size=size)
        for other in sorted(larger, key=lambda spec: (spec.memory_bytes, spec.name)):
            words = f"GPU {other.name} and tensor_parallel_size {size}"
            keys: dict[str, object] = {"gpu": other.name, "tensor_parallel_size": size}
            remedy = _remedy(compute(model, other, wider, settings), words, keys)
            if remedy:
                return remedy
    return None

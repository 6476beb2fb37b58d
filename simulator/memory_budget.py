"""From a model, a GPU and settings to the KV pool of every GPU: a table that adds up.

vLLM (SCHEDULERS.md section 7): pool = total · f - weights - activation peak - runtime - CUDA graphs.
SGLang: pool = total · f - weights; activations and graphs live in what the fraction leaves.
TensorRT-LLM: pool = (free after loading) · f.
The capacity of a replica is that of its smallest rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.budget_rows import GRAPHS, LEFT, POOL, RESERVES, RUNTIME, BudgetRow, rank_rows, visible_bytes
from simulator.errors import InputError
from simulator.kv_groups import KvLayout, kv_layout
from simulator.memory_settings import MemorySettings, Resolved, resolve
from simulator.rank_memory import (
    Stage,
    activation_bytes,
    check_parallelism,
    context_bytes,
    graph_bytes,
    pipeline_stages,
    stage_weight_bytes,
)
from simulator.specs import GpuSpec, ModelSpec, Parallelism
from simulator.weight_dtype import with_weight_dtype

_GIB = 1 << 30


@dataclass(frozen=True)
class RankBudget:
    """The ranks of one pipeline stage (tensor-parallel ranks are alike)."""

    stage: Stage
    weight_bytes: int
    activation_bytes: int
    pool_bytes: int
    layout: KvLayout
    num_gpu_blocks: int
    rows: tuple[BudgetRow, ...]


@dataclass(frozen=True)
class Remedy:
    """A change that makes a deployment fit, found by computing it."""

    change: str
    settings: dict[str, object]
    kv_cache_tokens: int
    max_concurrency: float


@dataclass(frozen=True)
class MemoryBudget:
    """What `kvplan size` answers for a model on a GPU.

    Attributes:
        rows: of the rank that holds the fewest blocks; ``ranks`` has every stage.
        num_gpu_blocks: blocks of every rank, the null block included (usable: one less).
        blocks_per_request: of one request of max_model_len tokens, summed over KV groups.
        kv_cache_tokens: max_concurrency · max_model_len, as vLLM prints it.
        largest_max_model_len: the longest request that one replica holds.
    """

    model: ModelSpec
    gpu: GpuSpec
    parallelism: Parallelism
    settings: Resolved
    rows: tuple[BudgetRow, ...]
    ranks: tuple[RankBudget, ...]
    num_gpu_blocks: int
    block_size: int
    bytes_per_block: int
    blocks_per_request: int
    kv_pool_bytes_per_gpu: int
    kv_cache_tokens: int
    max_concurrency: float
    largest_max_model_len: int
    weight_bytes_per_gpu: int
    activation_bytes: int
    reserve_bytes: int
    fits: bool
    formula: tuple[str, ...]
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...]
    remedies: tuple[Remedy, ...] = ()


def budget(model: ModelSpec, gpu: GpuSpec, parallelism: Parallelism, settings: MemorySettings) -> MemoryBudget:
    """The memory of a deployment; where it does not fit, with changes that would make it fit.

    Raises:
        InputError: impossible settings, or a tensor-parallel size that does not divide the heads.
    """
    from simulator.remedies import find_remedies  # it computes budgets with other settings

    found = compute(model, gpu, parallelism, settings)
    if found.fits:
        return found
    return replace(found, remedies=find_remedies(model, gpu, parallelism, settings, found))


def compute(model: ModelSpec, gpu: GpuSpec, parallelism: Parallelism, settings: MemorySettings) -> MemoryBudget:
    """``budget`` without the search for remedies."""
    check_parallelism(model, parallelism)
    resolved = resolve(settings, model, gpu, parallelism)
    stages = pipeline_stages(model.num_layers, parallelism.pipeline_parallel_size)
    held = with_weight_dtype(model, resolved.weight_dtype)
    ranks = tuple(_rank(held, gpu, parallelism, settings, resolved, stage) for stage in stages)
    holding = [rank for rank in ranks if rank.layout.bytes_per_block]
    if not holding:
        raise InputError(
            f"{model.name} keeps no KV cache and no state", where="model", remedy="choose a model with attention"
        )
    tightest = min(holding, key=lambda rank: (rank.num_gpu_blocks, rank.pool_bytes))
    layout = tightest.layout
    blocks = tightest.num_gpu_blocks
    if settings.num_gpu_blocks_override is not None:
        blocks = settings.num_gpu_blocks_override
    length, batched = resolved.max_model_len, resolved.max_num_batched_tokens
    need = layout.blocks_per_request(length, batched)
    concurrency = blocks / need
    reserve = sum(row.bytes for row in tightest.rows if row.name in RESERVES)
    found = MemoryBudget(
        model,
        gpu,
        parallelism,
        resolved,
        rows=tightest.rows,
        ranks=ranks,
        num_gpu_blocks=blocks,
        block_size=layout.block_size,
        bytes_per_block=layout.bytes_per_block,
        blocks_per_request=need,
        kv_pool_bytes_per_gpu=max(0, tightest.pool_bytes),
        kv_cache_tokens=blocks * length // need,
        max_concurrency=concurrency,
        largest_max_model_len=_longest(layout, blocks, batched, max(length, model.max_model_len)),
        weight_bytes_per_gpu=max(rank.weight_bytes for rank in ranks),
        activation_bytes=max(rank.activation_bytes for rank in ranks),
        reserve_bytes=reserve,
        fits=blocks >= need and all(_bottom(rank) >= 0 for rank in ranks),
        formula=(),
        warnings=(*resolved.warnings, *_warnings(gpu, settings, resolved, ranks)),
        assumptions=(*resolved.assumptions, *layout.notes, *_assumptions(model, resolved)),
    )
    return replace(found, formula=_formula(found, tightest))


def _rank(
    model: ModelSpec,
    gpu: GpuSpec,
    parallelism: Parallelism,
    settings: MemorySettings,
    resolved: Resolved,
    stage: Stage,
) -> RankBudget:
    size = parallelism.tensor_parallel_size
    windows = resolved.windows and resolved.engine == "vllm"
    layout = kv_layout(
        model,
        tensor_parallel_size=size,
        block_size=resolved.block_size,
        kv_cache_dtype=resolved.kv_cache_dtype,
        stage=stage.layers,
        windows=windows,
        prefix_caching=settings.enable_prefix_caching,
        max_model_len=resolved.max_model_len,
    )
    weights = stage_weight_bytes(model, stage, size, expert_parallel=parallelism.enable_expert_parallel)
    activations = activation_bytes(
        model,
        stage,
        size,
        resolved.max_num_batched_tokens,
        resolved.max_num_seqs,
        sampler_profiled=resolved.engine == "vllm",
    )
    rows, pool = rank_rows(model, gpu, parallelism, settings, resolved, weights, activations)
    blocks = max(0, pool) // layout.bytes_per_block if layout.bytes_per_block else 0
    return RankBudget(stage, weights, activations, pool, layout, blocks, rows)


def _bottom(rank: RankBudget) -> int:
    """The least of what must not be negative on a rank: its pool, and what is left for activations."""
    return min(row.bytes for row in rank.rows if row.name in (POOL, *LEFT))


def _longest(layout: KvLayout, blocks: int, batched: int, most: int) -> int:
    """The longest request that ``blocks`` blocks hold, up to ``most`` tokens (0: none); found by halving."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if layout.blocks_per_request(middle, batched) <= blocks:
            low = middle
        else:
            high = middle - 1
    return low


def _warnings(gpu: GpuSpec, settings: MemorySettings, resolved: Resolved, ranks: tuple[RankBudget, ...]) -> list[str]:
    found = []
    outside = min(row.bytes for rank in ranks for row in rank.rows if row.name in LEFT)
    needed = context_bytes() if resolved.engine == "vllm" else 0
    if resolved.engine == "vllm" and not settings.graphs_in_budget:
        needed += graph_bytes(settings.enforce_eager)
    if outside < needed:
        found.append(
            f"only {outside / _GIB:.2f} GiB of {gpu.name} are left outside the fraction; the CUDA context needs about "
            f"{needed / _GIB:.2f} GiB: lower gpu_memory_utilization"
        )
    if len({rank.num_gpu_blocks for rank in ranks}) > 1:
        most = max(rank.num_gpu_blocks for rank in ranks)
        least = min(rank.num_gpu_blocks for rank in ranks)
        found.append(f"pipeline stages hold {least} to {most} blocks; the smallest decides for all")
    return found


def _assumptions(model: ModelSpec, resolved: Resolved) -> list[str]:
    found = list(model.notes)
    windowed = any(group.kind in ("sliding", "chunked") for group in model.attention)
    if windowed and resolved.engine != "vllm":
        found.append(f"{resolved.engine}: windowed layers are sized as full ones (an upper bound of what they keep)")
    if any(group.kind == "chunked" for group in model.attention) and resolved.engine == "vllm":
        found.append("chunked layers are sized as full ones: vLLM's hybrid manager is off for them")
    return found


def _formula(found: MemoryBudget, rank: RankBudget) -> tuple[str, ...]:
    """The arithmetic with its numbers in it."""
    length = found.settings.max_model_len
    parts = {row.name: row.bytes / _GIB for row in rank.rows}
    visible = visible_bytes(found.gpu)[0] / _GIB
    fraction = found.settings.gpu_memory_utilization
    pool = rank.pool_bytes / _GIB
    if any(row.name == POOL and row.basis == "exact" for row in rank.rows):
        first = f"KV pool = {pool:.2f} GiB a GPU, as kv_cache_memory_bytes states"
    elif found.settings.engine == "vllm":
        terms = [parts["weights"], parts["activation peak"], parts[RUNTIME], parts[GRAPHS]]
        spelled = " - ".join(f"{term:.2f}" for term in terms)
        first = f"KV pool = {visible:.2f} x {fraction:g} - {spelled} = {pool:.2f} GiB a GPU"
    elif found.settings.engine == "sglang":
        first = f"KV pool = {visible:.2f} x {fraction:g} - {parts['weights']:.2f} = {pool:.2f} GiB a GPU"
    else:
        free = parts[POOL] + parts["left free"]
        first = f"KV pool = {free:.2f} free after loading x {fraction:g} = {pool:.2f} GiB a GPU"
    per_block = found.bytes_per_block
    return (
        first,
        f"blocks = floor({max(0, rank.pool_bytes)} / {per_block}) = {rank.num_gpu_blocks} of {found.block_size} tokens",
        f"max concurrency = {found.num_gpu_blocks} / {found.blocks_per_request} blocks a request of {length} tokens"
        f" = {found.max_concurrency:.2f}",
    )

"""The parts of one GPU's memory, by each engine's own meaning of its memory fraction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.memory_settings import MemorySettings, Resolved
from simulator.rank_memory import context_bytes, graph_bytes, runtime_bytes
from simulator.specs import GpuSpec, ModelSpec, Parallelism

Basis = Literal["exact", "estimated", "assumed"]
_VISIBLE_GUESS = 0.994  # of the driver's total, where CUDA's own figure is not known (H100: 79.18 of 79.65 GiB)


RUNTIME = "runtime buffers (cuBLAS, NCCL)"
GRAPHS = "CUDA graphs"
POOL = "KV pool"
CONTEXT = "CUDA context"
LEFT = ("left outside the fraction", "left free")
RESERVES = (RUNTIME, GRAPHS, CONTEXT)


@dataclass(frozen=True)
class BudgetRow:
    """A part of one GPU's memory. Parts add up to the total; a negative pool is what is missing."""

    name: str
    bytes: int
    basis: Basis
    note: str = ""


def rank_rows(
    model: ModelSpec,
    gpu: GpuSpec,
    parallelism: Parallelism,
    settings: MemorySettings,
    resolved: Resolved,
    weights: int,
    activations: int,
) -> tuple[tuple[BudgetRow, ...], int]:
    """(parts that add up to the GPU's memory, bytes of the pool)."""
    visible, visible_basis = visible_bytes(gpu)
    driver = BudgetRow("kept by the driver", gpu.memory_bytes - visible, visible_basis, "not visible to CUDA")
    sure = model.parameters_exact and resolved.weight_dtype is None and not model.encoder_parameters
    encoder = "with an encoder whose size is estimated" if model.encoder_parameters else ""
    weight = BudgetRow("weights", weights, "exact" if sure else "estimated", encoder)
    activation = BudgetRow("activation peak", activations, "estimated", f"{resolved.max_num_batched_tokens} tokens")
    runtime = BudgetRow(RUNTIME, runtime_bytes(parallelism), "assumed")
    inside = settings.graphs_in_budget or resolved.engine != "vllm"
    graphs = BudgetRow(GRAPHS, graph_bytes(settings.enforce_eager) if inside else 0, "assumed")
    fraction = resolved.gpu_memory_utilization
    fixed = weights + activations + runtime.bytes + graphs.bytes
    if resolved.engine == "vllm":
        budgeted = -int(-visible * fraction // 1)
        pool = settings.kv_cache_memory_bytes or budgeted - fixed
        outside = visible - fixed - pool
        note = f"(1 - {fraction:g}) of what CUDA sees: context, fragmentation, other processes"
        left = BudgetRow(LEFT[0], outside, visible_basis, note)
        parts: tuple[BudgetRow, ...] = (driver, left, weight, activation, runtime, graphs)
    else:
        context = BudgetRow(CONTEXT, context_bytes(), "assumed")
        if resolved.engine == "sglang":
            pool = settings.kv_cache_memory_bytes or int(visible * fraction) - weights
            note = f"of the (1 - {fraction:g}) that the fraction leaves for activations and graphs"
        else:
            free = visible - context.bytes - fixed
            pool = settings.kv_cache_memory_bytes or int(free * fraction)
            note = f"(1 - {fraction:g}) of what is free after loading"
        left = BudgetRow(LEFT[1], visible - context.bytes - fixed - pool, "estimated", note)
        parts = (driver, context, weight, activation, runtime, graphs, left)
    basis: Basis = "exact" if settings.kv_cache_memory_bytes else "estimated"
    return (*parts, BudgetRow(POOL, pool, basis, "negative: this much is missing" if pool < 0 else "")), pool


def visible_bytes(gpu: GpuSpec) -> tuple[int, Basis]:
    """What CUDA reports as the total to a process, and how sure that is."""
    if gpu.visible_bytes is None:
        return int(gpu.memory_bytes * _VISIBLE_GUESS), "assumed"
    guessed = gpu.sources.get("visible_gib", "").startswith("estimated")
    return gpu.visible_bytes, "estimated" if guessed else "exact"

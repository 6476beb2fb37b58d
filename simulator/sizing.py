"""`kvplan size`: the memory arithmetic of a model, with or without a GPU, as a dict and as plain ASCII text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simulator.catalog import find_gpu, find_model
from simulator.errors import InputError
from simulator.kv_groups import effective_kv_dtype, kv_value_bytes, latent_bytes, layer_page
from simulator.memory_budget import MemoryBudget, budget
from simulator.memory_settings import MemorySettings, resolve
from simulator.rank_memory import Stage, check_parallelism, pipeline_stages, stage_weight_bytes
from simulator.sizing_text import budget_text, model_text
from simulator.specs import GpuSpec, ModelSpec, Parallelism
from simulator.weight_dtype import with_weight_dtype


@dataclass(frozen=True)
class SizeRequest:
    """What `kvplan size` is asked. ``model`` and ``gpu`` are names or specs; without a GPU only the arithmetic of
    tokens and weights is answered."""

    model: str | ModelSpec
    gpu: str | GpuSpec | None = None
    parallelism: Parallelism = field(default_factory=Parallelism)
    settings: MemorySettings = field(default_factory=MemorySettings)


@dataclass(frozen=True)
class SizeResult:
    """The answer. ``budget`` is None without a GPU; ``fits`` too."""

    model: ModelSpec
    parallelism: Parallelism
    kv_cache_dtype: str
    kv_bytes_per_token: int
    kv_bytes_per_token_per_gpu: int
    sliding_cap_bytes: int
    weight_bytes: int
    weight_bytes_per_gpu: int
    formula: tuple[str, ...]
    assumptions: tuple[str, ...]
    budget: MemoryBudget | None

    @property
    def fits(self) -> bool | None:
        return None if self.budget is None else self.budget.fits


def size(request: SizeRequest) -> SizeResult:
    """Sizes a model, on a GPU where one is given.

    Raises:
        InputError: an unknown name, an impossible setting or tensor-parallel size.
    """
    model = find_model(request.model) if isinstance(request.model, str) else request.model
    gpu = find_gpu(request.gpu) if isinstance(request.gpu, str) else request.gpu
    parallelism, settings = request.parallelism, request.settings
    check_parallelism(model, parallelism)
    stages = pipeline_stages(model.num_layers, parallelism.pipeline_parallel_size)
    resolved = resolve(settings, model, gpu, parallelism)
    kv_dtype = effective_kv_dtype(model, resolved.kv_cache_dtype)
    tp = parallelism.tensor_parallel_size
    per_gpu = max(_kv_per_token(model, stage.layers, tp, kv_dtype) for stage in stages)
    whole = Stage(range(model.num_layers), True, True)
    held = with_weight_dtype(model, resolved.weight_dtype)
    found = None if gpu is None else budget(model, gpu, parallelism, settings)
    return SizeResult(
        model=model,
        parallelism=parallelism,
        kv_cache_dtype=kv_dtype,
        kv_bytes_per_token=_kv_per_token(model, whole.layers, 1, kv_dtype, indexer=False),
        kv_bytes_per_token_per_gpu=per_gpu,
        sliding_cap_bytes=model.sliding_cap_bytes(float(kv_value_bytes(kv_dtype))),
        weight_bytes=stage_weight_bytes(held, whole, 1),
        weight_bytes_per_gpu=max(
            stage_weight_bytes(held, s, tp, expert_parallel=parallelism.enable_expert_parallel) for s in stages
        ),
        formula=(*_token_formula(model, kv_dtype), *(found.formula if found else ())),
        assumptions=found.assumptions if found else (*_bare_assumptions(resolved.assumptions), *model.notes),
        budget=found,
    )


def size_dict(result: SizeResult) -> dict[str, Any]:
    """The object of `kvplan size --json`. Bytes are per GPU where the key says so; None where no GPU was given."""
    model, found = result.model, result.budget
    document: dict[str, Any] = {
        "fits": result.fits,
        "model": model.name,
        "gpu": found.gpu.name if found else None,
        "engine": found.settings.engine if found else None,
        "tensor_parallel_size": result.parallelism.tensor_parallel_size,
        "pipeline_parallel_size": result.parallelism.pipeline_parallel_size,
        "kv_cache_dtype": result.kv_cache_dtype,
        "kv_bytes_per_token": result.kv_bytes_per_token,
        "kv_bytes_per_token_per_gpu": result.kv_bytes_per_token_per_gpu,
        "kv_bytes_per_token_full_layers": model.kv_bytes_per_token_full_layers(
            float(kv_value_bytes(result.kv_cache_dtype))
        ),
        "sliding_cap_bytes": result.sliding_cap_bytes,
        "indexer_bytes_per_token": model.indexer_bytes_per_token(),
        "state_bytes_per_sequence": model.state_bytes_per_sequence(),
        "weight_bytes": result.weight_bytes,
        "weight_bytes_per_gpu": result.weight_bytes_per_gpu,
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "parameters_exact": model.parameters_exact,
        "linear_flops_per_token": model.linear_flops_per_token(),
        "attention_flops_per_context_token": model.attention_flops_per_context_token(),
        "activation_bytes": found.activation_bytes if found else None,
        "reserve_bytes": found.reserve_bytes if found else None,
        "kv_pool_bytes_per_gpu": found.kv_pool_bytes_per_gpu if found else None,
        "num_gpu_blocks": found.num_gpu_blocks if found else None,
        "block_size": found.block_size if found else None,
        "bytes_per_block": found.bytes_per_block if found else None,
        "blocks_per_request": found.blocks_per_request if found else None,
        "kv_cache_tokens": found.kv_cache_tokens if found else None,
        "max_concurrency": found.max_concurrency if found else None,
        "max_model_len": found.settings.max_model_len if found else model.max_model_len,
        "largest_max_model_len": found.largest_max_model_len if found else None,
        "formula": list(result.formula),
        "warnings": list(found.warnings) if found else [],
        "assumptions": list(result.assumptions),
        "remedies": _remedies(found),
    }
    if found:
        document |= _gpu_part(found)
    return document


def size_text(result: SizeResult) -> str:
    """What `kvplan size` prints: plain ASCII, GiB, vLLM's start-up lines word for word."""
    text = model_text(
        result.model,
        result.kv_cache_dtype,
        result.kv_bytes_per_token,
        result.sliding_cap_bytes,
        result.weight_bytes,
        _token_formula(result.model, result.kv_cache_dtype),
    )
    if result.budget is not None:
        text += "\n" + budget_text(result.budget)
    if result.assumptions:
        text += "\nAssumed:\n" + "".join(f"  - {line}\n" for line in result.assumptions)
    return text


def _gpu_part(found: MemoryBudget) -> dict[str, Any]:
    settings = found.settings
    return {
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "max_num_seqs": settings.max_num_seqs,
        "gpu_memory_bytes": found.gpu.memory_bytes,
        "rows": [{"name": row.name, "bytes": row.bytes, "basis": row.basis, "note": row.note} for row in found.rows],
        "ranks": [
            {
                "layers": [rank.stage.layers.start, rank.stage.layers.stop],
                "weight_bytes": rank.weight_bytes,
                "activation_bytes": rank.activation_bytes,
                "kv_pool_bytes": rank.pool_bytes,
                "num_gpu_blocks": rank.num_gpu_blocks,
            }
            for rank in found.ranks
        ],
        "kv_groups": [
            {
                "kind": group.kind,
                "layers": len(group.layers),
                "block_tokens": group.block_tokens,
                "window_tokens": group.window_tokens,
                "blocks_per_request": group.blocks(settings.max_model_len, settings.max_num_batched_tokens),
            }
            for group in found.ranks[0].layout.groups
        ],
    }


def _remedies(found: MemoryBudget | None) -> list[dict[str, Any]]:
    return [
        {
            "change": remedy.change,
            "settings": remedy.settings,
            "kv_cache_tokens": remedy.kv_cache_tokens,
            "max_concurrency": remedy.max_concurrency,
        }
        for remedy in (found.remedies if found else ())
    ]


def _kv_per_token(
    model: ModelSpec, layers: range, tensor_parallel_size: int, kv_dtype: str, *, indexer: bool = True
) -> int:
    """KV bytes that one token takes on a rank, in every layer of ``layers``."""
    total = 0
    for index in layers:
        shape = model.layers[index].attention
        page = layer_page(shape, tensor_parallel_size, kv_dtype)
        if page is not None:
            total += int(page.token_bytes) - (0 if indexer else shape.indexer_bytes)
    return total


def _token_formula(model: ModelSpec, kv_dtype: str) -> tuple[str, ...]:
    """KV bytes per token, spelled out by group of layers."""
    value = float(kv_value_bytes(kv_dtype))
    lines = []
    for group in model.attention:
        if group.kind == "mla":
            rope = group.head_dim_k - group.latent_rank
            plain = latent_bytes(group, kv_dtype, kv_value_bytes(kv_dtype))
            body = f"({group.latent_rank} latent + {rope} rotary) x {value:g} B"
            if plain != group.head_dim_k * kv_value_bytes(kv_dtype):
                body = f"({group.latent_rank} latent + {rope} rotary in 16 bit, with scales: {int(plain)} B)"
            lines.append(f"{group.count} mla layers x {body} = {int(group.count * plain)} B a token")
            continue
        if group.kind in ("full", "sliding", "chunked"):
            heads = (
                f"2 x {group.kv_heads} KV heads x {group.head_dim_k}"
                if group.head_dim_k == group.head_dim_v
                else f"{group.kv_heads} KV heads x ({group.head_dim_k} K + {group.head_dim_v} V)"
            )
            body = f"{heads} x {value:g} B"
        else:
            continue
        window = f", window {group.window_tokens}" if group.window_tokens else ""
        total = int(group.count * group.values_per_token * kv_value_bytes(kv_dtype))
        lines.append(f"{group.count} {group.kind} layers x {body} = {total} B a token{window}")
    return tuple(lines)


def _bare_assumptions(assumptions: tuple[str, ...]) -> tuple[str, ...]:
    """Without a GPU only the KV dtype matters."""
    return tuple(line for line in assumptions if line.startswith("kv_cache_dtype"))


def request_from_options(
    *,
    model: str,
    gpu: str | None = None,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    enable_expert_parallel: bool = False,
    **settings: Any,
) -> SizeRequest:
    """A SizeRequest from the options of `kvplan size` (``settings``: fields of MemorySettings; None = default)."""
    known = set(MemorySettings.__dataclass_fields__)
    unknown = sorted(set(settings) - known)
    if unknown:
        raise InputError(f"{unknown[0]} is not an option of size", remedy=f"options: {', '.join(sorted(known))}")
    given = {key: value for key, value in settings.items() if value is not None}
    parallelism = Parallelism(
        tensor_parallel_size, pipeline_parallel_size, enable_expert_parallel=enable_expert_parallel
    )
    return SizeRequest(model, gpu, parallelism, MemorySettings(**given))

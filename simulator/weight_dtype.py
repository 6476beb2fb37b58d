"""A model with its weights in another format than the checkpoint's: memory and step times both start from it."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from simulator.errors import InputError
from simulator.model_config.quantization import WEIGHT_FORMATS
from simulator.specs import DTYPE_BITS, LayerSpec, ModelSpec, WeightGroup


def check_weight_dtype(weight_dtype: str) -> None:
    """Raises InputError for what no engine loads."""
    if weight_dtype not in WEIGHT_FORMATS and DTYPE_BITS.get(weight_dtype) not in (16, 32):
        known = sorted({*WEIGHT_FORMATS, "bfloat16", "float16", "float32"})
        raise InputError(
            f"weight_dtype {weight_dtype!r} is not known", where="weight_dtype", remedy=f"choose of {', '.join(known)}"
        )


def with_weight_dtype(model: ModelSpec, weight_dtype: str | None) -> ModelSpec:
    """The model with its weights in ``weight_dtype``; None = as its checkpoint states them.

    A format of fewer than 16 bits holds the matrices of the layers; routers, norms, embedding and LM head stay in
    16 bit, as in engines that quantise while loading. One scale an output channel is too little to be counted here.
    """
    if weight_dtype is None:
        return model
    layers = tuple(
        LayerSpec(layer.attention, tuple(_held_in(group, weight_dtype) for group in layer.weights))
        for layer in model.layers
    )
    groups = [group for layer in layers for group in layer.weights]
    wide_bytes, wide_compute = _wide(weight_dtype)
    head_parameters = 0 if model.tied_embeddings else model.lm_head_parameters
    outside = (
        model.parameters - model.embedding_parameters - head_parameters - sum(group.parameters for group in groups)
    )
    return replace(
        model,
        layers=layers,
        weight_bytes=sum(group.bytes for group in groups)
        + wide_bytes * (model.embedding_parameters + head_parameters + outside),
        embedding_bytes=wide_bytes * model.embedding_parameters,
        lm_head_bytes=wide_bytes * model.lm_head_parameters,
        lm_head_compute=wide_compute,
        other_bytes=wide_bytes * outside,
        linear_weight_bytes_per_parameter=_mean_bytes([g for g in groups if g.split != "experts"]),
        expert_weight_bytes_per_parameter=_mean_bytes([g for g in groups if g.split == "experts"]),
    )


def weight_dtype_note(model: ModelSpec, weight_dtype: str) -> str:
    """What the setting changes, for the assumptions of a result."""
    held = with_weight_dtype(model, weight_dtype)
    kept = "; routers, norms, embedding and LM head stay in 16 bit" if weight_dtype in WEIGHT_FORMATS else ""
    return (
        f"weight_dtype = {weight_dtype}: {held.weight_bytes / 1e9:.1f} GB of weights in memory and in step times alike "
        f"(the checkpoint's own: {model.weight_bytes / 1e9:.1f} GB){kept}"
    )


def _held_in(group: WeightGroup, weight_dtype: str) -> WeightGroup:
    chosen = WEIGHT_FORMATS.get(weight_dtype) if group.quantizable else None
    if chosen is None:
        wide_bytes, wide_compute = _wide(weight_dtype)
        return replace(group, bytes=group.parameters * wide_bytes, compute=wide_compute)
    scale_bits = chosen.scale_bits / chosen.group if chosen.group else 0.0
    return replace(group, bytes=ceil(group.parameters * (chosen.bits + scale_bits) / 8), compute=chosen.compute)


def _wide(weight_dtype: str) -> tuple[int, str]:
    """(bytes, compute type) of what is not quantised: 16 bit, unless 32 is asked for."""
    return (4, "fp32") if DTYPE_BITS.get(weight_dtype) == 32 else (2, "")


def _mean_bytes(groups: list[WeightGroup]) -> float:
    """Bytes a parameter of the matrices; of all, where none can be quantised."""
    matrices = [group for group in groups if group.quantizable] or groups
    parameters = sum(group.parameters for group in matrices)
    return sum(group.bytes for group in matrices) / parameters if parameters else 0.0

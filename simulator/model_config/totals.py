"""Adds a blueprint up: parameters, bytes and groups of layers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import ceil

from simulator.model_config.blueprint import Blueprint, Layer, Linear
from simulator.model_config.fields import Fields
from simulator.model_config.quantization import Quantization, read_dtype, read_quantization
from simulator.specs import AttentionLayers, LayerSpec, ModelSpec, Split, WeightGroup


def add_up(blueprint: Blueprint, fields: Fields, *, name: str, source: str, architecture: str) -> ModelSpec:
    """The ModelSpec of a blueprint, weighed as its quantisation config says."""
    dtype, dtype_bytes, dtype_notes = read_dtype(fields)
    quantization = read_quantization(fields, dtype_bytes)
    layers = tuple(_layer(blueprint, i, layer, quantization, dtype_bytes) for i, layer in enumerate(blueprint.layers))
    head = Linear("lm_head", blueprint.hidden_size, blueprint.vocab_size, blueprint.lm_head_bias)
    head_parameters = head.matrix + head.bias_values
    head_bytes = ceil(quantization.head_bytes(head)) + ceil(head.bias_values * dtype_bytes)
    expert_sizes = _expert_sizes(blueprint)
    outside = blueprint.other + sum(_parameters(p) for p in blueprint.projections)
    parameters = _total(blueprint, layers, outside, head_parameters)
    embedding_bytes = ceil(blueprint.embedding * dtype_bytes)
    weight_bytes = (
        embedding_bytes
        + ceil(outside * dtype_bytes)
        + sum(g.bytes for layer in layers for g in layer.weights)
        + (0 if blueprint.tied else head_bytes)
    )
    return ModelSpec(
        name=name,
        source=source,
        architecture=architecture,
        num_layers=len(layers),
        hidden_size=blueprint.hidden_size,
        vocab_size=blueprint.vocab_size,
        max_model_len=blueprint.max_model_len,
        attention=_group(blueprint.layers),
        parameters=parameters,
        active_parameters=parameters - _idle(blueprint),
        embedding_parameters=blueprint.embedding,
        lm_head_parameters=head_parameters,
        tied_embeddings=blueprint.tied,
        dense_linear_parameters=_dense(blueprint),
        num_experts=blueprint.experts,
        experts_per_token=blueprint.experts_per_token,
        weight_bytes=weight_bytes,
        dtype=dtype,
        layers=layers,
        intermediate_size=_widest(blueprint),
        embedding_bytes=embedding_bytes,
        lm_head_bytes=head_bytes,
        lm_head_compute=quantization.head_format.compute if quantization.head_format else "",
        other_bytes=ceil(outside * dtype_bytes),
        kv_cache_dtype=quantization.kv_cache_dtype,
        parameters_exact=blueprint.parameters_exact,
        encoder_parameters=blueprint.encoder,
        notes=(*blueprint.notes, *dtype_notes, *quantization.notes, *fields.defaulted),
        parameters_per_expert=sum(expert_sizes) // len(expert_sizes) if expert_sizes else 0,
        num_moe_layers=len(expert_sizes),
        expert_weight_bytes_per_parameter=_mean_bytes(blueprint, quantization, experts=True, default=0.0),
        linear_weight_bytes_per_parameter=_mean_bytes(blueprint, quantization, experts=False, default=dtype_bytes),
    )


def _total(blueprint: Blueprint, layers: tuple[LayerSpec, ...], outside: int, head: int) -> int:
    inside = sum(g.parameters for layer in layers for g in layer.weights)
    return blueprint.embedding + outside + inside + (0 if blueprint.tied else head)


def _idle(blueprint: Blueprint) -> int:
    """Parameters of the experts that a token does not pass."""
    return sum(
        (linear.copies - linear.active) * (linear.matrix + linear.bias_values) for _, linear in blueprint.linears()
    )


def _parameters(linear: Linear) -> int:
    return linear.copies * (linear.matrix + linear.bias_values)


def _layer(blueprint: Blueprint, index: int, layer: Layer, quantization: Quantization, dtype_bytes: float) -> LayerSpec:
    parameters: dict[tuple[Split, bool, str], int] = defaultdict(int)
    sizes: dict[tuple[Split, bool, str], float] = defaultdict(float)
    for linear in layer.linears:
        name = f"{blueprint.prefix}{index}.{linear.name}"
        matrix_bytes, compute = quantization.stored(name, linear)
        key = (linear.split, linear.quantizable, compute)
        parameters[key] += _parameters(linear)
        sizes[key] += linear.copies * (matrix_bytes + linear.bias_values * dtype_bytes)
    if layer.other:
        parameters["replicated", False, ""] += layer.other
        sizes["replicated", False, ""] += layer.other * dtype_bytes
    groups = tuple(
        WeightGroup(split, count, ceil(sizes[split, quantizable, compute]), quantizable, compute)
        for (split, quantizable, compute), count in parameters.items()
    )
    return LayerSpec(layer.attention, groups)


def _group(layers: tuple[Layer, ...]) -> tuple[AttentionLayers, ...]:
    """Alike layers together, in the order of their first appearance."""
    counts: dict[AttentionLayers, int] = {}
    for layer in layers:
        counts[layer.attention] = counts.get(layer.attention, 0) + layer.attention.count
    return tuple(replace(shape, count=count) for shape, count in counts.items())


def _dense(blueprint: Blueprint) -> int:
    inside = sum(_parameters(linear) for _, linear in blueprint.linears() if linear.split != "experts")
    return inside + sum(_parameters(p) for p in blueprint.projections)


def _expert_sizes(blueprint: Blueprint) -> list[int]:
    """Parameters of one expert in each MoE layer."""
    blocks = [
        sum(linear.matrix + linear.bias_values for linear in layer.linears if linear.split == "experts")
        for layer in blueprint.layers
    ]
    return [size for size in blocks if size]


def _mean_bytes(blueprint: Blueprint, quantization: Quantization, *, experts: bool, default: float) -> float:
    """Bytes a parameter of the experts, or of all other linear layers."""
    size = 0.0
    count = 0
    for name, linear in blueprint.linears():
        if (linear.split == "experts") == experts:
            size += linear.copies * quantization.linear_bytes(name, linear)
            count += linear.copies * linear.matrix
    return size / count if count else default


def _widest(blueprint: Blueprint) -> int:
    """The widest activation of one token in an MLP or in its experts (gate and up together)."""
    widest = 0
    for layer in blueprint.layers:
        width = sum(
            linear.outputs * linear.active for linear in layer.linears if linear.name.endswith(("gate_proj", "up_proj"))
        )
        widest = max(widest, width)
    return widest

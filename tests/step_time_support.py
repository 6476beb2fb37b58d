"""Shapes and GPUs for tests of step times, given by hand: data sheets and config.json files say the same."""

from __future__ import annotations

from math import ceil

from simulator.specs import AttentionLayers, GpuSpec, LayerSpec, ModelSpec, WeightGroup
from simulator.step_time.base import Batch


def gpu(
    name: str,
    bandwidth: float,
    bf16: float,
    fp8: float | None = None,
    link: float | None = None,
    pcie: float = 32e9,
) -> GpuSpec:
    """A GPU by its data sheet: bytes/s and FLOP/s."""
    flop_per_s = {"bf16": bf16, "fp16": bf16} | ({"fp8": fp8} if fp8 else {})
    return GpuSpec(name, 80 << 30, bandwidth, flop_per_s, link, pcie, None)


GPUS = {
    "a100_sxm": gpu("a100_sxm", 2039e9, 312e12, None, 300e9),
    "h100_sxm": gpu("h100_sxm", 3350e9, 989e12, 1979e12, 450e9, 64e9),
    "h200_sxm": gpu("h200_sxm", 4800e9, 989e12, 1979e12, 450e9, 64e9),
    "b200_sxm": gpu("b200_sxm", 7700e9, 2250e12, 4500e12, 900e9, 64e9),
    "l40s": gpu("l40s", 864e9, 362e12, 733e12),
    "rtx_pro_6000_server": gpu("rtx_pro_6000_server", 1792e9, 468e12, 936e12, None, 64e9),
    "rtx_4090": gpu("rtx_4090", 1008e9, 165e12, 330e12),
}


def model(
    attention: tuple[AttentionLayers, ...],
    *,
    hidden_size: int = 4096,
    vocab_size: int = 128_256,
    dense: int = 1 << 30,
    bytes_per_parameter: float = 2.0,
    compute: str | None = None,
    experts: int = 0,
    experts_per_token: int = 0,
    parameters_per_expert: int = 0,
    moe_layers: int = 0,
) -> ModelSpec:
    """A model by inline sizes; ``dense`` = parameters of the linear layers that every token passes.

    ``compute``: what the weights are made for; None = fp8 where a parameter takes a byte. All weights stand in the
    first of ``layers``, which is enough for step times.
    """
    made_for = ("fp8" if bytes_per_parameter == 1.0 else "") if compute is None else compute
    counts = (("sharded", dense), ("experts", moe_layers * experts * parameters_per_expert))
    weights = tuple(
        WeightGroup(split, count, ceil(count * bytes_per_parameter), True, made_for)  # type: ignore[arg-type]
        for split, count in counts
        if count
    )
    layers = sum(group.count for group in attention)
    embedding = hidden_size * vocab_size
    active = dense + 2 * embedding + moe_layers * experts_per_token * parameters_per_expert
    return ModelSpec(
        name="test",
        source="by hand",
        architecture="test",
        num_layers=layers,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        max_model_len=131_072,
        attention=attention,
        parameters=dense + 2 * embedding + moe_layers * experts * parameters_per_expert,
        active_parameters=active,
        embedding_parameters=embedding,
        lm_head_parameters=embedding,
        tied_embeddings=False,
        dense_linear_parameters=dense,
        num_experts=experts,
        experts_per_token=experts_per_token,
        parameters_per_expert=parameters_per_expert,
        num_moe_layers=moe_layers,
        weight_bytes=2 * (dense + 2 * embedding),
        linear_weight_bytes_per_parameter=bytes_per_parameter,
        expert_weight_bytes_per_parameter=bytes_per_parameter,
        dtype="bfloat16",
        layers=(LayerSpec(attention[0], weights),),
        lm_head_bytes=2 * embedding,
    )


def llama(layers: int, hidden: int, heads: int, kv_heads: int, mlp: int, bytes_per_parameter: float) -> ModelSpec:
    """Llama 3: gate, up, down; Q and O; K and V with fewer heads of 128."""
    per_layer = 2 * hidden * hidden + 2 * hidden * kv_heads * 128 + 3 * hidden * mlp
    attention = AttentionLayers(layers, "full", heads, kv_heads, 128, 128)
    return model((attention,), hidden_size=hidden, dense=layers * per_layer, bytes_per_parameter=bytes_per_parameter)


def llama_8b(bytes_per_parameter: float = 2.0) -> ModelSpec:
    return llama(32, 4096, 32, 8, 14_336, bytes_per_parameter)


def llama_70b(bytes_per_parameter: float = 2.0) -> ModelSpec:
    return llama(80, 8192, 64, 8, 28_672, bytes_per_parameter)


def qwen3_30b_a3b() -> ModelSpec:
    """48 layers, 128 experts of 3 · 2048 · 768 parameters, 8 a token."""
    hidden = 2048
    per_layer = 2 * hidden * 32 * 128 + 2 * hidden * 4 * 128 + hidden * 128
    return model(
        (AttentionLayers(48, "full", 32, 4, 128, 128),),
        hidden_size=hidden,
        vocab_size=151_936,
        dense=48 * per_layer,
        experts=128,
        experts_per_token=8,
        parameters_per_expert=3 * hidden * 768,
        moe_layers=48,
    )


def batch_of(
    contexts: list[int], prefills: list[tuple[int, int]], windows: tuple[int, ...] = (), sampled: int | None = None
) -> Batch:
    """The batch of one step: decodes with these contexts, and prefills (chunk_tokens, context_after).

    ``sampled``: every request unless told.
    """
    requests = len(contexts) + len(prefills)
    return Batch(
        tokens=len(contexts) + sum(chunk for chunk, _ in prefills),
        requests=requests,
        sampled=requests if sampled is None else sampled,
        context=sum(contexts) + sum(context for _, context in prefills),
        decodes=len(contexts),
        decode_context=sum(contexts),
        prefills=list(prefills),
        windowed=tuple((sum(min(c, w) for c in contexts), sum(c < w for c in contexts)) for w in windows),
    )

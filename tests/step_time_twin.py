"""A slow, readable twin of the roofline: one step in float seconds, token by token, straight from the shapes."""

from __future__ import annotations

from simulator.calibration import Calibration
from simulator.specs import AttentionLayers, GpuSpec, ModelSpec


def step_s(
    model: ModelSpec,
    gpu: GpuSpec,
    ranks: int,
    c: Calibration,
    contexts: list[int],
    prefills: list[tuple[int, int]],
    sampled: int,
    kv_dtype_bytes: float = 2.0,
) -> float:
    """Seconds of a step with decodes of these contexts and prefills (chunk_tokens, context_after)."""
    tokens = len(contexts) + sum(chunk for chunk, _ in prefills)
    requests = len(contexts) + len(prefills)
    bandwidth = gpu.bandwidth_bytes_per_s
    host = c.overhead_ms / 1e3 + requests * c.per_request_us / 1e6 + model.num_layers * c.layer_overhead_us / 1e6
    state = 2 * sum(g.count * g.state_bytes for g in model.attention) / ranks * requests
    hidden = 2.0 * model.hidden_size * tokens
    passes = c.replicated_activation_passes + c.sharded_activation_passes / ranks
    activations = (model.num_layers * passes * hidden + state) / (bandwidth * c.memory_efficiency)
    attention = sum(
        group.count
        * layer_attention_s(group, gpu, ranks, c, contexts, prefills, kv_dtype_bytes, linear_flop_per_s(model, gpu, c))
        for group in model.attention
    )
    return (
        host
        + linear_s(model, gpu, ranks, c, tokens, sampled)
        + activations
        + attention
        + (communication_s(model, gpu, ranks, c, hidden, sampled))
    )


def linear_flop_per_s(model: ModelSpec, gpu: GpuSpec, c: Calibration) -> float:
    made_for = model.layers[0].weights[0].compute  # all weights have one format
    if made_for in gpu.flop_per_s:
        return gpu.flop_per_s[made_for] * c.compute_efficiency_8bit
    return gpu.flop_per_s["bf16"] * c.compute_efficiency


def linear_s(model: ModelSpec, gpu: GpuSpec, ranks: int, c: Calibration, tokens: int, sampled: int) -> float:
    """Dense layers, experts and LM head."""
    narrow = model.linear_weight_bytes_per_parameter < 2
    memory = gpu.bandwidth_bytes_per_s * (c.memory_efficiency_8bit if narrow else c.memory_efficiency)
    compute = linear_flop_per_s(model, gpu, c)
    dense = model.dense_linear_parameters
    seconds = max(dense * model.linear_weight_bytes_per_parameter / memory, 2 * dense * tokens / compute) / ranks
    if model.num_experts:
        missed = (1 - model.experts_per_token / model.num_experts) ** tokens
        hit = model.num_experts * (1 - missed)
        size = model.parameters_per_expert
        seconds += (
            model.num_moe_layers
            * max(
                hit * size * model.expert_weight_bytes_per_parameter / memory,
                2 * model.experts_per_token * tokens * size / compute,
            )
            / ranks
        )
    if sampled:
        head = model.lm_head_parameters
        seconds += (
            max(
                2 * head / (gpu.bandwidth_bytes_per_s * c.memory_efficiency),
                2 * head * sampled / (gpu.flop_per_s["bf16"] * c.compute_efficiency),
            )
            / ranks
        )
    return seconds


def layer_attention_s(
    group: AttentionLayers,
    gpu: GpuSpec,
    ranks: int,
    c: Calibration,
    contexts: list[int],
    prefills: list[tuple[int, int]],
    kv_dtype_bytes: float,
    linear_flop_per_s: float,
) -> float:
    """One layer of a group."""
    if group.kind in ("linear", "none", "cross"):
        return 0.0
    window = group.window_tokens or 1 << 60
    heads = -(-group.query_heads // ranks)
    if group.kind == "mla":
        kv_bytes = group.head_dim_k * kv_dtype_bytes
        flops = 2 * heads * (group.head_dim_k + group.latent_rank)
    else:
        kv_bytes = -(-group.kv_heads // ranks) * (group.head_dim_k + group.head_dim_v) * kv_dtype_bytes
        flops = 2 * heads * (group.head_dim_k + group.head_dim_v)
    activations = gpu.bandwidth_bytes_per_s * c.memory_efficiency
    read = c.kv_read_efficiency if kv_dtype_bytes == 2 else c.kv_read_efficiency_8bit
    key_s = kv_bytes / (gpu.bandwidth_bytes_per_s * read)
    pair_s = flops / (gpu.flop_per_s["bf16"] * c.attention_compute_efficiency)
    seconds = sum(min(context, window) * max(key_s, pair_s) for context in contexts)
    cached_s = 0.0
    if group.prefill_head_dim_qk and group.prefill_head_dim_v:  # K and V of each head, made from the latent
        values = heads * (group.prefill_head_dim_qk + group.prefill_head_dim_v)
        made = values - heads * (group.head_dim_k - group.latent_rank)  # the rotary part of K is shared and kept
        up_s = 2 * group.latent_rank * made / linear_flop_per_s
        cached_s = max(up_s, key_s + 2 * values / activations)
        pair_s = 2 * values / (gpu.flop_per_s["bf16"] * c.attention_compute_efficiency)
        key_s = 2 * values / activations
    for chunk, after in prefills:
        positions = range(after - chunk + 1, after + 1)  # each token's own context
        pairs = sum(min(position, window) for position in positions)
        oldest = max(1, positions[0] - window + 1)  # the first key that any of them sees
        seconds += max(pairs * pair_s, (after - oldest + 1) * key_s) + (after - chunk) * cached_s
    return seconds


def communication_s(model: ModelSpec, gpu: GpuSpec, ranks: int, c: Calibration, hidden: float, sampled: int) -> float:
    """Two all-reduces a layer, and the logits of sampled rows to one rank."""
    if ranks == 1:
        return 0.0
    if gpu.link_bytes_per_s:
        latency = c.all_reduce_latency_us / 1e6
        rate = gpu.link_bytes_per_s * c.link_efficiency
    else:
        latency = (ranks - 1) * c.pcie_hop_latency_us / 1e6
        rate = gpu.pcie_bytes_per_s * c.pcie_efficiency
    share = (ranks - 1) / ranks
    reduce = latency + 2 * share * hidden / rate
    gather = latency + share * 2 * model.vocab_size * sampled / rate if sampled else 0.0
    return 2 * model.num_layers * reduce + gather

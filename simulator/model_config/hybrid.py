"""Decoders with recurrent layers: a fixed state a sequence instead of KV a token."""

from __future__ import annotations

from simulator.errors import InputError
from simulator.model_config.attention import mlp, projections, read_heads
from simulator.model_config.blueprint import Blueprint, Layer, Linear
from simulator.model_config.experts import Moe, read_experts
from simulator.model_config.fields import Fields
from simulator.model_config.windows import layer_windows
from simulator.specs import DTYPE_BITS, AttentionLayers

CONV_STATE_BYTES = 2  # convolution states stand in the model's 16 bit


def recurrent(state_bytes: int) -> AttentionLayers:
    return AttentionLayers(1, "linear", 0, 0, 0, 0, state_bytes=state_bytes)


NOTHING = AttentionLayers(1, "none", 0, 0, 0, 0)


def state_value_bytes(fields: Fields) -> int:
    """Bytes a value of the recurrent state: as the config says, else the model's 16 bit (vLLM's "auto")."""
    dtype = fields.text("mamba_ssm_cache_dtype", "mamba_ssm_dtype", default="auto")
    if dtype == "auto":
        return 2
    if dtype not in DTYPE_BITS:
        raise InputError(f"mamba_ssm_cache_dtype {dtype!r} is not understood", where=fields.where)
    return DTYPE_BITS[dtype] // 8


def build_qwen3_next(fields: Fields) -> Blueprint:
    """Qwen3-Next and Qwen3.5: gated delta-net layers, with gated full attention in every n-th layer."""
    hidden = fields.integer("hidden_size")
    num_layers = fields.integer("num_hidden_layers")
    length = fields.integer("max_position_embeddings")
    heads = read_heads(fields, hidden)
    if fields.has("layer_types"):
        kinds = [kind for kind, _ in layer_windows(fields, num_layers, length, "never")]
    else:
        every = fields.integer("full_attention_interval")
        kinds = ["full" if (i + 1) % every == 0 else "linear" for i in range(num_layers)]
    moe, sparse = _qwen_moe(fields, num_layers)
    full = projections(
        heads,
        hidden,
        qkv_bias=fields.flag("attention_bias", default=False),
        output_bias=fields.flag("attention_bias", default=False),
        gated_query=fields.flag("attn_output_gate", default=True),
    )
    delta, delta_vectors, state = _delta_net(fields, hidden)
    layers = []
    for index, kind in enumerate(kinds):
        block = moe if moe is not None and sparse[index] else None
        tail = block.linears(hidden) if block else mlp(hidden, fields.integer("intermediate_size"))
        if kind == "full":
            layers.append(Layer(heads.cache("full", None), (*full, *tail), 2 * hidden + 2 * heads.dim_k))
        else:
            layers.append(Layer(recurrent(state), (*delta, *tail), 2 * hidden + delta_vectors))
    return finish(fields, layers, hidden, length, moe=moe)


def _qwen_moe(fields: Fields, num_layers: int) -> tuple[Moe | None, list[bool]]:
    if fields.raw("num_experts", default=0) == 0:
        return None, []
    count, per_token = read_experts(fields)
    width = fields.integer("moe_intermediate_size")
    shared = fields.integer("shared_expert_intermediate_size")
    step = fields.integer("decoder_sparse_step", default=1)
    dense = set(fields.items("mlp_only_layers") or [])
    sparse = [i not in dense and (i + 1) % step == 0 for i in range(num_layers)]
    return Moe(count, per_token, width, shared, shared_gate=True), sparse


def _delta_net(fields: Fields, hidden: int) -> tuple[list[Linear], int, int]:
    """(linears, vectors, state bytes) of a gated delta-net layer."""
    key_heads = fields.integer("linear_num_key_heads")
    value_heads = fields.integer("linear_num_value_heads")
    key_dim = key_heads * fields.integer("linear_key_head_dim")
    value_head_dim = fields.integer("linear_value_head_dim")
    value_dim = value_heads * value_head_dim
    kernel = fields.integer("linear_conv_kernel_dim")
    channels = 2 * key_dim + value_dim
    linears = [
        Linear("linear_attn.in_proj_qkv", hidden, channels),
        Linear("linear_attn.in_proj_z", hidden, value_dim),
        Linear("linear_attn.in_proj_ba", hidden, 2 * value_heads, quantizable=False),
        Linear("linear_attn.out_proj", value_dim, hidden),
    ]
    vectors = channels * kernel + 2 * value_heads + value_head_dim
    state = channels * (kernel - 1) * CONV_STATE_BYTES
    state += key_dim // key_heads * value_dim * state_value_bytes(fields)
    return linears, vectors, state


_BLOCK_LETTERS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
_BLOCK_NAMES = {"linear_attention": "mamba", "full_attention": "attention"}  # of Transformers 5


def build_nemotron_h(fields: Fields) -> Blueprint:
    """Nemotron-H and Nemotron 3: one norm and one of Mamba-2, attention, MLP or MoE a layer."""
    hidden = fields.integer("hidden_size")
    kinds = _blocks(fields)
    heads = read_heads(fields, hidden)
    moe = _nemotron_moe(fields) if "moe" in kinds else None
    layers = []
    for kind in kinds:
        if kind == "mamba":
            linears, vectors, state = _mamba2(fields, hidden)
            layers.append(Layer(recurrent(state), tuple(linears), hidden + vectors))
        elif kind == "attention":
            bias = fields.flag("attention_bias", default=False)
            parts = projections(heads, hidden, qkv_bias=bias, output_bias=bias, prefix="mixer.")
            layers.append(Layer(heads.cache("full", None), tuple(parts), hidden))
        elif kind == "moe" and moe is not None:
            layers.append(Layer(NOTHING, tuple(moe.linears(hidden, "mixer.")), hidden + moe.other()))
        else:
            bias = fields.flag("mlp_bias", default=False)
            parts = mlp(hidden, fields.integer("intermediate_size"), gated=False, bias=bias, prefix="mixer.")
            layers.append(Layer(NOTHING, tuple(parts), hidden))
    length = fields.integer("max_position_embeddings")
    return finish(fields, layers, hidden, length, moe=moe, prefix="backbone.layers.")


def _blocks(fields: Fields) -> list[str]:
    listed = fields.items("layers_block_type", "layer_types")
    if listed is None:
        letters = fields.text("hybrid_override_pattern")
        unknown = set(letters) - set(_BLOCK_LETTERS)
        if unknown:
            raise InputError(
                f"hybrid_override_pattern has {sorted(unknown)}, which is not understood",
                where=fields.where,
                remedy="known letters: M (Mamba), E (MoE), * (attention), - (MLP)",
            )
        listed = [_BLOCK_LETTERS[letter] for letter in letters]
    listed = [_BLOCK_NAMES.get(kind, kind) for kind in listed]
    unknown = set(listed) - set(_BLOCK_LETTERS.values())
    if unknown:
        raise InputError(f"layers_block_type has {sorted(unknown)}, not understood", where=fields.where)
    stated = fields.integer("num_hidden_layers", default=len(listed))
    if stated != len(listed):
        raise InputError(
            f"the layer pattern has {len(listed)} layers, num_hidden_layers says {stated}", where=fields.where
        )
    return [str(kind) for kind in listed]


def _nemotron_moe(fields: Fields) -> Moe:
    count, per_token = read_experts(fields)
    return Moe(
        count,
        per_token,
        fields.integer("moe_intermediate_size"),
        fields.integer("n_shared_experts", default=0, least=0) * fields.integer("moe_shared_expert_intermediate_size"),
        correction=True,
        gated=False,
        bias=fields.flag("mlp_bias", default=False),
        latent_size=fields.integer("moe_latent_size", default=0, least=0),
    )


def _mamba2(fields: Fields, hidden: int) -> tuple[list[Linear], int, int]:
    """(linears, vectors, state bytes) of a Mamba-2 layer."""
    heads = fields.integer("mamba_num_heads")
    dim = fields.integer("mamba_head_dim")
    state = fields.integer("ssm_state_size")
    kernel = fields.integer("conv_kernel")
    inner = heads * dim
    channels = inner + 2 * fields.integer("n_groups") * state
    bias = fields.flag("mamba_proj_bias", default=False)
    linears = [
        Linear("mixer.in_proj", hidden, inner + channels + heads, bias),
        Linear("mixer.out_proj", inner, hidden, bias),
    ]
    conv = channels * (kernel + fields.flag("use_conv_bias", default=True))
    size = channels * (kernel - 1) * CONV_STATE_BYTES
    size += inner * state * state_value_bytes(fields)
    return linears, conv + 3 * heads + inner, size


def build_rwkv5(fields: Fields) -> Blueprint:
    """RWKV-5: no attention; a matrix state of head_size² a head, and two token shifts a layer."""
    hidden = fields.integer("hidden_size")
    size = fields.integer("head_size")
    inner = fields.integer("attention_hidden_size", default=hidden)
    width = fields.integer("intermediate_size", default=int(hidden * 3.5) // 32 * 32)
    linears = [
        *(Linear(f"attention.{name}", hidden, inner) for name in ("receptance", "key", "value", "gate")),
        Linear("attention.output", inner, hidden),
        Linear("feed_forward.key", hidden, width),
        Linear("feed_forward.receptance", hidden, hidden),
        Linear("feed_forward.value", width, hidden),
    ]
    state = inner * size * 4 + 2 * hidden * CONV_STATE_BYTES
    vectors = 4 * hidden + 6 * hidden + 2 * inner + 2 * inner
    layer = Layer(recurrent(state), tuple(linears), vectors)
    length = fields.integer("context_length", "max_position_embeddings")
    layers = [layer] * fields.integer("num_hidden_layers")
    note = "weights of RWKV's mixing vectors are estimated"
    return finish(fields, layers, hidden, length, prefix="rwkv.blocks.", notes=(note,), exact=False)


def finish(
    fields: Fields,
    layers: list[Layer],
    hidden: int,
    length: int,
    *,
    moe: Moe | None = None,
    tied: bool | None = None,
    prefix: str = "model.layers.",
    notes: tuple[str, ...] = (),
    exact: bool = True,
) -> Blueprint:
    vocab = fields.integer("vocab_size")
    return Blueprint(
        tuple(layers),
        hidden,
        vocab,
        length,
        tied=fields.flag("tie_word_embeddings", default=False) if tied is None else tied,
        embedding=vocab * hidden,
        other=hidden,
        prefix=prefix,
        experts=moe.count if moe else 0,
        experts_per_token=moe.per_token if moe else 0,
        notes=notes,
        parameters_exact=exact,
    )

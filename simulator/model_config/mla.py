"""Multi-head latent attention: DeepSeek V2 and V3, V3.2's sparse form, Kimi K2, GLM-5, MiniCPM3.

A token stores one latent of kv_lora_rank values and one rotary key of qk_rope_head_dim a layer, and no V
(DeepSeek-V2, arXiv 2405.04434). Tensor parallelism replicates it: there is one head. Decodes attend to the latent
itself; prompts project it up to K and V of every head (vLLM, v1/attention/backends/mla/common.py), except in the
sparse form, which attends to the latent in both (flashmla_sparse.py).
"""

from __future__ import annotations

from simulator.model_config.attention import mlp
from simulator.model_config.blueprint import Blueprint, Layer, Linear
from simulator.model_config.experts import Moe, dense_first, read_experts
from simulator.model_config.fields import Fields
from simulator.specs import AttentionLayers

# vLLM and SGLang keep the indexer's key in fp8 with one float32 scale per 128 values (SGLang PR 11309: 132 bytes).
_INDEXER_SCALE_BYTES = 4
_INDEXER_SCALE_GROUP = 128


def latent_attention(fields: Fields, *, indexer: bool = False) -> AttentionLayers:
    """What one MLA layer keeps; ``indexer`` adds the sparse attention's own key."""
    rank = fields.integer("kv_lora_rank")
    nope, rope, value = _head_dims(fields)
    sparse = fields.raw("index_head_dim") is not None  # of the whole model: layers may share an indexer
    extra = 0
    if indexer:
        dim = fields.integer("index_head_dim")
        extra = dim + -(-dim // _INDEXER_SCALE_GROUP) * _INDEXER_SCALE_BYTES
    return AttentionLayers(
        1,
        "mla",
        fields.integer("num_attention_heads"),
        kv_heads=1,
        head_dim_k=rank + rope,
        head_dim_v=0,
        latent_rank=rank,
        indexer_bytes=extra,
        prefill_head_dim_qk=None if sparse else nope + rope,
        prefill_head_dim_v=None if sparse else value,
    )


def _head_dims(fields: Fields) -> tuple[int, int, int]:
    """(K without the rotary part, rotary part, V) of one head as the up projection makes it."""
    nope = fields.integer("qk_nope_head_dim")
    rope = fields.integer("qk_rope_head_dim", least=0)
    value = fields.integer("v_head_dim", default=nope if fields.raw("model_type") == "minicpm3" else None)
    return nope, rope, value


def latent_linears(fields: Fields, hidden: int, prefix: str = "self_attn.") -> tuple[list[Linear], int]:
    """(linear maps, norm parameters) of one MLA layer; the down projections stand whole on every rank."""
    heads = fields.integer("num_attention_heads")
    rank = fields.integer("kv_lora_rank")
    nope, rope, value = _head_dims(fields)
    bias = fields.flag("attention_bias", default=False)
    query_rank = fields.integer("q_lora_rank", default=0, least=0)
    linears = []
    if query_rank:
        linears.append(Linear(f"{prefix}q_a_proj", hidden, query_rank, bias, split="replicated"))
        linears.append(Linear(f"{prefix}q_b_proj", query_rank, heads * (nope + rope)))
    else:
        linears.append(Linear(f"{prefix}q_proj", hidden, heads * (nope + rope)))
    linears.append(Linear(f"{prefix}kv_a_proj_with_mqa", hidden, rank + rope, bias, split="replicated"))
    linears.append(Linear(f"{prefix}kv_b_proj", rank, heads * (nope + value)))
    linears.append(Linear(f"{prefix}o_proj", heads * value, hidden, bias))
    return linears, query_rank + rank


def build_deepseek(fields: Fields) -> Blueprint:
    """DeepSeek V2, V3, V3.2, Kimi K2, GLM-5: MLA, dense layers first, then MoE with shared experts."""
    hidden = fields.integer("hidden_size")
    num_layers = fields.integer("num_hidden_layers")
    moe, sparse = _moe(fields, num_layers)
    indexers = _indexers(fields, num_layers)
    dense = mlp(hidden, fields.integer("intermediate_size"))
    layers = []
    for index in range(num_layers):
        linears, vectors = latent_linears(fields, hidden)
        if indexers[index]:
            more, norm = _indexer(fields, hidden)
            linears += more
            vectors += norm
        block = moe if moe is not None and sparse[index] else None
        linears += block.linears(hidden) if block else dense
        other = vectors + 2 * hidden + (block.other() if block else 0)
        layers.append(Layer(latent_attention(fields, indexer=indexers[index]), tuple(linears), other))
    return _finish(fields, layers, hidden, tied=False, moe=moe)


def build_minicpm3(fields: Fields) -> Blueprint:
    """MiniCPM3: MLA in dense layers."""
    hidden = fields.integer("hidden_size")
    width = fields.integer("intermediate_size")
    linears, vectors = latent_linears(fields, hidden)
    layer = Layer(latent_attention(fields), (*linears, *mlp(hidden, width)), vectors + 2 * hidden)
    layers = [layer] * fields.integer("num_hidden_layers")
    heads = fields.integer("num_attention_heads")
    wide = fields.integer("qk_nope_head_dim") + fields.integer("qk_rope_head_dim", least=0)
    note = f"KV as the MLA latent; an engine without MLA for it stores {heads} heads of {wide} for K and for V"
    return _finish(fields, layers, hidden, tied=True, notes=(note,))


def _finish(
    fields: Fields,
    layers: list[Layer],
    hidden: int,
    *,
    tied: bool,
    moe: Moe | None = None,
    notes: tuple[str, ...] = (),
) -> Blueprint:
    vocab = fields.integer("vocab_size")
    return Blueprint(
        tuple(layers),
        hidden,
        vocab,
        fields.integer("max_position_embeddings"),
        tied=fields.flag("tie_word_embeddings", default=tied),
        embedding=vocab * hidden,
        other=hidden,
        experts=moe.count if moe else 0,
        experts_per_token=moe.per_token if moe else 0,
        notes=notes,
    )


def _moe(fields: Fields, num_layers: int) -> tuple[Moe | None, list[bool]]:
    if fields.raw("n_routed_experts") is None:
        return None, []
    count, per_token = read_experts(fields)
    width = fields.integer("moe_intermediate_size")
    shared = fields.integer("n_shared_experts", default=0, least=0) * width
    default = "greedy" if fields.raw("model_type") == "deepseek_v2" else "noaux_tc"
    correction = fields.text("topk_method", default=default) == "noaux_tc"
    return Moe(count, per_token, width, shared, correction), dense_first(fields, num_layers)


def _indexers(fields: Fields, num_layers: int) -> list[bool]:
    """For each layer whether it has an indexer of its own (GLM-5.2 shares one among several layers)."""
    kinds = fields.items("indexer_types", length=num_layers)
    if kinds is not None:
        return [kind == "full" for kind in kinds]
    return [fields.raw("index_head_dim") is not None] * num_layers


def _indexer(fields: Fields, hidden: int) -> tuple[list[Linear], int]:
    heads = fields.integer("index_n_heads")
    dim = fields.integer("index_head_dim")
    query_rank = fields.integer("q_lora_rank")
    linears = [
        Linear("self_attn.indexer.wq_b", query_rank, heads * dim, split="replicated"),
        Linear("self_attn.indexer.wk", hidden, dim, split="replicated"),
        Linear("self_attn.indexer.weights_proj", hidden, heads, split="replicated", quantizable=False),
    ]
    return linears, 2 * dim

"""What one GPU of a replica holds besides KV: its share of the weights, and the peak of activations."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from simulator.errors import InputError
from simulator.specs import ModelSpec, Parallelism

_GIB = 1 << 30
_ENCODER_BYTES = 2  # vision encoders stay in 16 bit, also in quantised checkpoints
_ACTIVATION_BYTES = 2  # activations are computed in 16 bit

# Peak of the sampler in vLLM's profile run, in float32 arrays of (max_num_seqs x vocabulary): logits, their sorted copy
# and its 64-bit indices, probabilities, their sum, and masks. Fitted to vLLM logs: Llama-3-8B (256 sequences, 1.26 GiB:
# 10.3), Llama-3.3-70B FP8 (1024, 4.84 GiB: 9.9), Qwen3-32B (1024, 5.64 GiB: 9.7), see data/kv_log_facts.csv.
SAMPLER_ARRAYS = 10.0
LOGIT_ARRAYS = 2.0  # engines that do not profile the sampler: logits and probabilities (assumed)
# Hidden-size arrays alive at the peak of a layer (residual, input, attention in and out). Fitted: Mistral-Small-24B
# (2.12 GiB at 8192 tokens: 7.9) and Yi-34B at TP4 (124 KB a token: 6.5).
HIDDEN_ARRAYS = 7.0


@dataclass(frozen=True)
class Stage:
    """A pipeline stage: its layers, and whether it embeds tokens and samples."""

    layers: range
    first: bool
    last: bool


def pipeline_stages(num_layers: int, pipeline_parallel_size: int) -> tuple[Stage, ...]:
    """Layers of each stage as vLLM splits them: what does not divide goes to the stages before the last.

    Raises:
        InputError: more stages than layers.
    """
    size = pipeline_parallel_size
    if not 1 <= size <= num_layers:
        raise InputError(
            f"pipeline_parallel_size {size} does not fit {num_layers} layers",
            where="pipeline_parallel_size",
            remedy=f"choose 1 to {num_layers}",
        )
    counts = [num_layers // size] * size
    for index in range(2, num_layers % size + 2):
        counts[-index] += 1
    stages = []
    start = 0
    for index, count in enumerate(counts):
        stages.append(Stage(range(start, start + count), index == 0, index == size - 1))
        start += count
    return tuple(stages)


def valid_tensor_parallel_sizes(model: ModelSpec, most: int = 64) -> list[int]:
    """Sizes by which every layer's heads can be split (fewer KV heads than ranks are replicated)."""
    return [size for size in range(1, most + 1) if _divides(model, size)]


def check_parallelism(model: ModelSpec, parallelism: Parallelism) -> None:
    """Raises InputError where heads cannot be split so (naming sizes that work), or no experts are to be shared out."""
    if parallelism.enable_expert_parallel and not model.num_experts:
        raise InputError(
            f"{model.name} has no experts to share out",
            where="enable_expert_parallel",
            remedy="leave it out: it is for mixture-of-experts models",
        )
    size = parallelism.tensor_parallel_size
    if size < 1 or not _divides(model, size):
        valid = ", ".join(map(str, valid_tensor_parallel_sizes(model)))
        raise InputError(
            f"tensor_parallel_size {size} does not divide the attention heads of {model.name}",
            where="tensor_parallel_size",
            remedy=f"valid sizes: {valid}",
        )


def _divides(model: ModelSpec, size: int) -> bool:
    for group in model.attention:
        if group.query_heads % size:
            return False
        if group.kind != "mla" and group.kv_heads and group.kv_heads % size and size % group.kv_heads:
            return False
    return True


def stage_weight_bytes(
    model: ModelSpec, stage: Stage, tensor_parallel_size: int, *, expert_parallel: bool = False
) -> int:
    """Bytes of weights on one rank of a stage (in another format than the checkpoint's: ``with_weight_dtype``).

    Matrices are split over the ranks, K and V by as many as there are KV heads, norms and routers stand whole; the
    embedding is on the first stage, the LM head on the last (tied: one copy a stage that needs it). With expert
    parallelism a rank holds whole experts; where they do not divide evenly, this is one of those that hold one more.
    """
    size = tensor_parallel_size
    total = 0.0
    for index in stage.layers:
        layer = model.layers[index]
        for group in layer.weights:
            if expert_parallel and group.split == "experts":
                total += group.bytes * ceil(model.num_experts / size) / model.num_experts
            else:
                total += group.bytes / group.ways(size, layer.attention.kv_heads)
    if stage.first:
        total += (model.embedding_bytes + _ENCODER_BYTES * model.encoder_parameters) / size
    if stage.last:
        total += model.other_bytes
    if stage.last and not (model.tied_embeddings and stage.first):
        total += model.lm_head_bytes / size
    return ceil(total)


def activation_bytes(
    model: ModelSpec,
    stage: Stage,
    tensor_parallel_size: int,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    *,
    sampler_profiled: bool = True,
) -> int:
    """Peak of transient activations on one rank in a step of ``max_num_batched_tokens`` tokens: an estimate.

    max( T · 2 · (1.5 · gate_and_up / tp + 7 · hidden + experts · hidden),  10 · S · vocabulary · 4 ) + T · 2 · hidden,
    the second term (the sampler; other engines than vLLM: 2 instead of 10) only on the last stage. It depends on the
    token budget, not on the context.
    """
    tokens = max_num_batched_tokens
    spread = model.experts_per_token * model.hidden_size
    per_token = 1.5 * model.intermediate_size / tensor_parallel_size + HIDDEN_ARRAYS * model.hidden_size + spread
    peak = tokens * _ACTIVATION_BYTES * per_token
    if stage.last:
        rows = min(max_num_seqs, tokens)
        arrays = SAMPLER_ARRAYS if sampler_profiled else LOGIT_ARRAYS
        peak = max(peak, arrays * rows * model.vocab_size * 4)
    return ceil(peak + tokens * _ACTIVATION_BYTES * model.hidden_size)


def runtime_bytes(parallelism: Parallelism) -> int:
    """cuBLAS workspaces and, over several GPUs, NCCL and all-reduce buffers: assumed.

    vLLM's non-torch memory in logs: 0.14 GiB on one H100, 0.55 at TP2 (llm-d-planner), 0.34 to 0.43 at TP4 (A100-40).
    """
    gpus = parallelism.tensor_parallel_size * parallelism.pipeline_parallel_size
    return round(0.14 * _GIB) + (round(0.33 * _GIB) if gpus > 1 else 0)


def graph_bytes(enforce_eager: bool) -> int:
    """CUDA graphs: assumed. vLLM's logs say 0.42 to 0.76 GiB for 1.5B to 70B models; about 0.55."""
    return 0 if enforce_eager else round(0.55 * _GIB)


def context_bytes() -> int:
    """CUDA context and kernels, outside vLLM's fraction: assumed, about 0.5 GiB on data-centre GPUs."""
    return round(0.5 * _GIB)

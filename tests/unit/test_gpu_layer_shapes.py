"""Matrix products of a model's layers: by hand, against the simulator's own counts, and what cannot be timed."""

from __future__ import annotations

import pytest

from gpu_validate.layer_shapes import Gemm, model_shapes
from gpu_validate.plans import StepShape, plan
from gpu_validate.step_measure import step_memory
from simulator.catalog import find_model, model_names
from simulator.errors import InputError
from simulator.specs import ModelSpec
from simulator.step_time.rank_work import rank_work


def test_llama_8b_by_hand() -> None:
    shapes = model_shapes(find_model("llama-3.1-8b"))
    assert len(shapes.layers) == 32
    layer = shapes.layers[0]
    assert (layer.query_heads, layer.kv_heads, layer.head_dim, layer.group, layer.gated) == (32, 8, 128, 4, True)
    assert [(g.name, g.inputs, g.outputs) for g in layer.gemms] == [
        ("qkv", 4096, 6144),
        ("output", 4096, 4096),
        ("up", 4096, 28672),
        ("down", 14336, 4096),
    ]
    assert shapes.head == Gemm("head", 4096, 128256)
    assert layer.gemms[0].moved_bytes(8) == 2 * 4096 * 6144 + 2 * 8 * (4096 + 6144)
    assert layer.gemms[0].flops(8) == 2 * 8 * 4096 * 6144


def test_a_rank_of_four_by_hand() -> None:
    layer = model_shapes(find_model("llama-3.1-70b"), 4).layers[0]
    assert [(g.inputs, g.outputs) for g in layer.gemms] == [(8192, 2560), (2048, 8192), (8192, 14336), (7168, 8192)]
    assert model_shapes(find_model("llama-3.1-8b"), 16).layers[0].kv_heads == 1  # a copy of one on every rank


def test_opt_has_no_gate() -> None:
    layer = model_shapes(find_model("opt-13b")).layers[0]
    assert not layer.gated
    assert [(g.inputs, g.outputs) for g in layer.gemms[2:]] == [(5120, 20480), (20480, 5120)]


def test_gemma_slides_in_every_second_layer() -> None:
    assert [layer.window for layer in model_shapes(find_model("gemma-2-9b")).layers[:4]] == [4096, None, 4096, None]


def dense_models() -> list[ModelSpec]:
    return [model for model in map(find_model, model_names()) if not model.num_experts]


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("model", dense_models(), ids=lambda model: model.name)
def test_products_hold_the_weights_that_the_simulator_counts(model: ModelSpec, ranks: int) -> None:
    """All but biases and norms, which are below a thousandth."""
    shapes, work = model_shapes(model, ranks), rank_work(model, ranks, 2.0)
    held = sum(gemm.parameters for layer in shapes.layers for gemm in layer.gemms)
    assert held == pytest.approx(work.dense_parameters, rel=1e-3)
    assert shapes.head.parameters == pytest.approx(work.head_parameters, rel=1e-3)
    kv = sum(2 * layer.kv_heads * layer.head_dim * 2 for layer in shapes.layers)
    assert kv == sum(group.count * group.kv_bytes for group in work.attention)


@pytest.mark.parametrize(
    ("name", "ranks", "why"),
    [
        ("mixtral-8x7b", 1, "its experts' products depend on what the router picks"),
        ("deepseek-v3", 1, "its experts"),
        ("llama-3.1-8b", 3, "32 query and 8 KV heads do not divide among 3 ranks"),
    ],
)
def test_what_cannot_be_timed_layer_by_layer_is_refused(name: str, ranks: int, why: str) -> None:
    with pytest.raises(InputError, match=why):
        model_shapes(find_model(name), ranks)


def test_memory_of_a_step() -> None:
    shapes = model_shapes(find_model("llama-3.1-8b"))
    memory = step_memory(shapes, StepShape(batch=2, context=1000, layers=32))
    assert memory.weight_bytes == pytest.approx(2 * 7.504e9, rel=1e-3)  # all but the embedding
    assert memory.kv_bytes == 2 * 1256 * 128 * 1024


@pytest.mark.parametrize("layers", [16, 32, 80])
def test_the_full_plan_keeps_shapes_apart_from_those_it_fits(layers: int) -> None:
    full = plan("full", layers=layers)
    fitted = {(s.batch, s.context, s.layers) for s in full.steps if not s.held_out}
    unseen = {(s.batch, s.context, s.layers) for s in full.steps if s.held_out}
    assert unseen and not fitted & unseen
    assert len({s.layers for s in full.steps}) == 3  # or a layer's time could not be told from a step's
    assert not set(full.attention) & set(full.held_out_attention)
    assert not set(full.rows) & set(full.held_out_rows)
    for batch, context in ((64, 2048), (256, 8192), (1, 131072)):  # what the goals ask for
        assert any((s.batch, s.context, s.variant.block_size) == (batch, context, 16) for s in full.attention)
    with pytest.raises(InputError, match="there is no plan 'huge'"):
        plan("huge", layers=layers)

"""One place decides the bytes of the weights: the memory table and the step times take the same, in every format."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulator.calibration import NUMBERS, find_calibration
from simulator.catalog import find_gpu, find_model, model_names
from simulator.deployment import build_deployment
from simulator.errors import InputError
from simulator.rank_memory import Stage, stage_weight_bytes
from simulator.scenario import load_scenario
from simulator.specs import ModelSpec, Parallelism, model_from_config
from simulator.step_time.rank_work import rank_work
from simulator.step_time.roofline import Roofline
from simulator.weight_dtype import with_weight_dtype
from tests.step_time_support import batch_of

DEFAULT = find_calibration("default")
PERFECT = replace(DEFAULT, **{n: 1.0 if "efficiency" in n else 0.0 for n in NUMBERS})
H100, A100 = find_gpu("h100-sxm-80gb"), find_gpu("a100-sxm-80gb")
LLAMA = find_model("llama-3.1-8b")
CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


def quantised(**quantization: Any) -> ModelSpec:
    return model_from_config(CONFIG | {"quantization_config": quantization}, name="m", source="m.json")


def compute_of(model: ModelSpec, gpu: Any = H100) -> str:
    return Roofline(model, gpu, Parallelism(), DEFAULT).rates.dense.compute_dtype


@pytest.mark.parametrize("dtype", [None, "bfloat16", "float32", "fp8", "int8", "int4", "nvfp4", "mxfp4"])
def test_memory_and_time_agree_on_every_byte(dtype: str | None) -> None:
    for name in model_names():
        model = with_weight_dtype(find_model(name), dtype)
        for ranks in (1, 8):
            work = rank_work(model, ranks, 2.0)
            read = work.weight_bytes(tokens=10**9, sampled=1)  # so many tokens hit every expert
            kept = model.embedding_bytes + 2 * model.encoder_parameters
            kept -= model.lm_head_bytes if model.tied_embeddings else 0  # one copy, which the LM head reads
            held = stage_weight_bytes(model, Stage(range(model.num_layers), True, True), ranks)
            assert held == pytest.approx(read + kept / ranks + model.other_bytes, rel=1e-9)


def test_the_checkpoints_own_format_changes_nothing() -> None:
    assert with_weight_dtype(LLAMA, None) is LLAMA
    assert with_weight_dtype(LLAMA, "bfloat16") == LLAMA
    assert with_weight_dtype(LLAMA, "fp8").weight_bytes == pytest.approx(9.08e9, rel=1e-3)  # 6.98 + 2 · 1.05 in 16 bit


def test_fp8_halves_the_reading_of_the_layers_and_int4_quarters_it() -> None:
    floors = {}
    for dtype in ("bfloat16", "fp8", "int4"):
        roofline = Roofline(with_weight_dtype(LLAMA, dtype), H100, Parallelism(), PERFECT)
        batch = batch_of([1], [], sampled=0)  # the LM head, which stays in 16 bit, does not run
        floors[dtype] = roofline.floor_ps(batch)
        assert roofline.segment(batch).duration_ps >= floors[dtype]
    norms = sum(g.bytes for layer in LLAMA.layers for g in layer.weights if not g.quantizable) / 3350e9 * 1e12
    assert floors["fp8"] - norms == pytest.approx((floors["bfloat16"] - norms) / 2, abs=2)
    assert floors["int4"] - norms == pytest.approx((floors["bfloat16"] - norms) * (4 + 20 / 128) / 16, abs=2)


@pytest.mark.parametrize(
    ("dtype", "on_h100", "on_a100"),
    [("fp8", "fp8", "bf16"), ("int8", "int8", "int8"), ("int4", "bf16", "bf16"), ("nvfp4", "bf16", "bf16")],
)
def test_weights_compute_in_what_the_gpu_has(dtype: str, on_h100: str, on_a100: str) -> None:
    held = with_weight_dtype(LLAMA, dtype)
    assert (compute_of(held), compute_of(held, A100)) == (on_h100, on_a100)
    notes = " ".join(Roofline(held, A100, Parallelism(), DEFAULT).assumptions)
    assert ("compute in 16 bit" in notes) == (dtype in ("fp8", "nvfp4"))
    with_fp4 = replace(H100, flop_per_s=H100.flop_per_s | {"fp4": 4e15})
    assert compute_of(with_weight_dtype(LLAMA, "nvfp4"), with_fp4) == "fp4"


def test_float32_weights_need_a_float32_peak() -> None:
    held = with_weight_dtype(LLAMA, "float32")
    assert compute_of(held) == "fp32"
    with pytest.raises(InputError, match="no peak FLOP/s for fp32"):
        compute_of(held, replace(H100, flop_per_s={"bf16": 1e15}))


WEIGHTS = {"num_bits": 8, "type": "float"}


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "fp8", "weight_block_size": [16, 16]}, "fp8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 32}, "bf16"),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32}, "bf16"),  # a byte a weight, but weights alone
        ({"quant_method": "bitsandbytes"}, "int8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, "bf16"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": WEIGHTS}}}, "bf16"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": WEIGHTS, "input_activations": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "g": {
                        "weights": {"num_bits": 8, "type": "int"},
                        "input_activations": {"num_bits": 8, "type": "int"},
                    }
                },
            },
            "int8",
        ),
        # Half of the weights unquantised: about a byte a weight on average, and none of them is made for fp8.
        ({"quant_method": "awq", "bits": 4, "group_size": 32, "modules_to_not_convert": ["re:.*[01].mlp"]}, "bf16"),
    ],
)
def test_quantised_checkpoints_say_what_they_compute_in(quantization: dict[str, Any], expected: str) -> None:
    assert compute_of(quantised(**quantization)) == expected


def test_parts_in_two_types_follow_one_another() -> None:
    mixed = quantised(quant_method="fp8", modules_to_not_convert=["self_attn"])
    rates = Roofline(mixed, H100, Parallelism(), PERFECT).rates.dense
    assert [dtype for dtype, _ in rates.computes] == ["fp8", "bf16"]
    narrow, wide = 3 * 64 * 128, 64 * 64 * 2 + 64 * 16 * 2 + 2 * 64
    seconds = narrow / 1979e12 + wide / 989e12
    assert rates.flop_per_s == pytest.approx((narrow + wide) / seconds)


def test_experts_have_a_type_of_their_own() -> None:
    roofline = Roofline(find_model("gpt-oss-20b"), H100, Parallelism(), DEFAULT)
    assert (roofline.rates.dense.compute_dtype, roofline.rates.experts.compute_dtype) == ("bf16", "bf16")
    held = Roofline(with_weight_dtype(find_model("gpt-oss-20b"), "fp8"), H100, Parallelism(), DEFAULT)
    assert held.rates.experts.compute_dtype == "fp8"
    assert held.work.expert_bytes > 1.8 * roofline.work.expert_bytes  # from 4.25 bits to 8


def test_a_scenario_gets_memory_and_step_times_of_the_weights_it_names() -> None:
    built = {}
    for dtype in (None, "fp8"):
        settings = load_scenario("quickstart").variants["paged"].settings
        engine = replace(settings.engine, weight_dtype=dtype)
        built[dtype] = build_deployment(replace(settings, model="llama-3.1-8b", gpu="h100-sxm-80gb", engine=engine))
    plain, fp8 = built[None], built["fp8"]
    assert isinstance(plain.step_time, Roofline)
    assert isinstance(fp8.step_time, Roofline)
    assert plain.memory is not None
    assert fp8.memory is not None
    saved = plain.memory.weight_bytes_per_gpu - fp8.memory.weight_bytes_per_gpu
    assert saved == plain.step_time.work.dense_bytes - fp8.step_time.work.dense_bytes > 6e9
    batch = batch_of([1], [])
    assert fp8.step_time.segment(batch).duration_ps < plain.step_time.segment(batch).duration_ps
    assert "weight_dtype = fp8: 9.1 GB of weights in memory and in step times alike" in " ".join(fp8.assumptions)

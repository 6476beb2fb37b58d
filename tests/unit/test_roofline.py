"""The roofline's parts by hand, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.calibration import NUMBERS, Calibration, find_calibration
from simulator.errors import InputError
from simulator.specs import AttentionLayers, LayerSpec, Parallelism, WeightGroup
from simulator.step_time.base import UNBOUNDED_STEPS, Batch
from simulator.step_time.roofline import Roofline
from tests.step_time_support import GPUS, batch_of, gpu, llama_8b, model, qwen3_30b_a3b

DEFAULT = find_calibration("default")
PERFECT: Calibration = replace(DEFAULT, **{n: 1.0 if "efficiency" in n else 0.0 for n in NUMBERS})
"""The data sheet itself, nothing lost."""

ROUND = gpu("round", 1e12, 100e12, 200e12)  # 1 TB/s, 100 TFLOP/s
ONE_LAYER = (AttentionLayers(1, "full", 8, 2, 64, 64),)


def perfect(spec=None, card=ROUND, ranks: int = 1, **options) -> Roofline:  # type: ignore[no-untyped-def]
    spec = spec or model(ONE_LAYER, hidden_size=1000, vocab_size=1000, dense=500_000_000)
    return Roofline(spec, card, Parallelism(ranks), PERFECT, **options)


def test_a_small_batch_is_bound_by_weights_and_a_large_one_by_flops() -> None:
    roofline = perfect()
    assert roofline.body_ps(1) == 10**9  # 1 GB at 1 TB/s = 1 ms
    assert roofline.body_ps(100) == 10**9  # 2 · 5e8 · 100 / 1e14 = 1 ms: the ridge
    assert roofline.body_ps(200) == 2 * 10**9


def test_the_lm_head_runs_on_sampled_rows_only() -> None:
    roofline = perfect()
    assert roofline.head_ps(0) == 0
    assert roofline.head_ps(1) == 2 * 10**6  # 2 MB at 1 TB/s
    assert roofline.head_ps(1000) == 2 * 10**7  # 2 · 1e6 · 1000 / 1e14


def test_decode_attention_reads_each_context_token_once() -> None:
    roofline = perfect()
    at_100, at_101 = (roofline.segment(batch_of([c, 500], [])) for c in (100, 101))
    kv_ps = 2 * 128 * 2  # 2 heads · (64 + 64) · 2 bytes at 1 byte/ps
    assert at_101.duration_ps - at_100.duration_ps == kv_ps
    assert at_100.growth_ps == 2 * kv_ps
    assert at_100.steps == UNBOUNDED_STEPS


def test_eight_bit_kv_halves_the_read() -> None:
    wide, narrow = (perfect(kv_dtype_bytes=b).segment(batch_of([1], [])).growth_ps for b in (2.0, 1.0))
    assert wide == 2 * narrow


def test_prefill_is_causal_and_reads_the_context_once() -> None:
    roofline = perfect()
    empty = roofline.segment(Batch(tokens=1000, requests=1, sampled=1)).duration_ps
    step = roofline.segment(batch_of([], [(1000, 1000)]))
    pairs = 1000 * 1001 // 2
    assert step.duration_ps - empty == -(-pairs * 2 * 8 * 128 // 100)  # FLOPs at 100 FLOP/ps
    assert step.steps == 1
    tail = roofline.segment(batch_of([], [(2, 10_000)])).duration_ps
    flat = roofline.segment(Batch(tokens=2, requests=1, sampled=1)).duration_ps
    assert tail - flat == 10_000 * 512  # two queries: the KV read wins over 20,000 · 2048 FLOPs


def test_latent_attention_is_read_once_for_all_heads_and_bound_by_flops() -> None:
    mla = (AttentionLayers(1, "mla", 128, 1, 576, 0, latent_rank=512),)
    spec = model(mla, hidden_size=1000, vocab_size=1000)
    flops_ps = 2 * 128 * (576 + 512) / 100
    assert perfect(spec).segment(batch_of([1], [])).growth_ps == round(flops_ps)
    fast = gpu("fast", 1e12, 1e16)
    for ranks in (1, 8):  # the latent stands whole on every rank
        assert perfect(spec, fast, ranks).segment(batch_of([1], [])).growth_ps == 576 * 2


DEEPSEEK_V3 = AttentionLayers(
    1, "mla", 128, 1, 576, 0, latent_rank=512, prefill_head_dim_qk=192, prefill_head_dim_v=128
)


def test_prompts_of_latent_attention_attend_as_ordinary_heads() -> None:
    roofline = perfect(model((DEEPSEEK_V3,), hidden_size=1000, vocab_size=1000))
    empty = roofline.segment(Batch(tokens=1000, requests=1, sampled=1)).duration_ps
    whole = roofline.segment(batch_of([], [(1000, 1000)])).duration_ps - empty
    pairs = 1000 * 1001 // 2
    assert 2 * 128 * (192 + 128) == 81_920  # FLOPs a pair; in latent form 278,528, 3.4 times as many
    assert whole == -(-pairs * 81_920 // 100)  # at 100 FLOP/ps; no key was cached before
    second = roofline.segment(batch_of([], [(1000, 3000)])).duration_ps - empty
    assert 2 * 512 * 128 * (128 + 128) == 33_554_432  # K and V of a cached token made anew from its latent
    assert second == -(-((pairs + 2_000_000) * 81_920 + 2000 * 33_554_432) // 100)
    decode = roofline.segment(batch_of([1], [])).growth_ps
    assert decode == round(2 * 128 * (576 + 512) / 100)


def test_short_chunks_of_latent_attention_are_bound_by_keys_and_values_written_and_read() -> None:
    fast = gpu("fast", 1e12, 1e20)
    for ranks in (1, 8):  # heads are divided, the latent is not
        roofline = perfect(model((DEEPSEEK_V3,), hidden_size=1000, vocab_size=1000), fast, ranks)
        step = roofline.segment(batch_of([], [(2, 1002)])).duration_ps
        flat = roofline.segment(Batch(tokens=2, requests=1, sampled=1)).duration_ps
        expanded = 128 * (192 + 128) * 2 // ranks
        assert step - flat == 1002 * expanded + 1000 * (expanded + 576 * 2)  # bytes at 1 byte/ps


def test_windows_are_listed_once_and_cap_the_read() -> None:
    layers = (
        AttentionLayers(1, "full", 8, 2, 64, 64),
        AttentionLayers(2, "sliding", 8, 2, 64, 64, window_tokens=128),
        AttentionLayers(1, "sliding", 8, 2, 64, 64, window_tokens=128),
        AttentionLayers(1, "chunked", 8, 2, 64, 64, window_tokens=64),
    )
    roofline = perfect(model(layers, hidden_size=1000, vocab_size=1000))
    assert roofline.windows == (64, 128)
    short, long = (roofline.segment(batch_of([c], [], roofline.windows)) for c in (10, 1000))
    assert short.growth_ps == 5 * 512  # all five layers grow
    assert long.growth_ps == 512  # only the one without a window
    assert long.duration_ps - short.duration_ps == 512 * (990 + 3 * 118 + 54)


def test_layers_without_attention_cost_their_state_and_no_context() -> None:
    spec = model((AttentionLayers(4, "linear", 0, 0, 0, 0, state_bytes=1000),), hidden_size=1000, vocab_size=1000)
    one, two = (perfect(spec).segment(batch_of([7] * n, [])) for n in (1, 2))
    assert one.growth_ps == 0
    assert two.duration_ps - one.duration_ps == 4 * 2 * 1000  # read and written at 1 byte/ps


def test_more_tokens_hit_more_experts_up_to_all() -> None:
    work = Roofline(qwen3_30b_a3b(), GPUS["h100_sxm"], Parallelism(), DEFAULT).work
    assert work.distinct_experts(1) == pytest.approx(8)
    assert work.distinct_experts(2) == pytest.approx(8 + 8 * (120 / 128))
    assert work.distinct_experts(5000) == pytest.approx(128)


def test_tensor_parallelism_divides_the_work_and_pays_for_all_reduces() -> None:
    one = Roofline(llama_8b(), GPUS["h100_sxm"], Parallelism(1), PERFECT)
    calibration = replace(PERFECT, all_reduce_latency_us=5.0, pcie_hop_latency_us=5.0)
    two = Roofline(llama_8b(), GPUS["h100_sxm"], Parallelism(2), calibration)
    reduce_ps = 5 * 10**6 + 2 * 0.5 * 2 * 4096 / 450e9 * 1e12
    assert two.body_ps(1) == pytest.approx(one.body_ps(1) / 2 + 64 * reduce_ps, rel=1e-9)
    without_link = replace(GPUS["h100_sxm"], link_bytes_per_s=None)
    pcie = Roofline(llama_8b(), without_link, Parallelism(4), calibration)
    hop_ps = 3 * 5 * 10**6 + 2 * 0.75 * 2 * 4096 / 64e9 * 1e12
    assert pcie.body_ps(1) == pytest.approx(one.body_ps(1) / 4 + 64 * hop_ps, rel=1e-9)


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    growth = [
        Roofline(llama_8b(), GPUS["h100_sxm"], Parallelism(tp), PERFECT).segment(batch_of([1], [])).growth_ps
        for tp in (1, 8, 16)
    ]
    assert growth[0] == pytest.approx(8 * growth[1], rel=1e-3)
    assert growth[2] == growth[1]


def test_layers_that_say_how_they_split_are_believed() -> None:
    attention = AttentionLayers(1, "full", 8, 2, 64, 64)
    weights = (
        WeightGroup("sharded", 800, 1600, True),
        WeightGroup("kv", 400, 800, True),
        WeightGroup("replicated", 10, 20, False),
        WeightGroup("experts", 10**6, 10**6, True),
    )
    spec = replace(model((attention,)), layers=(LayerSpec(attention, weights),))
    work = Roofline(spec, ROUND, Parallelism(4), PERFECT).work
    assert work.dense_bytes == 1600 / 4 + 800 / 2 + 20  # 2 KV heads: two halves, each held twice
    assert work.dense_parameters == 800 / 4 + 400 / 2 + 10


@pytest.mark.parametrize(
    ("bytes_per_parameter", "flop_per_s", "expected"),
    [
        (2.0, {"bf16": 1e14, "fp8": 2e14}, "bf16"),
        (1.0, {"bf16": 1e14, "fp8": 2e14}, "fp8"),
        (1.0, {"bf16": 1e14}, "bf16"),
        (0.53, {"bf16": 1e14, "fp8": 2e14}, "bf16"),
        (2.0, {"fp16": 1e14}, "fp16"),
    ],
)
def test_the_compute_type_follows_the_weights(
    bytes_per_parameter: float, flop_per_s: dict[str, float], expected: str
) -> None:
    card = replace(ROUND, flop_per_s=flop_per_s)
    roofline = perfect(model(ONE_LAYER, bytes_per_parameter=bytes_per_parameter), card)
    assert roofline.rates.dense.compute_dtype == expected
    assert roofline.rates.head.compute_dtype in ("bf16", "fp16")


def test_what_makes_a_step_long_is_named() -> None:
    roofline = Roofline(llama_8b(), GPUS["h100_sxm"], Parallelism(), DEFAULT)
    assert roofline.bound_by(1, 1, 1, 100) == "bandwidth"
    assert roofline.bound_by(64, 64, 64, 64 * 4000) == "bandwidth"
    assert roofline.bound_by(8192, 4, 0, 8192) == "compute"
    assert roofline.bound_by(64 + 2048, 65, 64, 65 * 1000) == "compute"
    mla = model((AttentionLayers(60, "mla", 128, 1, 576, 0, latent_rank=512),))
    prompts = Roofline(model((replace(DEEPSEEK_V3, count=60),)), GPUS["h100_sxm"], Parallelism(), DEFAULT)
    assert prompts.bound_by(2048, 1, 0, 32_768) == "compute"
    many_heads = Roofline(mla, GPUS["h100_sxm"], Parallelism(), DEFAULT)
    assert many_heads.bound_by(8, 8, 8, 8 * 100_000) == "compute"  # 128 heads on one latent


def test_assumptions_name_what_is_a_bound() -> None:
    layers = (
        AttentionLayers(1, "mla", 8, 1, 576, 0, latent_rank=512, indexer_bytes=132),
        DEEPSEEK_V3,
        AttentionLayers(1, "chunked", 8, 2, 64, 64, window_tokens=64),
        AttentionLayers(1, "linear", 0, 0, 0, 0, state_bytes=10),
        AttentionLayers(1, "cross", 8, 2, 64, 64),
    )
    notes = " ".join(perfect(model(layers, experts=8, experts_per_token=2, parameters_per_expert=10)).assumptions)
    for word in (
        "uniformly",
        "prompts as in decodes",
        "heads of 192 (K) and 128 (V)",
        "sparse",
        "chunked",
        "recurrent",
        "text-only",
    ):
        assert word in notes


def test_what_is_not_modelled_is_refused() -> None:
    with pytest.raises(InputError, match=r"pipeline_parallel_size is 2.*no one length.*PipelinedRoofline.*set it to 1"):
        Roofline(llama_8b(), ROUND, Parallelism(1, 2), DEFAULT)
    with pytest.raises(InputError, match=r"no peak FLOP/s for int4.*bf16, fp16, fp8"):
        perfect(compute_dtype="int4")
    with pytest.raises(InputError, match="tensor_parallel_size is 0"):
        perfect(ranks=0)
    with pytest.raises(InputError, match="no layers to weigh"):
        perfect(replace(model(ONE_LAYER), layers=()))
    with pytest.raises(InputError, match="bandwidth"):
        perfect(card=replace(ROUND, bandwidth_bytes_per_s=0.0))
    with pytest.raises(InputError, match="kv_dtype_bytes"):
        perfect(kv_dtype_bytes=0.0)
    with pytest.raises(ValueError, match="zip"):  # a model with windows needs their sums
        layers = (AttentionLayers(1, "sliding", 8, 2, 64, 64, window_tokens=128),)
        perfect(model(layers)).segment(batch_of([1], []))

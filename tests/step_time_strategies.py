"""Hypothesis strategies for step times: models of every kind of layer, GPUs, calibrations, batches."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from simulator.calibration import NUMBERS, Calibration, find_calibration
from simulator.specs import AttentionLayers, GpuSpec, ModelSpec
from tests.step_time_support import gpu, model

DEFAULT = find_calibration("default")
RANKS = st.sampled_from((1, 2, 4, 8))
CONTEXTS = st.lists(st.integers(1, 6000), min_size=1, max_size=12)
CHUNKS = st.lists(
    st.tuples(st.integers(1, 600), st.integers(0, 3000)).map(lambda pair: (pair[0], pair[0] + pair[1])),
    max_size=4,
)


@st.composite
def attention_groups(draw: st.DrawFn) -> tuple[AttentionLayers, ...]:
    groups = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(("full", "full", "sliding", "chunked", "mla", "linear", "none", "cross")))
        kv_heads = draw(st.sampled_from((1, 2, 8)))
        heads_of = draw(st.sampled_from(((192, 128), (96, 64), (None, None)))) if kind == "mla" else (None, None)
        windowed = kind in ("sliding", "chunked")
        groups.append(
            AttentionLayers(
                count=draw(st.integers(1, 40)),
                kind=kind,
                query_heads=kv_heads * draw(st.sampled_from((1, 4, 8))),
                kv_heads=1 if kind == "mla" else kv_heads,
                head_dim_k=576 if kind == "mla" else draw(st.sampled_from((64, 128, 192))),
                head_dim_v=0 if kind == "mla" else draw(st.sampled_from((64, 128))),
                window_tokens=draw(st.sampled_from((7, 128, 1024, 4096))) if windowed else None,
                state_bytes=draw(st.integers(0, 2_000_000)) if kind == "linear" else 0,
                latent_rank=512 if kind == "mla" else 0,
                prefill_head_dim_qk=heads_of[0],
                prefill_head_dim_v=heads_of[1],
            )
        )
    return tuple(groups)


@st.composite
def models(draw: st.DrawFn) -> ModelSpec:
    experts = draw(st.sampled_from((0, 8, 128)))
    width = draw(st.sampled_from((2.0, 1.0, 0.5625)))
    return model(
        draw(attention_groups()),
        hidden_size=draw(st.sampled_from((256, 2048, 7168))),
        vocab_size=draw(st.sampled_from((1000, 151_936))),
        dense=16 * draw(st.integers(60_000, 4_000_000_000)),  # whole bytes at 4.5 bits
        bytes_per_parameter=width,
        compute=draw(st.sampled_from(("fp8", "int8", "fp4", ""))) if width < 2 else "",
        experts=experts,
        experts_per_token=draw(st.sampled_from((1, 2, 8))) if experts else 0,
        parameters_per_expert=16 * draw(st.integers(6_000, 12_000_000)) if experts else 0,
        moe_layers=draw(st.integers(1, 60)) if experts else 0,
    )


@st.composite
def gpus(draw: st.DrawFn) -> GpuSpec:
    bf16 = draw(st.floats(20e12, 2500e12))
    return gpu(
        "random",
        draw(st.floats(200e9, 8e12)),
        bf16,
        draw(st.sampled_from((None, 2 * bf16))),
        draw(st.sampled_from((None, 300e9, 900e9))),
    )


@st.composite
def calibrations(draw: st.DrawFn) -> Calibration:
    share = st.floats(0.05, 1.0)
    amounts = {
        "overhead_ms": 5.0,
        "layer_overhead_us": 60.0,
        "per_request_us": 20.0,
        "replicated_activation_passes": 20.0,
        "sharded_activation_passes": 20.0,
        "all_reduce_latency_us": 50.0,
        "pcie_hop_latency_us": 50.0,
    }
    drawn = {name: draw(st.floats(0.0, amounts[name])) if name in amounts else draw(share) for name in NUMBERS}
    return replace(DEFAULT, name="random", **drawn)

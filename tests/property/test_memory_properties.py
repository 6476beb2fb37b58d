"""What must hold of every memory table, whatever the model, the GPU and the settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.catalog import find_gpu, find_model
from simulator.memory_budget import compute
from simulator.memory_settings import MemorySettings
from simulator.rank_memory import valid_tensor_parallel_sizes
from simulator.specs import GpuSpec, ModelSpec, Parallelism

GIB = 1 << 30
MODELS = [
    find_model(n) for n in ("llama-3.2-1b", "mistral-7b", "gemma-2-9b", "gpt-oss-20b", "deepseek-v3", "mixtral-8x7b")
]
BASE = find_gpu("h100-sxm-80gb")


def gpu_of(memory_bytes: int) -> GpuSpec:
    return replace(BASE, memory_bytes=memory_bytes, visible_bytes=None, sources={})


@st.composite
def deployments(draw: st.DrawFn) -> tuple[ModelSpec, Parallelism, MemorySettings]:
    model = draw(st.sampled_from(MODELS))
    size = draw(st.sampled_from(valid_tensor_parallel_sizes(model, 16)))
    stages = draw(st.integers(1, 3))
    chosen = MemorySettings(
        engine=draw(st.sampled_from(("vllm", "sglang", "trtllm"))),
        gpu_memory_utilization=draw(st.sampled_from((None, 0.5, 0.85, 0.95))),
        max_model_len=draw(st.integers(1, model.max_model_len)),
        max_num_batched_tokens=draw(st.sampled_from((None, 1024, 8192))),
        max_num_seqs=draw(st.sampled_from((1, 64, 256))),
        block_size=draw(st.sampled_from((None, 8, 16, 64))),
        kv_cache_dtype=draw(st.sampled_from((None, "fp8"))),
        weight_dtype=draw(st.sampled_from((None, "fp8", "int4"))),
        enforce_eager=draw(st.booleans()),
        windows=draw(st.booleans()),
    )
    if chosen.max_num_batched_tokens is None:
        chosen = replace(chosen, max_num_seqs=1)
    return model, Parallelism(size, stages), chosen


@settings(max_examples=60, deadline=None)
@given(deployments(), st.integers(8 * GIB, 200 * GIB))
def test_rows_always_add_up(deployment: Any, memory: int) -> None:
    model, parallelism, chosen = deployment
    found = compute(model, gpu_of(memory), parallelism, chosen)
    for rank in found.ranks:
        assert sum(row.bytes for row in rank.rows) == memory
    assert 0 <= found.num_gpu_blocks * found.bytes_per_block <= found.kv_pool_bytes_per_gpu
    assert found.kv_pool_bytes_per_gpu - found.num_gpu_blocks * found.bytes_per_block < max(1, found.bytes_per_block)
    if found.fits:
        assert found.max_concurrency >= 1
        assert found.largest_max_model_len >= found.settings.max_model_len


@settings(max_examples=40, deadline=None)
@given(deployments(), st.integers(8 * GIB, 150 * GIB), st.integers(1, 50 * GIB))
def test_more_memory_never_means_fewer_blocks(deployment: Any, memory: int, more: int) -> None:
    """At settings given (defaults follow the GPU's memory and may take more)."""
    model, parallelism, chosen = deployment
    chosen = replace(chosen, gpu_memory_utilization=chosen.gpu_memory_utilization or 0.9, max_num_batched_tokens=8192)
    small = compute(model, gpu_of(memory), parallelism, chosen)
    large = compute(model, gpu_of(memory + more), parallelism, chosen)
    assert large.num_gpu_blocks >= small.num_gpu_blocks


@settings(max_examples=40, deadline=None)
@given(deployments())
def test_a_rank_holds_its_share_and_never_less(deployment: Any) -> None:
    model, parallelism, chosen = deployment
    one = compute(model, BASE, Parallelism(1, parallelism.pipeline_parallel_size), chosen)
    many = compute(model, BASE, parallelism, chosen)
    size = parallelism.tensor_parallel_size
    assert many.bytes_per_block * size >= one.bytes_per_block
    assert many.bytes_per_block <= one.bytes_per_block
    assert many.weight_bytes_per_gpu * size >= one.weight_bytes_per_gpu

"""From a scenario's engine section to what the scheduler is told: policies, versions, swapping, KV groups."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import pytest

from simulator.allocators.pools import ContiguousPool, KvGroupShape, PagedPool
from simulator.cluster import simulate
from simulator.deployment import Deployment, build_deployment
from simulator.document import Document
from simulator.engine_presets import COMMON, PRESETS, WITHOUT_EFFECT, preset_of, presets_that_know
from simulator.engine_settings import EngineSettings, Preset
from simulator.run_log import Status
from simulator.scenario_bind import bind
from simulator.scenario_settings import ScenarioSettings
from simulator.schedulers.policies import IterationLevelPolicy, SglangPolicy, TrtLlmPolicy, VllmV0Policy, VllmV1Policy
from simulator.step_time.linear import LinearStepTime
from workloads.workload import Workload

GIB = 1 << 30
WORKLOAD = {
    "num_requests": 1,
    "arrivals": {"kind": "all_at_once"},
    "prompt_tokens": {"kind": "fixed", "tokens": 8},
    "output_tokens": {"kind": "fixed", "tokens": 8},
}


def deployed(model: str = "llama-3.1-8b", /, **engine: object) -> Deployment:
    """The deployment of an engine section on one H100, with contexts of 4,096 tokens."""
    data = {"name": "x", "seed": 9, "model": model, "gpu": "h100-sxm-80gb", "workload": WORKLOAD}
    data["engine"] = {"max_model_len": 4096, **engine}
    return build_deployment(bind(ScenarioSettings, Document(data, "test")))


def test_swap_space_and_speed_follow_blocks_and_pcie() -> None:
    """A block of Llama-3.1-8B is 2 MiB: 2 GiB hold 1,024 of them, and PCIe 5.0 x16 (64 GB/s) moves one in 32.8 us."""
    policy = deployed(preset="vllm-v0", swap_space=2, preemption_mode="swap", watermark=0.05).engine.policy
    assert policy == VllmV0Policy(
        preemption_mode="swap",
        swap_blocks=1024,
        swap_ps_per_block=round(2 * 2**20 / 64e9 * 1e12),
        watermark=0.05,
        beam_seed=9,
    )
    assert deployed(preset="vllm-v0").engine.policy.swap_blocks == 2048  # type: ignore[union-attr]


def test_policies_get_their_own_settings() -> None:
    asked = {"schedule_policy": "lpm", "schedule_conservativeness": 0.5, "max_prefill_tokens": 100, "ignore_eos": True}
    assert deployed(preset="sglang", **asked).engine.policy == SglangPolicy("lpm", 0.5, 100, True)
    asked = {"capacity_scheduler_policy": "max_utilization", "context_chunking_policy": "equal_progress"}
    assert deployed(preset="trtllm", **asked).engine.policy == TrtLlmPolicy("max_utilization", "equal_progress")
    assert deployed(preset="orca-max").engine.policy == IterationLevelPolicy()


def test_versions_of_vllm() -> None:
    new, old = deployed().engine, deployed(version="2025").engine
    assert (new.version, new.policy, old.version) == ("0.33", VllmV1Policy(), "2025")
    assert (new.scheduler_reserve_full_isl, old.scheduler_reserve_full_isl) == (True, False)
    assert (new.async_scheduling, old.async_scheduling) == (True, False)
    assert (new.prefix_cache_retention_interval, old.prefix_cache_retention_interval) == (0, None)
    assert deployed(prefix_cache_retention_interval="none").engine.prefix_cache_retention_interval is None
    assert deployed(prefix_cache_retention_interval=64).engine.prefix_cache_retention_interval == 64
    kept = deployed(version="2025", scheduler_reserve_full_isl=True, gpu_memory_utilization=0.8)
    assert kept.engine.scheduler_reserve_full_isl and kept.settings.engine.gpu_memory_utilization == 0.8


@pytest.mark.parametrize("preset", get_args(Preset))
def test_pools_of_presets(preset: str) -> None:
    """The null block is vLLM v1's; Orca's extents come from a buddy allocator; nobody else reserves."""
    pool = deployed(preset=preset).pool
    if preset.startswith("orca"):
        assert isinstance(pool, ContiguousPool)
        assert (pool.reservation, pool.fit) == (preset.removeprefix("orca-"), "buddy")
    elif preset == "fastertransformer":
        assert isinstance(pool, ContiguousPool) and pool.reservation == "max"
    else:
        assert isinstance(pool, PagedPool)
        assert pool.null_block == (preset == "vllm")
        assert pool.block_size == {"sglang": 1, "trtllm": 32}.get(preset, 16)


def test_groups_of_hybrid_models_are_vllm_v1_s() -> None:
    full, window = KvGroupShape(16), KvGroupShape(16, 128)
    pool = deployed("gpt-oss-20b").pool
    assert isinstance(pool, PagedPool) and sorted(pool.groups, key=repr) == sorted((full, window), key=repr)
    alone = deployed("gpt-oss-20b", disable_hybrid_kv_cache_manager=True).pool
    old = deployed("gpt-oss-20b", preset="vllm-v0")
    assert isinstance(alone, PagedPool) and isinstance(old.pool, PagedPool)
    assert alone.groups == old.pool.groups == ()
    assert any("keep every token" in line for line in old.assumptions)
    assert alone.bytes_per_token == old.pool.bytes_per_token == 2 * pool.bytes_per_token
    slots = deployed("gpt-oss-20b", allocator={"kind": "contiguous"})
    assert slots.pool.bytes_per_token == alone.bytes_per_token and not slots.engine.enable_prefix_caching


def test_every_setting_is_known_to_somebody_and_every_default_to_its_preset() -> None:
    for field in fields(EngineSettings):
        assert presets_that_know(field.name), field.name
    for name, preset in PRESETS.items():
        assert set(preset.defaults) <= preset.keys | COMMON, name
        assert preset.allocator.kind in preset.allocators, name
    assert preset_of(EngineSettings(version="2025")) is PRESETS["vllm-2025"]


def test_the_largest_context_is_what_the_pool_holds() -> None:
    """12,800 slots: 799 blocks of 16 beside the null block if the pool is stated in blocks, a power of two of slots."""
    pool: dict[str, object] = {"max_model_len": -1, "max_total_tokens": 12800}
    assert deployed(**pool).engine.max_model_len == 12800
    assert deployed(max_model_len=-1, num_gpu_blocks_override=800).engine.max_model_len == 799 * 16
    assert deployed(**pool, preset="sglang").engine.max_model_len == 12800
    assert deployed(**pool, preset="orca-max").engine.max_model_len == 8192
    assert deployed(**pool, preset="fastertransformer").engine.max_model_len == 12800
    hybrid = deployed("gpt-oss-20b", **pool, max_num_batched_tokens=512, max_num_seqs=64).engine.max_model_len
    window = (128 - 1 + 512 + 15) // 16 + 1
    assert hybrid == (800 - window) * 16


@pytest.mark.parametrize("preset", get_args(Preset))
def test_a_value_that_says_what_a_preset_does_anyway_changes_nothing(preset: str) -> None:
    stated = {key: value for key, value in WITHOUT_EFFECT.items() if key not in PRESETS[preset].keys}
    assert deployed(preset=preset, **stated).engine == deployed(preset=preset).engine


@pytest.mark.parametrize(
    ("engine", "served"),
    [
        ({"preset": "vllm", "enable_chunked_prefill": False}, 1),
        ({"preset": "vllm-v0"}, 1),
        ({"preset": "trtllm"}, 2),  # nobody is preempted: a prompt is computed once, without outputs
        ({"preset": "trtllm", "capacity_scheduler_policy": "max_utilization"}, 1),
        ({"preset": "sglang", "enable_chunked_prefill": False}, 3),
        ({"preset": "orca-max"}, 3),
        ({"preset": "orca-oracle", "enable_chunked_prefill": False}, 3),
        ({"preset": "fastertransformer", "enable_chunked_prefill": False}, 3),
    ],
)
def test_whose_token_budget_turns_a_request_away(engine: dict[str, object], served: int) -> None:
    """Prompts of 50, 60 and 70 tokens, 10 tokens of output each, and a budget of 64."""
    made = deployed(max_model_len=128, max_num_seqs=4, max_num_batched_tokens=64, **engine)
    load = Workload.from_columns([0, 0, 0], [50, 60, 70], [10, 10, 10])
    log = simulate(load, made.engine, made.pool, LinearStepTime(10**9, 0, 0), max_steps=1000)
    assert log.status == "ok"
    assert log.request_columns()["status"].tolist().count(Status.FINISHED) == served

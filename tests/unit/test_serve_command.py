"""The command lines of real servers: each flag from the setting that it says, and comments for what no flag says."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

import pytest

from simulator.catalog.model_files import huggingface_name, model_names
from simulator.deployment import Deployment, build_deployment
from simulator.errors import InputError
from simulator.scenario import load_scenario
from simulator.serve_command import SERVERS, own_server, serve_command, serve_commands


def _flags(text: str) -> set[str]:
    return set(text.split())


FLAGS = {
    "vllm": _flags(
        "--tensor-parallel-size --pipeline-parallel-size --data-parallel-size --enable-expert-parallel "
        "--gpu-memory-utilization --max-model-len --max-num-seqs --max-num-batched-tokens --block-size "
        "--kv-cache-dtype --quantization --dtype --no-enable-prefix-caching --async-scheduling "
        "--no-async-scheduling --no-enable-chunked-prefill --enable-chunked-prefill --scheduling-policy "
        "--num-gpu-blocks-override --kv-cache-memory-bytes --enforce-eager --disable-hybrid-kv-cache-manager "
        "--no-scheduler-reserve-full-isl --long-prefill-token-threshold "
        "--long-prefill-token-threshold-adaptive --watermark --prefill-schedule-interval "
        "--max-num-active-seqs --prefix-cache-retention-interval --swap-space --preemption-mode "
    ),
    "sglang": _flags(
        "--model-path --tp-size --pp-size --dp-size --ep-size --load-balance-method --mem-fraction-static "
        "--context-length --max-running-requests --chunked-prefill-size --max-prefill-tokens "
        "--max-total-tokens --page-size --kv-cache-dtype --quantization --dtype --disable-radix-cache "
        "--schedule-policy --schedule-conservativeness --disable-cuda-graph "
    ),
    "trtllm": _flags(
        "--tp_size --pp_size --ep_size --max_seq_len --max_batch_size --max_num_tokens "
        "--kv_cache_free_gpu_memory_fraction --enable_chunked_prefill --extra_llm_api_options "
    ),
}
"""Flags that the servers' own sources list (see the docstrings of simulator/servers)."""


def deployment(*patches: str) -> Deployment:
    """Llama-3.1-8B on one H100 with vLLM's defaults, patched."""
    plain = ("variants=null", "engine={preset: vllm}", "slo={}", "cost={}")
    return build_deployment(load_scenario("quickstart", (*plain, *patches)).scenario.settings)


def words(text: str) -> list[str]:
    """The command's words, without comments and the configuration file."""
    lines = text.replace("\\\n", " ").splitlines()
    return shlex.split(lines[-1])


def comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.startswith("#"))


def value(text: str, flag: str) -> str | None:
    found = words(text)
    return found[found.index(flag) + 1] if flag in found else None


def test_what_the_answer_depends_on_is_always_said() -> None:
    text = serve_command(deployment())
    assert words(text) == shlex.split(
        "vllm serve meta-llama/Llama-3.1-8B --max-model-len 131072 --max-num-seqs 1024 --max-num-batched-tokens 8192 "
        "--gpu-memory-utilization 0.92"
    )
    assert comments(text) == "# on 1 x h100-sxm-80gb"


VLLM = [
    ("engine.gpu_memory_utilization=0.8765432", "--gpu-memory-utilization 0.8765432"),
    ("engine.max_model_len=8192", "--max-model-len 8192"),
    ("engine.max_num_seqs=32", "--max-num-seqs 32"),
    ("engine.max_num_batched_tokens=2048", "--max-num-batched-tokens 2048"),
    ("engine.block_size=32", "--block-size 32"),
    ("engine.kv_cache_dtype=fp8", "--kv-cache-dtype fp8"),
    ("engine.kv_cache_dtype=int8", "--kv-cache-dtype int8_per_token_head"),
    ("engine.weight_dtype=fp8", "--quantization fp8"),
    ("engine.weight_dtype=float16", "--dtype float16"),
    ("engine.enable_prefix_caching=false", "--no-enable-prefix-caching"),
    ("engine.async_scheduling=false", "--no-async-scheduling"),
    ("engine.enable_chunked_prefill=false", "--no-enable-chunked-prefill"),
    ("engine.scheduling_policy=priority", "--scheduling-policy priority"),
    ("engine.num_gpu_blocks_override=900", "--num-gpu-blocks-override 900"),
    ("engine.max_total_tokens=16000", "--num-gpu-blocks-override 1001"),
    ("engine={kv_cache_memory_bytes: 8000000000, max_model_len: 8192}", "--kv-cache-memory-bytes 8000000000"),
    ("engine.enforce_eager=true", "--enforce-eager"),
    ("engine.disable_hybrid_kv_cache_manager=true", "--disable-hybrid-kv-cache-manager"),
    ("engine.scheduler_reserve_full_isl=false", "--no-scheduler-reserve-full-isl"),
    ("engine.long_prefill_token_threshold=512", "--long-prefill-token-threshold 512"),
    ("engine.long_prefill_token_threshold_adaptive=true", "--long-prefill-token-threshold-adaptive"),
    ("engine.watermark=0.05", "--watermark 0.05"),
    ("engine.prefill_schedule_interval=4", "--prefill-schedule-interval 4"),
    ("engine.max_num_active_seqs=64", "--max-num-active-seqs 64"),
    ("engine.prefix_cache_retention_interval=none", "--prefix-cache-retention-interval None"),
    ("engine={version: '2025', async_scheduling: true}", "--async-scheduling"),
    ("parallelism.tensor_parallel_size=2", "--tensor-parallel-size 2"),
    ("parallelism.replicas=4", "--data-parallel-size 4"),
    ("engine={preset: vllm-v0, swap_space: 0.5}", "--swap-space 0.5"),
    ("engine={preset: vllm-v0, preemption_mode: swap}", "--preemption-mode swap"),
    ("engine={preset: vllm-v0, enable_chunked_prefill: true}", "--enable-chunked-prefill"),
]
SGLANG = [
    ("engine.max_model_len=8192", "--context-length 8192"),
    ("engine.max_num_seqs=32", "--max-running-requests 32"),
    ("engine.max_num_batched_tokens=2048", "--chunked-prefill-size 2048"),
    ("engine.enable_chunked_prefill=false", "--chunked-prefill-size -1"),
    ("engine.gpu_memory_utilization=0.7", "--mem-fraction-static 0.7"),
    ("engine.block_size=16", "--page-size 16"),
    ("engine={preset: sglang, max_total_tokens: 50000, max_model_len: 8192}", "--max-total-tokens 50000"),
    ("engine.kv_cache_dtype=fp8", "--kv-cache-dtype fp8_e4m3"),
    ("engine.weight_dtype=fp8", "--quantization fp8"),
    ("engine.enable_prefix_caching=false", "--disable-radix-cache"),
    ("engine.schedule_policy=lpm", "--schedule-policy lpm"),
    ("engine.schedule_conservativeness=1.3", "--schedule-conservativeness 1.3"),
    ("engine.max_prefill_tokens=4096", "--max-prefill-tokens 4096"),
    ("engine.enforce_eager=true", "--disable-cuda-graph"),
    ("parallelism.tensor_parallel_size=4", "--tp-size 4"),
    ("parallelism.replicas=2", "--dp-size 2 --load-balance-method round_robin"),
]
TRTLLM = [
    ("engine.max_model_len=8192", "--max_seq_len 8192"),
    ("engine.max_num_seqs=32", "--max_batch_size 32"),
    ("engine.max_num_batched_tokens=2048", "--max_num_tokens 2048"),
    ("engine.gpu_memory_utilization=0.7", "--kv_cache_free_gpu_memory_fraction 0.7"),
    ("engine.enable_chunked_prefill=true", "--enable_chunked_prefill"),
    ("parallelism.tensor_parallel_size=8", "--tp_size 8"),
]


@pytest.mark.parametrize(("server", "patch", "flags"), [("vllm", *row) for row in VLLM])
def test_each_setting_of_vllm_has_its_flag(server: str, patch: str, flags: str) -> None:
    _says(server, patch, flags)


@pytest.mark.parametrize(("server", "patch", "flags"), [("sglang", *row) for row in SGLANG])
def test_each_setting_of_sglang_has_its_flag(server: str, patch: str, flags: str) -> None:
    _says(server, "engine.preset=sglang", flags, patch)


@pytest.mark.parametrize(("server", "patch", "flags"), [("trtllm", *row) for row in TRTLLM])
def test_each_setting_of_tensorrt_llm_has_its_flag(server: str, patch: str, flags: str) -> None:
    _says(server, "engine.preset=trtllm", flags, patch)


def _says(server: str, patch: str, flags: str, *more: str) -> None:
    """The flags stand in the command with the setting, and do not without it."""
    found = deployment(patch, *more)
    assert own_server(found) == server
    text, before = serve_command(found), serve_command(deployment(*([patch] if more else [])))
    assert flags in " ".join(words(text)), text
    assert flags not in " ".join(words(before)), before
    assert {word for word in words(text) if word.startswith("--")} <= set(FLAGS[server])


@pytest.mark.parametrize(
    ("patch", "table", "content"),
    [
        ("engine.kv_cache_dtype=fp8", "kv_cache_config", {"dtype": "fp8"}),
        ("engine.block_size=64", "kv_cache_config", {"tokens_per_block": 64}),
        ("engine.enable_prefix_caching=false", "kv_cache_config", {"enable_block_reuse": False}),
        ("engine.max_total_tokens=64000", "kv_cache_config", {"max_tokens": 64000}),
        ("engine.capacity_scheduler_policy=max_utilization", "scheduler_config",
         {"capacity_scheduler_policy": "MAX_UTILIZATION"}),
        ("engine.context_chunking_policy=equal_progress", "scheduler_config",
         {"context_chunking_policy": "EQUAL_PROGRESS"}),
    ],
)  # fmt: skip
def test_tensorrt_llm_reads_the_rest_from_a_file(patch: str, table: str, content: dict[str, object]) -> None:
    text = serve_command(deployment("engine.preset=trtllm", patch))
    found = re.search(rf"cat > (\S+) <<'END'\n(?:.*\n)*?{table}: (.*)\n(?:.*\n)*?END\n", text)
    assert found is not None
    assert json.loads(found[2]) == content
    assert value(text, "--extra_llm_api_options") == found[1]
    assert "cat >" not in serve_command(deployment("engine.preset=trtllm"))


def test_other_servers_get_what_the_scenario_states_and_keep_their_defaults() -> None:
    texts = serve_commands(deployment("engine={max_model_len: 4096, kv_cache_dtype: fp8_e4m3, block_size: 32}"))
    assert list(texts) == ["vllm", "sglang", "trtllm"]
    assert words(texts["sglang"])[4:] == shlex.split(
        "meta-llama/Llama-3.1-8B --kv-cache-dtype fp8_e4m3 --context-length 4096"
    )
    assert "simulated with the rules of vLLM v1" in comments(texts["sglang"])
    assert words(texts["trtllm"])[1:4] == ["meta-llama/Llama-3.1-8B", "--max_seq_len", "4096"]
    assert "simulated" not in comments(texts["vllm"])
    pool = deployment("engine={kv_cache_memory_bytes: 8000000000, max_model_len: 8192}")
    assert value(serve_command(pool, "sglang"), "--max-total-tokens") == str(pool.pool_slots)


EXPERTS = ("model=mixtral-8x7b", "engine.max_model_len=8192")


@pytest.mark.parametrize(
    ("server", "flags"),
    [("vllm", "--enable-expert-parallel"), ("sglang", "--ep-size 4"), ("trtllm", "--ep_size 4")],
)
def test_whole_experts_on_each_rank(server: str, flags: str) -> None:
    sized = "parallelism={tensor_parallel_size: 4, enable_expert_parallel: true}"
    assert flags in " ".join(words(serve_command(deployment(*EXPERTS, sized), server)))
    assert flags not in serve_command(deployment(*EXPERTS, "parallelism.tensor_parallel_size=4"), server)


@pytest.mark.parametrize(
    ("server", "flags"),
    [("vllm", "--pipeline-parallel-size 2"), ("sglang", "--pp-size 2"), ("trtllm", "--pp_size 2")],
)
def test_pipeline_stages(server: str, flags: str) -> None:
    assert flags in " ".join(words(serve_command(deployment("parallelism.pipeline_parallel_size=2"), server)))


def test_replicas_that_one_command_cannot_start_are_said() -> None:
    many = serve_command(deployment("parallelism.replicas=9", "router=random"))
    assert "--data-parallel-size" not in many
    assert "9 replicas: start this once on each 1 x h100-sxm-80gb" in comments(many)
    assert "(simulated: random)" in comments(many)
    experts = (*EXPERTS, "parallelism={tensor_parallel_size: 4, replicas: 2}")
    text = serve_command(deployment(*experts))
    assert "2 replicas: start this once on each 4 x h100-sxm-80gb" in comments(text)  # in vLLM they would share experts
    assert value(serve_command(deployment(*experts), "sglang"), "--dp-size") == "2"
    assert "2 replicas: start this once" in comments(serve_command(deployment(*experts), "trtllm"))
    odd = serve_command(deployment("engine.preset=sglang", "parallelism.replicas=2", "router=random"))
    assert "--load-balance-method knows no router random" in comments(odd)


def test_what_has_no_flag_is_a_comment() -> None:
    contiguous = serve_command(deployment("engine.allocator={kind: contiguous}"))
    assert "contiguous KV cache, which vLLM cannot be told to use" in comments(contiguous)
    orca = serve_command(deployment("engine={preset: orca-max}"))
    assert words(orca)[:2] == ["vllm", "serve"] and "Orca (Max), which cannot be started; vLLM is not it" in orca
    assert "weights in int4: name a checkpoint stored so" in comments(
        serve_command(deployment("engine.weight_dtype=int4"))
    )
    assert "weights in fp8" in comments(serve_command(deployment("engine.weight_dtype=fp8"), "trtllm"))
    assert "a KV cache in int8" in comments(serve_command(deployment("engine.kv_cache_dtype=int8"), "sglang"))
    old = serve_command(deployment("engine={preset: vllm-v0, watermark: 0.05}"))
    assert words(old)[0] == "VLLM_USE_V1=0" and "watermark of 0.05 has no flag" in comments(old)


def test_fleets_that_one_command_does_not_start_are_said() -> None:
    pools = "disaggregation={prefill: {replicas: 1}, decode: {replicas: 1}, link: {gb_per_s: 50, latency_us: 5}}"
    groups = "fleet={groups: [{name: a, replicas: 1}, {name: b, replicas: 2}]}"
    for patch, said in ((pools, "pools of their own"), (groups, "groups of replicas that differ")):
        settings = load_scenario("quickstart", ("variants=null", patch)).scenario.settings
        made = replace(deployment(), settings=replace(deployment().settings, fleet=settings.fleet,
                                                      disaggregation=settings.disaggregation))  # fmt: skip
        assert said in comments(serve_command(made))


def test_the_checkpoint_s_own_formats_need_no_flag() -> None:
    both = ("engine.weight_dtype=bfloat16", "engine.kv_cache_dtype=bfloat16")
    assert serve_command(deployment(*both)) == serve_command(deployment())
    fp8 = ("model=deepseek-v3", "gpu=h200-sxm-141gb", "parallelism.tensor_parallel_size=8", "engine.max_model_len=8192")
    assert "--quantization" not in serve_command(deployment(*fp8, "engine.weight_dtype=fp8"))


def test_the_model_is_named_as_the_server_finds_it() -> None:
    assert all("/" in str(huggingface_name(name)) for name in model_names())
    assert huggingface_name("gpt-9") is None
    asked = deployment("model=meta-llama/Llama-3.1-8B-Instruct")
    assert words(serve_command(asked))[2] == "meta-llama/Llama-3.1-8B-Instruct"
    inline = deployment("model={model_type: llama, hidden_size: 4096, intermediate_size: 14336, num_hidden_layers: 32, "
                        "num_attention_heads: 32, num_key_value_heads: 8, vocab_size: 128256, torch_dtype: bfloat16, "
                        "max_position_embeddings: 8192}")  # fmt: skip
    assert words(serve_command(inline))[2] == "MODEL" and "write the model's name for MODEL" in serve_command(inline)


def test_an_unknown_server_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean sglang"):
        serve_command(deployment(), "sg-lang")
    assert set(SERVERS) == set(FLAGS)

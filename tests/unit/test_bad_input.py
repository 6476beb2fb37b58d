"""What a user can get wrong in a scenario: each fault has a place, the key it is about, a remedy and an exit code."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator.cli import app

SCENARIO = """\
name: chat
seed: 3
model: llama-3.1-8b
gpu: h100-sxm-80gb
parallelism: {replicas: 1}
engine:
  preset: vllm
  block_size: 16
  max_model_len: 8192
  enable_prefix_caching: false
workload:
  num_requests: 20
  arrivals: {kind: poisson, rate_rps: 8}
  prompt_tokens: {kind: lognormal, mean: 512, cv: 1.0, max: 4096}
  output_tokens: {kind: fixed, tokens: 8}
step_time: {kind: linear, base_ms: 6, per_token_us: 50, per_context_token_ns: 26}
slo: {ttft_ms: {p99: 100000}}
"""


@dataclass(frozen=True)
class Bad:
    """One fault.

    ``old`` in SCENARIO is replaced by ``new`` (or ``text`` is the whole file); then stderr must hold ``place``
    (line:column in the file), each of ``words`` (the key, the remedy), and the exit code must be ``code``.
    """

    label: str
    old: str = ""
    new: str = ""
    place: str = ""
    words: tuple[str, ...] = ()
    code: int = 2
    text: str | None = None
    files: dict[str, str] = field(default_factory=dict)

    def scenario(self) -> str:
        if self.text is not None:
            return self.text
        assert self.old in SCENARIO, self.old
        return SCENARIO.replace(self.old, self.new, 1)


def under(preset: str, line: str) -> str:
    """SCENARIO with another preset, and ``line`` (line 8) as its only other setting of the engine."""
    start, end = SCENARIO.index("  block_size"), SCENARIO.index("workload:")
    return (SCENARIO[:start] + f"  {line}\n" + SCENARIO[end:]).replace("preset: vllm", f"preset: {preset}")


def trace(path: str, **files: str) -> str:
    """SCENARIO with a trace instead of laws of lengths."""
    start = SCENARIO.index("  num_requests"), SCENARIO.index("step_time")
    return SCENARIO[: start[0]] + f"  trace: {{path: {path}}}\n" + SCENARIO[start[1] :]


CASES = [
    # names of keys
    Bad("unknown key", "block_size", "blocksize", "8:3", ("engine.blocksize", "did you mean block_size?")),
    Bad("dashes", "max_model_len", "max-model-len", "9:3", ("did you mean max_model_len?",)),
    Bad("unknown section", "slo:", "slos:", "17:1", ("slos is not an option", "did you mean slo?")),
    Bad("unknown law key", "rate_rps", "rate", "13:29", ("workload.arrivals.rate", "did you mean rate_rps?")),
    Bad("key of another section", "  block_size: 16", "  tensor_parallel_size: 2", "8:3", ("parallelism:",)),
    Bad("nothing like it", "seed: 3", "colour: red", "2:1", ("colour is not an option", "valid:")),
    Bad("duplicate section", "slo:", "seed: 4\nslo:", "17:1", ("seed is given twice", "delete one")),
    Bad("duplicate in flow", "cv: 1.0", "cv: 1.0, cv: 2", "14:56", ("prompt_tokens.cv is given twice",)),
    Bad("missing model", "model: llama-3.1-8b\n", "", "1:1", ("model is missing", "add model:")),
    Bad("missing gpu", "gpu: h100-sxm-80gb\n", "", "1:1", ("gpu is missing", "add gpu:")),
    Bad("missing workload", "workload:\n", "router: round_robin\nworkloads:\n", "12:1", ("did you mean workload?",)),
    Bad("missing rate", ", rate_rps: 8", "", "13:13", ("workload.arrivals.rate_rps is missing", "add rate_rps")),
    # kinds
    Bad("unknown kind", "poisson", "poison", "13:20", ("did you mean poisson?", "closed_loop")),
    Bad("no such kind", "kind: lognormal", "kind: pareto", "14:25", ("'pareto'", "lognormal", "empirical")),
    Bad("kind missing", "kind: fixed, ", "", "15:18", ("workload.output_tokens.kind is missing", "uniform")),
    Bad("unknown step time", "kind: linear, base_ms: 6", "kind: magic", "16:19", ("'magic'", "roofline")),
    Bad("step time of later", "{kind: linear, base_ms: 6, per_token_us: 50, per_context_token_ns: 26}",
        "{kind: aiconfigurator}", "16:", ("aiconfigurator", "roofline")),
    Bad("unknown allocator", "  block_size: 16", "  allocator: {kind: buddy}", "8:21", ("paged", "contiguous")),
    Bad("unknown reservation", "  block_size: 16", "  allocator: {kind: contiguous, reservation: min}", "8:46",
        ("engine.allocator.reservation", "max", "pow2", "oracle")),
    Bad("unknown policy", "  block_size: 16", "  scheduling_policy: lifo", "8:22", ("fcfs", "priority")),
    Bad("unknown router", "seed: 3", "router: fastest", "2:9", ("router", "round_robin")),
    Bad("unknown mode", "seed: 3", "mode: turbo", "2:7", ("mode", "serve", "admission")),
    # types and units
    Bad("size with a unit", "max_model_len: 8192", "max_model_len: 16GiB", "9:18",
        ("engine.max_model_len must be a whole number", "plain number of tokens")),
    Bad("bytes with a unit", "block_size: 16", "kv_cache_memory_bytes: 16GiB", "8:26", ("17179869184",)),
    Bad("seconds with a unit", "num_requests: 20", "duration_s: 10min", "12:15", ("workload.duration_s", "600")),
    Bad("number in quotes", "block_size: 16", "block_size: '16'", "8:15", ("without quotes",)),
    Bad("underscores", "max_model_len: 8192", "max_model_len: 8_192", "9:18", ("8192 without",)),
    Bad("percent", "block_size: 16", "gpu_memory_utilization: 92%", "8:27", ("gpu_memory_utilization",)),
    Bad("half a block", "block_size: 16", "block_size: 16.5", "8:15", ("must be a whole number", "write 16")),
    Bad("true is no number", "block_size: 16", "block_size: true", "8:15", ("engine.block_size", "true")),
    Bad("no is text", "enable_prefix_caching: false", "enable_prefix_caching: no", "10:26",
        ("must be true or false", "'no'")),
    Bad("a number for a name", "name: chat", "name: 7", "1:7", ("name must be text", "quotes")),
    Bad("a list for a mapping", "engine:\n  preset: vllm\n  block_size: 16\n  max_model_len: 8192\n"
        "  enable_prefix_caching: false", "engine: [1, 2]", "6:9", ("engine must be a mapping", "a list")),
    Bad("a word for a mapping", "parallelism: {replicas: 1}", "parallelism: two", "5:14", ("parallelism", "mapping")),
    Bad("a number for a law", "{kind: fixed, tokens: 8}", "8", "15:18", ("workload.output_tokens", "{kind:")),
    Bad("an empty section", "parallelism: {replicas: 1}", "parallelism:", "5:1", ("parallelism is empty",)),
    Bad("an empty value", "block_size: 16", "gpu_memory_utilization: ''", "8:27", ("gpu_memory_utilization",)),
    Bad("an empty model", "model: llama-3.1-8b", "model: ''", "3:8", ("model must be text or a mapping", "not empty")),
    # numbers out of range
    Bad("negative rate", "rate_rps: 8", "rate_rps: -8", "13:39", ("workload.arrivals.rate_rps", "above 0")),
    Bad("NaN rate", "rate_rps: 8", "rate_rps: .nan", "13:39", ("workload.arrivals.rate_rps", "finite")),
    Bad("infinite rate", "rate_rps: 8", "rate_rps: .inf", "13:39", ("workload.arrivals.rate_rps", "finite")),
    Bad("zero rate", "rate_rps: 8", "rate_rps: 0", "13:39", ("workload.arrivals.rate_rps", "above 0")),
    Bad("zero block", "block_size: 16", "block_size: 0", "8:15", ("engine.block_size must be at least 1",)),
    Bad("zero blocks", "block_size: 16", "num_gpu_blocks_override: 0", "8:28", ("num_gpu_blocks_override",)),
    Bad("only the null block", "block_size: 16", "num_gpu_blocks_override: 1", "8:28", ("2 or more",)),
    Bad("utilization above 1", "block_size: 16", "gpu_memory_utilization: 92", "8:27", ("at most 1",)),
    Bad("no requests", "num_requests: 20", "num_requests: 0", "12:17", ("workload.num_requests",)),
    Bad("negative seed", "seed: 3", "seed: -3", "2:7", ("seed must be at least 0",)),
    Bad("no replicas", "replicas: 1", "replicas: 0", "5:25", ("parallelism.replicas must be at least 1",)),
    Bad("negative mean", "mean: 512", "mean: -512", "14:42", ("workload.prompt_tokens.mean",)),
    Bad("negative cv", "cv: 1.0", "cv: -1.0", "14:51", ("workload.prompt_tokens.cv",)),
    Bad("zero tokens", "tokens: 8}", "tokens: 0}", "15:40", ("workload.output_tokens.tokens",)),
    Bad("negative step", "base_ms: 6", "base_ms: -6", "16:36", ("step_time.base_ms",)),
    Bad("a step of no time", "base_ms: 6, per_token_us: 50", "base_ms: 0, per_token_us: 0", "16:12", ("no time",)),
    Bad("budget below sequences", "block_size: 16", "max_num_batched_tokens: 4\n  max_num_seqs: 8", "8:27",
        ("max_num_batched_tokens", "max_num_seqs")),
    # workloads
    Bad("no end", "  num_requests: 20\n", "", "12:3", ("workload", "num_requests or duration_s")),
    Bad("no arrivals", "  arrivals: {kind: poisson, rate_rps: 8}\n", "", "12:3", ("arrivals",)),
    Bad("no lengths", "  output_tokens: {kind: fixed, tokens: 8}\n", "", "12:3", ("output_tokens",)),
    Bad("prompts longer than the context", "{kind: lognormal, mean: 512, cv: 1.0, max: 4096}",
        "{kind: fixed, tokens: 9000}", "9:18", ("engine.max_model_len", "9001")),
    Bad("missing trace", text=trace("nowhere.csv"), place="", words=("nowhere.csv", "no file", "workload.trace.path")),
    Bad("empty trace", text=trace("empty.csv"), files={"empty.csv": ""}, words=("empty.csv",)),
    Bad("trace of a header", text=trace("h.csv"), files={"h.csv": "arrived_at,num_prefill_tokens,num_decode_tokens\n"},
        words=("h.csv",)),
    Bad("trace of nonsense", text=trace("n.csv"), files={"n.csv": "a,b\n1,2\n"}, words=("n.csv",)),
    Bad("trace is a folder", text=trace("."), words=("irectory", "workload.trace.path")),
    Bad("lengths beside a trace", text=trace("t.csv}\n  output_tokens: {kind: fixed, tokens: 8"),
        place="13:18", words=("workload.output_tokens", "trace")),
    Bad("no answers", "num_requests: 20", "num_requests: 20\n  n: 0", "13:6", ("workload.n: 0 is below 1",)),
    Bad("half a beam", "num_requests: 20", "num_requests: 20\n  beam_width: 1.5", "13:15", ("workload.beam_width",)),
    Bad("samples and beams", "num_requests: 20", "num_requests: 20\n  n: 2\n  beam_width: 2", "14:15", ("not both",)),
    Bad("beams in vLLM v1", "num_requests: 20", "num_requests: 20\n  beam_width: 2", "13:15",
        ("beam search is not simulated with preset vllm", "vllm-v0")),
    Bad("samples of a session", "num_requests: 20", "num_requests: 20\n  n: 2\n"
        "  session: {turns: {kind: fixed, tokens: 2}}", "13:6", ("workload.n", "leave out session")),
    # catalogue and models
    Bad("unknown gpu", "h100-sxm-80gb", "h100-sxm-80bg", "4:6", ("h100-sxm-80bg", "h100-sxm-80gb")),
    Bad("unknown model", "llama-3.1-8b", "llama-3.1-9b", "3:8", ("llama-3.1-9b", "llama-3.1-8b")),
    Bad("missing config.json", "llama-3.1-8b", "./none/config.json", "3:8", ("config.json",)),
    Bad("broken config.json", "llama-3.1-8b", "./config.json", "3:8", ("config.json",), files={"config.json": "{"}),
    Bad("inline model without sizes", "model: llama-3.1-8b", "model: {num_hidden_layers: 2}", "3:8", ("model_type",)),
    Bad("inline gpu without sizes", "gpu: h100-sxm-80gb", "gpu: {memory_gib: 80}", "4:6", ("gpu.", "missing")),
    Bad("model does not fit", "gpu: h100-sxm-80gb", "gpu: l4\nrouter: round_robin",
        place="", words=("does not fit",), code=3, text=SCENARIO.replace("llama-3.1-8b", "llama-3.1-70b")),
    # engines: settings of other presets, and what is not there
    Bad("caching over slots", "enable_prefix_caching: false",
        "enable_prefix_caching: true\n  allocator: {kind: contiguous}", "10:26", ("shares nothing", "kind: paged")),
    Bad("caching of vLLM v0", text=under("vllm-v0", "enable_prefix_caching: true"), place="8:26",
        words=("preset vllm-v0 is simulated without", "preset: vllm")),
    Bad("caching of Orca by another name", text=under("orca-max", "enable_block_reuse: true"), place="8:23",
        words=("engine.enable_prefix_caching", "preset orca-max is simulated without", "sglang, trtllm")),
    Bad("a release of vLLM v1", "block_size: 16", 'release: "2024"', "8:3", ("preset vllm", "vllm-v0")),
    Bad("an unknown release", text=under("vllm-v0", 'release: "2022"'), place="8:12", words=("2024", "2023-06")),
    Bad("beams beyond chance", text=under("vllm-v0", "beam_diversity: 2"), place="8:19", words=("at most 1",)),
    Bad("a setting of another preset", "block_size: 16", "capacity_scheduler_policy: max_utilization", "8:3",
        ("engine.capacity_scheduler_policy means nothing to preset vllm", "trtllm")),
    Bad("swap in vLLM v1", "block_size: 16", "swap_space: 4", "8:3", ("means nothing to preset vllm", "vllm-v0")),
    Bad("SGLang's policy in vLLM", "block_size: 16", "schedule_policy: lpm", "8:3", ("preset vllm", "sglang")),
    Bad("async in Orca", text=under("orca-max", "async_scheduling: true"), place="8:3",
        words=("engine.async_scheduling means nothing to preset orca-max", "a setting of vllm")),
    Bad("priorities in vLLM v0", text=under("vllm-v0", "scheduling_policy: priority"), place="8:3",
        words=("preset vllm-v0", "a setting of vllm")),
    Bad("a version of SGLang", text=under("sglang", 'version: "2025"'), place="8:3", words=("preset sglang", "vllm")),
    Bad("a watermark of SGLang", text=under("sglang", "watermark: 0.01"), place="8:3", words=("vllm, vllm-v0",)),
    Bad("slots in SGLang", text=under("sglang", "allocator: {kind: contiguous}"), place="8:14",
        words=("preset sglang cannot run over a contiguous cache", "orca-max", "fastertransformer")),
    Bad("unknown version", "block_size: 16", 'version: "2024"', "8:12", ("engine.version", "2025", "0.33")),
    Bad("a version without quotes", "block_size: 16", "version: 2025", "8:12", ("engine.version", "2025")),
    Bad("negative retention", "block_size: 16", "prefix_cache_retention_interval: -1", "8:36",
        ("engine.prefix_cache_retention_interval", "a whole number or none")),
    Bad("retention of a word", "block_size: 16", "prefix_cache_retention_interval: all", "8:36", ("none",)),
    Bad("unknown preemption", text=under("vllm-v0", "preemption_mode: drop"), place="8:20",
        words=("recompute", "swap")),
    Bad("negative swap space", text=under("vllm-v0", "swap_space: -1"), place="8:15", words=("engine.swap_space",)),
    Bad("swap space with a unit", text=under("vllm-v0", "swap_space: 4GiB"), place="8:15",
        words=("engine.swap_space",)),
    Bad("unknown capacity policy", text=under("trtllm", "capacity_scheduler_policy: evict"), place="8:30",
        words=("engine.capacity_scheduler_policy", "guaranteed_no_evict", "max_utilization", "static_batch")),
    Bad("unknown chunking", text=under("trtllm", "context_chunking_policy: random"), place="8:28",
        words=("first_come_first_served", "equal_progress")),
    Bad("unknown order", text=under("sglang", "schedule_policy: lifo"), place="8:20", words=("fcfs", "lpm")),
    Bad("no conservativeness", text=under("sglang", "schedule_conservativeness: 0"), place="8:30", words=("above 0",)),
    Bad("retention off the blocks", place="11:36", words=("prefix_cache_retention_interval 7 is no", "multiple of 16"),
        text=SCENARIO.replace("llama-3.1-8b", "gemma-2-9b").replace(
            "caching: false", "caching: true\n  prefix_cache_retention_interval: 7")),
    Bad("unknown preset", "preset: vllm", "preset: vlm", "7:11", ("'vlm'", "did you mean vllm")),
    Bad("two names for one", "block_size: 16", "block_size: 16\n  page_size: 16", "9:3", ("page_size", "block_size")),
    Bad("missing calibration", "{kind: linear, base_ms: 6, per_token_us: 50, per_context_token_ns: 26}",
        "{kind: roofline, calibration: c.yaml}", "16:42", ("step_time.calibration", "c.yaml")),
    Bad("efficiency above 1", "{kind: linear, base_ms: 6, per_token_us: 50, per_context_token_ns: 26}",
        "{kind: roofline, memory_efficiency: 1.5}", "16:48", ("memory_efficiency", "at most 1")),
    Bad("heads that do not divide", "replicas: 1", "tensor_parallel_size: 3", "5:37", ("valid sizes: 1, 2, 4",)),
    Bad("pipeline of a linear clock", "replicas: 1", "pipeline_parallel_size: 2", "16:19", ("kind: roofline",)),
    Bad("experts of a dense model", "replicas: 1", "enable_expert_parallel: true", "5:39", ("has no experts",)),
    Bad("data-parallel attention", "replicas: 1", "tp: 2, data_parallel_size: 4, enable_expert_parallel: true", "5:22",
        ("tensor_parallel_size: 8 with enable_expert_parallel: true", "replicas: 4 without it")),
    Bad("a pipeline of another system", place="5:39", words=("preset vllm only",),
        text=SCENARIO.replace("replicas: 1", "pipeline_parallel_size: 2").replace("preset: vllm", "preset: sglang")),
    Bad("asynchronous scheduling of a pipeline", place="8:21", words=("set it to false",),
        text=SCENARIO.replace("replicas: 1", "pipeline_parallel_size: 2").replace(
            "preset: vllm", "preset: vllm\n  async_scheduling: true")),
    Bad("sliding windows without a clock", "model: llama-3.1-8b", "mode: admission\nmodel: gemma-2-9b", "4:8",
        ("disable_hybrid_kv_cache_manager: true",)),
    Bad("recurrent layers", "llama-3.1-8b", "{model_type: mamba, hidden_size: 64, num_hidden_layers: 2, "
        "state_size: 16, conv_kernel: 4, intermediate_size: 128, time_step_rank: 4, expand: 2, vocab_size: 1000}",
        "3:8", ("linear attention layers", "kvplan size")),
    Bad("unknown KV format", "block_size: 16", "kv_cache_dtype: fp9", "8:19", ("engine.kv_cache_dtype", "fp8")),
    # SLOs and variants
    Bad("unknown metric", "ttft_ms", "ttft", "17:7", ("slo.ttft", "did you mean ttft_ms?")),
    Bad("unknown statistic", "p99", "p999", "17:17", ("slo.ttft_ms.p999", "p99")),
    Bad("negative limit", "100000", "-1", "17:22", ("slo.ttft_ms.p99 must be above 0",)),
    Bad("no variants", "seed: 3", "variants: {}", "2:11", ("variants", "mapping of names")),
    Bad("a variant that is a word", "seed: 3", "variants: {a: b}", "2:15", ("variants.a", "patches")),
    Bad("a variant of an unknown key", "seed: 3", "variants: {a: {engine.blocksize: 8}}", "2:16",
        ("engine.blocksize", "did you mean block_size?")),
    Bad("a variant through a number", "seed: 3", "variants: {a: {gpu.x: 8}}", "2:16", ("gpu.x", "the text")),
    Bad("a variant with a slash", "seed: 3", "variants: {../a: {}}", "2:12", ("folder", "letters")),
    # files
    Bad("not a mapping", text="- 1\n- 2\n", place="1:1", words=("must be a mapping", "a list")),
    Bad("an empty file", text="", place="1:1", words=("must be a mapping", "name:")),
    Bad("a comment alone", text="# nothing\n", place="1:1", words=("must be a mapping",)),
    Bad("broken flow", "{kind: poisson,", "{kind: poisson,,", "13:28", ("not valid YAML", "commas")),
    Bad("open bracket", "rate_rps: 8}", "rate_rps: 8", "14:", ("not valid YAML",)),
    Bad("a tab", "  block_size", "\tblock_size", "8:1", ("spaces",)),
    Bad("bad indentation", "  block_size", "   block_size", "8:14", ("not valid YAML",)),
    Bad("two documents", "seed: 3", "---", "2:1", ("several documents",)),
    Bad("a tag", "seed: 3", "seed: !!python/name:os.system", "2:7", ("tag",)),
]  # fmt: skip


def invoke(tmp_path: Path, *args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["run", *args, "--no-report", "--out", str(tmp_path / "out")])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_the_good_scenario_runs(tmp_path: Path) -> None:
    """Without this, every case below could fail for another reason."""
    (tmp_path / "chat.yaml").write_text(SCENARIO, encoding="utf-8")
    code, _, stderr = invoke(tmp_path, str(tmp_path / "chat.yaml"), "--quiet")
    assert (code, stderr) == (0, "")


def test_the_table_is_long_enough_and_names_each_case_once() -> None:
    assert len(CASES) >= 60
    assert len({case.label for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.label for case in CASES])
def test_bad_input(case: Bad, tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(case.scenario(), encoding="utf-8")
    for name, content in case.files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    code, stdout, stderr = invoke(tmp_path, str(file))
    assert code == case.code, stderr
    assert "Traceback" not in stderr
    assert stdout == ""
    if case.place:
        assert f"{file}:{case.place}" in stderr
    for word in case.words:
        assert word in stderr
    assert stderr.rstrip().endswith(")"), f"no remedy: {stderr}"
    assert not (tmp_path / "out").exists()


SETS = [
    ("engine.blocksize=8", ("did you mean block_size?",)),
    ("engine.block_size=0", ("engine.block_size must be at least 1",)),
    ("seed=", ("seed must be a whole number, not empty",)),
    ("engine.block_size", ("path=value",)),
    ("=8", ("path=value",)),
    ("engine.block_size={", ("not valid YAML",)),
    ("workload.arrivals.rate_rps=-1", ("above 0",)),
    ("workload.arrivals=[]", ("workload.arrivals", "mapping")),
    ("seed.deep=1", ("seed is the number 3",)),
    ("variants.a.seed=1", ("variants=null",)),
    ("workload.prompt_tokens=100", ("must be a mapping, not", "lognormal")),
    ("gpu=nothing", ("nothing",)),
]


@pytest.mark.parametrize(("patch", "words"), SETS, ids=[patch for patch, _ in SETS])
def test_a_bad_option_is_named(patch: str, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(SCENARIO, encoding="utf-8")
    code, stdout, stderr = invoke(tmp_path, str(tmp_path / "chat.yaml"), "--set", patch)
    assert (code, stdout) == (2, "")
    assert f"--set {patch}" in stderr
    for word in words:
        assert word in stderr


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("absent.yaml", None, ("absent.yaml", "no such file")),
        ("quikstart", None, ("did you mean quickstart?",)),
        ("folder", "folder", ("folder", "not a YAML file")),
        ("binary.yaml", b"\x89PNG\xff\xfe\x00", ("binary.yaml:1:1", "not UTF-8")),
        ("zeros.yaml", b"name: \x00\x00", ("zeros.yaml:1:7", "not allowed")),
    ],
)
def test_files_that_are_no_scenario(
    name: str, content: bytes | str | None, words: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / name
    if content == "folder":
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    argument = name if name == "quikstart" else str(path)
    code, stdout, stderr = invoke(tmp_path, argument)
    assert (code, stdout) == (2, "")
    for word in words:
        assert word in stderr


def test_an_error_is_one_object_with_json(tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(SCENARIO.replace("seed: 3", "sead: 3"), encoding="utf-8")
    code, stdout, _ = invoke(tmp_path, str(tmp_path / "chat.yaml"), "--json", "--quiet")
    error = json.loads(stdout)["error"]
    assert code == error["exit_code"] == 2
    assert error["where"].endswith("chat.yaml:2:1")
    assert error["remedy"] == "did you mean seed?"


def test_out_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(SCENARIO, encoding="utf-8")
    (tmp_path / "out").write_text("a file", encoding="utf-8")
    code, _, stderr = invoke(tmp_path, str(tmp_path / "chat.yaml"))
    assert code == 2
    assert "--out" in stderr and "not a folder" in stderr

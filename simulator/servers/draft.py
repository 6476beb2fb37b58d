"""A server's command line in the making, and what all servers' flags have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simulator.deployment import Deployment
from simulator.engine_defaults import engine_defaults
from simulator.engine_presets import preset_of, quiet_defaults
from simulator.model_config.quantization import WEIGHT_FORMATS

NODE_GPUS = 8
"""GPUs that one command can reach; more are several machines."""


@dataclass
class Draft:
    """A command line in the making.

    Attributes:
        own: whether the server is the one that was simulated.
        words: of the command line, unquoted.
        comments: what flags cannot say.
        config: what only TensorRT-LLM's configuration file can say.
    """

    own: bool
    words: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    config: dict[str, dict[str, Any]] = field(default_factory=dict)

    def flag(self, name: str, value: object | None = None) -> None:
        self.words += [name] if value is None else [name, str(value).removesuffix(".0")]


@dataclass(frozen=True)
class Server:
    """How one server is started: the words before the model's name, its flags, and the flags of replicas."""

    title: str
    program: tuple[str, ...]
    flags: Callable[[Draft, Deployment], None]
    replicas: Callable[[Draft, Deployment], bool]


def stated(draft: Draft, deployment: Deployment, key: str) -> Any:
    """A size to be given as a flag: always to the server that was simulated, to others where it is not a default."""
    engine = deployment.settings.engine
    value = getattr(engine, key)
    preset = preset_of(engine)
    usual = engine_defaults(preset.sizes, deployment.gpu, deployment.model, deployment.parallelism)
    usual.setdefault("max_model_len", deployment.model.max_model_len)
    if preset.covers_context and not engine.enable_chunked_prefill:
        usual["max_num_batched_tokens"] = max(usual["max_num_batched_tokens"], engine.max_model_len)
    return value if draft.own or value != usual[key] else None


def changed(deployment: Deployment, key: str) -> Any:
    """A setting that is not the simulated system's default; None where it is, or where there is no such setting."""
    engine = deployment.settings.engine
    preset = preset_of(engine)
    usual = {"disable_hybrid_kv_cache_manager": False} | quiet_defaults(preset) | dict(preset.defaults)
    value = getattr(engine, key)
    return None if key not in usual or value == usual[key] else value


def pool_tokens(deployment: Deployment) -> int | None:
    """Tokens of the KV pool, where the scenario states its size."""
    engine = deployment.settings.engine
    sizes = (engine.max_total_tokens, engine.num_gpu_blocks_override, engine.kv_cache_memory_bytes)
    return None if all(size is None for size in sizes) else deployment.pool_slots


def sizes_of_replica(draft: Draft, deployment: Deployment, tensor: str, pipeline: str) -> None:
    parallelism = deployment.parallelism
    if parallelism.tensor_parallel_size > 1:
        draft.flag(tensor, parallelism.tensor_parallel_size)
    if parallelism.pipeline_parallel_size > 1:
        draft.flag(pipeline, parallelism.pipeline_parallel_size)


def caching(draft: Draft, deployment: Deployment, off: str) -> None:
    """Prefix caching is on by itself in all servers but vLLM v0, where it cannot be simulated."""
    engine = deployment.settings.engine
    if not engine.enable_prefix_caching and not (draft.own and engine.preset == "vllm-v0"):
        draft.flag(off)


def weights(draft: Draft, deployment: Deployment, title: str) -> None:
    """Weights in another format than the checkpoint's: made while loading, or another checkpoint."""
    asked, model = deployment.settings.engine.weight_dtype, deployment.model
    if asked in (None, "auto", model.dtype):
        return
    if asked not in WEIGHT_FORMATS:
        if title == "TensorRT-LLM":
            draft.comments.append(f"weights in {asked}: serve a checkpoint that is stored so")
        else:
            draft.flag("--dtype", asked)
        return
    compute = WEIGHT_FORMATS[asked].compute
    if compute and any(group.compute == compute for layer in model.layers for group in layer.weights):
        return  # the checkpoint has them so
    if asked.startswith("fp8") and title != "TensorRT-LLM":
        draft.flag("--quantization", "fp8")
    else:
        draft.comments.append(f"weights in {asked}: name a checkpoint stored so; {title} makes none while loading")


def kv_dtype_asked(deployment: Deployment) -> str | None:
    """The KV cache's type, where it is not what the server takes by itself."""
    asked, model = deployment.settings.engine.kv_cache_dtype, deployment.model
    return None if asked in (None, "auto", model.kv_cache_dtype or model.dtype) else asked


def named_kv_dtype(draft: Draft, deployment: Deployment, names: dict[str, str], give: Callable[[str], object]) -> None:
    asked = kv_dtype_asked(deployment)
    if asked in names:
        give(names[asked])
    elif asked is not None:
        draft.comments.append(f"a KV cache in {asked} is not among this server's")

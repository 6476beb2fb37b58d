"""The command that starts a deployment on a real server: ``vllm serve ...``, SGLang's or TensorRT-LLM's.

Flags are those that the answer depends on, and those that differ from the server's own defaults; what no flag can say
stands above the command as a comment.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from simulator.catalog.model_files import huggingface_name
from simulator.deployment import Deployment
from simulator.engine_presets import preset_of
from simulator.engine_settings import ContiguousAllocator
from simulator.errors import InputError
from simulator.servers.draft import Draft, Server
from simulator.servers.sglang import SGLANG
from simulator.servers.trtllm import TRTLLM
from simulator.servers.vllm import VLLM
from simulator.suggestions import did_you_mean

SERVERS: dict[str, Server] = {"vllm": VLLM, "sglang": SGLANG, "trtllm": TRTLLM}
"""By name."""

_SIMULATED_BY = {"vllm": "vllm", "vllm-v0": "vllm", "sglang": "sglang", "trtllm": "trtllm"}
"""Preset to the server whose rules it follows; the others can no longer be started, or never could be."""

_CONFIG_FILE = "trtllm.yaml"
_WIDTH = 100


def serve_command(deployment: Deployment, server: str | None = None) -> str:
    """The command line, with comment lines above it; a shell takes the whole text.

    Args:
        server: vllm, sglang or trtllm; None = the one that was simulated (vLLM for those that cannot be started).
    Raises:
        InputError: no server has that name.
    """
    name = server or own_server(deployment)
    if name not in SERVERS:
        remedy = did_you_mean(name, SERVERS)
        raise InputError(f"{name!r} is not a server whose command line is known", where="server", remedy=remedy)
    found = SERVERS[name]
    draft = Draft(own=_SIMULATED_BY.get(deployment.settings.engine.preset) == name)
    _say_whose_rules(draft, deployment, found)
    model = _model(draft, deployment)
    found.flags(draft, deployment)
    _replicas(draft, deployment, found)
    start = ["VLLM_USE_V1=0"] if draft.own and deployment.settings.engine.preset == "vllm-v0" else []
    return _text(draft, [*start, *found.program, model])


def serve_commands(deployment: Deployment) -> dict[str, str]:
    """The command line of each server."""
    return {name: serve_command(deployment, name) for name in SERVERS}


def own_server(deployment: Deployment) -> str:
    """The server whose rules were simulated; vLLM where those are of a system that nobody can start."""
    return _SIMULATED_BY.get(deployment.settings.engine.preset, "vllm")


def _say_whose_rules(draft: Draft, deployment: Deployment, server: Server) -> None:
    engine = deployment.settings.engine
    title = preset_of(engine).title
    if engine.preset not in _SIMULATED_BY:
        draft.comments.append(f"simulated with the rules of {title}, which cannot be started; {server.title} is not it")
    elif not draft.own:
        draft.comments.append(
            f"simulated with the rules of {title}; {server.title} has its own, and its own defaults where the scenario "
            "states nothing"
        )
    settings = deployment.settings
    if settings.disaggregation is not None:
        draft.comments.append(
            "simulated with prompts and answers in pools of their own; this starts one server for both"
        )
    if settings.fleet is not None and settings.fleet.groups is not None:
        draft.comments.append("simulated with groups of replicas that differ; this starts those of the scenario itself")
    if isinstance(engine.allocator, ContiguousAllocator):
        draft.comments.append(f"simulated over a contiguous KV cache, which {server.title} cannot be told to use")


def _model(draft: Draft, deployment: Deployment) -> str:
    """What the server loads: the Hugging Face name where it is known, or a folder."""
    named = deployment.settings.model
    if not isinstance(named, str):
        draft.comments.append("the scenario describes its model inline: write the model's name for MODEL")
        return "MODEL"
    path = Path(named)
    if path.is_absolute() or path.suffix == ".json":
        folder = path.parent if path.suffix == ".json" else path
        draft.comments.append("the model's weights and tokenizer must lie beside its config.json")
        return str(folder)
    return named if "/" in named else huggingface_name(deployment.model.name) or named


def _replicas(draft: Draft, deployment: Deployment, server: Server) -> None:
    """Replicas by the server's own flag where they are independent there, else as so many commands."""
    parallelism = deployment.parallelism
    gpus = parallelism.gpus_per_replica
    card = deployment.gpu.name if deployment.gpu else "GPU"
    if parallelism.replicas == 1:
        draft.comments.append(f"on {gpus} x {card}")
    elif server.replicas(draft, deployment):
        draft.comments.append(f"on {parallelism.gpus} x {card}: {parallelism.replicas} replicas of {gpus}")
    else:
        draft.comments.append(
            f"{parallelism.replicas} replicas: start this once on each {gpus} x {card}, with a --port of its own, "
            f"behind a router (simulated: {deployment.settings.router})"
        )


def _text(draft: Draft, start: list[str]) -> str:
    config = {name: table for name, table in draft.config.items() if table}
    if config:
        draft.flag("--extra_llm_api_options", _CONFIG_FILE)
    lines = [f"# {comment}" for comment in draft.comments]
    if config:
        tables = [f"{name}: {json.dumps(table)}" for name, table in config.items()]  # JSON is YAML
        lines += [f"cat > {_CONFIG_FILE} <<'END'", *tables, "END"]
    words = [shlex.quote(word) for word in (*start, *draft.words)]
    line = " ".join(words)
    if len(line) > _WIDTH:
        line = " ".join(words[: len(start)])
        for word in words[len(start) :]:
            line += f" \\\n  {word}" if word.startswith("--") else f" {word}"
    return "\n".join([*lines, line])

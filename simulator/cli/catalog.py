"""``kvplan catalog``: what GPUs, models and engines are known, with the source of every number."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from simulator.cli.console import Json, Quiet, print_json
from simulator.errors import InputError

app = typer.Typer(no_args_is_help=True, help="The catalogue, with the source of every number.", rich_markup_mode=None)

_GPU_CLASSES = ("l4", "h100-sxm-80gb", "b200-sxm-180gb")
"""Engines choose defaults by the GPU's memory: one GPU of each class."""

_ENGINE_SOURCES = {
    "vllm": "vLLM 0.33.0, commit 4ba787ec9: engine/arg_utils.py",
    "sglang": "SGLang 0.5.23: server_args.py",
    "trtllm": "TensorRT-LLM: defaults as documented for llm_args",
}

Name = Annotated[str | None, typer.Argument(help="One entry; all where it is left out.")]


@app.command("gpus")
def gpus(name: Name = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """GPUs: memory, bandwidth, dense FLOP/s, links, example prices."""
    from simulator.catalog import find_gpu, gpu_names

    found = [find_gpu(name)] if name else [find_gpu(each) for each in gpu_names()]
    if as_json:
        print_json({"gpus": [dataclasses.asdict(gpu) for gpu in found]})
        return
    for gpu in found:
        bf16 = gpu.flop_per_s.get("bf16") or gpu.flop_per_s.get("fp16") or 0.0
        price = "-" if gpu.usd_per_hour is None else f"{gpu.usd_per_hour:.2f}"
        print(
            f"{gpu.name:<20} {gpu.memory_bytes / 2**30:7.2f} GiB {gpu.bandwidth_bytes_per_s / 1e9:7.0f} GB/s"
            f" {bf16 / 1e12:7.0f} TFLOP/s (16 bit)  {price:>6} USD/h"
        )
        _print_sources(gpu.sources if name else {})


@app.command("models")
def models(name: Name = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """Models: layers, heads, parameters, KV bytes per token."""
    from simulator.catalog import find_model, model_names

    found = [find_model(name)] if name else [find_model(each) for each in model_names()]
    if as_json:
        print_json({"models": [_model(model) for model in found]})
        return
    for model in found:
        print(
            f"{model.name:<24} {model.parameters / 1e9:8.2f} B parameters {model.num_layers:4d} layers"
            f" {model.kv_bytes_per_token():9d} KV bytes/token  {model.max_model_len:8d} tokens"
        )
        _print_sources({"all numbers": model.source} if name else {})


@app.command("engines")
def engines(name: Name = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """Engines: their defaults on each class of GPU."""
    from simulator.catalog import find_gpu
    from simulator.engine_defaults import ENGINES, engine_defaults
    from simulator.suggestions import did_you_mean

    if name and name not in ENGINES:
        raise InputError(f"no engine is called {name!r}", where="catalog engines", remedy=did_you_mean(name, ENGINES))
    found = {
        engine: {gpu: engine_defaults(engine, find_gpu(gpu)) for gpu in _GPU_CLASSES}
        for engine in ([name] if name else ENGINES)
    }
    if as_json:
        print_json({"engines": {e: {"source": _ENGINE_SOURCES[e], "defaults": rows} for e, rows in found.items()}})
        return
    for engine, rows in found.items():
        print(f"{engine} ({_ENGINE_SOURCES[engine]})")
        print(f"  {'on':<28}" + "".join(f"{gpu:>18}" for gpu in rows))
        for key in next(iter(rows.values())):
            print(f"  {key:<28}" + "".join(f"{defaults[key]:>18}" for defaults in rows.values()))


def _model(model: Any) -> dict[str, Any]:
    facts = {f.name: getattr(model, f.name) for f in dataclasses.fields(model) if f.name != "layers"}
    facts["attention"] = [dataclasses.asdict(group) for group in model.attention]
    return facts | {"kv_bytes_per_token": model.kv_bytes_per_token()}


def _print_sources(sources: dict[str, str]) -> None:
    for field, source in sources.items():
        print(f"  {field}: {source}")

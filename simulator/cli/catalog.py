"""``kvplan catalog``: what GPUs, models and engines are known, with the source of every number."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simulator.cli.console import Json, Quiet, print_json
from simulator.errors import InputError

if TYPE_CHECKING:
    from simulator.catalog.engine_files import EngineRules

app = typer.Typer(no_args_is_help=True, help="The catalogue, with the source of every number.", rich_markup_mode=None)

_GPU_CLASSES = ("l4", "h100-sxm-80gb", "b200-sxm-180gb")
"""Engines choose defaults by the GPU's memory: one GPU of each class."""

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
    """Engines: the rules of every preset, how we know each, and the defaults on each class of GPU."""
    from simulator.catalog.engine_files import EVIDENCE, engine_rules
    from simulator.engine_presets import PRESETS
    from simulator.suggestions import did_you_mean

    known = engine_rules()
    if name and name not in known:
        raise InputError(f"no engine is called {name!r}", where="catalog engines", remedy=did_you_mean(name, known))
    names = [name] if name else [preset for preset in PRESETS if preset in known]
    if as_json:
        print_json({"evidence": EVIDENCE, "engines": {each: _engine(each) for each in names}})
        return
    for each in names:
        print(f"{each}: {PRESETS[each].title}")
        _print_defaults(_defaults(each))
        _print_rules(known[each])
        print()
    print("how we know: " + "; ".join(f"{kind} = {words}" for kind, words in EVIDENCE.items()))


def _engine(preset: str) -> dict[str, Any]:
    from simulator.catalog.engine_files import engine_rules
    from simulator.engine_presets import PRESETS

    found = engine_rules()[preset]
    return {
        "title": PRESETS[preset].title,
        "source": found.sources[0],
        "sources": list(found.sources),
        "defaults": _defaults(preset),
        "settings": dict(PRESETS[preset].defaults),
        "rules": [dataclasses.asdict(rule) for rule in found.rules],
        "evidence": found.counts(),
        "not_simulated": list(found.not_simulated),
    }


def _defaults(preset: str) -> dict[str, dict[str, Any]]:
    """Sizes by default, by GPU."""
    from simulator.catalog import find_gpu
    from simulator.engine_defaults import engine_defaults
    from simulator.engine_presets import PRESETS

    return {gpu: engine_defaults(PRESETS[preset].sizes, find_gpu(gpu)) for gpu in _GPU_CLASSES}


def _print_defaults(rows: dict[str, dict[str, Any]]) -> None:
    print(f"  {'defaults on':<28}" + "".join(f"{gpu:>18}" for gpu in rows))
    for key in next(iter(rows.values())):
        print(f"  {key:<28}" + "".join(f"{defaults[key]:>18}" for defaults in rows.values()))


def _print_rules(found: EngineRules) -> None:
    from textwrap import fill

    counts = ", ".join(f"{count} {kind}" for kind, count in found.counts().items() if count)
    print(f"  rules: {len(found.rules)} ({counts})")
    for rule in found.rules:
        print(fill(rule.rule, 100, initial_indent=f"    {rule.evidence:<9} ", subsequent_indent=" " * 14))
        print(f"{'':14}{rule.code}")
    for words in found.not_simulated:
        print(fill(words, 100, initial_indent="    not simulated: ", subsequent_indent=" " * 8))
    for source in found.sources:
        print(fill(source, 100, initial_indent="  source: ", subsequent_indent=" " * 4))


def _model(model: Any) -> dict[str, Any]:
    facts = {f.name: getattr(model, f.name) for f in dataclasses.fields(model) if f.name != "layers"}
    facts["attention"] = [dataclasses.asdict(group) for group in model.attention]
    return facts | {"kv_bytes_per_token": model.kv_bytes_per_token()}


def _print_sources(sources: dict[str, str]) -> None:
    for field, source in sources.items():
        print(f"  {field}: {source}")

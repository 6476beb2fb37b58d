"""``kvplan workload``: what a trace or a synthetic workload holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simulator.cli.console import Json, Quiet, print_json

if TYPE_CHECKING:
    from simulator.specs import ModelSpec
    from workloads.workload import Workload

SCENARIO_SUFFIXES = (".yaml", ".yml")


def workload(
    source: Annotated[str, typer.Argument(metavar="FILE_OR_SCENARIO", help="A trace file, or a scenario.")],
    patches: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change a scenario's setting; repeatable.")
    ] = None,
    trace_format: Annotated[str, typer.Option("--format", help="Format of a trace file.")] = "auto",
    max_model_len: Annotated[int | None, typer.Option(help="Count what is longer than this context.", min=1)] = None,
    block_size: Annotated[int | None, typer.Option(help="Block of the prefix cache, in tokens.", min=1)] = None,
    prefix_cache: Annotated[
        bool, typer.Option("--prefix-cache", help="Prompt tokens that a prefix cache serves, by its size.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="With --prefix-cache: sizes in GiB of this model too [default: the scenario's].")
    ] = None,
    kv_cache_dtype: Annotated[str | None, typer.Option(help="With --prefix-cache: auto, fp8, ...")] = None,
    out: Annotated[Path | None, typer.Option(help="With --prefix-cache: folder for its CSV and SVG.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What a trace or a synthetic workload holds: rows, dropped rows and why, lengths, rates, ideal prefix hits."""
    from simulator.errors import InputError
    from simulator.scenario import shipped_scenarios
    from workloads.describe import describe
    from workloads.describe_text import describe_text

    _refuse_without_prefix_cache(prefix_cache, model=model, kv_cache_dtype=kv_cache_dtype, out=out)
    if source in shipped_scenarios() or Path(source).suffix in SCENARIO_SUFFIXES:
        found = _of_scenario(source, patches or [])
    elif patches:
        raise InputError("--set changes a scenario, and this is a trace", where=source, remedy="leave out --set")
    else:
        found = {"": Found(_of_trace(source, trace_format), source, None, None)}
    facts = {
        name: describe(each.workload, max_model_len=max_model_len, block_size=block_size)
        for name, each in found.items()
    }
    if prefix_cache:
        options = {"block_size": block_size, "max_model_len": max_model_len}
        texts = _with_prefix_cache(facts, found, model, kv_cache_dtype, out, options)
    else:
        texts = {name: describe_text(each) for name, each in facts.items()}
    if as_json:
        print_json(facts.get("", {"variants": facts}))
        return
    for name, text in texts.items():
        print((f"== {name}\n" if name else "") + text)


@dataclass(frozen=True)
class Found:
    """A workload, where it comes from, and the model and KV type of its scenario, if it has one."""

    workload: Workload
    where: str
    model: str | ModelSpec | None
    kv_cache_dtype: str | None


def _with_prefix_cache(
    facts: dict[str, dict[str, Any]],
    found: dict[str, Found],
    model: str | None,
    kv_cache_dtype: str | None,
    out: Path | None,
    options: dict[str, int | None],
) -> dict[str, str]:
    """Adds ``prefix_cache`` to the facts and writes the files; the texts to print."""
    from simulator.cli.prefix_cache import cache_model, write_files
    from simulator.errors import InputError
    from workloads.prefix_curves import prefix_curves
    from workloads.prefix_curves_text import prefix_text

    texts, written = {}, []
    for name, each in found.items():
        asked = model or each.model
        if asked is None and kv_cache_dtype is not None:
            raise InputError("weighs nothing without a model", where="--kv-cache-dtype", remedy="give --model too")
        weight = None if asked is None else cache_model(asked, kv_cache_dtype or each.kv_cache_dtype)
        curves = prefix_curves(each.workload, model=weight, where=each.where, **options)
        facts[name]["prefix_cache"] = curves
        texts[name] = prefix_text(curves)
    for name in found if out is not None else ():
        assert out is not None
        written = write_files(facts[name]["prefix_cache"], out / name)
        texts[name] += "\nfiles: " + ", ".join(str(path) for path in written) + "\n"
    return texts


def _refuse_without_prefix_cache(prefix_cache: bool, **options: object) -> None:
    from simulator.errors import InputError

    given = [name for name, value in options.items() if value is not None]
    if given and not prefix_cache:
        where = "--" + given[0].replace("_", "-")
        raise InputError("goes with --prefix-cache alone", where=where, remedy="add --prefix-cache")


def _of_scenario(name: str, patches: list[str]) -> dict[str, Found]:
    """The workload of a scenario; where its variants change the workload, each one's under its name."""
    from simulator.random_streams import Streams
    from simulator.scenario import load_scenario
    from simulator.scenario_specs import find_model_spec
    from simulator.scenario_workload import one_request_each
    from workloads.build import build_workload
    from workloads.errors import WorkloadError

    loaded = load_scenario(name, patches)
    scenarios = loaded.variants or {"": loaded.scenario}
    # vLLM v0 serves the answers that a request asks for as a group; for the others each is a request.
    grouped = {name: each.settings.engine.preset == "vllm-v0" for name, each in scenarios.items()}
    asked: list[Any] = [
        (each.settings.workload, each.settings.seed, each.settings.workload.n > 1 and grouped[name])
        for name, each in scenarios.items()
    ]
    held: list[Any] = [(each.settings.model, each.settings.engine.kv_cache_dtype) for each in scenarios.values()]
    if all(one == asked[0] for one in asked):
        scenarios = {"": next(iter(scenarios.values()))}
    one_model = len(scenarios) > 1 or all(one == held[0] for one in held)
    made = {}
    for label, scenario in scenarios.items():
        settings = scenario.settings
        try:
            workload = build_workload(settings.workload, Streams(settings.seed))
        except WorkloadError as error:
            raise scenario.located(error) from None
        if workload.sequences is not None and settings.workload.beam_width == 1 and not grouped[label]:
            workload = one_request_each(workload, settings.engine.preset)
        model = find_model_spec(settings.model) if one_model and settings.model else None
        made[label] = Found(workload, name, model, settings.engine.kv_cache_dtype)
    return made


def _of_trace(path: str, trace_format: str) -> Workload:
    """The workload of a trace file; one without times has its rows arrive all at once."""
    from typing import cast

    from simulator.errors import InputError
    from simulator.random_streams import Streams
    from simulator.suggestions import did_you_mean
    from workloads.arrivals import AllAtOnce
    from workloads.build import build_workload
    from workloads.config import WorkloadConfig
    from workloads.errors import WorkloadError
    from workloads.traces.config import FORMATS, TraceConfig

    if trace_format not in FORMATS:
        raise InputError(
            f"{trace_format!r} is not a format", where="--format", remedy=did_you_mean(trace_format, FORMATS)
        )
    trace = TraceConfig(path=path, format=cast("Any", trace_format))
    try:
        return build_workload(WorkloadConfig(trace=trace), Streams(0))
    except WorkloadError as error:
        if error.where != "workload.arrivals":
            where = path if (error.where or "").startswith("workload") else error.where
            raise WorkloadError(error.what, where=where, remedy=error.remedy) from None
    return build_workload(WorkloadConfig(trace=trace, arrivals=AllAtOnce()), Streams(0))

"""``kvplan workload``: what a trace or a synthetic workload holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simulator.cli.console import Json, Quiet, print_json

if TYPE_CHECKING:
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
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What a trace or a synthetic workload holds: rows, dropped rows and why, lengths, rates, ideal prefix hits."""
    from simulator.errors import InputError
    from simulator.scenario import shipped_scenarios
    from workloads.describe import describe
    from workloads.describe_text import describe_text

    if source in shipped_scenarios() or Path(source).suffix in SCENARIO_SUFFIXES:
        found = _of_scenario(source, patches or [])
    elif patches:
        raise InputError("--set changes a scenario, and this is a trace", where=source, remedy="leave out --set")
    else:
        found = {"": _of_trace(source, trace_format)}
    facts = {name: describe(each, max_model_len=max_model_len, block_size=block_size) for name, each in found.items()}
    if as_json:
        print_json(facts.get("", {"variants": facts}))
        return
    for name, each in facts.items():
        print((f"== {name}\n" if name else "") + describe_text(each))


def _of_scenario(name: str, patches: list[str]) -> dict[str, Workload]:
    """The workload of a scenario; where its variants change the workload, each one's under its name."""
    from simulator.random_streams import Streams
    from simulator.scenario import load_scenario
    from workloads.build import build_workload
    from workloads.errors import WorkloadError

    loaded = load_scenario(name, patches)
    scenarios = loaded.variants or {"": loaded.scenario}
    asked: list[Any] = [(each.settings.workload, each.settings.seed) for each in scenarios.values()]
    if all(one == asked[0] for one in asked):
        scenarios = {"": next(iter(scenarios.values()))}
    made = {}
    for label, scenario in scenarios.items():
        try:
            made[label] = build_workload(scenario.settings.workload, Streams(scenario.settings.seed))
        except WorkloadError as error:
            raise scenario.located(error) from None
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

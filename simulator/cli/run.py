"""``kvplan run``: simulates a scenario, prints the summary, writes the result folder."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simulator.cli.console import Json, Quiet, print_json, warn
from simulator.cli.kept_work import Seed

if TYPE_CHECKING:
    from simulator.cli.run_workers import Workers
    from simulator.run_scenario import Built
    from simulator.scenario import Scenario, ScenarioFile


def run(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A YAML file, or the name of a shipped one, such as quickstart.")
    ],
    patches: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a setting, such as engine.block_size=32; repeatable."),
    ] = None,
    seed: Seed = None,
    stepwise: Annotated[bool, typer.Option("--stepwise", help="One event a step: the same result, slowly.")] = False,
    out: Annotated[Path | None, typer.Option(help="The folder to write [default: out/NAME].")] = None,
    allow_missed: Annotated[
        bool, typer.Option("--allow-missed", help="Exit with 0 also where an SLO or an expectation is missed.")
    ] = False,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Numbers only, without report.html and plots: seconds faster.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Simulate the replicas of a fleet in that many processes: the same files, sooner. "
            "[default: one process; for a large fleet one a core]",
            min=1,
        ),
    ] = None,
    executor: Annotated[
        str | None, typer.Option(help="Where these run: local, dask or ray (extras of kvplan). [default: local]")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A running Dask or Ray cluster, in place of local workers.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Simulates a scenario, prints a summary and writes the results.

    Exits with 4 where an SLO or an expectation is missed; of several variants at least one has to meet them.
    """
    from simulator.cli.result_folder import ResultFolder
    from simulator.cli.run_workers import Workers
    from simulator.run_scenario import missed
    from simulator.scenario import load_scenario

    loaded = load_scenario(scenario, patches or [], seed)
    folder = out or Path("out") / loaded.name
    by = Workers(executor, scheduler, workers, quiet)
    with ResultFolder(folder) as work:
        results = _run_all(loaded, work, by, stepwise=stepwise, draw=not no_report, quiet=quiet)
    whole = {"variants": results} if loaded.variants else results[""]
    if as_json:
        print_json(whole)
    else:
        _print_summary(whole, results, folder)
    misses = {name: missed(result) for name, result in results.items()}
    for name, lines in misses.items():
        label = f"{name}: " if name else ""
        if as_json:
            warn([label + line for line in results[name]["warnings"]], quiet=quiet)
        for line in [] if quiet else lines:
            print(f"missed: {label}{line}", file=sys.stderr)
    if all(misses.values()) and not allow_missed:
        raise typer.Exit(4)


def _run_all(
    loaded: ScenarioFile, work: Path, by: Workers, *, stepwise: bool, draw: bool, quiet: bool
) -> dict[str, dict[str, Any]]:
    """Runs each variant (or the one scenario, under the name "") and fills the folder."""
    from reports.page import write_report
    from simulator.errors import KvplanError
    from simulator.provenance import provenance
    from simulator.result_files import write_json, write_text
    from simulator.run_scenario import build
    from simulator.scenario_resolved import resolved_yaml
    from simulator.unserved import serves_nobody, unserved_error

    started = datetime.now(UTC)
    seconds: dict[str, float] = {}
    # All are built before any of them runs: a fault in the last variant shows at once.
    scenarios = loaded.variants or {"": loaded.scenario}
    built = {name: build(scenario) for name, scenario in scenarios.items()}
    results = {}
    for name, one in built.items():
        start = time.perf_counter()
        try:
            results[name] = _run_one(name, scenarios[name], one, work / name, by, stepwise=stepwise, quiet=quiet)
        except KvplanError as error:
            raise scenarios[name].located(error) from None
        seconds[name or loaded.name] = time.perf_counter() - start
    if all(serves_nobody(result) for result in results.values()):  # of several variants one may serve nobody
        name, one = next(iter(built.items()))
        raise scenarios[name].located(unserved_error(one.deployment, one.workload))
    if loaded.variants:
        write_json({"variants": results}, work / "result.json")
        write_text(work / "scenario.resolved.yaml", resolved_yaml(loaded.document.data))
    if draw:
        start = time.perf_counter()
        write_report(work)
        seconds["report"] = time.perf_counter() - start
    write_json(provenance(started, seconds), work / "provenance.json")
    return results


def _run_one(
    name: str, scenario: Scenario, built: Built, folder: Path, by: Workers, *, stepwise: bool, quiet: bool
) -> dict[str, Any]:
    """Runs one scenario and writes its own files."""
    from simulator import admission_run, run_scenario
    from simulator.progress import Progress
    from simulator.result_files import write_json, write_requests_csv, write_text, write_timeline_csv
    from simulator.result_parquet import write_requests_parquet
    from simulator.scenario_resolved import resolved_yaml

    settings = built.deployment.settings
    if settings.mode == "admission":
        compared = admission_run.compare_block_sizes(built)
        result = admission_run.admission_result(built, admission_run.admit(built), compared, name or None)
    else:
        progress = Progress(name or settings.name, quiet=quiet)
        try:
            log = by.simulate(built, scenario, stepwise=stepwise, progress=progress)
        finally:
            progress.close()
        result = run_scenario.result(built, log, name or None)
        write_requests_csv(log, folder / "requests.csv")
        write_requests_parquet(folder / "requests.csv")
        write_timeline_csv(log, folder / "timeline.csv")
    write_json(result, folder / "result.json")
    write_text(folder / "scenario.resolved.yaml", resolved_yaml(built.resolved))
    return result


def _print_summary(whole: dict[str, Any], results: dict[str, dict[str, Any]], folder: Path) -> None:
    from reports.summary_text import summary

    print(summary(whole))
    for title, key in (("Warnings", "warnings"), ("Assumptions", "assumptions")):
        said: dict[str, list[str]] = {}
        for name, result in results.items():
            for line in result[key]:
                said.setdefault(line, []).append(name)
        if said:
            print(f"\n{title}")
        for line, names in said.items():
            print(f"  - {line}" if len(names) == len(results) else f"  - {', '.join(names)}: {line}")
    print(f"\nresults: {folder}")

"""``kvplan sweep``: a grid of runs, one tidy table, one page."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simulator.cli.console import Json, Quiet, print_json, warn
from simulator.cli.kept_work import (
    ExecutorKind,
    How,
    NoReport,
    Restart,
    Resume,
    ScenarioName,
    Scheduler,
    Seed,
    WorkerCount,
    finite,
    keeping,
)

if TYPE_CHECKING:
    from simulator.planner.grid import Grid

EPILOG = (
    "Exit codes: 0 where at least one point is as it should be; else 4 where one has numbers but misses an SLO, 3 "
    "where one does not fit, 2 where settings contradict each other, 1; 130 after Ctrl-C (--resume continues)."
)


def sweep(
    scenario: ScenarioName,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over",
            metavar="PATH=V1,V2,...",
            help="Sweep a setting, such as engine.block_size=1..256 (a..b doubles) or gpu=l4,h100-sxm-80gb; "
            "repeatable. In place of the file's own sweep.over of that path, or besides.",
        ),
    ] = None,
    patches: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a setting at all points; repeatable."),
    ] = None,
    seed: Seed = None,
    replications: Annotated[
        int | None, typer.Option(help="Runs of each point, with the same seeds at all points.", min=1, max=10_000)
    ] = None,
    executor: ExecutorKind = "local",
    scheduler: Scheduler = None,
    workers: WorkerCount = None,
    resume: Resume = False,
    restart: Restart = False,
    yes: Annotated[bool, typer.Option("--yes", help="Run a grid of more than 1,000 points.")] = False,
    out: Annotated[Path | None, typer.Option(help="The folder to write [default: out/NAME-sweep].")] = None,
    allow_missed: Annotated[
        bool, typer.Option("--allow-missed", help="Exit with 0 also where every point misses an SLO.")
    ] = False,
    no_report: NoReport = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Runs a scenario at every combination of some settings' values: points.csv, a result per point, a report.

    A point that fails is a row with its error. Points land as they end: after Ctrl-C, a crash or a full disk the same
    command with --resume goes on where it stopped.
    """
    started = datetime.now(UTC)
    how = How(executor, scheduler, workers, resume, restart, quiet)
    from simulator.planner.sweep import exit_code

    grid, question = _grid(scenario, over or [], patches or [], seed, replications, yes=yes)
    folder = out or Path("out") / f"{grid.loaded.name}-sweep"
    said, rows = _into(folder, grid, question, started, how)
    page = None if no_report else _report(folder)
    if as_json:
        print_json(finite({**said, "out": str(folder), "report": page and str(page), "rows": rows}))
    else:
        from simulator.planner.sweep_text import sweep_text

        print(sweep_text(said, rows))
        print(f"\nresults: {folder / 'points.csv'}" + (f"\nreport: {page}" if page else ""))
    if as_json:
        warn(said["findings"], quiet=quiet)
    code = exit_code(rows)
    if code and not (code == 4 and allow_missed):
        raise typer.Exit(code)


def _grid(
    name: str, overs: list[str], patches: list[str], seed: int | None, replications: int | None, *, yes: bool
) -> tuple[Grid, str | None]:
    """Everything that can be wrong with the question is found here, before anything runs or is written."""
    from simulator.planner.axes import read_axes
    from simulator.planner.grid import make_grid
    from simulator.planner.question import question_of
    from simulator.scenario import find_scenario, load_scenario

    loaded = load_scenario(name, patches, seed)
    axes = read_axes(loaded, overs, patches)
    asked = replications or (loaded.sweep[0].replications if loaded.sweep else 1)
    return make_grid(loaded, axes, asked, yes=yes), question_of(find_scenario(name))


def _into(
    out: Path, grid: Grid, question: str | None, started: datetime, how: How
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Runs what is missing in the folder, and fills it."""
    from simulator.planner.lock import FolderLock
    from simulator.planner.sweep import Sweep
    from simulator.planner.sweep_folder import SweepFolder
    from simulator.planner.sweep_progress import SweepProgress

    start = time.perf_counter()
    folder = SweepFolder(out)
    folder.prepare()
    progress = SweepProgress(quiet=how.quiet)
    work = Sweep(grid, folder, question, progress)
    with keeping(out, lambda: f"{work.tally.done} of {work.tally.total} runs are kept in {out}"), FolderLock(out):
        if how.restart and folder.unfinished():
            folder.clear()
        missing = work.plan(resume=how.resume)
        to_run = sum(point.key not in grid.unreadable for point in missing)
        runner = how.runner(to_run) if to_run else None
        try:
            work.run(missing, runner, how.executor)
        finally:
            progress.close()
            if runner is not None:
                runner.close()
        return work.finish(started, {"all": time.perf_counter() - start})


def _report(folder: Path) -> Path | None:
    """The page, where this version draws one."""
    try:
        from reports.sweep_page import write_sweep_report
    except ModuleNotFoundError:
        return None
    page: Path = write_sweep_report(folder)
    return page

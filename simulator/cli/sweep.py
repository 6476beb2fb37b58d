"""``kvplan sweep``: a grid of runs, one tidy table, one page."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simulator.cli.console import Json, Quiet, print_json, warn

if TYPE_CHECKING:
    from simulator.planner.grid import Grid
    from simulator.planner.sweep import Sweep

INTERRUPTED = 130
EPILOG = (
    "Exit codes: 0 where at least one point is as it should be; else 4 where one has numbers but misses an SLO, 3 "
    "where one does not fit, 2 where settings contradict each other, 1; 130 after Ctrl-C (--resume continues)."
)


def sweep(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A YAML file, or the name of a shipped scenario.")
    ],
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
    seed: Annotated[int | None, typer.Option(help="Replaces the scenario's seed.", min=0)] = None,
    replications: Annotated[
        int | None, typer.Option(help="Runs of each point, with the same seeds at all points.", min=1, max=10_000)
    ] = None,
    executor: Annotated[
        str, typer.Option(help="local processes, dask or ray (extras of kvplan); the results are the same.")
    ] = "local",
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A running Dask or Ray cluster [default: workers on this machine]."),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Local worker processes [default: one a core].", min=1)] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the points that stand in the folder, run what is missing or changed.")
    ] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Remove a sweep that was cut short, and start anew.")] = (
        False
    ),
    yes: Annotated[bool, typer.Option("--yes", help="Run a grid of more than 1,000 points.")] = False,
    out: Annotated[Path | None, typer.Option(help="The folder to write [default: out/NAME-sweep].")] = None,
    allow_missed: Annotated[
        bool, typer.Option("--allow-missed", help="Exit with 0 also where every point misses an SLO.")
    ] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Tables only, without report.html and plots.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Runs a scenario at every combination of some settings' values: points.csv, a result per point, a report.

    A point that fails is a row with its error. Points land as they end: after Ctrl-C, a crash or a full disk the same
    command with --resume goes on where it stopped.
    """
    started = datetime.now(UTC)
    if executor == "local":
        from simulator.planner.warm import warm_up

        warm_up()
    from simulator.errors import InputError
    from simulator.planner.sweep import exit_code

    if resume and restart:
        raise InputError("--resume and --restart contradict each other", remedy="leave out one of them")
    grid, question = _grid(scenario, over or [], patches or [], seed, replications, yes=yes)
    folder = out or Path("out") / f"{grid.loaded.name}-sweep"
    said, rows = _into(
        folder, grid, question, started,
        executor=executor, scheduler=scheduler, workers=workers, resume=resume, restart=restart, quiet=quiet,
    )  # fmt: skip
    page = None if no_report else _report(folder)
    if as_json:
        print_json(_finite({**said, "out": str(folder), "report": page and str(page), "rows": rows}))
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
    out: Path,
    grid: Grid,
    question: str | None,
    started: datetime,
    *,
    executor: str,
    scheduler: str | None,
    workers: int | None,
    resume: bool,
    restart: bool,
    quiet: bool,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Runs what is missing in the folder, and fills it."""
    from simulator.errors import InputError
    from simulator.planner.executors import make_executor
    from simulator.planner.lock import FolderLock
    from simulator.planner.sweep import Sweep
    from simulator.planner.sweep_folder import SweepFolder
    from simulator.planner.sweep_progress import SweepProgress

    start = time.perf_counter()
    folder = SweepFolder(out)
    folder.prepare()
    progress = SweepProgress(quiet=quiet)
    work = Sweep(grid, folder, question, progress)
    try:
        with FolderLock(out):
            if restart and folder.unfinished():
                folder.clear()
            missing = work.plan(resume=resume)
            to_run = sum(point.key not in grid.unreadable for point in missing)
            runner = None
            if to_run:
                count = min(workers, to_run) if workers else None
                runner = make_executor(executor, workers=count, scheduler=scheduler, quiet=quiet)
            try:
                work.run(missing, runner, executor)
            finally:
                progress.close()
                if runner is not None:
                    runner.close()
            return work.finish(started, {"all": time.perf_counter() - start})
    except KeyboardInterrupt:
        print(f"\nkvplan: interrupted; {_kept(work)}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise InputError(
            f"cannot be written: {error.strerror or error}; {_kept(work)}",
            where=f"--out {out}",
            remedy="free some space",
        ) from None


def _kept(work: Sweep) -> str:
    return (
        f"{work.tally.done} of {work.tally.total} runs are kept in {work.folder.out}: "
        "the same command with --resume goes on from there"
    )


def _report(folder: Path) -> Path | None:
    """The page, where this version draws one."""
    try:
        from reports.sweep_page import write_sweep_report
    except ModuleNotFoundError:
        return None
    page: Path = write_sweep_report(folder)
    return page


def _finite(value: dict[str, Any]) -> dict[str, Any]:
    import json

    from simulator.result_files import json_text

    found: dict[str, Any] = json.loads(json_text(value))
    return found

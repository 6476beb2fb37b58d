"""``kvplan capacity``: which GPUs, how many, with which settings, at what price."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simulator.cli.console import Json, Quiet, print_json
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
    from simulator.planner.capacity.ask import Asked

EPILOG = (
    "Exit codes: 0 a deployment serves the rate within the SLO (and the budget), 4 none does, 2 bad input, 1 internal "
    "error; 130 after Ctrl-C (--resume continues)."
)


def capacity(
    scenario: ScenarioName,
    gpus: Annotated[
        str | None, typer.Option(metavar="A,B", help="GPUs to choose from, in place of the file's candidates.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="RPS", help="Requests a second to serve [default: the file's].", min=0)
    ] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="USD_PER_HOUR", help="The most that an hour may cost.", min=0)
    ] = None,
    requests: Annotated[
        int | None, typer.Option(help="Requests of each simulation [default: the file's].", min=1, max=1_000_000)
    ] = None,
    patches: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a setting of all candidates; repeatable."),
    ] = None,
    seed: Seed = None,
    executor: ExecutorKind = "local",
    scheduler: Scheduler = None,
    workers: WorkerCount = None,
    resume: Resume = False,
    restart: Restart = False,
    out: Annotated[Path | None, typer.Option(help="The folder to write [default: out/NAME-capacity].")] = None,
    no_report: NoReport = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Finds the cheapest deployment that serves a rate within the SLO, and says why: the report before renting.

    Candidates come from the file's capacity section (GPUs, parallelism, number formats, any setting). What cannot fit
    or cannot meet a limit even without load is left out at once; for the rest the knee is found by simulation on a grid
    of 3 % steps, and the cheapest deployments are simulated whole at the rate asked for.
    """
    started = datetime.now(UTC)
    how = How(executor, scheduler, workers, resume, restart, quiet)
    from simulator.planner.capacity.ask import read_question

    asked = read_question(
        scenario, patches or [], seed, gpus=_names(gpus), rate_rps=rate, budget_usd_per_hour=budget, requests=requests
    )
    folder = out or Path("out") / f"{asked.patches.loaded.name}-capacity"
    said, rows = _into(folder, asked, started, how)
    page = None if no_report else _report(folder)
    if as_json:
        print_json(finite({**said, "out": str(folder), "report": page and str(page), "candidates": rows}))
    else:
        from reports.capacity_text import capacity_text

        print(capacity_text(said, rows))
        print(f"\nresults: {folder / 'candidates.csv'}" + (f"\nreport: {page}" if page else ""))
    if said["winner"] is None:
        raise typer.Exit(4)


def _names(gpus: str | None) -> list[str]:
    named = [name.strip() for name in (gpus or "").split(",") if name.strip()]
    if gpus is not None and not named:
        from simulator.errors import InputError

        raise InputError("names no GPU", where=f"--gpus {gpus!r}", remedy="give --gpus h100-sxm-80gb,l40s")
    return named


def _into(out: Path, asked: Asked, started: datetime, how: How) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Runs the search in the folder, and fills it."""
    from simulator.planner.capacity.dialogue import Dialogue
    from simulator.planner.capacity.progress import CapacityProgress
    from simulator.planner.capacity.search import CapacitySearch
    from simulator.planner.capacity.store import ProbeStore
    from simulator.planner.capacity.write import write_folder
    from simulator.planner.lock import FolderLock

    start = time.perf_counter()
    store = ProbeStore(out)
    store.prepare()
    progress = CapacityProgress(quiet=how.quiet)
    with keeping(out, lambda: f"{store.unfinished()} probes are kept in {out}"), FolderLock(out):
        store.ready(resume=how.resume, restart=how.restart)
        runner = how.runner()
        try:
            dialogue = Dialogue(store, runner, progress.outcome)
            search = CapacitySearch(asked.patches, asked.settings, dialogue, progress.phase)
            found = search.run(asked.candidates)
        finally:
            progress.close()
            runner.close()
        seconds = {"all": time.perf_counter() - start}
        return write_folder(out, found, asked.patches, asked.settings, asked.question, started, seconds)


def _report(folder: Path) -> Path:
    from reports.capacity_page import write_capacity_report

    page: Path = write_capacity_report(folder)
    return page

"""Commands whose work lands piece by piece in a folder: their options, and what is said where they are stopped."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from simulator.planner.executors import Executor

INTERRUPTED = 130

Seed = Annotated[int | None, typer.Option(help="Replaces the scenario's seed.", min=0)]
ScenarioName = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A YAML file, or the name of a shipped scenario.")
]
ExecutorKind = Annotated[
    str, typer.Option(help="local processes, dask or ray (extras of kvplan); the results are the same.")
]
Scheduler = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="A running Dask or Ray cluster [default: workers on this machine]."),
]
WorkerCount = Annotated[int | None, typer.Option(help="Local worker processes [default: one a core].", min=1)]
Resume = Annotated[
    bool, typer.Option("--resume", help="Keep what stands in the folder, run what is missing or changed.")
]
Restart = Annotated[bool, typer.Option("--restart", help="Remove what was cut short in the folder, and start anew.")]
NoReport = Annotated[bool, typer.Option("--no-report", help="Tables only, without report.html and plots.")]


@dataclass(frozen=True)
class How:
    """Where the work runs, and what becomes of earlier work in the folder. Local workers start to warm up at once."""

    executor: str
    scheduler: str | None
    workers: int | None
    resume: bool
    restart: bool
    quiet: bool

    def __post_init__(self) -> None:
        """Raises InputError where the options contradict each other."""
        if self.executor == "local":
            from simulator.planner.warm import warm_up

            warm_up()
        if self.resume and self.restart:
            from simulator.errors import InputError

            raise InputError("--resume and --restart contradict each other", remedy="leave out one of them")

    def runner(self, most: int | None = None) -> Executor:
        """The executor; of local workers not more than there is work for. Raises InputError."""
        from simulator.planner.executors import make_executor

        count = self.workers if self.workers is None or most is None else min(self.workers, most)
        return make_executor(self.executor, workers=count, scheduler=self.scheduler, quiet=self.quiet)


@contextmanager
def keeping(out: Path, kept: Callable[[], str]) -> Iterator[None]:
    """Whatever stops the work, the user hears what is kept (``kept`` says it) and how to go on.

    Raises:
        typer.Exit: after Ctrl-C.
        InputError: the folder cannot be written any more.
    """
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nkvplan: interrupted; {_go_on(kept)}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        from simulator.errors import InputError

        raise InputError(
            f"cannot be written: {error.strerror or error}; {_go_on(kept)}",
            where=f"--out {out}",
            remedy="free some space",
        ) from None


def _go_on(kept: Callable[[], str]) -> str:
    return f"{kept()}: the same command with --resume goes on from there"


def finite(value: dict[str, Any]) -> dict[str, Any]:
    """The same as JSON knows it: what is no number is null."""
    from simulator.result_files import json_text

    found: dict[str, Any] = json.loads(json_text(value))
    return found

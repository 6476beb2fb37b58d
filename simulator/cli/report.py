"""``kvplan report``: redraws the report of a finished run, sweep or capacity search without simulating."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.console import Json, Quiet, print_json


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of a finished run, sweep or capacity search.")
    ],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Redraws the report of a finished run, sweep or capacity search without simulating."""
    from reports.capacity_data import is_capacity
    from reports.capacity_page import write_capacity_report
    from reports.page import write_report
    from reports.sweep_data import is_sweep
    from reports.sweep_page import write_sweep_report
    from simulator.errors import InputError

    try:
        if is_capacity(folder):
            page = write_capacity_report(folder)
        else:
            page = write_sweep_report(folder) if is_sweep(folder) else write_report(folder)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror or error}",
            where=str(folder),
            remedy="free some space, or copy the folder to where it can be written",
        ) from None
    if as_json:
        print_json({"report": str(page)})
    elif not quiet:
        print(f"report: {page}")

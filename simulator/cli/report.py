"""``kvplan report``: redraws the report of a finished run without simulating."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.console import Json, Quiet, print_json


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a finished run.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Redraws the report of a finished run without simulating."""
    from reports.page import write_report

    page = write_report(folder)
    if as_json:
        print_json({"report": str(page)})
    elif not quiet:
        print(f"report: {page}")

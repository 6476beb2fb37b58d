"""``kvplan verify paper``: the PagedAttention paper's numbers beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.console import Json, Quiet, print_json


def paper(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE.csv]", help="A table of the paper's numbers [default: those that the paper prints]."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Short traces and no sensitivity: a first look.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write report.html, plots and paper.json into this folder.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Simulates the PagedAttention paper's experiments and compares; exits 4 where a stated tolerance is missed."""
    from simulator.progress import Progress
    from simulator.verify_paper import passes, verify
    from simulator.verify_paper_result import result_dict, text_table
    from simulator.verify_paper_targets import printed_targets, read_targets

    targets = printed_targets() if file is None else read_targets(file)
    progress = Progress("paper", quiet=quiet)
    done, total = 0, len(targets) * passes(quick=quick)

    def on_row() -> None:
        nonlocal done
        done += 1
        progress(done, total)

    source = "the numbers that the paper prints" if file is None else file.name
    try:
        if out is None:
            result = result_dict(verify(targets, quick=quick, on_row=on_row), source, quick=quick)
        else:
            from reports.paper_page import write_paper_report
            from simulator.cli.result_folder import ResultFolder

            with ResultFolder(out) as work:
                result = result_dict(verify(targets, quick=quick, on_row=on_row), source, quick=quick)
                write_paper_report(result, work)
    finally:
        progress.close()
    if as_json:
        print_json(result)
    else:
        print(text_table(result, quiet=quiet))
        if out is not None and not quiet:
            print(f"report: {out / 'report.html'}")
    if not result["met"]:
        raise typer.Exit(4)

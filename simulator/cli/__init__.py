"""``kvplan``: the commands. Each imports what it needs inside itself, so that ``kvplan --help`` is quick."""

from __future__ import annotations

import typer

from simulator.cli import capacity, catalog, gpu, report, run, schema, size, sweep, verify, workload
from simulator.cli.console import KvplanGroup

app = typer.Typer(
    cls=KvplanGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Simulates an LLM server and its KV cache, and plans its capacity, before you rent a GPU.",
    epilog="Exit codes: 0 ok, 1 internal error, 2 bad input, 3 does not fit in memory, 4 an SLO or a check missed.",
)


def _version(value: bool) -> None:
    if value:
        from simulator.provenance import version

        print(f"kvplan {version('kvplan')}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_version, is_eager=True),
) -> None:
    """Simulates an LLM server and its KV cache, and plans its capacity, before you rent a GPU."""


app.command("run")(run.run)
app.command("sweep", epilog=sweep.EPILOG)(sweep.sweep)
app.command("capacity", epilog=capacity.EPILOG)(capacity.capacity)
app.command("size")(size.size)
app.command("workload")(workload.workload)
app.command("report")(report.report)
app.command("schema")(schema.schema)
app.add_typer(catalog.app, name="catalog")
app.add_typer(gpu.app, name="gpu")
app.add_typer(verify.app, name="verify")

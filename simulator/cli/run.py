"""``kvplan run``: simulates a scenario, prints the summary, writes the result folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simulator.cli.console import Json, Quiet, print_json, warn

if TYPE_CHECKING:
    pass


def run(
    scenario: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped scenario: quickstart.")],
    patches: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a setting, such as engine.block_size=32; repeatable."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Replaces the scenario's seed.", min=0)] = None,
    stepwise: Annotated[bool, typer.Option("--stepwise", help="One event a step: the same result, slowly.")] = False,
    out: Annotated[Path | None, typer.Option(help="The folder to write [default: out/NAME].")] = None,
    allow_missed: Annotated[
        bool, typer.Option("--allow-missed", help="Exit with 0 also where an SLO or an expectation is missed.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Simulates a scenario, prints a summary and writes the results.

    Exits with 4 where an SLO or an expectation is missed; of several variants one has to meet them.
    """
    from simulator.cli.result_folder import ResultFolder
    from simulator.scenario import load_scenario

    loaded = load_scenario(scenario, patches or [], seed)
    folder = out or Path("out") / loaded.name
    with ResultFolder(folder) as work:
        results, texts = _run_all(loaded, work, stepwise=stepwise, quiet=quiet)
    whole = {"variants": results} if loaded.variants else results[loaded.name]
    if as_json:
        print_json(whole)
    else:
        print("\n".join(texts))
        print(f"\nresults: {folder}")
    for name, result in results.items():
        label = f"{name}: " if loaded.variants else ""
        warn([label + line for line in result["warnings"]], quiet=quiet)
    if not allow_missed and results and all(_missed(result) for result in results.values()):
        raise typer.Exit(4)

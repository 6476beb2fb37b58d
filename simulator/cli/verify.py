"""``kvplan verify``: predictions against what real systems did."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from simulator.cli import verify_paper
from simulator.cli.console import Json, Quiet, print_json
from simulator.errors import InputError

app = typer.Typer(no_args_is_help=True, help="Predictions against what real servers did.", rich_markup_mode=None)

_PARTS = (".config.json", ".requests.jsonl", ".steps.jsonl.gz", ".summary.json")


@app.command("schedule")
def schedule(
    prefixes: Annotated[
        list[str],
        typer.Argument(metavar="PREFIX...", help="Recorded cases: PREFIX.config.json and so on; or a folder."),
    ],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Replays recorded schedules of the real vLLM and compares every pass; exits 4 unless all are exact.

    A case that cannot be read is named, the others are compared all the same; then it exits 2.
    """
    from simulator.verify_schedule import CaseResult, verify_prefix

    results, broken = [], False
    for prefix in _cases(prefixes):
        try:
            result = verify_prefix(prefix)
        except InputError as error:
            broken = True
            print(error, file=sys.stderr)
            results.append(CaseResult(prefix.name, False, f"{prefix.name}: not compared: {error}"))
            continue
        results.append(result)
        if not as_json and not (quiet and result.exact):
            print(result.text)
    exact = sum(result.exact for result in results)
    if as_json:
        cases = [{"case": r.name, "exact": r.exact, "text": r.text} for r in results]
        print_json({"exact": exact, "cases": len(results), "results": cases})
    else:
        print(f"exact {exact}/{len(results)} cases")
    if exact < len(results):
        raise typer.Exit(2 if broken else 4)


def _cases(prefixes: list[str]) -> list[Path]:
    """Each case once, in the order given; a folder stands for all cases in it, a file of a case for the case."""
    found: dict[Path, None] = {}
    for text in prefixes:
        path = Path(text)
        if path.is_dir():
            inside = sorted(p.with_name(p.name.removesuffix(_PARTS[0])) for p in path.glob("*" + _PARTS[0]))
            if not inside:
                raise InputError("holds no *.config.json", where=text, remedy="name a folder of recorded cases")
            found.update(dict.fromkeys(inside))
            continue
        for part in _PARTS:
            path = path.with_name(path.name.removesuffix(part))
        found[path] = None
    return list(found)


def _later(name: str) -> None:
    def command(_: Annotated[list[str] | None, typer.Argument(hidden=True)] = None, as_json: Json = False) -> None:
        raise InputError(f"kvplan verify {name} is not in this version", remedy="use kvplan verify schedule")

    app.command(name, hidden=True, context_settings={"ignore_unknown_options": True})(command)


app.command("paper")(verify_paper.paper)
for _name in ("memory", "latency"):
    _later(_name)

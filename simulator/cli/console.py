"""How every command speaks: results on stdout, everything else on stderr, faults as one line and an exit code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from simulator.errors import InputError, KvplanError
from workloads.errors import WorkloadError

LATER = {
    "calibrate": "use kvplan gpu calibrate on the card",
    "explore": "open report.html of a run",
    "serve": "use kvplan size",
}
"""Commands of the contract that this version does not have, and what works instead."""


def _remember_json(context: typer.Context, value: bool) -> bool:
    context.meta["json"] = value
    return value


Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON object and nothing else on stdout.", callback=_remember_json, is_eager=True
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no warnings on stderr.")]


class KvplanGroup(TyperGroup):
    """Turns our errors into a line on stderr and an exit code; a traceback only with KVPLAN_DEBUG=1."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in LATER and self.get_command(ctx, args[0]) is None:
            if "--json" in args:
                ctx.meta["json"] = True
            raise InputError(f"kvplan {args[0]} is not in this version", remedy=LATER[args[0]])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (KvplanError, WorkloadError) as error:
            fail(error, as_json=bool(ctx.meta.get("json")))
        except KeyboardInterrupt:
            print("\nkvplan: interrupted, nothing was written", file=sys.stderr)
            raise typer.Exit(130) from None
        except MemoryError:
            short = InputError("needs more memory than this machine has", remedy="ask for fewer requests or blocks")
            fail(short, as_json=bool(ctx.meta.get("json")))
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except OSError as error:
            path = None if error.filename is None else str(error.filename)
            remedy = "check the path, its permissions and the free space"
            fail(
                InputError(error.strerror or str(error), where=path, remedy=remedy), as_json=bool(ctx.meta.get("json"))
            )
        except Exception as error:
            if type(error).__module__.startswith("typer.") or os.environ.get("KVPLAN_DEBUG"):
                raise
            where = f"{type(error).__name__}: {error}"
            print(f"kvplan: internal error: {where} (set KVPLAN_DEBUG=1 for the traceback)", file=sys.stderr)
            raise typer.Exit(1) from None


def fail(error: KvplanError | WorkloadError, *, as_json: bool) -> NoReturn:
    """Says what is wrong and leaves with the error's exit code."""
    code = getattr(error, "exit_code", 2)
    with suppress(OSError):  # stdout itself may be what cannot be written
        if as_json:
            print_json({"error": {"what": error.what, "where": error.where, "remedy": error.remedy, "exit_code": code}})
    print(error if error.where else f"kvplan: {error}", file=sys.stderr)
    raise typer.Exit(code)


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def warn(lines: list[str], *, quiet: bool) -> None:
    """Warnings on stderr."""
    for line in [] if quiet else lines:
        print(f"warning: {line}", file=sys.stderr)

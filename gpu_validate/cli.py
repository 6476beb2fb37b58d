"""``python -m gpu_validate``: the commands of ``kvplan gpu`` where nothing but CuPy and NumPy is installed.

argparse and not typer, so that ``check`` asks for nothing more; ``calibrate`` and ``predict`` read YAML.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gpu_validate import commands
from simulator.errors import InputError, KvplanError

_CODES = "Exit codes: 0 ok, 1 internal error, 2 bad input or no GPU, 4 a check or goal missed."


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; gives the exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        answer = _run(chosen)
    except ImportError as error:
        package = {"yaml": "pyyaml"}.get(error.name or "", error.name)
        return _failed(InputError(f"{error.name} is not installed", remedy=f"pip install {package}"), chosen.json)
    except KvplanError as error:
        if os.environ.get("KVPLAN_DEBUG"):
            raise
        return _failed(error, chosen.json)
    print(json.dumps(answer.document, indent=2) if chosen.json else answer.text)
    if not chosen.quiet:
        for path in answer.written:
            print(f"wrote {path}", file=sys.stderr)
    return answer.exit_code


def _run(chosen: argparse.Namespace) -> commands.Answer:
    if chosen.command == "check":
        return commands.check(chosen.backend, chosen.grid, chosen.out, quiet=chosen.quiet)
    if chosen.command == "compile":
        return commands.compile_kernels(chosen.compiler, chosen.grid, chosen.out, quiet=chosen.quiet)
    if chosen.command == "predict":
        return commands.predict(chosen.calibration, chosen.measurements, chosen.step, chosen.model, chosen.gpu)
    if chosen.measurements:
        return commands.refit(chosen.measurements, chosen.model, chosen.out)
    sizes = chosen.tensor_parallel_size, chosen.plan, chosen.limit_s
    return commands.calibrate(chosen.model, chosen.gpu, *sizes, chosen.out, quiet=chosen.quiet)


def _failed(error: KvplanError, as_json: bool) -> int:
    if as_json:
        fault = {"what": error.what, "where": error.where, "remedy": error.remedy, "exit_code": error.exit_code}
        print(json.dumps({"error": fault}, indent=2))
    print(f"gpu_validate: {error}", file=sys.stderr)
    return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpu_validate", description=__doc__, epilog=_CODES)
    parts = parser.add_subparsers(dest="command", required=True)
    check = parts.add_parser("check", help="do the kernels compute what they should?")
    check.add_argument("--backend", default="cuda", help="cuda (default) or cpu")
    check.add_argument("--grid", default="ci", help="ci (default), full or bench")
    compiled = parts.add_parser("compile", help="compile for every architecture, no GPU needed")
    compiled.add_argument("--compiler", default="auto", help="auto (default), nvcc or nvrtc")
    compiled.add_argument("--grid", default="ci", help="ci (default), full or bench")
    calibrate = parts.add_parser("calibrate", help="time this card and fit the simulator's numbers to it")
    calibrate.add_argument("--model", default="llama-3.1-8b", help="whose layers are timed (catalogue name)")
    calibrate.add_argument("--gpu", help="catalogue name of this card, where the driver's name is not enough")
    calibrate.add_argument("--tensor-parallel-size", type=int, default=1, help="time one rank of so many")
    calibrate.add_argument("--plan", default="full", help="full (default) or small")
    calibrate.add_argument("--limit-s", type=float, default=420.0, help="begin no further part after so long")
    calibrate.add_argument("--measurements", type=Path, help="fit this table instead of measuring")
    predict = parts.add_parser("predict", help="simulated steps beside the measured ones")
    predict.add_argument("--measurements", type=Path, help="measurements.json of calibrate; else steps are timed now")
    predict.add_argument("--step", action="append", default=[], help="BATCHxCONTEXT to time now (may be repeated)")
    predict.add_argument("--gpu", help="catalogue name of this card, where the driver's name is not enough")
    predict.add_argument("--calibration", required=True, help="a file, or the name of a shipped one")
    predict.add_argument("--model", default="llama-3.1-8b", help="whose steps the table holds")
    for command in (check, compiled, calibrate):
        command.add_argument("--out", type=Path, help="where results go")
    for command in parts.choices.values():
        command.add_argument("--json", action="store_true", help="one JSON object on stdout")
        command.add_argument("--quiet", "-q", action="store_true", help="no progress on stderr")
    return parser

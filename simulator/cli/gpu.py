"""``kvplan gpu``: the paged-attention kernel on this machine: is it right, and what does a step cost on this card?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simulator.cli.console import Json, Quiet, print_json

if TYPE_CHECKING:
    from gpu_validate.commands import Answer

app = typer.Typer(
    no_args_is_help=True,
    help="The paged-attention kernel on this machine: check it, time the card, predict its steps.",
    rich_markup_mode=None,
)

Grid = Annotated[str, typer.Option(help="Which kernels: ci, full or bench.")]
Model = Annotated[str, typer.Option(help="Whose layers and steps are timed: a catalogue name or config.json.")]
Gpu = Annotated[str | None, typer.Option(help="Catalogue name of this card; default: by the driver's name.")]
Out = Annotated[Path | None, typer.Option(help="Where results go; default out/gpu.")]


@app.command("check")
def check(
    backend: Annotated[str, typer.Option(help="cuda (this machine's GPU) or cpu (g++ and no GPU).")] = "cuda",
    grid: Grid = "ci",
    out: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compares the kernels with exact references over a grid of shapes; exits 4 when a check fails."""
    from gpu_validate import commands

    _answer(commands.check(backend, grid, out, quiet=quiet), as_json, quiet)


@app.command("compile")
def compile_kernels(
    compiler: Annotated[str, typer.Option(help="auto, nvcc or nvrtc.")] = "auto",
    grid: Grid = "ci",
    out: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compiles the kernels for sm_80 to sm_100 without a GPU; exits 4 when one is refused or the hot kernel spills."""
    from gpu_validate import commands

    _answer(commands.compile_kernels(compiler, grid, out, quiet=quiet), as_json, quiet)


@app.command("calibrate")
def calibrate(
    model: Model = "llama-3.1-8b",
    gpu: Gpu = None,
    tensor_parallel_size: Annotated[int, typer.Option(min=1, help="Time one rank of so many.")] = 1,
    plan: Annotated[str, typer.Option(help="full, or small (a run through everything).")] = "full",
    limit_s: Annotated[float, typer.Option(help="Begin no further part after so many seconds.")] = 420.0,
    measurements: Annotated[Path | None, typer.Option(help="Fit this table instead of measuring.")] = None,
    out: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Times this card and writes a calibration file for `step_time: {kind: roofline, calibration: FILE}`."""
    from gpu_validate import commands

    if measurements:
        answer = commands.refit(measurements, model, out)
    else:
        answer = commands.calibrate(model, gpu, tensor_parallel_size, plan, limit_s, out, quiet=quiet)
    _answer(answer, as_json, quiet)


@app.command("predict")
def predict(
    calibration: Annotated[str, typer.Option(help="A calibration file, or the name of a shipped one.")] = "default",
    measurements: Annotated[
        Path | None, typer.Option(help="measurements.json of kvplan gpu calibrate; without it steps are timed now.")
    ] = None,
    step: Annotated[list[str] | None, typer.Option(help="BATCHxCONTEXT to time now; may be repeated.")] = None,
    model: Model = "llama-3.1-8b",
    gpu: Gpu = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Simulated decode steps beside the measured ones; exits 4 when an unseen one is more than 5 % off."""
    from gpu_validate import commands

    _answer(commands.predict(calibration, measurements, step or (), model, gpu), as_json, quiet)


def _answer(answer: Answer, as_json: bool, quiet: bool) -> None:
    if as_json:
        print_json(answer.document)
    else:
        print(answer.text)
    for path in () if quiet else answer.written:
        print(f"wrote {path}", file=sys.stderr)
    if answer.exit_code:
        raise typer.Exit(answer.exit_code)

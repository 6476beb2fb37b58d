"""What ``kvplan gpu`` and ``python -m gpu_validate`` do, whoever read the command line. ``check`` needs NumPy alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_validate.backend import Backend
from gpu_validate.variants import grid as variants_of
from simulator.errors import InputError

MISSED = 4
OUT = Path("out") / "gpu"
_LONGEST = {"cpu": 300, "cuda": 1500}


@dataclass(frozen=True)
class Answer:
    """What a command found: for people, for programs, for the shell. ``written``: files."""

    text: str
    document: dict[str, Any]
    exit_code: int
    written: tuple[Path, ...]


def check(backend: str, grid: str, out: Path | None, *, quiet: bool) -> Answer:
    """Runs the checks of a grid; 4 where one fails. Raises InputError: unknown names, no GPU, no compiler."""
    from gpu_validate.check import run_checks

    variants = variants_of(grid)
    machine = _backend(backend)
    path = out or OUT / f"check-{backend}.json"
    report = run_checks(machine, variants, grid=grid, longest=_LONGEST[backend], progress=_progress("check", quiet))
    report.write(path)
    lines = [f"FAILED {f.check} {f.variant} (lengths {f.lengths}): {f.detail}" for f in report.failed]
    passed = len(report.findings) - len(report.failed)
    where = f"on {report.facts.get('device')} in {report.seconds:.0f} s (kernels {report.kernel_hash})"
    lines.append(f"{passed}/{len(report.findings)} checks of {len(variants)} kernels passed {where}")
    return Answer("\n".join(lines), report.document(), MISSED if report.failed else 0, (path,))


def compile_kernels(compiler: str, grid: str, out: Path | None, *, quiet: bool) -> Answer:
    """Compiles a grid for every architecture; 4 where a kernel is refused or the decode kernel spills."""
    from gpu_validate.compile import compile_all, find_compiler

    path = out or OUT / "compile.json"
    workers = os.cpu_count() or 1
    record = compile_all(
        variants_of(grid), find_compiler(compiler), grid=grid, workers=workers, progress=_progress("compile", quiet)
    )
    record.write(path)
    total = f"{len(record.rows) - len(record.failed)}/{len(record.rows)} kernels compiled by {record.compiler}"
    return Answer(f"{record.text()}\n{total}", record.document(), MISSED if record.failed else 0, (path,))


def calibrate(
    model: str, gpu: str | None, tensor_parallel_size: int, plan: str, limit_s: float, out: Path | None, *, quiet: bool
) -> Answer:
    """Times this card and writes a calibration. Raises InputError where there is no card to time."""
    from gpu_validate import calibrate as calibration
    from gpu_validate.cuda_device import CudaDevice

    wish = calibration.Wish(model, gpu, tensor_parallel_size, plan, limit_s)
    folder = out or OUT / "calibration"
    outcome = calibration.calibrate(wish, CudaDevice(), folder, say=_teller(quiet))
    return _calibrated(outcome, folder, (folder / calibration.TABLE,))


def refit(table: Path, model: str, out: Path | None) -> Answer:
    """Fits a table that was measured before; needs no card."""
    from gpu_validate import calibrate as calibration
    from gpu_validate.measurements import read_measurements
    from simulator.catalog import find_gpu, find_model

    measured = read_measurements(table)
    outcome = calibration.outcome(measured, find_gpu(measured.gpu), find_model(model))
    return _calibrated(outcome, out or OUT / "calibration", ())


def predict(calibration: str, table: Path | None, steps: Sequence[str], model: str, gpu: str | None) -> Answer:
    """Simulated steps beside measured ones; 4 where one that no fit saw is further off than the goal.

    Args:
        table: of a calibration; None = ``steps`` ("BATCHxCONTEXT") are measured now, on this card.
    """
    from gpu_validate.predict import predict as predicted
    from simulator.calibration import find_calibration
    from simulator.catalog import find_gpu, find_model

    numbers, spec = find_calibration(calibration), find_model(model)
    if table is not None:
        from gpu_validate.measurements import read_measurements

        measured = read_measurements(table)
        found = predicted(measured.of("step"), numbers, spec, find_gpu(measured.gpu))
    else:
        from gpu_validate.calibrate import measure_steps
        from gpu_validate.card_names import card_of
        from gpu_validate.cuda_device import CudaDevice

        sizes = [_step(text) for text in steps or ("8x1000", "64x1500")]
        device = CudaDevice()
        card = find_gpu(card_of(device, gpu))
        found = predicted(measure_steps(device, spec, sizes), numbers, spec, card)
    return Answer(found.text(), found.as_document(), 0 if found.met else MISSED, ())


def _step(text: str) -> tuple[int, int]:
    """(batch, context) of "64x2048"."""
    batch, _, context = text.partition("x")
    if not (batch.isdigit() and context.isdigit() and int(batch) and int(context)):
        raise InputError(f"{text!r} is no step", where="--step", remedy="write BATCHxCONTEXT, such as 64x2048")
    return int(batch), int(context)


def _calibrated(outcome: Any, folder: Path, before: tuple[Path, ...]) -> Answer:
    """A part that broke makes the exit code 1, whatever the others gave."""
    written = (*before, *outcome.write(folder))
    path = folder / "calibration.yaml"
    text = f"{outcome.text()}\nin a scenario: step_time: {{kind: roofline, calibration: {path}}}"
    fitted = {number: getattr(outcome.fit.calibration, number) for number in outcome.fit.fitted}
    document = {
        "gpu": outcome.measurements.gpu,
        "device": outcome.measurements.facts,
        "points": len(outcome.measurements.points),
        "fitted": fitted,
        "calibration": str(path),
        "notes": list(outcome.measurements.notes),
    }
    broken = any(note.startswith("FAILED") for note in outcome.measurements.notes)
    return Answer(text, document, int(broken), written)


def _backend(name: str) -> Backend:
    if name == "cpu":
        from gpu_validate.cpu_backend import CpuBackend

        return CpuBackend()
    if name == "cuda":
        from gpu_validate.cuda_backend import CudaBackend

        return CudaBackend()
    raise InputError(f"there is no backend {name!r}", where="--backend", remedy="cuda or cpu")


def _progress(what: str, quiet: bool) -> Callable[[int, int], None]:
    """A line on stderr that overwrites itself; nothing where nobody looks."""
    if quiet or not sys.stderr.isatty():
        return lambda done, total: None

    def tell(done: int, total: int) -> None:
        print(f"\r{what} {done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)

    return tell


def _teller(quiet: bool) -> Callable[[str], None]:
    return (lambda line: None) if quiet else (lambda line: print(line, file=sys.stderr, flush=True))

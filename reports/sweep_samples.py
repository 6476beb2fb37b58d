"""The sweeps of README.md: ``report.md`` and drawings, copied from finished sweeps by ``make samples``.

usage: python -m reports.sweep_samples FOLDER SWEEP_FOLDER...
"""

from __future__ import annotations

import sys
from pathlib import Path

from reports.sample_drawings import on_own_ground
from reports.sweep_data import read_sweep
from simulator.result_files import write_text


def copy_sample(sweep_folder: Path, folder: Path) -> Path:
    """Fills ``folder/NAME`` with the report of the sweep of that name; drawings of an older one are removed."""
    target = folder / read_sweep(sweep_folder).name
    drawings = sorted((sweep_folder / "plots").glob("*.svg"))
    for old in (target / "plots").glob("*.svg"):
        if old.name not in {drawing.name for drawing in drawings}:
            old.unlink()
    for drawing in drawings:
        write_text(target / "plots" / drawing.name, on_own_ground(drawing.read_text(encoding="utf-8")))
    write_text(target / "report.md", (sweep_folder / "report.md").read_text(encoding="utf-8"))
    return target


def main(arguments: list[str]) -> None:
    """Copies each sweep's report into the folder."""
    for path in map(Path, arguments[1:]):
        copy_sample(path, Path(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])

"""The drawings of README.md, copied from finished runs by ``make samples``.

A drawing of a report takes its text colour from the page; a picture in README.md has no page, so it brings its own
ground and ink.

usage: python -m reports.sample_drawings FOLDER DRAWING.svg...
"""

from __future__ import annotations

import sys
from pathlib import Path

from simulator.result_files import write_text

GROUND_AND_INK = 'style="background: #ffffff; color: #1b1f24" '


def on_own_ground(svg: str) -> str:
    """The same drawing with a white ground and dark text."""
    return svg.replace("<svg ", f"<svg {GROUND_AND_INK}", 1)


def main(arguments: list[str]) -> None:
    """Copies each drawing into the folder, under its own name."""
    folder = Path(arguments[0])
    for path in map(Path, arguments[1:]):
        write_text(folder / path.name, on_own_ground(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main(sys.argv[1:])

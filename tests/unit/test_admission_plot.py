"""The admission plot: same bytes every time, words for those who do not see it, nothing drawn from thin air."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree

import pytest

from reports.plots.admission import TITLE, admission_alt_text, admission_svg
from simulator.admission import AdmissionPoint, admission_by_block_size

SVG = "{http://www.w3.org/2000/svg}"
PROMPTS, OUTPUTS = [30, 50, 70, 20, 90, 40, 60] * 4, [40, 10, 30, 60, 20, 70, 50] * 4


def points() -> list[AdmissionPoint]:
    return admission_by_block_size(1_000, 256, PROMPTS, OUTPUTS, block_sizes=(1, 16, 64))


def test_it_is_well_formed_and_shows_every_number() -> None:
    drawn = points()
    root = ElementTree.fromstring(admission_svg(drawn))
    assert root.get("role") == "img"
    assert [child.tag for child in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert root.findtext(f"{SVG}title") == TITLE
    assert root.findtext(f"{SVG}desc") == admission_alt_text(drawn)
    shown = " ".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))
    for point in drawn:
        assert str(point.result.admitted) in shown
        assert str(point.result.admitted) in admission_alt_text(drawn)
    assert "a memory effect, not a speed benchmark" in shown


def test_another_process_writes_the_same_bytes() -> None:
    code = (
        "import sys; from tests.unit.test_admission_plot import points; "
        "from reports.plots.admission import admission_svg; sys.stdout.write(admission_svg(points()))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first = admission_svg(points())
    assert other.stdout == first
    assert admission_svg(points()) == first
    assert "<dc:date>" not in first


def test_without_a_paged_layout_there_is_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match="at least one block size"):
        admission_svg([p for p in points() if p.layout == "contiguous"])


def test_importing_the_plot_does_not_import_matplotlib() -> None:
    code = "import sys, reports.plots.admission; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""The admission plot: from the numbers of result.json, in the page's ink, with words for those who do not see it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from reports.page import write_report
from reports.plots import admission
from reports.run_data import RunData
from reports.style import INK, svg
from simulator.admission import LABEL, admission_by_block_size
from simulator.result_files import write_json

SVG = "{http://www.w3.org/2000/svg}"
PROMPTS, OUTPUTS = [30, 50, 70, 20, 90, 40, 60] * 4, [40, 10, 30, 60, 20, 70, 50] * 4


def result(name: str, slots: int = 1_000) -> dict[str, object]:
    points = [p.as_dict() for p in admission_by_block_size(slots, 256, PROMPTS, OUTPUTS, block_sizes=(1, 16, 64))]
    compared = {"pool_slots": slots, "max_model_len": 256, "points": points}
    return {**points[0], "variant": name, "name": name, "by_block_size": compared, "warnings": [], "assumptions": []}


def runs(*slots: int) -> list[RunData]:
    return [RunData(f"pool{i}", result(f"pool{i}", size), {}, {}) for i, size in enumerate(slots)]


def drawn(some: list[RunData]) -> str:
    def draw(figure: object) -> None:
        admission.draw(figure, some)  # type: ignore[arg-type]

    return svg(draw, admission.size(some), admission.NAME, admission.TITLE, admission.alt_text(some))


def shown(text: str) -> str:
    return " ".join("".join(part.itertext()) for part in ElementTree.fromstring(text).iter(f"{SVG}text"))


def test_one_pool_shows_every_number_once_in_the_ink_of_the_page() -> None:
    some = runs(1_000, 1_000)
    text = drawn(some)
    for point in some[0].result["by_block_size"]["points"]:
        assert str(point["admitted"]) in shown(text) and str(point["admitted"]) in admission.alt_text(some)
    assert LABEL in shown(text) and LABEL in admission.CAPTION
    assert "pool0" not in shown(text)  # both have the same pool, so no name is needed
    assert "currentColor" in text and INK not in text


def test_different_pools_have_a_curve_each() -> None:
    text = shown(drawn(runs(1_000, 2_000)))
    assert "paged (pool0)" in text and "paged (pool1)" in text
    assert "exact length known" not in text  # four reservations more would be a thicket


def test_the_page_is_drawn_from_the_files_and_holds_the_plot(tmp_path: Path) -> None:
    variants = {name: result(name) for name in ("contiguous", "paged")}
    for name, one in variants.items():
        write_json(one, tmp_path / name / "result.json")
    write_json({"variants": variants}, tmp_path / "result.json")
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "of_an_older_run.svg").write_text("<svg></svg>", encoding="utf-8")
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert page.count("<figure") == 1 and f'<figure id="{admission.NAME}">' in page
    assert (tmp_path / "plots" / f"{admission.NAME}.svg").read_text(encoding="utf-8") in page


def test_a_run_without_the_comparison_has_no_plot() -> None:
    assert admission.comparisons([RunData("old", {"admitted": 3}, {}, {})]) == {}


def test_importing_the_plot_does_not_import_matplotlib() -> None:
    code = "import sys, reports.plots.admission; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

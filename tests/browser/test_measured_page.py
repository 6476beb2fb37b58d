"""The report of a run that has measured values beside it, in a real browser: the picture first, the table below."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reports.page import write_report
from simulator.measured import beside_predicted
from simulator.result_files import write_json
from tests.browser.test_report_page import browser, opened, pytestmark
from tests.result_folder import VARIANTS, write_folder
from workloads.measured import KEYS, Measured

__all__ = ["browser", "pytestmark"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two variants beside one measurement."""
    folder = tmp_path_factory.mktemp("measured")
    write_folder(folder)
    whole = json.loads((folder / "result.json").read_text())
    for name, log in VARIANTS.items():
        measured = Measured("vllm bench serve", dict.fromkeys(KEYS, 120.5), ("p95_e2el_ms",), 60, differs=("it rains",))
        log = replace(log, workload=replace(log.workload, measured=measured))
        whole["variants"][name] |= beside_predicted(log, whole["variants"][name])
    write_json(whole, folder / "result.json")
    return write_report(folder)


@pytest.mark.parametrize(("width", "height", "scheme"), [(1280, 900, "light"), (360, 740, "dark")])
def test_measured_and_predicted_stand_side_by_side(
    browser: Any, report: Path, width: int, height: int, scheme: str
) -> None:
    page, requests, complaints = opened(browser, report, width, height, scheme)
    assert complaints == [] and all(url.startswith(("file:", "data:")) for url in requests)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    picture = page.locator("#measured_and_predicted svg")
    assert picture.bounding_box()["width"] <= width
    words = picture.locator("text").all_text_contents()
    assert {"measured", "predicted: paged", "predicted: contiguous", "p99"} <= set(words)
    table = page.get_by_role("region", name="What was measured on a real server")
    heads = table.locator("thead th").all_inner_texts()
    assert heads == ["metric", "measured", *(f"{n}: {w}" for n in VARIANTS for w in ("predicted", "error"))]
    rows = [row.split("\t") for row in table.locator("tbody tr").all_inner_texts()]
    assert len(rows) == len(KEYS)
    run = json.loads((report.parent / "result.json").read_text())["variants"]["paged"]
    (shown,) = [row for row in rows if row[0] == "P95 E2EL (ms)"]
    assert shown[1] == "120.50*" and shown[4] == f"{run['p95_e2el_ms']:,.2f}"
    assert shown[5] == f"{run['p95_e2el_ms'] / 120.5 - 1:+.1%}"
    assert page.get_by_text("Another load than the measured one: it rains.").is_visible()
    page.context.close()

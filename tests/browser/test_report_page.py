"""The report in a real browser: nothing is fetched, nothing overflows, and it reads in light, dark and print."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reports.page import write_report
from tests.result_folder import write_folder

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium (apt-get install chromium)")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_folder(folder)
    return write_report(folder)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGUMENTS)
        yield browser
        browser.close()


def opened(browser: Any, report: Path, width: int, height: int, scheme: str) -> tuple[Any, list[str], list[str]]:
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(report.as_uri())
    return page, requests, complaints


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (360, 740)])
def test_page_fetches_nothing_and_fits_the_screen(
    browser: Any, report: Path, width: int, height: int, scheme: str
) -> None:
    page, requests, complaints = opened(browser, report, width, height, scheme)
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in requests if url.startswith("file:")]) == 1
    assert complaints == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("svg[role=img]").count() == 4
    for number in range(4):
        box = page.locator("svg[role=img]").nth(number).bounding_box()
        assert box["width"] <= width and box["height"] > 40
    answer = page.locator("#answer").bounding_box()
    assert answer["y"] + answer["height"] < height  # the answer stands on the first screen
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_contrasts_with_its_ground(browser: Any, report: Path, scheme: str) -> None:
    page, _, _ = opened(browser, report, 1280, 900, scheme)
    for selector in ("#answer", "h1", "td", "figcaption", "footer", "figure svg"):
        ink = _luminance(page.locator(selector).first.evaluate("e => getComputedStyle(e).color"))
        ground = _luminance(
            page.locator(selector).first.evaluate(
                "e => { while (getComputedStyle(e).backgroundColor === 'rgba(0, 0, 0, 0)' && e.parentElement)"
                " e = e.parentElement; return getComputedStyle(e).backgroundColor }"
            )
        )
        light, dark = max(ink, ground), min(ink, ground)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (selector, scheme)
    page.context.close()


def test_dark_and_light_differ_and_the_drawings_follow(browser: Any, report: Path) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        page, _, _ = opened(browser, report, 1280, 900, scheme)
        colours[scheme] = page.locator("figure svg text").first.evaluate("e => getComputedStyle(e).fill")
        page.context.close()
    assert colours["light"] != colours["dark"]


def test_page_prints(browser: Any, report: Path) -> None:
    page, _, _ = opened(browser, report, 1280, 900, "dark")
    assert page.pdf(format="A4")[:5] == b"%PDF-"
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.context.close()


def test_every_drawing_has_a_name_and_a_description_for_screen_readers(browser: Any, report: Path) -> None:
    page, _, _ = opened(browser, report, 1280, 900, "light")
    labels = page.locator("svg[role=img]").evaluate_all(
        "all => all.map(e => e.getAttribute('aria-labelledby').split(' ')"
        ".map(i => document.getElementById(i).textContent))"
    )
    assert all(len(title) > 5 and "contiguous" in description for title, description in labels)
    page.context.close()


def _luminance(colour: str) -> float:
    """Relative luminance of ``rgb(r, g, b)`` (WCAG 2)."""
    numbers = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [n / 12.92 if n <= 0.03928 else ((n + 0.055) / 1.055) ** 2.4 for n in numbers]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

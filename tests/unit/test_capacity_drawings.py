"""The drawings of a capacity report: the front, its labels, the knee."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.capacity_data import read_capacity, serves
from reports.capacity_page import pictures, write_capacity_report
from reports.plots.knee import OVERLOAD, Knee, Panel, knee
from reports.plots.labels import place_labels
from reports.plots.pareto import Pareto, front, pareto
from tests.capacity_folder import chat


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = chat(tmp_path_factory.mktemp("chat"))
    write_capacity_report(folder)
    return folder


def test_front_is_what_nobody_beats_in_both() -> None:
    points = [(10, 5), (20, 4), (20, 3), (30, 4), (5, 5), (40, 1)]
    rows: list[dict[str, Any]] = [
        {"tokens_per_s_per_user": x, "y": y, "rank": place, "serves": True, "candidate": str(place)}
        for place, (x, y) in enumerate(points)
    ]
    slow = {"tokens_per_s_per_user": 90, "y": 90, "rank": 9, "serves": False, "candidate": "slow"}
    assert [row["rank"] for row in front([*rows, slow], "y", less=False)] == [0, 3, 5]
    assert [row["rank"] for row in front([*rows, slow], "y", less=True)] == [5]
    for less in (False, True):
        on_front = front(rows, "y", less=less)
        for row in rows:  # by the definition, one by one
            beaten = any(
                other is not row
                and other["tokens_per_s_per_user"] >= row["tokens_per_s_per_user"]
                and (other["y"] <= row["y"] if less else other["y"] >= row["y"])
                for other in rows
            )
            assert (row in on_front) is not beaten
    assert front([slow], "y", less=False) == [slow]


def test_pareto_draws_two_or_more_and_needs_no_price() -> None:
    assert pareto([], None, serves) is None
    one = {"candidate": "a", "status": "ok", "tokens_per_s_per_user": 50.0, "tokens_per_s_per_gpu": 900.0}
    assert pareto([one], "a", serves) is None
    drawing = pareto([one, {**one, "candidate": "b", "tokens_per_s_per_user": 60.0}], "a", serves)
    assert isinstance(drawing, Pareto)
    assert [label for _, label, _ in drawing._panels()] == ["output tokens/s per GPU"]
    assert "2 b at 60.0 and 900" in drawing.alt_text()


def test_labels_of_30_points_overlap_nothing() -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3))
    axes = figure.subplots()
    points = [(10.0 + 7 * (n * 11 % 30), 3.0 + (n * 7 % 30), 3.6) for n in range(30)]
    axes.scatter([x for x, _, _ in points], [y for _, y, _ in points], s=30)
    figure.draw_without_rendering()
    place_labels(axes, [(x, y, str(n + 1), n == 0) for n, (x, y, _) in enumerate(points)], points)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 30
    assert not [1 for n, box in enumerate(boxes) for other in boxes[:n] if box.overlaps(other)]
    spots = [axes.transData.transform((x, y)) for x, y, _ in points]
    assert not [1 for box in boxes for spot in spots if box.contains(*spot)]


def test_labels_of_points_that_cover_each_other_are_joined() -> None:
    from matplotlib.figure import Figure

    axes = Figure(figsize=(5, 3)).subplots()
    axes.set_xlim(0, 10)
    place_labels(
        axes, [(5, 0.5, "1", True), (5, 0.5, "4", False), (8, 0.5, "2", False)], [(5, 0.5, 4.0), (8, 0.5, 4.0)]
    )
    assert [text.get_text() for text in axes.texts] == ["1, 4", "2"]


def test_knee_curve_shows_the_winner_first_with_rates_of_the_whole_deployment(chats: Path) -> None:
    data = read_capacity(chats)
    drawing = next(picture for picture in pictures(data) if isinstance(picture, Knee))
    assert [curve.name for curve in drawing.curves] == [row["candidate"] for row in data.rows[:5]]
    assert [panel.column for panel in drawing.panels] == ["p99_ttft_ms", "p99_tpot_ms"]
    first = drawing.curves[0]
    assert first.knee_rps == pytest.approx(22.8) and drawing.asked_rps == 20
    rates = [rate for rate, _ in first.points]
    assert rates == sorted(rates) and max(rates) <= OVERLOAD * 22.8
    assert {probe["purpose"] for _, probe in first.points} <= {"knee", "confirm", "headroom"}
    assert {probe["replicas"] for _, probe in first.points} == {3}  # confirm and headroom are probes of all
    assert {probe["replicas"] for _, probe in drawing.curves[2].points} == {1}
    assert "a100-sxm-80gb tp1: knee at 22.8 requests/s, p99 TTFT from" in drawing.alt_text()
    assert "limit 400 ms" in (chats / "plots" / "capacity_knee.svg").read_text(encoding="utf-8")


def test_a_deployment_probed_once_is_drawn_by_its_replica() -> None:
    row = {"candidate": "a", "replicas": 4, "knee_rps": 40.0}
    probe = {"candidate": "a", "purpose": "knee", "replicas": 1, "passed": True, "p99_ttft_ms": 100.0}
    probes = [{**probe, "rate_rps": rate} for rate in (5.0, 10.0, 10.3)]
    probes += [{**probe, "rate_rps": 30.0, "replicas": 4}, {**probe, "rate_rps": 50.0, "replicas": 7}]
    probes += [{**probe, "rate_rps": None, "purpose": "saturation"}, {**probe, "rate_rps": 9.0, "purpose": "knob"}]
    drawing = knee([row], probes, [Panel("p99_ttft_ms", "p99 TTFT", 400.0)], 30.0)
    assert drawing is not None
    (curve,) = drawing.curves
    assert [rate for rate, _ in curve.points] == [20.0, 40.0, pytest.approx(41.2)]
    assert curve.scaled and "its rates times their number: a." in drawing.caption
    assert knee([row], [], list(drawing.panels), 30.0) is None


def test_asked_rate_far_from_every_curve_is_told_in_words() -> None:
    row = {"candidate": "a", "replicas": 1, "knee_rps": 10.0}
    probes = [
        {"candidate": "a", "purpose": "knee", "replicas": 1, "passed": True, "p99_ttft_ms": 100.0, "rate_rps": rate}
        for rate in (5.0, 10.0)
    ]
    panels = [Panel("p99_ttft_ms", "p99 TTFT", 400.0)]
    near, far = knee([row], probes, panels, 12.0), knee([row], probes, panels, 500.0)
    assert near is not None and far is not None
    assert "Dotted: the asked rate." in near.caption
    assert "The asked rate, 500 requests/s, lies to the right." in far.caption

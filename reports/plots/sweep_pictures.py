"""Which drawings a sweep gets: lines over one numeric setting, maps over two, bars where no setting has a scale."""

from __future__ import annotations

from typing import Any

from reports.plots.sweep_bars import MOST_BARS, Bars
from reports.plots.sweep_heat import Maps
from reports.plots.sweep_lines import MOST_SERIES, Lines, Series, series_of
from reports.sweep_answer import MEASURES, Judged, place_words
from reports.sweep_data import Axis
from reports.sweep_measures import (
    ADMITTED,
    EXTERNAL,
    INTERNAL,
    LATENCIES,
    LOOKUPS,
    PEAK,
    PREEMPTIONS,
    RESERVED,
    RUNNING,
    TABLE,
    THROUGHPUT,
    TPOT_P99,
    TTFT_P99,
    USED,
    WASTE,
    Measure,
)
from reports.sweep_points import Point
from reports.sweep_rank import ranked

Picture = Lines | Maps | Bars
MOST_VALUES_AS_LINES = 5
"""Of two numeric settings one that has no more values than this becomes lines, else both span a map."""

MOST_MAPS = 4
BLOCK_SIZE = "block_size"
SHARES = "Shares of the pool, averaged over time. "
WASTE_CAPTION = (
    SHARES + "Reserved: held for tokens that are still to come. Internal waste: held, but no token will ever stand "
    "there, such as the rest of a last block. External waste: free, but the next request does not fit."
)
TABLE_CAPTION = (
    "What small blocks save, and what they cost: the table that says where each block of a request lies, as vLLM "
    "keeps it (4 bytes an entry, max_num_seqs rows of max_model_len / block_size entries), and how many of its entries "
    "an attention step reads. The time that these reads take is not in the latencies."
)


def pictures(judged: Judged) -> list[Picture]:
    """In the order of the page; empty where nothing ran."""
    if not any(point.ran for point in judged.points):
        return []
    numeric = sorted((axis for axis in judged.sweep.axes if axis.numeric), key=lambda axis: -len(axis.values))
    if not numeric:
        return [_bars(judged)]
    few = len(numeric) == 1 or len(numeric[1].values) <= MOST_VALUES_AS_LINES
    block_size = next((axis for axis in numeric if axis.path.endswith(BLOCK_SIZE)), None)
    if few or block_size is not None:
        found: list[Picture] = _lines(judged, block_size or numeric[0])
        return found
    return _maps(judged, numeric[0], numeric[1])


def times_from(judged: Judged) -> str:
    """What latencies rest on, to stand beside each of them."""
    kinds, names = judged.sweep.only("step_time"), judged.sweep.only("calibration")
    if not kinds:
        return ""
    rest = f", calibration {', '.join(names)}" if names else ""
    return f"Latencies are computed from step times: {', '.join(kinds)}{rest}."


def _there(judged: Judged, measures: tuple[Measure, ...], points: list[Point]) -> tuple[Measure, ...]:
    """Those with a value other than zero somewhere, for an empty panel tells nothing."""
    return tuple(measure for measure in measures if any(measure.value(point) for point in points))


def _lines(judged: Judged, axis: Axis) -> list[Picture]:
    series, left_out = _series(judged, axis)
    points = [point for one in series for point in one.points]
    objective = MEASURES[judged.objective.column]
    is_block_size = axis.path.endswith(BLOCK_SIZE)
    delivered = tuple(dict.fromkeys((objective, THROUGHPUT, RUNNING, PREEMPTIONS)))
    delivered = tuple(measure for measure in delivered if measure is not TTFT_P99)
    rest = _none_of(judged, PREEMPTIONS)
    plans: list[tuple[str, str, str, tuple[Measure, ...]]] = []
    if is_block_size:
        plans.append(("waste", "KV memory without a token in it", WASTE_CAPTION, (RESERVED, INTERNAL, EXTERNAL)))
    plans.append(("delivered", "What the server delivers", rest, delivered if "admitted" not in judged.sweep.columns
                  else (ADMITTED, USED)))  # fmt: skip
    plans.append(("latency", "Latency", times_from(judged), LATENCIES))
    if is_block_size:
        plans.append(("block_table", "What the block table costs", TABLE_CAPTION, (INTERNAL, TABLE, LOOKUPS)))
    else:
        plans.append(("memory", "KV memory", WASTE_CAPTION, (PEAK, WASTE)))
    out: list[Picture] = []
    for name, title, caption, wanted in plans:
        measures = _there(judged, wanted, points)
        if not measures:
            continue
        drawn = tuple(one for one in series if any(m.value(p) is not None for m in wanted[-1:] for p in one.points))
        shown = drawn if name == "block_table" else tuple(series)
        caption = " ".join(words for words in (caption, left_out, _intervals(points)) if words)
        words = f"{title}, by {axis.label}"
        out.append(Lines(f"sweep_{name}", words, caption, axis, shown, measures, tuple(judged.best)))
    return out


def _series(judged: Judged, axis: Axis) -> tuple[list[Series], str]:
    """The lines; of too many those that are best at some point of them, and a sentence about the others."""
    others = tuple(one for one in judged.sweep.axes if one is not axis)

    def name(place: dict[str, Any]) -> str:
        return place_words(judged.sweep, {key: value for key, value in place.items() if key != axis.path})

    series = series_of(judged.points, axis, name)
    if len(series) <= MOST_SERIES or not others:
        return series, ""
    order = ranked([point for one in series for point in one.points], judged.objective)
    place = {id(point): number for number, point in enumerate(order)}
    best = sorted(series, key=lambda one: min(place.get(id(point), len(order)) for point in one.points))[:MOST_SERIES]
    left = len(series) - len(best)
    return [
        one for one in series if one in best
    ], f"The {MOST_SERIES} best lines of {len(series)}; {left} are left out."


def _maps(judged: Judged, across: Axis, up: Axis) -> list[Picture]:
    """A drawing for every value of the other settings, up to four."""
    groups: dict[str, list[Point]] = {}
    for point in judged.points:
        if point.place[across.path] is not None and point.place[up.path] is not None:
            groups.setdefault(place_words(judged.sweep, point.place, less=(across, up)), []).append(point)
    best = [place_words(judged.sweep, point.place, less=(across, up)) for point in judged.best]
    chosen = sorted(groups, key=lambda name: (name not in best, list(groups).index(name)))[:MOST_MAPS]
    objective = MEASURES[judged.objective.column]
    out: list[Picture] = []
    for number, name in enumerate(chosen):
        points = groups[name]
        measures = _there(judged, tuple(dict.fromkeys((objective, TTFT_P99, TPOT_P99))), points)
        level = [m for m in measures if m is not objective and len({m.text(p) for p in points if p.ran}) == 1]
        measures = tuple(measure for measure in measures if measure not in level)
        caption = "Lighter is better; the best point is framed, and crosses mark points that failed. " + times_from(
            judged
        )
        for measure in level:
            caption += f" The {measure.title} is {measure.text(points[0])} ms everywhere."
        if len(groups) > len(chosen) and number == len(chosen) - 1:
            caption += f" {len(groups) - len(chosen)} more maps are left out; the table below has their points."
        title = f"The grid of {across.label} and {up.label}" + (f" with {name}" if name else "")
        limits = bool(judged.sweep.only("binding_limit")) and "admitted" not in judged.sweep.columns
        key = f"sweep_map_{number}" if len(chosen) > 1 else "sweep_map"
        marked = tuple(judged.best)
        out.append(Maps(key, title, caption, across, up, tuple(points), measures, marked, limits))
    return out


def _bars(judged: Judged) -> Bars:
    order = ranked(judged.points, judged.objective)
    order += [point for point in judged.points if point not in order]
    points = tuple((place_words(judged.sweep, point.place) or "run", point) for point in order[:MOST_BARS])
    objective = MEASURES[judged.objective.column]
    wanted = tuple(dict.fromkeys((objective, TTFT_P99, TPOT_P99, RUNNING, WASTE)))
    caption = times_from(judged)
    if len(order) > MOST_BARS:
        caption += f" The {MOST_BARS} best of {len(order)} points; the table below has all."
    measures = _there(judged, wanted, list(order[:MOST_BARS]))
    return Bars("sweep_bars", "The points beside each other", caption, points, measures, tuple(judged.best))


def _intervals(points: list[Point]) -> str:
    count = max(len(point.rows) for point in points)
    return f"Bands: 95 % intervals of the means over {count} replications." if count > 1 else ""


def _none_of(judged: Judged, measure: Measure) -> str:
    if measure.columns[0] in judged.sweep.columns and not any(measure.value(point) for point in judged.points):
        return f"There were no {measure.title} at any point."
    return ""

"""What a sweep says, in two sentences: which value is best and what it costs; what binds."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from reports.answer import binding_words, capital
from reports.numbers import percent, plain
from reports.sweep_data import Axis, SweepData
from reports.sweep_measures import (
    ADMITTED,
    COST,
    GOODPUT,
    TABLE,
    THROUGHPUT,
    TPOT_P99,
    TTFT_P99,
    Measure,
    in_words,
)
from reports.sweep_points import Point, merged, points_of
from reports.sweep_rank import ADMITTED as NO_CLOCK
from reports.sweep_rank import ALIKE, Objective, alike_best, keeps_up, objective_of, ranked
from reports.tables import limit_name
from simulator.admission import LABEL

LOADS = ("rate_rps", "on_rate_rps", "max_concurrency")
"""Last parts of the paths of axes on which more is more load."""

MEASURES = {measure.columns[0]: measure for measure in (GOODPUT, THROUGHPUT, TTFT_P99, ADMITTED)}
TELLING_COSTS = (TPOT_P99, TTFT_P99, COST, TABLE)
WORTH_NAMING = 1.2
WORTH_COMPARING = 0.8
"""A point that delivers less than this share of the best is no alternative, whatever it costs."""

LONGEST_VALUE = 40


@dataclass(frozen=True)
class Judged:
    """The points of a sweep and which of them are best: one, or one for each condition (load)."""

    sweep: SweepData
    points: list[Point]
    objective: Objective
    best: list[Point]


def judge(sweep: SweepData) -> Judged:
    """Compares the points: all with each other, or under each condition where the load is swept too."""
    points = merged(sweep, points_of(sweep))
    objective = objective_of(sweep, points)
    groups = [alike_best(group, objective) for group in _by_condition(sweep, points).values()]
    conditions = tuple(axis for axis in sweep.axes if axis.is_condition)
    often = Counter(place_words(sweep, point.place, less=conditions) for group in groups for point in group)

    def rank(point: Point) -> int:
        return -often[place_words(sweep, point.place, less=conditions)]

    best = [min(group, key=rank) if conditions else group[0] for group in groups if group]
    return Judged(sweep, points, objective, best)


def sweep_answer(judged: Judged) -> tuple[str, str]:
    """Two sentences."""
    conditions = [axis for axis in judged.sweep.axes if axis.is_condition]
    if not judged.best:
        return _nothing_ran(judged)
    if not conditions or not judged.sweep.axes:
        return _overall(judged), _binds(judged)
    load = next((axis for axis in conditions if axis.path.split(".")[-1] in LOADS and axis.numeric), None)
    if load is not None and len(conditions) == 1:
        return _by_load(judged, load), _binds(judged)
    return _by_conditions(judged, conditions), _binds(judged)


def place_words(sweep: SweepData, place: dict[str, Any], *, less: tuple[Axis, ...] = ()) -> str:
    """``paged, block_size 32``; settings that a point does not feel are left out."""
    parts = []
    for axis in sweep.axes:
        value = place.get(axis.path)
        if value is not None and axis not in less:
            parts.append(str(value) if axis.path == "variant" else f"{axis.label} {value_words(value)}")
    return ", ".join(parts)


def value_words(value: Any) -> str:
    """A value of an axis, short."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return plain(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def _nothing_ran(judged: Judged) -> tuple[str, str]:
    errors = Counter(point.error or "no numbers" for point in judged.points)
    error, count = errors.most_common(1)[0]
    total = len(judged.points)
    return f"None of the {total} points could be run.", f"The reason at {count} of them: {error.rstrip('.')}."


def _overall(judged: Judged) -> str:
    best = judged.best[0]
    measure = MEASURES[judged.objective.column]
    value = measure.value(best)
    assert value is not None  # it is ranked
    name = capital(place_words(judged.sweep, best.place) or "the only point")
    sentence = f"{name} is best with {_value_of(measure, value)}"
    others = [point for point in judged.points if point is not best and measure.value(point) is not None]
    if others:
        worst = ranked(others, judged.objective)[-1]
        sentence += _against(judged, best, worst, measure)
    return f"{sentence}; {_price(judged, best)}."


def _value_of(measure: Measure, value: float) -> str:
    """``3,952 output tokens/s``, ``a block table of 128 KiB``."""
    if measure is ADMITTED:
        return f"{measure.write(value)} {measure.title}"
    if measure is THROUGHPUT:
        return f"{measure.write(value)} output tokens/s"
    if measure is GOODPUT:
        return f"{measure.write(value)} requests/s within the SLO"
    return f"a {measure.title} of {in_words(measure, value)}"


def _against(judged: Judged, best: Point, worst: Point, measure: Measure) -> str:
    one, other = measure.value(best) or 0.0, measure.value(worst) or 0.0
    larger, smaller = max(one, other), min(one, other)
    if larger <= ALIKE * smaller:
        return f", and no point differs by more than {percent(larger / smaller - 1)} from it"
    if larger == smaller:
        return ", and every other point is equal"
    return f", against {in_words(measure, other)} at the worst point ({place_words(judged.sweep, worst.place)})"


def _price(judged: Judged, best: Point) -> str:
    """What the best costs beside points that deliver nearly as much."""
    column = judged.objective.column
    top = best.mean(column) or 0.0
    conditions = [axis.path for axis in judged.sweep.axes if axis.is_condition]
    rivals = [
        point
        for point in judged.points
        if point is not best
        and all(point.place[path] == best.place[path] for path in conditions)
        and (v := point.mean(column)) is not None
        and (v >= WORTH_COMPARING * top or top == 0)
    ]
    found: list[str] = []
    for measure in TELLING_COSTS:
        ours = measure.value(best)
        values = [(value, point) for point in rivals if (value := measure.value(point)) is not None]
        if ours is None or not values or measure.columns[0] == column:
            continue
        least, point = min(values, key=lambda pair: pair[0])
        if ours > WORTH_NAMING * least:
            rival = f"({in_words(measure, least)} with {place_words(judged.sweep, point.place)})"
            found.append(f"{_value_of(measure, ours)} {rival}")
    if not found:
        return "no point that delivers nearly as much is cheaper"
    return "its price: " + " and ".join(found[:2])


def _by_load(judged: Judged, load: Axis) -> str:
    """The largest load that each choice keeps up with."""
    carried: dict[str, float] = {}
    for point in judged.points:
        name = place_words(judged.sweep, point.place, less=(load,)) or "the server"
        carried.setdefault(name, 0.0)
        if keeps_up(point) and point.place[load.path] is not None:
            carried[name] = max(carried[name], float(point.place[load.path]))
    order = sorted(carried, key=lambda name: -carried[name])
    slo = " within the SLO" if "slo.met" in judged.sweep.columns else " without a growing backlog"
    top = [name for name in order if carried[name] == carried[order[0]]]
    if carried[order[0]] == 0:
        return f"No setting keeps up{slo}, not even with {load.label} {plain(min(load.values))}."
    words = f"{capital(' and '.join(top))} carr{'ies' if len(top) == 1 else 'y'} most: "
    words += f"up to {load.label} {plain(carried[order[0]])}{slo}"
    rest = [f"{name} {plain(carried[name])}" if carried[name] else f"{name} none of them" for name in order[len(top) :]]
    words += f", where the others carry {_listed(rest)}" if rest else ""
    at_most = next((point for point in judged.best if point.place[load.path] == carried[order[0]]), None)
    return f"{words}; there, {_price(judged, at_most)}." if rest and at_most is not None else f"{words}."


def _by_conditions(judged: Judged, conditions: list[Axis]) -> str:
    """How often each choice is best, and by how much."""
    less = tuple(conditions)
    measure = MEASURES[judged.objective.column]
    wins = Counter(place_words(judged.sweep, point.place, less=less) for point in judged.best)
    name, count = wins.most_common(1)[0]
    where = " and ".join(axis.label for axis in conditions)
    if not name:
        values = [(measure.value(point) or 0.0, point) for point in judged.points if measure.value(point) is not None]
        (low, at_low), (high, at_high) = min(values, key=lambda p: p[0]), max(values, key=lambda p: p[0])
        return (
            f"The {measure.title} range from {in_words(measure, low)} ({place_words(judged.sweep, at_low.place)}) to "
            f"{in_words(measure, high)} ({place_words(judged.sweep, at_high.place)})."
        )
    gains: list[tuple[float, str, Point]] = []
    for best in judged.best:
        group = [p for p in judged.points if all(p.place[a.path] == best.place[a.path] for a in conditions)]
        worst = ranked(group, judged.objective)[-1]
        one, other = measure.value(best), measure.value(worst)
        if place_words(judged.sweep, best.place, less=less) == name and one and other and best is not worst:
            others = tuple(axis for axis in judged.sweep.axes if axis not in conditions)
            at = place_words(judged.sweep, best.place, less=others)
            gains.append((max(one, other) / min(one, other), f"{at}: {_pair(judged, measure, best, worst)}", best))
    words = f"{capital(name)} is best at {count} of the {len(judged.best)} values of {where}"
    if not gains:
        return words + "."
    most = max(gains, key=lambda gain: gain[0])
    least = min(gains, key=lambda gain: gain[0])
    spread = "" if most[1] == least[1] else f", and least at {least[1]}"
    return f"{words}, most at {most[1]}{spread}; {_price(judged, most[2])}."


def _pair(judged: Judged, measure: Measure, best: Point, worst: Point) -> str:
    one, other = measure.value(best), measure.value(worst)
    assert one is not None and other is not None
    return f"{measure.write(one)} against {measure.write(other)} {judged.objective.unit}"


def _binds(judged: Judged) -> str:
    """Which limit holds at the best, and elsewhere."""
    ran = [point for point in judged.points if point.ran]
    limits = Counter(limit for point in ran for limit in point.texts("binding_limit")[:1])
    if not limits:
        return "Nothing was measured that could bind."
    if judged.objective is NO_CLOCK:
        counts = _listed([f"{limit_name(limit)} at {count}" for limit, count in limits.most_common()])
        return f"What ends admission: {counts} of the {len(ran)} points; this is {LABEL}."
    if len(judged.best) > 1:
        counts = _listed([f"{limit_name(limit)} at {count}" for limit, count in limits.most_common()])
        return f"Of the {len(ran)} points, these limits bind: {counts}."
    best = judged.best[0]
    limit = best.texts("binding_limit")[0]
    shares = {name: best.mean(f"wait_shares.{name}") for name in ("kv_memory", "max_num_seqs", "token_budget")}
    sentence = f"There {binding_words({'binding_limit': limit, 'wait_shares': shares})}"
    same = limits[limit]
    if same == len(ran):
        return f"{sentence}, and the same limit binds at every other point." if len(ran) > 1 else f"{sentence}."
    rest = [f"{limit_name(name)} at {count}" for name, count in limits.most_common() if name != limit]
    return f"{sentence}; it is the limit at {same} of the {len(ran)} points, {_listed(rest)}."


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _by_condition(sweep: SweepData, points: list[Point]) -> dict[tuple[Any, ...], list[Point]]:
    paths = [axis.path for axis in sweep.axes if axis.is_condition]
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(tuple(point.place[path] for path in paths), []).append(point)
    return groups

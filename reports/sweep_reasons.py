"""Why a sweep came out as it did: the best beside the worst, and what small blocks trade."""

from __future__ import annotations

from reports.numbers import plain
from reports.sweep_answer import Judged, place_words
from reports.sweep_measures import INTERNAL, LOOKUPS, PREEMPTIONS, RUNNING, TABLE, WASTE
from reports.sweep_points import Point
from reports.sweep_rank import alike_best, ranked

MOST_NAMES = 6


def sweep_reasons(judged: Judged) -> list[str]:
    """Sentences, before the sweep's own findings."""
    return [*_ties(judged), *_beside_the_worst(judged), *_trade(judged)]


def _ties(judged: Judged) -> list[str]:
    """Which points are as good as the best, and why they are not called so."""
    if len(judged.best) != 1 or any(axis.is_condition for axis in judged.sweep.axes):
        return []
    good = alike_best(judged.points, judged.objective)
    alike = [point for point in judged.points if point in good and point is not judged.best[0]]
    if not alike:
        return []
    names = [place_words(judged.sweep, point.place) for point in alike[:MOST_NAMES]]
    more = f" and {len(alike) - MOST_NAMES} more" if len(alike) > MOST_NAMES else ""
    return [
        f"As good within 1 %: {'; '.join(names)}{more}. Of points that are alike, the one with the smaller price, "
        "block table, pool or latency, in this order, is called best."
    ]


def _beside_the_worst(judged: Judged) -> list[str]:
    """What the best holds and wastes against the worst: where loads are swept, at the load where they differ most."""
    pairs = []
    conditions = [axis.path for axis in judged.sweep.axes if axis.is_condition]
    for best in judged.best:
        group = [p for p in judged.points if all(p.place[path] == best.place[path] for path in conditions)]
        worst = ranked(group, judged.objective)[-1]
        one, other = RUNNING.value(best), RUNNING.value(worst)
        if worst is not best and one and other:
            pairs.append((max(one, other) / min(one, other), best, worst))
    if not pairs:
        return []
    _, best, worst = max(pairs, key=lambda pair: pair[0])
    parts = []
    if RUNNING.text(best) != RUNNING.text(worst):
        parts.append(f"{RUNNING.text(best)} requests run at once on average, against {RUNNING.text(worst)}")
    if WASTE.value(best) is not None and WASTE.text(best) != WASTE.text(worst):
        parts.append(f"{WASTE.text(best)} of the KV pool is reserved or wasted, against {WASTE.text(worst)}")
    if PREEMPTIONS.value(best) or PREEMPTIONS.value(worst):
        parts.append(f"there are {PREEMPTIONS.text(best)} preemptions, against {PREEMPTIONS.text(worst)}")
    if not parts:
        return []
    names = f"With {place_words(judged.sweep, best.place)} beside {place_words(judged.sweep, worst.place)}"
    return [f"{names}: {'; '.join(parts)}."]


def _trade(judged: Judged) -> list[str]:
    """The ends of a block-size axis: waste inside blocks against the table that finds them."""
    axis = next((one for one in judged.sweep.axes if one.path.endswith("block_size") and one.numeric), None)
    if axis is None:
        return []
    groups: dict[str, list[Point]] = {}
    for point in judged.points:
        if point.place[axis.path] is not None and TABLE.value(point):
            groups.setdefault(place_words(judged.sweep, point.place, less=(axis,)), []).append(point)
    out = []
    for name, points in groups.items():
        points.sort(key=lambda point: point.place[axis.path])
        first, last = points[0], points[-1]
        if first is last:
            continue
        who = f"{name}: " if name else ""
        ends = f"from {axis.label} {plain(first.place[axis.path])} to {plain(last.place[axis.path])}"
        out.append(
            f"{who}{ends} the waste inside blocks goes from {INTERNAL.text(first)} to {INTERNAL.text(last)} of the "
            f"pool, the block table from {TABLE.text(first)} to {TABLE.text(last)}, and the entries of it that a step "
            f"reads from {LOOKUPS.text(first)} to {LOOKUPS.text(last)}."
        )
    return out[:3]

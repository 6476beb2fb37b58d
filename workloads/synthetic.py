"""Synthetic workloads: when each request or session starts, of which class it is, how long it is, what it shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from workloads.arrival_times import arrival_times
from workloads.arrivals import Arrivals, ClosedLoop, Gamma, Poisson, requested_rate_rps
from workloads.class_shares import class_by_weight
from workloads.config import WorkloadConfig
from workloads.errors import WorkloadError
from workloads.lengths import Lengths, Lognormal, Pairs, draw_lengths, expected_tokens
from workloads.mixes import ClassConfig
from workloads.pairs import draw_pairs
from workloads.prefixes import SharedPrefix, draw_groups, draw_prefix_tokens
from workloads.prompt_segments import PromptSegments
from workloads.sessions import Sessions, draw_think_ps
from workloads.workload import IntColumn, RequestClass, Workload

_T = TypeVar("_T")
_Streams = Callable[[str], np.random.Generator]


@dataclass(frozen=True)
class _Law(Generic[_T]):
    """A law, the name of the stream it draws from, and its dotted path."""

    law: _T
    stream: str
    where: str


@dataclass(frozen=True)
class _Part:
    """A class with everything it inherits filled in; each law with its stream's name and its dotted path."""

    name: str
    priority: int
    prompt: _Law[Lengths] | None
    output: _Law[Lengths] | None
    pairs: _Law[Pairs] | None
    prefix: _Law[SharedPrefix] | None
    session: _Law[Sessions] | None


@dataclass(frozen=True)
class _Openings:
    """Arrivals of requests, or of sessions where the class has them: time and class of each, by time."""

    times_ps: IntColumn
    classes: IntColumn


def synthesize(config: WorkloadConfig, streams: _Streams, *, base_dir: Path | None, where: str) -> Workload:
    """The workload of a checked configuration without a trace."""
    parts = _parts(config, where)
    opened = _openings(config, streams, where)
    if not len(opened.times_ps):
        raise WorkloadError("no request arrives", where=where, remedy="raise duration_s or the rate")
    opening_of_row, turn = _turns(parts, opened, streams, config.num_requests)
    class_index = opened.classes[opening_of_row]
    new, output = _draw_lengths(parts, class_index, streams, base_dir)
    groups, prefix_tokens = _draw_prefixes(parts, opened.classes, streams)

    prefix_of_row = prefix_tokens[opening_of_row]
    prompt = prefix_of_row + _history(new, output, turn) + new
    kept = _within_context(parts, class_index, turn, prompt + output)
    if config.num_requests is not None:
        kept &= np.cumsum(kept) <= config.num_requests
    rows = np.flatnonzero(kept)
    if config.num_requests is not None and config.duration_s is None and len(rows) < config.num_requests:
        raise WorkloadError(
            f"the arrivals end after {len(rows)} of {config.num_requests} requests",
            where=f"{where}.num_requests",
            remedy=f"ask for {len(rows)} requests, or let one of the processes last longer",
        )
    turn, class_index, opening_of_row = turn[rows], class_index[rows], opening_of_row[rows]
    segments = None
    if np.any(turn > 0) or np.any(groups >= 0):
        names = [f"prefix:{part.name}" for part in parts]
        group = groups[opening_of_row]
        segments = PromptSegments(new[rows], output[rows], turn, group, prefix_of_row[rows], class_index, names)
    law = config.arrivals
    return Workload(
        arrival_ps=opened.times_ps[opening_of_row],
        prompt_tokens=prompt[rows],
        output_tokens=output[rows],
        class_index=class_index,
        priority=np.array([part.priority for part in parts], dtype=np.int64)[class_index],
        after=np.where(turn > 0, np.arange(len(rows)) - 1, -1).astype(np.int64),
        think_ps=_think(parts, class_index, turn, streams),
        classes=tuple(RequestClass(c.name, c.slo) for c in config.classes) or (RequestClass(),),
        segments=segments,
        max_concurrency=law.max_concurrency if isinstance(law, ClosedLoop) else config.max_concurrency,
        requested_rate_rps=_requested(config),
        burstiness=_burstiness(config),
        notes=_notes(parts),
    )


def _parts(config: WorkloadConfig, where: str) -> list[_Part]:
    if not config.classes:
        return [_part(config, config, "workload", where, where)]
    return [
        _part(config, part, f"workload.classes.{part.name}", where, f"{where}.classes.{i}")
        for i, part in enumerate(config.classes)
    ]


def _part(
    config: WorkloadConfig, part: WorkloadConfig | ClassConfig, stream: str, common_where: str, own_where: str
) -> _Part:
    def own_or_common(name: str) -> _Law[Any] | None:
        if (own := getattr(part, name)) is not None:
            return _Law(own, f"{stream}.{name}", f"{own_where}.{name}")
        common = getattr(config, name)
        return None if common is None else _Law(common, f"workload.{name}", f"{common_where}.{name}")

    has_own_lengths = part.prompt_tokens is not None or part.output_tokens is not None
    pairs = None if has_own_lengths else own_or_common("lengths")
    return _Part(
        name=part.name if isinstance(part, ClassConfig) else "default",
        priority=part.priority,
        prompt=None if pairs else own_or_common("prompt_tokens"),
        output=None if pairs else own_or_common("output_tokens"),
        pairs=pairs,
        prefix=own_or_common("prefix"),
        session=own_or_common("session"),
    )


def _openings(config: WorkloadConfig, streams: _Streams, where: str) -> _Openings:
    """All processes laid over each other; with ``num_requests`` the first of the union."""
    sources: list[tuple[Arrivals, str, str, list[int], int | None]] = []
    sharing = [i for i, c in enumerate(config.classes) if c.arrivals is None]
    if sharing or not config.classes:
        assert config.arrivals is not None  # check_workload saw to it
        sources.append((config.arrivals, "workload.arrivals", f"{where}.arrivals", sharing, config.num_requests))
    for i, part in enumerate(config.classes):
        if part.arrivals is not None:
            count = part.num_requests if part.num_requests is not None else config.num_requests
            at = f"{where}.classes.{i}.arrivals"
            sources.append((part.arrivals, f"workload.classes.{part.name}.arrivals", at, [i], count))

    times, classes = [], []
    for law, stream, at, members, count in sources:
        drawn = arrival_times(
            law, streams(stream), count=count, duration_s=config.duration_s, where=at, may_end=len(sources) > 1
        )
        times.append(drawn)
        classes.append(_members(config, members, len(drawn), streams))
    all_times, all_classes = np.concatenate(times), np.concatenate(classes)
    order = np.argsort(all_times, kind="stable")[: config.num_requests]
    return _Openings(all_times[order], all_classes[order])


def _members(config: WorkloadConfig, members: list[int], n: int, streams: _Streams) -> IntColumn:
    """The class of each arrival of one process, by weight; one number an arrival from a stream of its own."""
    if len(members) <= 1:
        return np.full(n, members[0] if members else 0, dtype=np.int64)
    weights = [1.0 if (w := config.classes[i].weight) is None else w for i in members]
    picked = class_by_weight(weights, n, streams("workload.class"))
    return np.array(members, dtype=np.int64)[picked]


def _turns(
    parts: list[_Part], opened: _Openings, streams: _Streams, num_requests: int | None
) -> tuple[IntColumn, IntColumn]:
    """Per row: which opening it belongs to, and its turn (0 for the first)."""
    n = len(opened.times_ps)
    count = np.ones(n, dtype=np.int64)
    capped = False
    for i, part in enumerate(parts):
        if part.session is not None:
            session, mine = part.session.law, opened.classes == i
            count[mine] = draw_lengths(session.turns, streams(f"{part.session.stream}.turns"), n)[mine]
            capped |= session.max_context_tokens is not None
    if num_requests is not None and not capped:
        # Sessions beyond the last row that is asked for need not be drawn.
        enough = int(np.searchsorted(np.cumsum(count), num_requests)) + 1
        count = count[:enough]
    opening = np.repeat(np.arange(len(count), dtype=np.int64), count)
    first = np.cumsum(count) - count
    return opening, np.arange(len(opening), dtype=np.int64) - first[opening]


def _draw_lengths(
    parts: list[_Part], class_index: IntColumn, streams: _Streams, base_dir: Path | None
) -> tuple[IntColumn, IntColumn]:
    """New prompt tokens and output tokens of each row. Each class draws for every row and keeps its own.

    So the length of row i depends on its class and on i alone, not on how many of the others came before.
    """
    n = len(class_index)
    prompt, output = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for i, part in enumerate(parts):
        mine = class_index == i
        if part.pairs is not None:
            pairs = part.pairs
            both = draw_pairs(pairs.law, streams(pairs.stream), n, base_dir=base_dir, where=pairs.where)
            prompt[mine], output[mine] = both[mine, 0], both[mine, 1]
        else:
            assert part.prompt is not None and part.output is not None  # check_workload saw to it
            for column, one in ((prompt, part.prompt), (output, part.output)):
                drawn = draw_lengths(one.law, streams(one.stream), n, base_dir=base_dir, where=one.where)
                column[mine] = drawn[mine]
    return prompt, output


def _draw_prefixes(parts: list[_Part], classes: IntColumn, streams: _Streams) -> tuple[IntColumn, IntColumn]:
    """Per opening: its prefix group or -1, and that prefix's tokens or 0."""
    groups = np.full(len(classes), -1, dtype=np.int64)
    tokens = np.zeros(len(classes), dtype=np.int64)
    for i, part in enumerate(parts):
        if part.prefix is not None:
            prefix, stream = part.prefix.law, part.prefix.stream
            mine = classes == i
            groups[mine] = draw_groups(prefix, streams(f"{stream}.group"), len(classes))[mine]
            of_group = draw_prefix_tokens(prefix, streams(f"{stream}.prefix_tokens"))
            has = mine & (groups >= 0)
            tokens[has] = of_group[groups[has]]
    return groups, tokens


def _history(new: IntColumn, output: IntColumn, turn: IntColumn) -> IntColumn:
    """Tokens of all earlier turns of the row's session: sum over j < turn of new_j + output_j."""
    before = np.cumsum(new + output) - (new + output)
    first_row = np.arange(len(turn)) - turn
    result: IntColumn = before - before[first_row]
    return result


def _within_context(parts: list[_Part], classes: IntColumn, turn: IntColumn, total: IntColumn) -> NDArray[np.bool_]:
    """Rows that their session still reaches. The total grows with the turn, so nothing follows a row left out."""
    kept = np.ones(len(classes), dtype=bool)
    for i, part in enumerate(parts):
        if part.session is not None and (cap := part.session.law.max_context_tokens) is not None:
            kept &= (classes != i) | (turn == 0) | (total <= cap)
    return kept


def _think(parts: list[_Part], classes: IntColumn, turn: IntColumn, streams: _Streams) -> IntColumn:
    think = np.zeros(len(classes), dtype=np.int64)
    for i, part in enumerate(parts):
        if part.session is not None:
            rng, mine = streams(f"{part.session.stream}.think"), (classes == i) & (turn > 0)
            think[mine] = draw_think_ps(part.session.law.think, rng, len(classes))[mine]
    return think


def _requested(config: WorkloadConfig) -> float | None:
    laws = [c.arrivals for c in config.classes if c.arrivals is not None]
    if len(laws) < len(config.classes) or not config.classes:
        assert config.arrivals is not None
        laws.append(config.arrivals)
    rates = [requested_rate_rps(law) for law in laws]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if len(known) == len(rates) else None


def _burstiness(config: WorkloadConfig) -> float | None:
    if any(c.arrivals is not None for c in config.classes):
        return None
    if isinstance(config.arrivals, Gamma):
        return config.arrivals.burstiness
    return 1.0 if isinstance(config.arrivals, Poisson) else None


def _notes(parts: list[_Part]) -> tuple[str, ...]:
    notes: dict[str, None] = {}
    for part in parts:
        for one in (part.prompt, part.output):
            if one is not None and isinstance(law := one.law, Lognormal):
                after = expected_tokens(law)
                if abs(after - law.mean) > 0.01 * law.mean:
                    notes[f"{one.stream}: mean {law.mean:g} is {after:.4g} after clipping to its min and max"] = None
        if part.session is not None:
            notes["arrivals are those of sessions; later turns follow the answers"] = None
    return tuple(notes)

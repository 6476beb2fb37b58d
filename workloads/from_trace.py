"""Workloads from a trace file: its lengths and identities, its times or other arrivals, and classes laid over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from workloads.arrival_times import arrival_times
from workloads.arrivals import Arrivals, ClosedLoop, Gamma, Poisson, Replay, requested_rate_rps
from workloads.class_shares import class_by_weight
from workloads.config import WorkloadConfig
from workloads.errors import WorkloadError
from workloads.measured import Measured
from workloads.traces.bench_json import rows_word
from workloads.traces.client_settings import ClientSettings
from workloads.traces.config import TraceConfig
from workloads.traces.facts import TraceFacts
from workloads.traces.load import Segments, TraceRows, load_trace
from workloads.workload import PS_PER_S, IntColumn, RequestClass, Workload

_Streams = Callable[[str], np.random.Generator]
_MAX_CLASSES = 100


def workload_from_trace(
    config: WorkloadConfig, trace: TraceConfig, streams: _Streams, *, base_dir: Path | None, where: str
) -> Workload:
    """The workload of a checked configuration with a trace.

    Raises:
        WorkloadError: the trace cannot be read, has no times where they are needed, or is shorter than asked for.
    """
    law = config.arrivals
    if isinstance(law, Replay) and law.time_scale != 1:
        trace = replace(trace, time_scale=law.time_scale)
    rows = load_trace(trace, base_dir=base_dir, where=f"{where}.trace")
    if config.num_requests is not None and config.num_requests > len(rows.lines):
        raise WorkloadError(
            f"{config.num_requests} requests are asked for, and the trace has {len(rows.lines)}",
            where=f"{where}.num_requests",
            remedy=f"ask for at most {len(rows.lines)}",
        )
    client = rows.client or ClientSettings()
    if law is None and rows.arrival_ps is None:
        law = client.arrivals
        if law is not None and trace.time_scale != 1:
            raise WorkloadError(
                "time_scale has no effect: the file gives the law of its arrivals, and no times",
                where=f"{where}.trace.time_scale",
                remedy="leave out time_scale, or set arrivals",
            )
    times = _times(config, law, rows, streams, where)
    n = len(times)
    if n == 0:
        raise WorkloadError("no request arrives", where=f"{where}.duration_s", remedy="raise duration_s")
    class_index, classes, class_notes = _classes(config, rows, n, streams, where)
    turn = rows.turn[:n] if rows.turn is not None else np.zeros(n, dtype=np.int64)
    drawn = law if law is not None and not isinstance(law, Replay) else client.arrivals
    priorities = np.array([c.priority for c in config.classes] or [config.priority], dtype=np.int64)
    priority = rows.priority[:n] if rows.priority is not None else None
    if priority is None:
        priority = priorities[class_index] if config.classes else np.full(n, config.priority, dtype=np.int64)
    return Workload(
        arrival_ps=times,
        prompt_tokens=rows.prompt_tokens[:n],
        output_tokens=rows.output_tokens[:n],
        class_index=class_index,
        priority=priority,
        after=np.where(turn > 0, np.arange(n) - 1, -1).astype(np.int64),
        think_ps=np.zeros(n, dtype=np.int64),
        classes=classes,
        request_ids=None if rows.request_ids is None else rows.request_ids[:n],
        segments=_first(rows.segments, n),
        max_concurrency=_concurrency(config, law, client),
        requested_rate_rps=None if drawn is None else requested_rate_rps(drawn),
        burstiness=drawn.burstiness if isinstance(drawn, Gamma) else 1.0 if isinstance(drawn, Poisson) else None,
        notes=(*rows.notes, *class_notes, *drop_notes(rows.facts)),
        trace=rows.facts,
        measured=None if rows.measured is None else _compared(rows.measured, config, trace, rows, n),
    )


def _concurrency(config: WorkloadConfig, law: Arrivals | None, client: ClientSettings) -> int | None:
    """Most requests in flight: as the scenario says, else as the measured client kept it."""
    if isinstance(law, ClosedLoop):
        return law.max_concurrency
    if config.max_concurrency is not None or config.arrivals is not None:
        return config.max_concurrency
    return client.max_concurrency


def _compared(measured: Measured, config: WorkloadConfig, trace: TraceConfig, rows: TraceRows, n: int) -> Measured:
    """What was measured, with what the scenario changes of the measured load."""
    differs = list(measured.differs)
    if n < len(rows.lines) + rows.left_out:
        differs.append(f"{n:,} of the {len(rows.lines) + rows.left_out:,} measured requests are sent")
    if config.arrivals is not None and not isinstance(config.arrivals, Replay):
        differs.append(f"arrivals are {config.arrivals.kind}, not those of the benchmark")
    if trace.time_scale != 1:
        differs.append(f"times are stretched by {trace.time_scale:g}")
    own = None if rows.client is None else _concurrency(WorkloadConfig(), rows.client.arrivals, rows.client)
    if config.max_concurrency is not None and config.max_concurrency != own:
        differs.append(f"max_concurrency is {config.max_concurrency}, and was {own or 'unlimited'}")
    if config.n > 1 or config.beam_width > 1:
        differs.append("each request asks for several answers")
    if measured.failed:
        differs.append(f"the load of {rows_word(measured.failed)} that did not succeed is missing here")
    return replace(measured, differs=tuple(differs))


def drop_notes(facts: TraceFacts) -> tuple[str, ...]:
    """One line for each reason that dropped rows, with the first lines by number."""
    notes = []
    for dropped in facts.dropped:
        first = ", ".join(f"{line}" + (f" ({shown})" if shown else "") for line, shown in dropped.examples[:3])
        more = ", ..." if dropped.count > 3 else ""
        rows = f"{dropped.count} of {facts.rows_read} rows"
        notes.append(f"trace: {rows} dropped: {dropped.reason}; {facts.row_name} {first}{more}")
    return tuple(notes)


def _times(config: WorkloadConfig, law: Arrivals | None, rows: TraceRows, streams: _Streams, where: str) -> IntColumn:
    """Arrival of each row that is used; the first ``len`` rows of the trace are."""
    most = config.num_requests if config.num_requests is not None else len(rows.lines)
    if law is None or isinstance(law, Replay):
        if rows.arrival_ps is None:
            raise WorkloadError(
                "the trace has lengths and no times",
                where=f"{where}.arrivals",
                remedy="set arrivals: {kind: poisson, rate_rps: 1}",
            )
        times = rows.arrival_ps[:most]
        return times if config.duration_s is None else times[times < round(config.duration_s * PS_PER_S)]
    turn = rows.turn[:most] if rows.turn is not None else np.zeros(most, dtype=np.int64)
    if isinstance(law, ClosedLoop) and np.any(turn > 0):
        raise WorkloadError(
            "sessions do not run in a closed loop",
            where=f"{where}.arrivals",
            remedy="use {kind: all_at_once}, or trace.turns: first",
        )
    opening = np.cumsum(turn == 0) - 1
    opened = arrival_times(
        law,
        streams("workload.arrivals"),
        count=int(opening[-1]) + 1,
        duration_s=config.duration_s,
        where=f"{where}.arrivals",
    )
    result: IntColumn = opened[opening[opening < len(opened)]]
    return result


def _classes(
    config: WorkloadConfig, rows: TraceRows, n: int, streams: _Streams, where: str
) -> tuple[IntColumn, tuple[RequestClass, ...], tuple[str, ...]]:
    """Class of each row: by the trace's own column, else by weight."""
    none = np.zeros(n, dtype=np.int64)
    if rows.class_names is not None:
        names = list(dict.fromkeys(rows.class_names[:n]))
        if config.classes:
            known = {c.name: i for i, c in enumerate(config.classes)}
            if missing := [name for name in names if name not in known]:
                raise WorkloadError(
                    f"the trace has rows of class {missing[0]!r}, which is not among the classes",
                    where=f"{where}.classes",
                    remedy=f"name the classes {', '.join(names[:10])}",
                )
            classes = tuple(RequestClass(c.name, c.slo) for c in config.classes)
        elif len(names) > _MAX_CLASSES:
            return none, (RequestClass(),), (f"the trace's class column has {len(names)} values; it is not used",)
        else:
            known = {name: i for i, name in enumerate(names)}
            classes = tuple(RequestClass(name) for name in names)
        return np.array([known[name] for name in rows.class_names[:n]], dtype=np.int64), classes, ()
    if not config.classes:
        return none, (RequestClass(),), ()
    weights = [1.0 if c.weight is None else c.weight for c in config.classes]
    picked = class_by_weight(weights, n, streams("workload.class"))
    if rows.turn is not None:  # a session is of one class: that of its first turn
        picked = picked[np.arange(n) - rows.turn[:n]]
    return picked, tuple(RequestClass(c.name, c.slo) for c in config.classes), ()


def _first(segments: Segments | None, n: int) -> Segments | None:
    """The first n rows; those made when asked for stay so."""
    if segments is None or n == len(segments):
        return segments
    return segments[:n] if isinstance(segments, list) else segments.first(n)

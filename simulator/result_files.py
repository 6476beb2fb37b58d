"""Writes the files of a result folder: whole or not at all, and the same bytes for the same run."""

from __future__ import annotations

import csv
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from simulator.csv_cells import Cells, floats, lines, quotients, texts, whole_numbers, words
from simulator.metrics_exact import ratio
from simulator.metrics_requests import RequestFacts
from simulator.metrics_timeline import STATE_COLUMNS, timeline
from simulator.run_log import NOT_YET, IntColumn, RunLog, Status
from workloads.workload import PS_PER_S

REQUESTS_CSV = [
    *("request_id", "class", "replica", "arrival_s", "prompt_tokens", "output_tokens"),
    *("scheduled_s", "first_token_s", "finish_s", "queue_ms", "ttft_ms", "tpot_ms", "e2el_ms"),
    *("preemptions", "cached_tokens", "status", "reason"),
]
TIMELINE_CSV = ["time_s", *STATE_COLUMNS, "kv_utilization"]
_ROWS_PER_WRITE = 20_000
_BYTES_PER_WRITE = 20_000_000
_STATUS = {Status.FINISHED: "finished", Status.REJECTED: "rejected", Status.UNFINISHED: "unfinished"}


@contextmanager
def whole_file(path: Path) -> Iterator[IO[str]]:
    """A text file that appears under its name only when it is complete; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        os.close(handle)
        with temporary.open("w", encoding="utf-8", newline="") as file:
            yield file
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole."""
    with whole_file(path) as file:
        file.write(text)


def json_text(value: Mapping[str, Any]) -> str:
    """JSON in the order of the keys; what is not a finite number becomes null, for JSON has no NaN."""
    return json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_json(value: Mapping[str, Any], path: Path) -> None:
    """Writes ``json_text`` whole."""
    write_text(path, json_text(value))


def write_requests_csv(log: RunLog, path: Path) -> None:
    """One row per request that arrived, by workload row, with the contract's columns; unknown cells are empty."""
    facts = RequestFacts.of(log)
    with whole_file(path) as file:
        file.write(",".join(REQUESTS_CSV) + "\n")
        for part in _blocks(log, len(facts)):
            file.write(lines(_request_cells(log, facts, part)).decode())


def _blocks(log: RunLog, rows: int) -> Iterator[slice]:
    """Rows that are written at once: fewer where a text is so long that a block would not stay small."""
    ids = () if log.workload.request_ids is None else log.workload.request_ids
    longest = max(map(len, log.reasons)) + max(map(len, ids), default=0)
    size = max(1, min(_ROWS_PER_WRITE, _BYTES_PER_WRITE // (longest + 1)))
    return (slice(first, first + size) for first in range(0, rows, size))


def _request_cells(log: RunLog, facts: RequestFacts, part: slice) -> list[Cells]:
    """The columns of REQUESTS_CSV."""
    table = {name: column[part] for name, column in facts.columns.items()}
    latency = {name: column[part] for name, column in facts.latency_ms.items()}
    ids, arrival = log.workload.request_ids, table["arrival_ps"]

    def seconds(name: str) -> Cells:
        return quotients(table[name], 12, table[name] != NOT_YET)

    def since_arrival(name: str, metric: str) -> Cells:
        known = ~np.isnan(latency[metric])
        return quotients(np.where(known, table[name] - arrival, 0), 9, known, latency[metric])

    return [
        whole_numbers(table["row"]) if ids is None else texts([ids[row] for row in table["row"].tolist()]),
        words(facts.class_index[part], [request_class.name for request_class in facts.classes]),
        whole_numbers(table["replica"]),
        seconds("arrival_ps"),
        whole_numbers(facts.prompt_tokens[part]),
        whole_numbers(table["generated_tokens"]),
        seconds("scheduled_ps"),
        seconds("first_token_ps"),
        seconds("finish_ps"),
        since_arrival("scheduled_ps", "queue"),
        since_arrival("first_token_ps", "ttft"),
        floats(latency["tpot"]),
        since_arrival("finish_ps", "e2el"),
        whole_numbers(table["preemptions"]),
        whole_numbers(table["cached_tokens"]),
        words(table["status"], [_STATUS[status] for status in Status]),
        words(table["reason"], log.reasons),
    ]


def _seconds(times_ps: IntColumn) -> list[float | None]:
    return [None if ps == NOT_YET else ps / PS_PER_S for ps in times_ps.tolist()]


def write_timeline_csv(log: RunLog, path: Path) -> None:
    """The state at no more than 1,000 times, evenly over the run; see ``metrics_timeline``."""
    states = timeline(log)
    columns = [states.state[name].tolist() for name in STATE_COLUMNS]
    used = states.state["used_slots"].tolist()
    with whole_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(TIMELINE_CSV)
        shares = [ratio(slots, states.total_slots) for slots in used]
        writer.writerows(zip(_seconds(states.time_ps), *columns, shares, strict=True))

"""``requests.csv`` is what ``csv.writer`` makes of the rows, one by one."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from simulator import result_files
from simulator.allocators.pools import PagedPool
from simulator.cluster import simulate
from simulator.result_files import REQUESTS_CSV, write_requests_csv
from simulator.run_log import NOT_YET, RunLog, Status
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from workloads.workload import RequestClass, Workload

S = 10**12
IDS = ["plain", "a,b", 'say "so"', "", "é\nü", "7", "x" * 300, "z"]


def run() -> RunLog:
    """Some finish, one is rejected, some are left; one arrives after 2.6 hours, where doubles are wider than a ps."""
    workload = Workload.from_columns(
        [0, 1, 2, 77_000, S // 3, 2 * S, 9400 * S + 1, 9400 * S + 7],
        [40, 90, 8, 1, 500, 30, 17, 300],
        [1, 40, 2, 30, 9, 30, 3, 50],
        class_index=[0, 1] * 4,
        classes=(RequestClass("chat"), RequestClass("a, b")),
        request_ids=IDS,
    )
    engine = EngineConfig(400, 3, 256)
    return simulate(workload, engine, PagedPool(40, 16), LinearStepTime(7_123_456_789, 1_000_003, 0), max_steps=110)


def by_rows(log: RunLog) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(REQUESTS_CSV)
    table = log.request_columns()
    work = log.workload
    for i, row in enumerate(table["row"].tolist()):
        at = {name: int(column[i]) for name, column in table.items()}
        arrival, scheduled, first, finish = (
            at[f"{name}_ps"] for name in ("arrival", "scheduled", "first_token", "finish")
        )
        ended, tokens = at["status"] == Status.FINISHED, at["generated_tokens"]
        writer.writerow(
            [
                work.request_id(row),
                work.classes[work.class_index[row]].name,
                at["replica"],
                arrival / S,
                work.prompt_tokens[row],
                tokens,
                *(None if t == NOT_YET else t / S for t in (scheduled, first, finish)),
                (scheduled - arrival) / 10**9 if ended else None,
                (first - arrival) / 10**9 if ended else None,
                (finish - first) / 10**9 / (tokens - 1) if ended and tokens > 1 else None,
                (finish - arrival) / 10**9 if ended else None,
                at["preemptions"],
                at["cached_tokens"],
                Status(at["status"]).name.lower(),
                log.reasons[at["reason"]],
            ]
        )
    return text.getvalue().encode()


@pytest.mark.parametrize("bytes_at_once", [20_000_000, 1000, 1])
def test_every_cell_is_as_python_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_at_once: int) -> None:
    monkeypatch.setattr(result_files, "_BYTES_PER_WRITE", bytes_at_once)
    log = run()
    assert set(log.request_columns()["status"].tolist()) == {Status.FINISHED, Status.REJECTED, Status.UNFINISHED}
    write_requests_csv(log, tmp_path / "requests.csv")
    assert (tmp_path / "requests.csv").read_bytes() == by_rows(log)

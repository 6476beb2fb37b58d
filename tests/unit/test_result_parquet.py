"""Parquet holds what the CSV holds, and is not missed where it cannot be written."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from simulator import result_parquet
from simulator.result_files import write_requests_csv
from simulator.result_parquet import COUNTS, TEXT, write_requests_parquet
from tests.unit.test_cluster import MS, served
from workloads.workload import RequestClass, Workload


@pytest.fixture
def requests_csv(tmp_path: Path) -> Path:
    """Finished and rejected rows, with a name that looks like a number and one that needs quotes."""
    workload = Workload.from_columns(
        [0, MS, 2 * MS],
        [4, 70, 9],
        [3, 1, 1],
        classes=(RequestClass("a, b"),),
        request_ids=["007", 'say "hi"', "x"],
    )
    path = tmp_path / "requests.csv"
    write_requests_csv(served(workload), path)
    return path


def test_parquet_holds_the_rows_of_the_csv(requests_csv: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra [parquet]")
    path = write_requests_parquet(requests_csv)
    assert path == requests_csv.with_suffix(".parquet")
    table = parquet.read_table(path)
    with requests_csv.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert table.num_rows == len(rows) == 3
    for name in table.column_names:
        for cell, text in zip(table[name].to_pylist(), (row[name] for row in rows), strict=True):
            if name in TEXT:
                assert cell == text
            elif text == "":
                assert cell is None
            else:
                assert cell == (int(text) if name in COUNTS else float(text))
    assert [p.name for p in requests_csv.parent.iterdir() if p.name.startswith(".")] == []
    first = path.read_bytes()
    write_requests_parquet(requests_csv)
    assert path.read_bytes() == first


def test_without_pyarrow_there_is_only_the_csv(requests_csv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_parquet, "find_spec", lambda name: None)
    assert write_requests_parquet(requests_csv) is None
    assert not requests_csv.with_suffix(".parquet").exists()

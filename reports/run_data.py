"""Reads the files of a finished run, and nothing else: what ``kvplan report`` redraws from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reports.tables import runs_of
from simulator.errors import InputError

Column = NDArray[np.float64]
LATENCY_COLUMNS = ("ttft_ms", "tpot_ms", "e2el_ms")


@dataclass(frozen=True)
class RunData:
    """One run: its ``result.json``, the columns of its ``timeline.csv``, and the latencies of ``requests.csv``.

    Both are empty for ``mode: admission``, which has no clock.
    """

    name: str
    result: dict[str, Any]
    timeline: dict[str, Column]
    latencies: dict[str, Column]


def load_result(folder: Path) -> dict[str, Any]:
    """``result.json`` of a folder. Raises InputError where it is missing or broken."""
    path = folder / "result.json"
    if not path.is_file():
        raise InputError(
            "is not the folder of a finished run: it has no result.json",
            where=str(folder),
            remedy="give the folder that `kvplan run` named in its last line, such as out/quickstart",
        )
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", where=str(path), remedy="run the scenario again") from None
    if not isinstance(result, dict):
        raise InputError("holds no result", where=str(path), remedy="run the scenario again")
    return result


def load_runs(folder: Path, result: dict[str, Any]) -> list[RunData]:
    """Every run of a result folder; the files of a variant stand in a folder of its name."""
    variants = "variants" in result
    return [_load(folder / name if variants else folder, name, run) for name, run in runs_of(result).items()]


def _load(folder: Path, name: str, run: dict[str, Any]) -> RunData:
    if "admitted" in run:
        return RunData(name, run, {}, {})
    return RunData(name, run, _columns(folder / "timeline.csv"), _columns(folder / "requests.csv", LATENCY_COLUMNS))


def _columns(path: Path, names: tuple[str, ...] | None = None) -> dict[str, Column]:
    import pandas as pd

    if not path.is_file():
        raise InputError("is missing", where=str(path), remedy="run the scenario again")
    table = pd.read_csv(path, usecols=None if names is None else list(names))
    return {str(name): table[name].to_numpy(dtype=np.float64) for name in table.columns}

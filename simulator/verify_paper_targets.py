"""The PagedAttention paper's published numbers: read from a table of a user's, or those that the paper prints.

A row says what was measured (figure, system, model_hw, dataset, metric, x) and what came out (value). A prediction is
made from the former alone; see ``verify_paper_questions``.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from simulator.errors import InputError

COLUMNS = ("figure", "system", "model_hw", "dataset", "metric", "x", "value", "unit")
_NUMBER = re.compile(r"^[<>~]?\s*(\d+(?:\.\d+)?)\s*(K?)$")
_RANGE = re.compile(r"^(\d+(?:\.\d+)?)\s*-\s*(\d+(?:\.\d+)?)$")


@dataclass(frozen=True)
class Asked:
    """What a row asks: everything but the answer. ``line``: where it stands in its file."""

    figure: str
    system: str
    model_hw: str
    dataset: str
    metric: str
    x: str
    unit: str
    line: int


@dataclass(frozen=True)
class Target:
    """A row with its answer: a number (low = high), a range, or None where there is none that can be compared."""

    asked: Asked
    low: float | None
    high: float | None
    text: str


def read_targets(path: Path) -> list[Target]:
    """The rows of a CSV file with (at least) ``COLUMNS``.

    Raises:
        InputError: the file is missing, is not such a table, or has no row.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError(
                    f"has no column {', '.join(missing)}",
                    where=str(path),
                    remedy=f"give a table with the columns {','.join(COLUMNS)}",
                )
            targets = [_target(row, reader.line_num) for row in reader]
    except FileNotFoundError:
        raise InputError("is not there", where=str(path), remedy="name the table of the paper's numbers") from None
    except (UnicodeDecodeError, csv.Error, IsADirectoryError) as error:
        raise InputError(f"is not a CSV table: {error}", where=str(path), remedy="name a CSV file") from None
    if not targets:
        raise InputError("has no row", where=str(path), remedy="name the table of the paper's numbers")
    return targets


def printed_targets() -> list[Target]:
    """The numbers that the paper itself prints, as a table of ours (see ``PRINTED``)."""
    names = ("figure", "system", "model_hw", "dataset", "metric", "x", "value", "unit")
    return [_target(dict(zip(names, row, strict=True)), place) for place, row in enumerate(PRINTED, start=1)]


def _target(row: dict[str, str], line: int) -> Target:
    cell = {name: (row.get(name) or "").strip() for name in COLUMNS}
    low, high = _value(cell["value"])
    asked = Asked(**{name: cell[name] for name in COLUMNS if name != "value"}, line=line)
    return Target(asked, low, high, cell["value"])


def _value(text: str) -> tuple[float | None, float | None]:
    """'15.7K' -> 15700 twice, '1.7-2.7' -> both ends, '-22' -> up to 22, words -> None."""
    if match := _NUMBER.match(text):
        number = float(match[1]) * (1000 if match[2] else 1)
        return number, number
    if match := _RANGE.match(text):
        return float(match[1]), float(match[2])
    if text.startswith("-") and (match := _NUMBER.match(text[1:])):
        return None, float(match[1])
    return None, None


_OPT = "OPT-13B 1xA100-40GB"
_SHARES = ("token_states", "reservation", "internal_frag", "external_frag_and_others")
_SPLIT = {
    "Orca (Max)": ("20.4", "13.3", "57.3", "8.9"),
    "Orca (Pow2)": ("26.8", "17.9", "13.6", "41.6"),
    "Orca (Oracle)": ("38.2", "25.2", "0", "36.6"),
    "vLLM": ("96.3",),
}
_BATCHED = {
    ("ShareGPT", "2 req/s"): {"Orca (Max)": "7.00", "Orca (Pow2)": "9.81", "Orca (Oracle)": "13.62", "vLLM": "30.42"},
    ("Alpaca", "30 req/s"): {"Orca (Max)": "7.00", "Orca (Pow2)": "43.24", "Orca (Oracle)": "72.75", "vLLM": "132.44"},
}
_TABLE_1 = {
    "OPT-13B 1xA100-40GB": ("26", "12", "15.7K"),
    "OPT-66B 4xA100-40GB": ("132", "21", "9.7K"),
    "OPT-175B 8xA100-80GB": ("346", "264", "60.1K"),
}
_SAVED = {
    "memory_saving_parallel_sampling": {"n=2": "6.09", "n=4": "8.53", "n=6": "9.79"},
    "memory_saving_beam": {"beam=2": "37.56", "beam=4": "53.13", "beam=6": "55.16"},
}
_RATIOS = {"vs Orca (Oracle)": "1.7-2.7", "vs Orca (Max)": "2.7-8.0", "vs FasterTransformer": "-22"}
PRINTED: tuple[tuple[str, str, str, str, str, str, str, str], ...] = (
    *(
        ("Table 1", "vLLM", server, "", metric, "", value, "")
        for server, values in _TABLE_1.items()
        for metric, value in zip(("param_size_GB", "kv_cache_memory_GB", "max_kv_slots"), values, strict=True)
    ),
    ("sec 3", "OPT-13B", "per-token KV", "", "kv_bytes_per_token", "", "819200", "B"),
    *(
        ("Fig 2", system, _OPT, "ShareGPT", metric, "", value, "% of KV cache")
        for system, values in _SPLIT.items()
        for metric, value in zip(_SHARES, values, strict=False)
    ),
    *(
        ("Fig 13", system, _OPT, dataset, "avg_batched_requests", rate, value, "requests")
        for (dataset, rate), values in _BATCHED.items()
        for system, value in values.items()
    ),
    *(
        ("Fig 12 text", "vLLM", "all", "ShareGPT", "sustained_rate_ratio", against, value, "x")
        for against, value in _RATIOS.items()
    ),
    *(
        ("Fig 15", "vLLM", "OPT-13B", "Alpaca", metric, x, value, "%")
        for metric, values in _SAVED.items()
        for x, value in values.items()
    ),
)
"""Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", SOSP 2023
(arXiv:2309.06180): Table 1, section 3, the labels of Fig. 2, 13 and 15, and the text of section 6.2."""

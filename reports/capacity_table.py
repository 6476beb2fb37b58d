"""The ranked table of a capacity search: one list of columns for the terminal, the page and Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reports.capacity_data import PLACE, Limited, Row, serves
from reports.numbers import MISSING, fixed, percent, short, whole
from reports.tables import limit_name

FEW_ROWS = 24
"""Up to here the first table holds every candidate."""

REFUSED_ROWS = 8
LONGEST_REASON = 160
REMEDY = " (what would work"
UNCONFIRMED = " ~"
SURE_WORDS = (
    "~: not simulated whole, for it cannot be cheaper than the answer; its size is that of one replica's knee, and its "
    "latencies and tokens/s per user are those at that knee."
)
USUAL = (Limited("p99_ttft_ms", 0.0), Limited("p99_tpot_ms", 0.0))
"""Latencies that are shown where none is limited."""
STATUS_WORDS = {
    "does_not_fit": "does not fit",
    "slo_unreachable": "misses the SLO",
    "bad_input": "bad input",
    "over_budget": "over the budget",
    "too_slow": "too slow",
    "failed": "failed",
}


@dataclass(frozen=True)
class Column:
    """A column: its head with the unit, a short head for the terminal, its value in a row and how it is written.

    Attributes:
        words: text, so it stands to the left.
    """

    head: str
    brief: str
    value: Callable[[Row], Any]
    write: Callable[[Any], str]
    words: bool = False


@dataclass(frozen=True)
class Cell:
    """What a cell shows, and what it is sorted by."""

    text: str
    value: Any


@dataclass(frozen=True)
class TableRow:
    """A candidate that serves: its rank, as a number too, and the cells of ``Table.columns``.

    ``sure``: the deployment was simulated whole, not sized by one replica's knee.
    """

    rank: str
    order: int
    name: str
    cells: list[Cell]
    best: bool
    sure: bool


@dataclass(frozen=True)
class Refused:
    """A candidate that does not serve, and why: on one line, and in full."""

    rank: str
    name: str
    why: str
    reason: str


@dataclass(frozen=True)
class Table:
    """Candidates, best first; ``left_out`` and ``refused_left_out``: how many of each kind it does not show."""

    columns: list[Column]
    rows: list[TableRow]
    refused: list[Refused]
    left_out: int = 0
    refused_left_out: int = 0

    @property
    def footnote(self) -> str:
        """What the sign behind a name means; empty where no name has it."""
        return "" if all(row.sure for row in self.rows) else SURE_WORDS


def ranked_table(rows: list[Row], answer: Row, limits: tuple[Limited, ...], swept: tuple[str, ...] = ()) -> Table:
    """Every candidate, best first."""
    served = [row for row in rows if serves(row)]
    columns = [
        column for column in _columns(answer, limits, swept) if any(column.value(row) is not None for row in served)
    ]
    named = answer.get("winner") or {}
    winner = named.get("candidate") if isinstance(named, dict) else named
    good: list[TableRow] = []
    refused: list[Refused] = []
    for place, row in enumerate(rows):
        order = place + 1 if row.get("rank") is None else int(row["rank"])
        if serves(row):
            cells = [Cell(_text(column, row), column.value(row)) for column in columns]
            good.append(
                TableRow(
                    whole(order),
                    order,
                    row["candidate"],
                    cells,
                    row["candidate"] == winner,
                    row.get("confirmed") is not False,
                )
            )
        else:
            refused.append(Refused(whole(order), row["candidate"], why_not(row), str(row.get("reason") or "")))
    return Table(columns, good, refused)


def shortened(table: Table) -> Table:
    """The best, and the first of those that do not serve, where there are too many for a first look."""
    if len(table.rows) + len(table.refused) <= FEW_ROWS:
        return table
    refused = table.refused[: max(REFUSED_ROWS, FEW_ROWS - len(table.rows))]
    rows = table.rows[: FEW_ROWS - len(refused)]
    if len(rows) < len(table.rows):
        rows += [row for row in table.rows[len(rows) :] if row.best]
    return Table(table.columns, rows, refused, len(table.rows) - len(rows), len(table.refused) - len(refused))


def why_not(row: Row, longest: int = LONGEST_REASON) -> str:
    """Why a candidate does not serve, on one line: ``does not fit: the weights take ...``."""
    status = str(row.get("status") or "failed")
    words = STATUS_WORDS.get(status, "does not serve the rate" if status == "ok" else status)
    reason = PLACE.sub("", " ".join(str(row.get("reason") or "").split()))
    text = f"{words}: {reason}" if reason and not reason.lower().startswith(words) else reason or words
    if len(text) > longest:
        text = text.split(REMEDY)[0]
    return text if len(text) <= longest else text[: longest - 3].rsplit(" ", 1)[0] + " ..."


def setting_label(path: str) -> str:
    """The last part of a dotted key: ``max_num_seqs``."""
    return path.rpartition(".")[2]


def _columns(answer: Row, limits: tuple[Limited, ...], swept: tuple[str, ...]) -> list[Column]:
    rate = answer.get("rate_rps")
    columns = [Column(setting_label(path), setting_label(path), _key(path), _setting, words=True) for path in swept]
    columns += [
        Column("GPUs", "GPUs", _key("gpus"), whole),
        Column("USD per hour", "USD /h", _key("usd_per_hour"), fixed),
        Column("USD per M tokens", "USD /Mtok", _key("usd_per_million_tokens"), money),
        Column("knee (req/s)", "knee req/s", _key("knee_rps"), short),
    ]
    if rate:
        columns.append(Column("to spare", "to spare", lambda row: _share(row.get("headroom_rps"), rate), _spare))
    for limit in limits or USUAL:
        columns.append(Column(f"{limit.label} (ms)", f"{limit.label} ms", _key(limit.column), short))
    return [
        *columns,
        Column("tokens/s per user", "tok/s /user", _key("tokens_per_s_per_user"), short),
        Column("tokens/s per GPU", "tok/s /GPU", _key("tokens_per_s_per_gpu"), short),
        Column("KV pool (GiB/GPU)", "KV GiB /GPU", _key("kv_pool_gib_per_gpu"), short),
        Column("binding limit", "binds", _key("binding_limit"), limit_words, words=True),
    ]


def limit_words(limit: str) -> str:
    """What binds a deployment at its knee; where nobody waits to be admitted it is the latency of the steps alone."""
    return "latency" if limit == "arrivals" else limit_name(limit)


def money(value: float | None) -> str:
    """USD with cents, or three digits below one dollar: 12.34, 0.0932."""
    return short(value) if value is not None and abs(value) < 1 else fixed(value)


def _key(key: str) -> Callable[[Row], Any]:
    return lambda row: row.get(key)


def _share(value: Any, whole_rps: float) -> float | None:
    return None if value is None else value / whole_rps


def _spare(share: float) -> str:
    return percent(share, 0) if share >= 0 else f"-{percent(-share, 0)}"


def _setting(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _text(column: Column, row: Row) -> str:
    value = column.value(row)
    return MISSING if value is None else column.write(value)

"""What a sweep's table and plots show of each point: one list, with words, units and how values are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reports.numbers import MISSING, fixed, milliseconds, percent, plain, short, whole
from reports.sweep_points import Point

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Measure:
    """A sum of columns of ``points.csv``.

    Attributes:
        title: of a plot's panel and of a column; the unit stands apart.
        factor: from the columns' unit to the drawn one, such as 100 for a share in %.
        write: the value in the columns' unit, as text.
        heading: short words for the head of a table's column.
        none_at_zero: 0 says that there is no such thing, as a contiguous cache has no block table.
    """

    columns: tuple[str, ...]
    title: str
    unit: str
    write: Callable[[float], str]
    factor: float = 1.0
    heading: str = ""
    less_is_better: bool = False
    none_at_zero: bool = False

    def value(self, point: Point) -> float | None:
        """In the columns' unit; None where the point has none of them."""
        found = [value for column in self.columns if (value := point.mean(column)) is not None]
        total = sum(found) if found else None
        return None if self.none_at_zero and total == 0 else total

    def half_width(self, point: Point) -> float | None:
        """Of the 95 % interval over replications; of a sum nobody knows it."""
        return point.half_width(self.columns[0]) if len(self.columns) == 1 else None

    def text(self, point: Point, *, interval: bool = False) -> str:
        """As written in a table, with its interval where asked for."""
        value = self.value(point)
        if value is None:
            return MISSING
        half = self.half_width(point) if interval else None
        return f"{self.write(value)} ± {_two_digits(half)}" if half else self.write(value)

    @property
    def head(self) -> str:
        """Of a table's column."""
        return self.heading or self.label

    @property
    def label(self) -> str:
        """Title and unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


def size_of(value: float) -> str:
    """Bytes as KiB or MiB."""
    return f"{short(value / MIB)} MiB" if value >= MIB else f"{short(value / KIB)} KiB"


def _two_digits(value: float) -> str:
    return plain(float(f"{value:.1e}"))


def _count(value: float) -> str:
    return whole(int(value)) if value == int(value) else short(value)


def _latency(stat: str, name: str) -> Measure:
    words = {"ttft": "time to first token", "tpot": "time per output token"}[name]
    return Measure(
        (f"{stat}_{name}_ms",),
        f"{stat} {words}",
        "ms",
        short,
        heading=f"{name.upper()} {stat} (ms)",
        less_is_better=True,
    )


GOODPUT = Measure(("request_goodput",), "requests within the SLO", "requests/s", fixed, heading="within SLO (req/s)")
ADMITTED = Measure(("admitted",), "requests admitted", "", _count, heading="admitted")
USED = Measure(("used_share",), "allocated slots with a token", "% of them", percent, 100.0, "slots in use")
THROUGHPUT = Measure(("output_throughput",), "output tokens", "tokens/s", short, heading="output (tok/s)")
RUNNING = Measure(("mean_running",), "requests running at once, mean", "", short, heading="running")
PREEMPTIONS = Measure(("preemptions",), "preemptions", "", _count, heading="preempted", less_is_better=True)
TTFT_MEDIAN, TTFT_P99 = _latency("median", "ttft"), _latency("p99", "ttft")
TPOT_MEDIAN, TPOT_P99 = _latency("median", "tpot"), _latency("p99", "tpot")
RESERVED = Measure(("kv.reserved_share",), "reserved for tokens to come", "% of the pool", percent, 100.0)
INTERNAL = Measure(("kv.internal_fragmentation_share",), "internal waste", "% of the pool", percent, 100.0)
EXTERNAL = Measure(("kv.external_fragmentation_share",), "external waste", "% of the pool", percent, 100.0)
WASTE = Measure(
    (*RESERVED.columns, *INTERNAL.columns, *EXTERNAL.columns),
    "reserved or wasted",
    "% of the pool",
    percent,
    100.0,
    "reserved or wasted",
)
PEAK = Measure(("kv.peak_utilization",), "KV pool in use, at most", "% of the pool", percent, 100.0)
TABLE = Measure(("kv.block_table_bytes",), "block table", "KiB", size_of, 1 / KIB, "block table", True, True)
LOOKUPS = Measure(
    ("kv.mean_block_table_lookups_per_step",),
    "block table entries read in a step, mean",
    "",
    short,
    less_is_better=True,
    none_at_zero=True,
)
COST = Measure(("usd_per_million_output_tokens",), "cost per million output tokens", "USD", fixed)

LATENCIES = (TTFT_MEDIAN, TTFT_P99, TPOT_MEDIAN, TPOT_P99)
WITH_INTERVAL = (GOODPUT, ADMITTED, THROUGHPUT, TTFT_P99, TPOT_P99)
"""Whose intervals a table shows; those of all others stand in ``summary.csv``."""

IN_TABLE = (
    GOODPUT,
    ADMITTED,
    USED,
    THROUGHPUT,
    TTFT_MEDIAN,
    TTFT_P99,
    TPOT_MEDIAN,
    TPOT_P99,
    RUNNING,
    WASTE,
    PREEMPTIONS,
)


def in_words(measure: Measure, value: float) -> str:
    """A value with its unit, for sentences."""
    if measure.unit == "ms":
        return milliseconds(value)
    unit = "" if measure.unit.startswith(("%", "KiB")) or not measure.unit else f" {measure.unit}"
    return f"{measure.write(value)}{unit}"

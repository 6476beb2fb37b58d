"""What reading a trace found out: rows read and kept, and each reason why a row was dropped."""

from __future__ import annotations

from dataclasses import dataclass

NAMED_LINES = 20
"""Of each reason so many rows are named by line; the rest is counted."""


@dataclass(frozen=True)
class DroppedRows:
    """Rows dropped for one reason. ``examples``: (number from 1 of line or request, what the row says)."""

    reason: str
    count: int
    examples: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class TraceFacts:
    """Where a trace came from and what became of its rows.

    ``rows_read`` counts data rows (no header, no blank lines) up to where reading ended; ``block_size`` is the
    number of tokens of one entry of ``hash_ids``, None without such a column. ``row_name``: what the rows are
    numbered by, ``line`` or (where a file is one JSON document) ``request``.
    """

    path: str
    format: str
    rows_read: int
    rows_kept: int
    dropped: tuple[DroppedRows, ...] = ()
    block_size: int | None = None
    row_name: str = "line"

    @property
    def rows_dropped(self) -> int:
        """Rows read and not kept."""
        return sum(reason.count for reason in self.dropped)

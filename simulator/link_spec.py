"""What carries KV from one replica to another: a bandwidth and a latency."""

from __future__ import annotations

from dataclasses import dataclass

PS_PER_S = 10**12


@dataclass(frozen=True)
class LinkSpec:
    """One direction of a link. ``bytes_per_s`` may be infinite.

    ``latency_ps`` passes between asking for KV and its first byte, whatever its size.
    """

    name: str
    bytes_per_s: float
    latency_ps: int = 0
    source: str = ""

    def wire_ps(self, size_bytes: int) -> int:
        """For how long that many bytes take the link, rounded once to a picosecond."""
        return round(size_bytes / self.bytes_per_s * PS_PER_S)

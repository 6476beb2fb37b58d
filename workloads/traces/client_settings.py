"""How a benchmark tool sent its requests."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.arrivals import Arrivals


@dataclass(frozen=True)
class ClientSettings:
    """Settings of the client that a result file states.

    Attributes:
        arrivals: the law that the client drew its arrivals from; it is drawn anew where the file records no times.
            None where the file does not say.
        max_concurrency: at most so many requests were in flight, whatever the arrivals; None: no such limit.
    """

    arrivals: Arrivals | None = None
    max_concurrency: int | None = None

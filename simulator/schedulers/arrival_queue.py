"""A waiting queue in which everybody keeps the place of their arrival, preempted or not."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from simulator.request import Request


class ArrivalQueue(deque[Request]):
    """Order of arrival. ``seq`` is the number of the arrival, from 1, and stays with the request for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.arrivals = 0

    def add(self, request: Request) -> bool:
        """Queues an arrival; says whether it became the head."""
        self.arrivals = request.seq = self.arrivals + 1
        self.append(request)
        return len(self) == 1

    def put_back(self, request: Request) -> None:
        """Queues a preempted request where it stood."""
        self.insert(bisect_left(self, request.seq, key=lambda other: other.seq), request)

    def head(self) -> Request:
        return self[0]

    def pop(self) -> Request:  # type: ignore[override]
        return self.popleft()

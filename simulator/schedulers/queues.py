"""Waiting queues: first come first served, and by priority."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

from simulator.request import Request


class WaitingQueue(Protocol):
    """Who is next. Truthy while somebody waits."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]: ...

    def add(self, request: Request) -> bool:
        """Queues an arrival; says whether it became the head."""
        ...

    def put_back(self, request: Request) -> None:
        """Queues a preempted request."""
        ...

    def head(self) -> Request: ...

    def pop(self) -> Request: ...

    def remove(self, request: Request) -> None:
        """Takes out a request that ends while it waits."""
        ...


class FcfsQueue(deque[Request]):
    """Order of arrival; a preempted request goes to the front."""

    def add(self, request: Request) -> bool:
        self.append(request)
        return len(self) == 1

    put_back = deque.appendleft
    pop = deque.popleft

    def head(self) -> Request:
        return self[0]


class PriorityQueue:
    """Order of (priority, arrival, id), preempted requests too."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, int, Any], Request]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Request]:
        return (request for _, request in sorted(self._heap, key=lambda item: item[0]))

    def add(self, request: Request) -> bool:
        heapq.heappush(self._heap, (request.queue_key, request))
        return self._heap[0][1] is request

    def put_back(self, request: Request) -> None:
        heapq.heappush(self._heap, (request.queue_key, request))

    def head(self) -> Request:
        return self._heap[0][1]

    def pop(self) -> Request:
        return heapq.heappop(self._heap)[1]

    def remove(self, request: Request) -> None:
        self._heap = [item for item in self._heap if item[1] is not request]
        heapq.heapify(self._heap)

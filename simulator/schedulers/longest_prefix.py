"""SGLang's ``lpm``: whoever finds most of its tokens cached goes first."""

from __future__ import annotations

from simulator.allocators.radix_kv import RadixKv
from simulator.allocators.radix_tree import RadixTree
from simulator.request import Request
from simulator.schedulers.queues import FcfsQueue

LONGEST_QUEUE = 128
"""Longer queues are not sorted, and of them only so many prefixes are refreshed."""
SHORT_MATCH_TOKENS = 32
"""With a match this short, one request at a time goes first of those that share at least so much among each other."""
REFRESH_PASSES = 32


def sort_by_longest_prefix(waiting: FcfsQueue, kv: RadixKv) -> None:
    """Sorts the queue, in place and stably; looking counts as access to what is found.

    A request that finds little, but shares its beginning with one before it in the queue, goes last: when its turn
    comes, the other one's prefill will be cached.
    """
    if len(waiting) > LONGEST_QUEUE:
        return
    in_queue = RadixTree()
    keys: dict[int, float] = {}
    for request in waiting:
        known = request.prompt_tokens + request.generated
        found = kv.match(request, known)
        keys[request.row] = -min(found, known - 1)
        if found <= SHORT_MATCH_TOKENS:
            spans = request.extent.spans
            shared, _ = in_queue.match(spans, known)
            if shared >= SHORT_MATCH_TOKENS:
                keys[request.row] = float("inf")
            else:
                in_queue.insert(spans, known)

    def key(request: Request) -> float:
        return keys[request.row]

    order = sorted(waiting, key=key)
    waiting.clear()
    waiting.extend(order)


class PrefixRefresh:
    """Now and then the waiting requests' prefixes count as accessed, the head's last, so that it is evicted last."""

    __slots__ = ("_passes",)

    def __init__(self) -> None:
        self._passes = 0

    def run(self, waiting: FcfsQueue, kv: RadixKv) -> None:
        """One pass that considers the queue."""
        due = self._passes % REFRESH_PASSES == 0
        self._passes += 1
        if due:
            for request in reversed(list(waiting)[:LONGEST_QUEUE]):
                kv.match(request, request.prompt_tokens + request.generated)

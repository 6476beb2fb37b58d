"""A link in use: transfers take it one after the other."""

from __future__ import annotations

from typing import NamedTuple

from simulator.link_spec import LinkSpec


class Passage(NamedTuple):
    """When the KV is there, and for how long it took the link."""

    done_ps: int
    wire_ps: int


class KvLink:
    """The outgoing link of one prefill replica, first come first served.

    A transfer has the whole bandwidth as soon as those asked for before it have left; with n of one size at once the
    last one is there as if they had shared the link, the others sooner. Latencies overlap with the transfers of
    others. Receivers are not a bottleneck.
    """

    __slots__ = ("free_ps", "spec")

    def __init__(self, spec: LinkSpec) -> None:
        self.spec = spec
        self.free_ps = 0

    def send(self, now_ps: int, size_bytes: int) -> Passage:
        """Takes a transfer that is asked for now, which is never before the last one."""
        wire = self.spec.wire_ps(size_bytes)
        self.free_ps = max(self.free_ps, now_ps) + wire
        return Passage(self.free_ps + self.spec.latency_ps, wire)

"""Before every pass of the engine: states, sums and memory balance."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import simulator.cluster
import simulator.inbox
from simulator.allocators.grouped_kv import GroupedKv
from simulator.cluster import simulate
from simulator.request import LEGAL_MOVES, Request, RequestState
from simulator.schedulers.chunked_prefill import ChunkedPrefill
from simulator.schedulers.plan import Plan
from tests.scenarios_random import Case, cases


class WatchedRequest(Request):
    """Refuses a move that the table does not allow."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "state":
            before = getattr(self, "state", None)
            assert before is None or value in LEGAL_MOVES[before], f"{before!r} -> {value!r}"
        super().__setattr__(name, value)


class WatchedScheduler(ChunkedPrefill):
    """Checks itself before each pass."""

    passes = 0

    def schedule(self, step: int, now_ps: int) -> Plan:
        type(self).passes += 1
        self.check(step)
        self.check_memory(step)
        return super().schedule(step, now_ps)

    def check_memory(self, step: int) -> None:
        """What runs holds exactly what is not free."""
        pool = self.kv.pool
        held = 0
        for request in self.running.values():
            blocks = request.held
            if pool.kind == "paged" and request.state is RequestState.DECODING:
                blocks = -(-request.computed_at(step) // pool.block_size)
            held += blocks
        usable = pool.total_slots // pool.block_size
        if not (self.kv.caching or isinstance(self.kv, GroupedKv)):  # else its check counts
            assert self.kv.free_units + held == usable
        assert len(self.running) <= self.config.running_limit
        for request in self.waiting:
            assert request.state in (RequestState.WAITING, RequestState.PREEMPTED)
            assert request.held == request.computed == 0


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_states_sums_and_memory_hold_before_every_pass(case: Case) -> None:
    WatchedScheduler.passes = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator.inbox, "Request", WatchedRequest)
        patch.setattr(simulator.cluster, "make_scheduler", WatchedScheduler)
        for stepwise in (False, True):
            log = simulate(case.workload, case.engine, case.pool, case.step_time, stepwise=stepwise, **case.options)
            assert log.replicas
    assert WatchedScheduler.passes


def test_the_watch_sees_an_illegal_move() -> None:
    request = WatchedRequest(0, 0, 1, 1)
    with pytest.raises(AssertionError, match="DECODING"):
        request.state = RequestState.DECODING

"""A cache that refuses at its n-th call, for every n of a small run: no request lost, no block leaked, the run ends."""

from __future__ import annotations

from typing import Any

import pytest

import simulator.cluster
from simulator.allocators.content import TokenContent
from simulator.allocators.kv_cache import Holder, KvCache
from simulator.allocators.pools import ContiguousPool, PagedPool, PoolConfig, make_cache
from simulator.allocators.sequence_kv import SequenceKv
from simulator.allocators.sglang_kv import SglangKv
from simulator.cluster import simulate
from simulator.run_log import RunLog, Status
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from tests.policy_cases import System, contiguous, systems
from workloads.workload import Workload

MS = 1_000_000_000


class Faults:
    """Counts the calls that a cache may refuse, over all of a run, and refuses one."""

    def __init__(self, refuse_at: int | None) -> None:
        self.refuse_at = refuse_at
        self.calls = 0
        self.refused: str | None = None
        self.alone = False  # an admission was refused while nobody ran, so that nothing would ever wake the queue

    def strikes(self, call: str, *, alone: bool = False) -> bool:
        self.calls += 1
        if self.calls - 1 != self.refuse_at:
            return False
        self.refused, self.alone = call, alone
        return True


def faulty(kv: KvCache, faults: Faults) -> KvCache:
    """The cache, which now answers as before but for one refusal; a refusal changes nothing."""
    kind: Any = type(kv)
    asks_first = isinstance(kv, SequenceKv)  # it answers for a request's growth before it is told to grow

    class Faulty(kind):  # type: ignore[misc]
        __slots__ = ()

        def admit(self, holder: Holder, known_tokens: int, first_tokens: int, others_run: bool) -> bool:
            if faults.strikes("admit", alone=not others_run):
                return False
            return bool(super().admit(holder, known_tokens, first_tokens, others_run))

        def extend(self, holder: Holder, tokens: int) -> bool:
            # SGLang admits without asking the cache: there the first pages of a lone request are its admission.
            alone = isinstance(self, SglangKv) and not self.decoders
            return not faults.strikes("extend", alone=alone) and super().extend(holder, tokens)

        def grow(self, holder: Holder, step: int) -> bool:
            if not asks_first and faults.strikes("grow"):
                return False
            return bool(super().grow(holder, step))

        def can_grow(self, holder: Holder) -> bool:
            return not faults.strikes("can_grow") and super().can_grow(holder)

        def can_swap_out(self, holder: Holder, tokens: int) -> bool:
            return not faults.strikes("can_swap_out") and super().can_swap_out(holder, tokens)

        def can_swap_in(self, holder: Holder) -> bool:
            return not faults.strikes("can_swap_in") and super().can_swap_in(holder)

        def serve(self, step: int) -> bool:
            return not faults.strikes("serve") and super().serve(step)

    kv.__class__ = Faulty
    return kv


def run(system: System, pool: PoolConfig, faults: Faults) -> tuple[RunLog, KvCache]:
    """Nine requests in three bursts over a pool that holds about three; the last comes when all is long over."""
    caches: list[KvCache] = []

    def make(pool: PoolConfig, engine: EngineConfig, content: TokenContent, *, stages: int = 1) -> KvCache:
        caches.append(make_cache(pool, engine, content))
        return faulty(caches[-1], faults)

    workload = Workload.from_columns(
        [ms * MS for ms in (0, 0, 0, 0, 35, 35, 35, 60, 5000)],
        [9, 14, 5, 12, 20, 3, 8, 11, 4],
        [6, 9, 4, 11, 3, 12, 5, 7, 3],
    )
    engine = EngineConfig(32, 5, 16, enable_prefix_caching=system.caching, policy=system.policy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator.cluster, "make_cache", make)
        log = simulate(workload, engine, pool, LinearStepTime(10 * MS, 0, 0), max_steps=2000)
    return log, caches[0]


@pytest.mark.parametrize("system", systems())
def test_no_refusal_loses_a_request_or_a_block(system: System) -> None:
    pool: PoolConfig = ContiguousPool(80, "pow2") if system.pool is contiguous else PagedPool(14, 4)
    counter = Faults(None)
    log, kv = run(system, pool, counter)
    assert log.status == "ok"
    usable = kv.free_units
    assert counter.calls > 20
    wanted = log.workload.output_tokens.tolist()
    for n in range(counter.calls):
        faults = Faults(n)
        log, kv = run(system, pool, faults)
        table = log.request_columns()
        what = f"{faults.refused} refused at call {n}"
        assert faults.refused, what
        assert table["row"].tolist() == list(range(len(wanted))), what
        kv.check()
        if log.status == "ok":
            assert (table["status"] == Status.FINISHED).all(), what
            assert table["generated_tokens"].tolist() == wanted, what
        else:  # only where no arrival, step or end was left that could have asked again
            assert (log.status, faults.alone) == ("deadlock", True), what
        assert kv.free_units == usable, what

"""Random fleets: members of one or two kinds, any router, replicas that fail, start, stop and are scaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from simulator.cluster import simulate_fleet
from simulator.fleet_events import Autoscaler, Fail, FleetEvent, Start, Stop
from simulator.members import Member
from simulator.routers import ROUTERS
from simulator.run_log import RunLog
from tests.scenarios_random import PS_PER_MS, Case
from workloads.workload import Workload


@dataclass(frozen=True)
class FleetCase:
    workload: Workload
    members: tuple[Member, ...]
    router: str
    seed: int
    events: tuple[FleetEvent, ...] = ()
    autoscaler: Autoscaler | None = None
    max_steps: int | None = 20_000

    def run(self, *, stepwise: bool = False) -> RunLog:
        return simulate_fleet(
            self.workload,
            self.members,
            router=self.router,
            seed=self.seed,
            events=self.events,
            autoscaler=self.autoscaler,
            max_steps=self.max_steps,
            stepwise=stepwise,
        )


@st.composite
def event_lists(draw: st.DrawFn, replicas: int) -> tuple[FleetEvent, ...]:
    """Events of each replica, one after another; on a coarse grid, so that they meet steps, arrivals and each other."""
    found: list[FleetEvent] = []
    grid = draw(st.sampled_from([1, 5, 10]))
    spread = draw(st.sampled_from([20, 60, 200]))
    for number in range(replicas):
        up, now = draw(st.sampled_from([True, True, False])), -1
        for _ in range(draw(st.integers(0, 3))):
            gap = draw(st.integers(1, spread)) * grid * PS_PER_MS + draw(st.sampled_from([0, 0, 1]))
            at = max(now, 0) + gap if now >= 0 else draw(st.sampled_from([0, gap, gap]))
            now = at
            if not up:
                found.append(Start(at, number))
                up = True
            elif draw(st.booleans()):
                found.append(Stop(at, number))
                up = False
            else:
                after = draw(st.none() | st.integers(1, spread))
                found.append(Fail(at, number, None if after is None else after * grid * PS_PER_MS))
                up = after is not None
                now += 0 if after is None else after * grid * PS_PER_MS
    return tuple(draw(st.permutations(found)))


@st.composite
def autoscalers(draw: st.DrawFn) -> Autoscaler:
    low = draw(st.integers(1, 2))
    metric = draw(st.sampled_from(["queue", "kv_utilization"]))
    return Autoscaler(
        metric,  # type: ignore[arg-type]
        draw(st.sampled_from([0.5, 2.0])) if metric == "queue" else draw(st.sampled_from([0.2, 0.7])),
        low,
        draw(st.integers(low, 4)),
        draw(st.sampled_from([5, 7, 40])) * PS_PER_MS,
        draw(st.sampled_from([0, 15, 100])) * PS_PER_MS,
    )


@st.composite
def fleets(draw: st.DrawFn, case: Case, *, others: Sequence[Member] = ()) -> FleetCase:
    """A fleet around a case of one replica; ``others`` may stand beside the replicas of the case."""
    member = Member(case.engine, case.pool, case.step_time)
    members = [member] * draw(st.integers(1, 3))
    scaler = draw(st.none() | st.none() | autoscalers())
    if scaler is None and others and draw(st.booleans()):
        members.append(replace(draw(st.sampled_from(list(others))), group="other"))
    events = draw(event_lists(len(members)))
    if scaler is not None:
        first = [e for e in events if isinstance(e, Fail) and e.replica < scaler.max_replicas]
        events = tuple(first[:1])
    return FleetCase(
        case.workload,
        tuple(members),
        draw(st.sampled_from(ROUTERS)),
        draw(st.integers(0, 3)),
        events,
        scaler,
    )

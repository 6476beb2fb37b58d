"""Where requests go: prefixes that stay together, sessions, and what a missing replica changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from simulator.routers import ROUTERS, largest_share, make_router, static_routes
from workloads.build import build_workload
from workloads.config import WorkloadConfig
from workloads.prefix_groups import prefix_groups, session_roots
from workloads.workload import Workload

SESSION = Workload.from_columns(
    [0] * 7,
    [8] * 7,
    [1] * 7,
    after=[-1, 0, 1, -1, -1, 4, -1],
    segments=[
        (("a", 0, 8),),
        (("a", 0, 4), ("b", 0, 4)),
        (("x", 0, 8),),  # a turn whose prompt begins otherwise
        None,
        (("p:4", 0, 8),),
        (("p:4", 0, 4), ("o:4", 0, 4)),
        (("a", 0, 2), ("c", 0, 6)),
    ],
)


def up(*numbers: int) -> Any:
    return [SimpleNamespace(number=number, outstanding=0) for number in numbers]


def named(prefixes: list[str | None]) -> Workload:
    n = len(prefixes)
    segments = [None if name is None else ((name, 0, 8),) for name in prefixes]
    return Workload.from_columns([0] * n, [8] * n, [1] * n, segments=segments)


def test_turns_are_of_the_group_of_their_session() -> None:
    groups, names = prefix_groups(SESSION)
    assert session_roots(SESSION).tolist() == [0, 0, 0, 3, 4, 4, 6]
    assert groups.tolist() == [0, 0, 0, -1, -1, -1, 0]
    assert names == ["a"]


def test_a_prefix_stays_on_one_replica_and_sessions_without_one_take_turns() -> None:
    routes = static_routes("prefix_affine", SESSION, seed=0, replicas=3)
    assert routes is not None
    assert len({int(routes[row]) for row in (0, 1, 2, 6)}) == 1
    assert routes[4] == routes[5] == 2  # the third session; row 3 is the second
    assert routes[3] == 1


def test_groups_of_a_drawn_workload_are_those_of_its_segments() -> None:
    config: dict[str, Any] = {
        "num_requests": 300,
        "arrivals": {"kind": "poisson", "rate_rps": 10},
        "prompt_tokens": {"kind": "fixed", "tokens": 20},
        "output_tokens": {"kind": "fixed", "tokens": 5},
        "prefix": {
            "kind": "shared_prefix",
            "groups": 7,
            "share": 0.8,
            "prefix_tokens": {"kind": "fixed", "tokens": 32},
        },
    }
    from simulator.document import Document
    from simulator.random_streams import Streams
    from simulator.scenario_bind import bind

    workload = build_workload(bind(WorkloadConfig, Document(config, "test")), Streams(3))
    assert workload.segments is not None
    fast, names = prefix_groups(workload)
    slow = [row[0][0] if (row := workload.segments[i]) is not None else None for i in range(300)]
    assert [None if group < 0 else names[group] for group in fast.tolist()] == slow
    assert len(set(slow)) == 8


def test_prefixes_spread_over_replicas() -> None:
    workload = named([f"g{i}" for i in range(3000)])
    routes = static_routes("prefix_affine", workload, seed=0, replicas=10)
    assert routes is not None
    counts = np.bincount(routes, minlength=10)
    assert abs(counts - 300).max() < 5 * np.sqrt(300)


def test_only_the_prefixes_of_a_missing_replica_move() -> None:
    workload = named([f"g{i}" for i in range(200)])
    route = make_router("prefix_affine", workload, seed=0, replicas=5)
    before = [route(row, up(0, 1, 2, 3, 4)) for row in range(200)]
    without = up(0, 1, 3, 4)
    after = [without[route(row, without)].number for row in range(200)]
    moved = {was for was, now in zip(before, after, strict=True) if was != now}
    assert moved == {2}
    assert {now for was, now in zip(before, after, strict=True) if was == 2} == {0, 1, 3, 4}


@pytest.mark.parametrize("name", ["round_robin", "random", "prefix_affine"])
def test_a_router_of_all_replicas_goes_the_way_known_beforehand(name: str) -> None:
    workload = named([f"g{i % 9}" if i % 2 else None for i in range(100)])
    routes = static_routes(name, workload, seed=4, replicas=4)
    assert routes is not None
    route = make_router(name, workload, seed=4, replicas=4)
    assert [route(row, up(0, 1, 2, 3)) for row in range(100)] == routes.tolist()


@pytest.mark.parametrize("name", ["round_robin", "random"])
def test_the_load_of_a_missing_replica_is_shared_by_the_others(name: str) -> None:
    workload = named([None] * 3000)
    route = make_router(name, workload, seed=4, replicas=4)
    counts = np.bincount([route(row, up(0, 2, 3)) for row in range(3000)], minlength=3)
    assert abs(counts - 1000).max() < 130


def test_the_largest_prefix_is_found() -> None:
    assert largest_share(named(["a", "b", "a", None])) == (0.5, "a")
    assert largest_share(named([None, None])) == (0.0, "")
    assert largest_share(Workload.from_columns([0], [1], [1])) == (0.0, "")


def test_every_router_has_a_function_or_a_queue() -> None:
    workload = named(["a"])
    for name in ROUTERS:
        if name != "least_kv":  # asks replicas for their KV
            assert make_router(name, workload, seed=0, replicas=1)(0, cast(Any, up(0))) == 0

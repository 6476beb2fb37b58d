"""Which replica a request goes to. A router is a plain function of the request's row and the replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from simulator.engine import Replica
from simulator.errors import InputError
from workloads.workload import IntColumn, Workload

Router = Callable[[int, Sequence[Replica]], int]

ROUTERS = ("round_robin", "random", "least_outstanding")


def static_routes(name: str, workload: Workload, *, seed: int, replicas: int) -> IntColumn | None:
    """The replica of every row, for routers that need no state; None for one that does.

    Raises:
        InputError: there is no router of that name.
    """
    requests = len(workload)
    if name == "round_robin":  # by row of the workload, so that a fleet splits exactly into its replicas
        return np.arange(requests, dtype=np.int64) % replicas
    if name == "random":  # drawn beforehand by row, so that the choice depends on nothing else
        return np.random.default_rng([seed, 0x726F757465]).integers(0, replicas, size=requests)
    if name == "least_outstanding":
        return None
    raise InputError(f"router {name!r} is not known", where="router", remedy="use one of " + ", ".join(ROUTERS))


def least_outstanding(row: int, replicas: Sequence[Replica]) -> int:
    """The replica with the fewest requests that have not ended; the first of equals."""
    return min(range(len(replicas)), key=lambda i: replicas[i].outstanding)


def make_router(name: str, workload: Workload, *, seed: int, replicas: int) -> Router:
    """The router of that name, as a function of the row and the replicas; InputError when there is none."""
    routes = static_routes(name, workload, seed=seed, replicas=replicas)
    if routes is None:
        return least_outstanding
    fixed = routes.tolist()
    return lambda row, _: int(fixed[row])

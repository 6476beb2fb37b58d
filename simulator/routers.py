"""Which replica a request goes to. A router is a plain function of the request's row and of the replicas that are up.

- ``round_robin``: by row of the workload, so that a fleet splits exactly into its replicas.
- ``random``: drawn beforehand by row.
- ``prefix_affine``: all requests whose prompts begin with the same named prefix go to one replica, chosen by a
  rendezvous hash of the prefix's name, so that whoever is down moves its own prefixes only. All turns of a session go
  where the first one goes. Sessions and requests without a named prefix take turns, in order of their rows. It knows
  no load: a prefix that all requests share makes one replica serve them all.
- ``least_outstanding``: the fewest requests that have not ended.
- ``least_kv``: the smallest share of its KV slots held after its last pass (with equal pools, the fewest slots). It
  does not see who waits, so that all who arrive between two passes may go to one replica.
- ``central_queue``: one first-come queue in front (see ``fleet.Fleet``): the next request goes to a replica at which
  nobody waits and that has fewer than max_num_seqs requests, to the one with the fewest.

Ties go to the lowest number. The first three need no state: in an open loop without events the whole route is known
beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import cast

import numpy as np
from numpy.typing import NDArray

from simulator.engine import Replica
from simulator.errors import InputError
from simulator.fleet_replica import FleetReplica
from workloads.prefix_groups import prefix_groups, session_roots
from workloads.workload import IntColumn, Workload

Router = Callable[[int, Sequence[Replica]], int]
"""router(row, replicas that are up, by number) -> index into them."""

ROUTERS = ("round_robin", "random", "least_outstanding", "least_kv", "prefix_affine", "central_queue")
STATEFUL = ("least_outstanding", "least_kv", "central_queue")


def static_routes(name: str, workload: Workload, *, seed: int, replicas: int) -> IntColumn | None:
    """The replica of every row, for routers that need no state; None for one that does.

    Raises:
        InputError: there is no router of that name.
    """
    requests = len(workload)
    if name == "round_robin":
        return np.arange(requests, dtype=np.int64) % replicas
    if name == "random":
        return _draws(seed).integers(0, replicas, size=requests)
    if name == "prefix_affine":
        return _affine_routes(workload, replicas)
    if name in STATEFUL:
        return None
    raise InputError(f"router {name!r} is not known", where="router", remedy="use one of " + ", ".join(ROUTERS))


def make_router(name: str, workload: Workload, *, seed: int, replicas: int) -> Router:
    """The router of that name; InputError when there is none.

    With all ``replicas`` up those that need no state choose what ``static_routes`` says. ``central_queue`` is none: its
    requests wait in ``fleet.Fleet``.
    """
    routes = static_routes(name, workload, seed=seed, replicas=replicas)
    if name == "round_robin":
        return lambda row, up: row % len(up)
    if name == "least_kv":
        return least_kv
    if routes is None:
        return least_outstanding
    fixed = routes.tolist()
    otherwise = _spare_draws(workload, seed) if name == "random" else _affine_choice(workload)

    def route(row: int, up: Sequence[Replica]) -> int:
        return int(fixed[row]) if len(up) == replicas else otherwise(row, up)

    return route


def least_outstanding(row: int, up: Sequence[Replica]) -> int:
    """The replica with the fewest requests that have not ended; the first of equals."""
    return min(range(len(up)), key=lambda i: up[i].outstanding)


def least_kv(row: int, up: Sequence[Replica]) -> int:
    """The replica that holds the smallest share of its KV slots; the first of equals."""
    return min(range(len(up)), key=lambda i: cast(FleetReplica, up[i]).used_share())


def largest_share(workload: Workload) -> tuple[float, str]:
    """The largest part of the requests that begin with one named prefix, and its name (0 and "" without any)."""
    groups, names = prefix_groups(workload)
    if not names or not (groups >= 0).any():
        return 0.0, ""
    counts = np.bincount(groups[groups >= 0])
    most = int(counts.argmax())
    return int(counts[most]) / len(workload), names[most]


def _draws(seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, 0x726F757465])


def _spare_draws(workload: Workload, seed: int) -> Router:
    """For a random route of which not all replicas are up: one more draw a row."""
    draws = np.random.default_rng([seed, 0x726F757465, 1]).integers(0, 1 << 62, size=len(workload)).tolist()
    return lambda row, up: draws[row] % len(up)


# -- prefix_affine -------------------------------------------------------------------------------------------------


def _affine_routes(workload: Workload, replicas: int) -> IntColumn:
    groups, names = prefix_groups(workload)
    turns = _turns(workload)
    if not names:
        return turns % replicas
    numbers = np.arange(replicas, dtype=np.uint64)
    of_group = np.array([int(_scores(_name_hash(name), numbers).argmax()) for name in names], dtype=np.int64)
    return np.where(groups >= 0, of_group[np.maximum(groups, 0)], turns % replicas)


def _affine_choice(workload: Workload) -> Router:
    """The same rule among those that are up: the highest score still wins."""
    groups, names = prefix_groups(workload)
    hashes = [_name_hash(name) for name in names]
    turns = _turns(workload).tolist()

    def route(row: int, up: Sequence[Replica]) -> int:
        group = int(groups[row])
        if group < 0:
            return int(turns[row]) % len(up)
        numbers = np.array([replica.number for replica in up], dtype=np.uint64)
        return int(_scores(hashes[group], numbers).argmax())

    return route


def _turns(workload: Workload) -> IntColumn:
    """Whose turn a session is: its place among all sessions, in order of their first rows."""
    roots = session_roots(workload)
    first = roots == np.arange(len(workload))
    place: IntColumn = np.cumsum(first)[roots] - 1
    return place


def _name_hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def _scores(name_hash: int, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Rendezvous hashing: the score of a name at each replica; the highest wins (splitmix64 of both)."""
    return _mixed(_mixed(numbers) ^ np.uint64(name_hash))


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's output function; products wrap."""
    words = values + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))

"""The grid of a sweep: every variant with every combination of the axes' values, each as often as asked."""

from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import dataclass
from typing import Any

from simulator.calibration import find_calibration
from simulator.document import Document
from simulator.errors import InputError, KvplanError
from simulator.planner.axes import Axis, value_text
from simulator.planner.fingerprint import fingerprint
from simulator.planner.point import Outcome, Point, Task, folder_name, one_line, replication_seed, status_of
from simulator.routers import ROUTERS
from simulator.scenario import Scenario, ScenarioFile, bind_patched
from simulator.scenario_resolved import plain, scenario_sha256
from simulator.scenario_specs import find_gpu_spec, find_model_spec
from simulator.scenario_yaml import parse_yaml
from simulator.step_time.config import RooflineConfig
from simulator.suggestions import did_you_mean
from workloads.errors import WorkloadError

MANY = 1_000
"""A larger grid has to be confirmed: it is more often a slip than a wish."""
MOST = 100_000


@dataclass(frozen=True)
class Grid:
    """All points of a sweep, and the runs they need.

    Attributes:
        loaded: the scenario file.
        points: in the order of the table: variants, then the first axis, ..., then replications.
        unreadable: the outcome of points whose settings contradict each other, by key.
    """

    loaded: ScenarioFile
    axes: tuple[Axis, ...]
    replications: int
    points: tuple[Point, ...]
    unreadable: dict[str, Outcome]

    @property
    def variants(self) -> list[str]:
        """Names of the variants; one "" where there are none."""
        return list(self.loaded.unbound)

    def task(self, point: Point) -> Task:
        """What a worker needs to run a point that is not unreadable."""
        scenario = _bound(self.loaded, self.axes, point.variant, point.indices, point.replication)
        return Task(point.index, scenario, point.variant or None)


def make_grid(loaded: ScenarioFile, axes: list[Axis], replications: int, *, yes: bool = False) -> Grid:
    """Reads every point's settings, so that what can never run is refused before anything does.

    Raises:
        InputError: the grid is too large, or a value that no point can take, at its place.
    """
    _refuse_large(loaded, axes, replications, yes=yes)
    variants = list(loaded.unbound)
    faults: list[tuple[tuple[int, ...], Exception]] = []
    read: set[tuple[int, int]] = set()
    points: list[Point] = []
    unreadable: dict[str, Outcome] = {}
    ways = itertools.product(*(range(len(axis.values)) for axis in axes))
    for variant, indices, replication in itertools.product(variants, list(ways), range(replications)):
        values = tuple(axis.values[i] for axis, i in zip(axes, indices, strict=True))
        seed = replication_seed(int(loaded.unbound[variant].data.get("seed") or 0), replication)
        try:
            scenario = _bound(loaded, tuple(axes), variant, indices, replication)
            _look_up_names(scenario)
        except (KvplanError, WorkloadError) as error:
            faults.append((indices, error))
            key = _key({"variant": variant, "values": repr(values), "replication": replication})
            unreadable[key] = Outcome(status_of(error), one_line(str(error)), None, 0.0, fingerprint())
        else:
            key, seed = _scenario_key(scenario), scenario.settings.seed
            read.update(enumerate(indices))
        named = [(axis.path, value_text(value)) for axis, value in zip(axes, values, strict=True)]
        folder = folder_name(len(points), variant, named, replication if replications > 1 else None)
        points.append(Point(len(points), variant, indices, values, replication, seed, key, folder))
    for indices, fault in faults:
        if not read or any(at not in read for at in enumerate(indices)):  # this value never works
            raise fault
    return Grid(loaded, tuple(axes), replications, tuple(points), unreadable)


def _refuse_large(loaded: ScenarioFile, axes: list[Axis], replications: int, *, yes: bool) -> None:
    count = len(loaded.unbound) * math.prod(len(axis.values) for axis in axes) * replications
    sizes = [f"{len(axis.values)} of {axis.path}" for axis in axes]
    sizes += [f"{len(loaded.unbound)} variants"] if len(loaded.unbound) > 1 else []
    sizes += [f"{replications} replications"] if replications > 1 else []
    what = f"the grid has {count:,} points ({' × '.join(sizes)})"
    if count > MOST:
        raise InputError(f"{what}, and {MOST:,} is the most", where="--over", remedy="sweep fewer values at once")
    if count > MANY and not yes:
        raise InputError(what, where="--over", remedy="give --yes to run them all, or fewer values")


def _bound(
    loaded: ScenarioFile, axes: tuple[Axis, ...], variant: str, indices: tuple[int, ...], replication: int
) -> Scenario:
    document = loaded.unbound[variant].copy()
    for axis, index in zip(axes, indices, strict=True):
        axis.put(index, document)
    if replication:
        _put_seed(document, replication)
    return bind_patched(document, loaded.folder)


def _look_up_names(scenario: Scenario) -> None:
    """Raises InputError, at its place, for a name that is in no catalogue: more often a slip than a point."""
    settings = scenario.settings
    try:
        find_model_spec(settings.model)
        find_gpu_spec(settings.gpu)
        if isinstance(settings.step_time, RooflineConfig):
            find_calibration(settings.step_time.calibration)
        if settings.router not in ROUTERS:
            remedy = did_you_mean(settings.router, ROUTERS)
            raise InputError(f"{settings.router!r} is not known", where="router", remedy=remedy)
    except InputError as error:
        raise scenario.located(error) from None


def _put_seed(document: Document, replication: int) -> None:
    seed = document.data.get("seed") or 0
    if isinstance(seed, int):  # else binding says what is wrong with it
        document.put("seed", parse_yaml(str(replication_seed(seed, replication)), "--replications"))


def _scenario_key(scenario: Scenario) -> str:
    """Hash of the settings, of the notes on how they were read, and of the code that resolves and runs them."""
    return _key({"scenario": scenario_sha256(plain(scenario.settings)), "notes": list(scenario.notes)})


def _key(facts: dict[str, Any]) -> str:
    text = repr((fingerprint(), sorted(facts.items())))
    return hashlib.sha256(text.encode()).hexdigest()

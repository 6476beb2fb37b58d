"""An executor by its name. Dask and Ray are extras, and their modules are imported only when asked for."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from simulator.errors import InputError
from simulator.planner.executors.base import Executor
from simulator.suggestions import did_you_mean

EXECUTORS = {"local": "LocalExecutor", "dask": "DaskExecutor", "ray": "RayExecutor"}
"""What the command line offers; ``serial`` is for tests."""
_NEEDS = {"dask": "distributed", "ray": "ray"}


def make_executor(kind: str, *, workers: int | None, scheduler: str | None, quiet: bool = False) -> Executor:
    """Starts the workers, or connects to them.

    Args:
        workers: how many local ones; None is one a core, or all that the scheduler has.
        scheduler: address of a running cluster.
    Raises:
        InputError: no such executor, its library is missing, or the address does not answer.
    """
    if kind == "serial":
        from simulator.planner.executors.serial_executor import SerialExecutor

        return SerialExecutor()
    check_executor(kind, workers=workers, scheduler=scheduler)
    module = import_module(f"simulator.planner.executors.{kind}_executor")
    maker = getattr(module, EXECUTORS[kind])
    return cast("Executor", maker(workers=workers, scheduler=scheduler, quiet=quiet))


def check_executor(kind: str, *, workers: int | None, scheduler: str | None) -> None:
    """Raises InputError for what ``make_executor`` refuses before it starts anything."""
    if kind not in EXECUTORS:
        raise InputError(
            f"{kind!r} is not an executor", where=f"--executor {kind}", remedy=did_you_mean(kind, EXECUTORS)
        )
    if scheduler is not None and kind == "local":
        remedy = "add --executor dask or --executor ray"
        raise InputError("local processes have no scheduler", where=f"--scheduler {scheduler}", remedy=remedy)
    if scheduler is not None and workers is not None:
        remedy = "leave out --workers: the cluster's own count"
        raise InputError("goes with local workers alone", where=f"--workers {workers}", remedy=remedy)
    if kind in _NEEDS:
        try:
            import_module(_NEEDS[kind])
        except ImportError:
            remedy = f"pip install 'kvplan[{kind}]', or use --executor local"
            raise InputError(f"{_NEEDS[kind]} is not installed", where=f"--executor {kind}", remedy=remedy) from None

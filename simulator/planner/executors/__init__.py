"""Where the points of a sweep run: local processes, a Dask cluster or a Ray cluster, with the same results."""

from __future__ import annotations

from simulator.planner.executors.base import Executor
from simulator.planner.executors.make import EXECUTORS, make_executor

__all__ = ["EXECUTORS", "Executor", "make_executor"]

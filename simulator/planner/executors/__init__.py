"""Where jobs run: local processes, a Dask cluster or a Ray cluster, with the same results.

The points of a sweep are jobs, and the parts of a fleet.
"""

from __future__ import annotations

from simulator.planner.executors.base import Executor
from simulator.planner.executors.make import EXECUTORS, check_executor, make_executor

__all__ = ["EXECUTORS", "Executor", "check_executor", "make_executor"]

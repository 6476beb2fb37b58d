"""Starts the process from which local workers are forked, while the scenario is still being read.

It imports the simulator once, so that a worker is ready as soon as it is forked. It is a process of its own, with no
file, lock or thread of its parent's, and ends when that does. Where the system has none, each worker is spawned.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import BaseContext

_PRELOADED = ["simulator.planner.run_point"]


def worker_context() -> BaseContext:
    """How local workers are started."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def warm_up() -> None:
    """Begins the imports; returns at once."""
    if worker_context().get_start_method() == "forkserver":
        from multiprocessing.forkserver import ensure_running

        ensure_running()

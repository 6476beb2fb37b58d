"""One core for whoever is measured, so that ours and the peer have the same."""

from __future__ import annotations

import os
import shutil


def one_core() -> list[str]:
    """Words to put before a command; none where ``taskset`` is not installed (it is part of util-linux)."""
    if shutil.which("taskset") is None:
        return []
    return ["taskset", "--cpu-list", str(max(os.sched_getaffinity(0)))]

"""Which kvplan computed a result: its version and a hash of the code and data that decide one."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import simulator
import workloads
from simulator.provenance import version

_ASIDE = ("cli", "planner")  # they start runs and decide none


@functools.cache
def fingerprint() -> str:
    """``0.1.0+5f3a...``: equal where the same scenario gives the same result."""
    digest = hashlib.sha256()
    for package in (simulator, workloads):
        root = Path(package.__file__ or "").parent
        for path in sorted(root.rglob("*")):
            inside = path.relative_to(root)
            if path.suffix in (".py", ".yaml", ".json", ".csv") and inside.parts[0] not in _ASIDE and path.is_file():
                digest.update(f"{package.__name__}/{inside.as_posix()}\0".encode())
                digest.update(path.read_bytes())
    return f"{version('kvplan')}+{digest.hexdigest()[:16]}"

"""Where a result came from: versions, host, wall clock. It stands in ``provenance.json`` and nowhere else."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata

PACKAGES = ("kvplan", "numpy", "simpy", "pandas", "matplotlib", "pydantic", "PyYAML", "Jinja2", "typer")


def provenance(started: datetime, seconds: Mapping[str, float]) -> dict[str, object]:
    """Facts about the run that must not reach any other file, because they differ from run to run.

    Args:
        started: when the command began (UTC).
        seconds: wall-clock time of each part of it, by name.
    """
    return {
        "schema_version": 1,
        "command": sys.argv[1:],
        "started_utc": started.isoformat(timespec="seconds"),
        "ended_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "wall_clock_s": {name: round(value, 3) for name, value in seconds.items()},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "processor": platform.machine(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def version(package: str) -> str | None:
    """The installed version of a distribution, None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None

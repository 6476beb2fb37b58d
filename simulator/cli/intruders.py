"""Names a foreign package that would be imported instead of one of ours."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path

OURS = ("simulator", "workloads", "reports", "gpu_validate", "scenarios")


def intruders(root: Path, names: Iterable[str] = OURS) -> list[str]:
    """One line for each of our package names that Python finds outside ``root``."""
    found = []
    for name in names:
        spec = importlib.util.find_spec(name)
        places = list(spec.submodule_search_locations or [spec.origin or ""]) if spec else []
        ours = (root / name).resolve()
        if ours not in [Path(place).resolve() for place in places[:1]]:
            place = places[0] if places else "nowhere"
            found.append(
                f"kvplan: the package {name!r} at {place} shadows kvplan's own at {ours} "
                f"(remove its folder's parent from PYTHONPATH, rename it, or start kvplan elsewhere)"
            )
    return found

"""The console script's first lines: refuses foreign packages that bear the names of ours, then starts the CLI.

It stands in this package because a foreign ``simulator`` would be imported before a line of ours could say so.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def app() -> None:
    """Runs ``kvplan``; exit code 2 where a package of ours is shadowed."""
    spec = importlib.util.spec_from_file_location("_kvplan_intruders", ROOT / "simulator" / "cli" / "intruders.py")
    if spec is None or spec.loader is None:
        sys.exit(f"kvplan: the installation at {ROOT} is incomplete (install kvplan again)")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    lines = module.intruders(ROOT)
    if lines:
        print("\n".join(lines), file=sys.stderr)
        sys.exit(2)
    from simulator.cli import app as cli

    cli()

"""``kvplan report``: redraws a finished run."""

from __future__ import annotations

from simulator.cli.console import Json, Quiet


def report(as_json: Json = False, quiet: Quiet = False) -> None:
    """x"""

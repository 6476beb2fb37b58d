"""``kvplan size``: the memory arithmetic."""

from __future__ import annotations

from simulator.cli.console import Json, Quiet


def size(as_json: Json = False, quiet: Quiet = False) -> None:
    """x"""

"""Links of the catalogue: ``links/*.yaml``, one direction of each, every number with its source."""

from __future__ import annotations

import functools
from typing import Any

import yaml

from simulator.catalog.names import data_files, pick
from simulator.errors import InputError
from simulator.link_spec import LinkSpec

_BYTES_PER_GB = 1e9
_PS_PER_US = 1_000_000


def link_names() -> list[str]:
    """Catalogue names, alphabetical."""
    return list(data_files("links", ".yaml"))


def find_link(name: str) -> LinkSpec:
    """The link of that name ("RDMA 400G" finds rdma-400g; "nvlink" is that of the H100).

    Raises:
        InputError: no link has that name.
    """
    spellings = {known: known for known in link_names()} | {"nvlink": "nvlink-4"}
    try:
        return _read(pick(name, spellings, "link"))
    except InputError as error:
        listed = ", ".join(link_names())
        raise InputError(error.what, remedy=f"use one of {listed}, or {{gb_per_s: 50, latency_us: 20}}") from None


@functools.cache  # parsing takes longer than all the rest of building a short scenario
def _read(name: str) -> LinkSpec:
    document: dict[str, Any] = yaml.safe_load(data_files("links", ".yaml")[name].read_text(encoding="utf-8"))
    speed, latency = document["gb_per_s"], document["latency_us"]
    return LinkSpec(
        document["name"],
        speed["value"] * _BYTES_PER_GB,
        round(latency["value"] * _PS_PER_US),
        f"{speed['source']}; latency {latency['source']}",
    )

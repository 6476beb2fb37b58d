"""GPUs of the catalogue: ``gpus/*.yaml``, each field a value with its source."""

from __future__ import annotations

import functools
from typing import Any

import yaml

from simulator.catalog.names import data_files, pick, plain
from simulator.errors import InputError
from simulator.specs import GpuSpec

_MIB = 1 << 20
_GIB = 1 << 30
_GIGA = 1e9
_TERA = 1e12
_FIELDS = (
    "memory_mib",
    "visible_gib",
    "bandwidth_gb_per_s",
    "dense_tflops",
    "link_gb_per_s",
    "pcie_gb_per_s",
    "usd_per_hour",
)


def gpu_names() -> list[str]:
    """Catalogue names, alphabetical."""
    return list(data_files("gpus", ".yaml"))


def find_gpu(name: str) -> GpuSpec:
    """The GPU of that name ("H100 SXM 80GB" and "nvidia/h100-sxm-80gb" find h100-sxm-80gb).

    Raises:
        InputError: no GPU, or several, have that name.
    """
    if not isinstance(name, str) or not name.strip():
        raise InputError("a GPU needs a name", remedy="e.g. h100-sxm-80gb")
    entries = data_files("gpus", ".yaml")
    spellings = {known: known for known in entries}
    asked = plain(name)
    for maker in ("nvidia-", "geforce-", "tesla-", "amd-", "instinct-"):
        asked = asked.removeprefix(maker)
    return _read(pick(asked, spellings, "GPU"))


@functools.cache  # parsing takes longer than all the rest of building a short scenario
def _read(name: str) -> GpuSpec:
    text = data_files("gpus", ".yaml")[name].read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    values = {key: document[key]["value"] for key in _FIELDS}
    visible = values["visible_gib"]
    link = values["link_gb_per_s"]
    return GpuSpec(
        name=document["name"],
        memory_bytes=int(values["memory_mib"]) * _MIB,
        bandwidth_bytes_per_s=values["bandwidth_gb_per_s"] * _GIGA,
        flop_per_s={dtype: peak * _TERA for dtype, peak in values["dense_tflops"].items()},
        link_bytes_per_s=None if link is None else link * _GIGA,
        pcie_bytes_per_s=values["pcie_gb_per_s"] * _GIGA,
        usd_per_hour=values["usd_per_hour"],
        sources={key: document[key]["source"] for key in _FIELDS},
        visible_bytes=None if visible is None else round(visible * _GIB),
    )

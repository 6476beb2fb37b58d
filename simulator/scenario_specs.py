"""The model and the GPU that a scenario names, as specs: from the catalogue, from a file, or inline."""

from __future__ import annotations

from typing import Any

from simulator.catalog import find_gpu, find_model
from simulator.errors import InputError
from simulator.scenario_settings import InlineGpu
from simulator.specs import GpuSpec, ModelSpec, model_from_config


def find_model_spec(model: str | dict[str, Any]) -> ModelSpec:
    """By catalogue name, by path, or from the keys of a config.json written inline."""
    try:
        if isinstance(model, str):
            return find_model(model)
        config = {key: value for key, value in model.items() if key != "name"}
        return model_from_config(config, name=str(model.get("name", "inline")), source="inline in the scenario")
    except InputError as error:
        what = f"{error.where}: {error.what}" if error.where else error.what
        raise InputError(what, where="model", remedy=error.remedy or "see kvplan catalog models") from None


def find_gpu_spec(gpu: str | InlineGpu | None) -> GpuSpec | None:
    """By catalogue name, or from inline numbers."""
    if gpu is None:
        return None
    if isinstance(gpu, str):
        try:
            return find_gpu(gpu)
        except InputError as error:
            raise InputError(error.what, where="gpu", remedy=error.remedy or "see kvplan catalog gpus") from None
    return GpuSpec(
        name=gpu.name,
        memory_bytes=round(gpu.memory_gib * 2**30),
        bandwidth_bytes_per_s=gpu.bandwidth_gb_per_s * 1e9,
        flop_per_s={dtype: rate * 1e12 for dtype, rate in gpu.tflop_per_s.items()},
        link_bytes_per_s=None if gpu.link_gb_per_s is None else gpu.link_gb_per_s * 1e9,
        pcie_bytes_per_s=gpu.pcie_gb_per_s * 1e9,
        usd_per_hour=gpu.usd_per_hour,
        sources={"all": "inline in the scenario"},
    )

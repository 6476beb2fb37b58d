"""GPUs and models by name: one file each, every number with its source."""

from __future__ import annotations

from simulator.catalog.gpu_files import find_gpu, gpu_names
from simulator.catalog.model_files import find_model, model_names

__all__ = ["find_gpu", "find_model", "gpu_names", "model_names"]

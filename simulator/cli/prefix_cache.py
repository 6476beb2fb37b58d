"""``kvplan workload --prefix-cache``: how much a prefix cache of any size would serve."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.specs import ModelSpec
    from workloads.prefix_curves import CacheModel


def cache_model(model: str | ModelSpec, kv_cache_dtype: str | None) -> CacheModel:
    """What a token's KV weighs in a model, all of its layers and GPUs together."""
    from simulator.errors import InputError
    from simulator.memory_settings import MemorySettings
    from simulator.sizing import SizeRequest, size
    from simulator.specs import Parallelism
    from workloads.prefix_curves import CacheModel

    try:
        found = size(SizeRequest(model, None, Parallelism(), MemorySettings(kv_cache_dtype=kv_cache_dtype)))
    except InputError as error:
        # Of a setting's name the option is made; a fault of the model's file keeps its place.
        if error.where is None or error.where.isidentifier():
            error.where = "--" + (error.where or "model").replace("_", "-")
        raise
    return CacheModel(found.model.name, found.kv_bytes_per_token)


def write_files(facts: dict[str, Any], folder: Path) -> list[Path]:
    """``prefix_cache.csv`` and ``prefix_cache.svg``, each whole or absent.

    Raises:
        InputError: the folder cannot be written.
    """
    import csv

    from reports.plots.prefix_cache import NAME, drawing
    from simulator.errors import InputError
    from simulator.result_files import whole_file, write_text
    from workloads.prefix_curves_text import CSV_COLUMNS, csv_rows

    table, picture = folder / f"{NAME}.csv", folder / f"{NAME}.svg"
    text = drawing(facts)
    try:
        with whole_file(table) as file:
            csv.writer(file, lineterminator="\n").writerows([CSV_COLUMNS, *csv_rows(facts)])
        write_text(picture, text)
    except OSError as error:
        reason = error.strerror or str(error)
        where = f"--out {folder}"
        raise InputError(f"cannot be written: {reason}", where=where, remedy="name another folder") from None
    return [table, picture]

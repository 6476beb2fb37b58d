"""``requests.parquet``: the rows of ``requests.csv`` for tools that read columns, where pyarrow is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from simulator.result_files import REQUESTS_CSV

TEXT = ("request_id", "class", "status", "reason")
COUNTS = ("replica", "prompt_tokens", "output_tokens", "preemptions", "cached_tokens")


def write_requests_parquet(requests_csv: Path) -> Path | None:
    """Writes ``requests.parquet`` beside ``requests.csv``, whole or not at all; None without the extra [parquet].

    Texts and whole numbers keep their type, all else is a 64-bit float; an empty cell is null. Same bytes for the
    same rows and the same version of pyarrow.
    """
    if find_spec("pyarrow") is None:
        return None
    import pyarrow
    from pyarrow import csv, parquet

    types = {name: pyarrow.float64() for name in REQUESTS_CSV}
    types |= {name: pyarrow.int64() for name in COUNTS}
    types |= {name: pyarrow.string() for name in TEXT}
    options = csv.ConvertOptions(column_types=types, strings_can_be_null=False)
    table = csv.read_csv(requests_csv, convert_options=options)
    path = requests_csv.with_suffix(".parquet")
    temporary = path.with_name(f".{path.name}.part")
    try:
        parquet.write_table(table, temporary, compression="zstd")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path

"""Which trace to read, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workloads.checks import a_choice, a_count, a_number
from workloads.errors import WorkloadError

FORMATS = (
    *("auto", "mooncake", "azure", "burstgpt", "sharegpt", "vidur", "csv", "jsonl"),
    *("vllm-bench", "aiperf", "guidellm"),
)
TIME_UNITS = ("auto", "s", "ms", "us", "ns")


@dataclass(frozen=True)
class TraceConfig:
    """A trace file, or the result of a benchmark tool; plain or gzip.

    Attributes:
        path: the file; relative paths start from the scenario's folder.
        format: ``auto`` looks at the content.
        time_scale: times are multiplied by it: 0.5 plays the trace twice as fast.
        limit: take at most this many good rows, the first ones of the file.
        block_size: tokens that one entry of ``hash_ids`` stands for; None: 512 where the lengths agree with it,
            else the one power of two that agrees.
        time_unit: unit of the time column; ``auto`` takes the format's own, or the one its name states.
        on_bad_row: ``drop`` counts and names broken rows, ``error`` stops at the first.
        turns: ShareGPT: only the ``first`` exchange of a conversation, as most load generators, or ``all``.
        characters_per_token: ShareGPT: the length proxy, since there is no tokenizer here.
        benchmark: which one of a result file that holds several (guidellm, ``vllm bench serve --append-result``),
            from 0.
    """

    path: str
    format: Literal[
        "auto",
        "mooncake",
        "azure",
        "burstgpt",
        "sharegpt",
        "vidur",
        "csv",
        "jsonl",
        "vllm-bench",
        "aiperf",
        "guidellm",
    ] = "auto"
    time_scale: float = 1.0
    limit: int | None = None
    block_size: int | None = None
    time_unit: Literal["auto", "s", "ms", "us", "ns"] = "auto"
    on_bad_row: Literal["drop", "error"] = "drop"
    turns: Literal["first", "all"] = "first"
    characters_per_token: float = 4.0
    benchmark: int | None = None


def check_trace(config: TraceConfig, where: str) -> None:
    """Raises WorkloadError for the first value of ``config`` that makes no sense."""
    if not isinstance(config.path, str) or not config.path.strip():
        raise WorkloadError("needs the path of a trace file", where=f"{where}.path", remedy="write path: trace.csv")
    a_choice(config.format, f"{where}.format", FORMATS)
    a_choice(config.time_unit, f"{where}.time_unit", TIME_UNITS)
    a_choice(config.on_bad_row, f"{where}.on_bad_row", ("drop", "error"))
    a_choice(config.turns, f"{where}.turns", ("first", "all"))
    a_number(config.time_scale, f"{where}.time_scale", above=0)
    a_number(config.characters_per_token, f"{where}.characters_per_token", above=0)
    if config.limit is not None:
        a_count(config.limit, f"{where}.limit")
    if config.block_size is not None:
        a_count(config.block_size, f"{where}.block_size")
    if config.benchmark is not None:
        a_count(config.benchmark, f"{where}.benchmark", at_least=0)

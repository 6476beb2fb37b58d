"""Files of a recorded vLLM schedule: read, and checked key by key before anything is replayed.

The format is described in data/vllm_golden/README.md. A damaged file must end in an error with its place, and never
in a comparison: a schedule that nobody recorded is neither exact nor different.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from simulator.errors import InputError

Row = dict[str, Any]
Check = Callable[[Any], str | None]
"""What a value should be, in words, where it is something else; None where it is right."""

EMPTY_STEP_NS = 1_000_000
LATEST_NS = 4 * 10**15  # the clock counts picoseconds in 64 bits
MOST_TOKENS = 1 << 31
CUT_PASSES = 2
"""A run that was cut may end before so many of its passes do."""

RECORD_AGAIN = "record the case again"


def _number(least: int, most: int) -> Check:
    def check(value: Any) -> str | None:
        right = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return None if right else f"an integer from {least} to {most}"

    return check


def _share(value: Any) -> str | None:
    right = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return None if right else "a number from 0 to 1"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else "a text"


def _one_of(*choices: str) -> Check:
    return lambda value: None if isinstance(value, str) and value in choices else f"one of {', '.join(choices)}"


def _or_null(check: Check) -> Check:
    def either(value: Any) -> str | None:
        wanted = None if value is None else check(value)
        return wanted and f"{wanted}, or null"

    return either


def _names(value: Any) -> str | None:
    right = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return None if right else "a list of ids"


def _pairs(value: Any) -> str | None:
    right = isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and _COUNT(pair[1]) is None
        for pair in value
    )
    return None if right else "a list of [id, tokens]"


def _segments(value: Any) -> str | None:
    right = isinstance(value, list) and all(
        isinstance(part, list)
        and len(part) == 3
        and isinstance(part[0], str)
        and all(_COUNT(number) is None for number in part[1:])
        for part in value
    )
    return None if right else "a list of [stream, start, length]"


def _groups(value: Any) -> str | None:
    wanted = 'a list of {"type": "full"} and {"type": "swa", "window": ...}, each with a block_size or without'
    if not isinstance(value, list):
        return wanted
    for group in value:
        if not isinstance(group, dict) or group.get("type") not in ("full", "swa"):
            return wanted
        window, size = group.get("window"), group.get("block_size", 1)
        right = window is None if group["type"] == "full" else _TOKENS(window) is None
        if not right or _SIZE(size) is not None:
            return wanted
    return None


_COUNT, _SIZE, _TOKENS = _number(0, 1 << 62), _number(1, 1 << 20), _number(1, MOST_TOKENS)
_TIME = _number(0, LATEST_NS)

CONFIG: Mapping[str, Check] = {
    "clock": _one_of("time", "step"),
    "policy": _one_of("fcfs", "priority"),
    "max_model_len": _TOKENS,
    "max_num_seqs": _TOKENS,
    "max_num_active_seqs": _or_null(_TOKENS),
    "max_num_batched_tokens": _TOKENS,
    "block_size": _SIZE,
    "num_gpu_blocks": _number(2, 1 << 26),
    "kv_groups": _or_null(_groups),
    "enable_prefix_caching": _flag,
    "enable_chunked_prefill": _flag,
    "async_scheduling": _flag,
    "scheduler_reserve_full_isl": _flag,
    "watermark": _share,
    "long_prefill_token_threshold": _number(0, MOST_TOKENS),
    "long_prefill_token_threshold_adaptive": _flag,
    "prefill_schedule_interval": _TOKENS,
    "prefix_cache_retention_interval": _or_null(_number(0, MOST_TOKENS)),
    "step_base_ns": _number(0, 10**12),
    "step_per_token_ns": _number(0, 10**9),
    "step_per_ctx_ns": _number(0, 10**7),
    "max_steps": _or_null(_number(1, 1 << 50)),
}
REQUEST: Mapping[str, Check] = {"id": _text, "prompt_len": _TOKENS, "output_len": _TOKENS}
REQUEST_OPTIONAL: Mapping[str, Check] = {
    "priority": _number(-(1 << 31), 1 << 31),
    "segments": _segments,
}
PASS: Mapping[str, Check] = {
    "step": _COUNT, "t_ns": _COUNT, "sched": _pairs, "tok": _COUNT, "ctx": _COUNT, "run": _COUNT, "wait": _COUNT,
    "free": _COUNT, "dur_ns": _COUNT,
}  # fmt: skip
PASS_OPTIONAL: Mapping[str, Check] = {
    "arr": _names, "admit": _pairs, "preempt": _names, "fin": _names, "evict": _COUNT, "k": _COUNT,
    "start_ns": _COUNT, "stall": _COUNT, "free_end": _COUNT,
}  # fmt: skip


def read_config(path: Path) -> Row:
    """Settings of a case. Raises InputError for the first key that is missing or wrong."""
    rows = _parsed(_bytes(path, "give the path without .config.json"), str(path))
    if not isinstance(rows, dict):
        raise InputError("holds no JSON object", where=str(path), remedy=RECORD_AGAIN)
    _check(rows, CONFIG, {}, str(path))
    if rows.get("empty_step_ns", EMPTY_STEP_NS) != EMPTY_STEP_NS:
        what = f"empty_step_ns is {rows['empty_step_ns']!r}: an empty pass takes {EMPTY_STEP_NS} ns here"
        raise InputError(what, where=str(path), remedy=f"record the case with {EMPTY_STEP_NS}")
    return rows


def read_requests(path: Path, *, by_step: bool) -> list[Row]:
    """Requests of a case, in the order of the file. Raises InputError for the first that is wrong."""
    rows = _lines(path)
    if not rows:
        raise InputError("holds no requests", where=str(path), remedy=RECORD_AGAIN)
    required = {**REQUEST, "arrival_step" if by_step else "arrival_ns": _TIME}
    seen: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        where = f"{path}:{number}"
        _check(row, required, REQUEST_OPTIONAL, where)
        first = seen.setdefault(row["id"], number)
        if first != number:
            what = f"id {row['id']!r} stands in line {first} already"
            raise InputError(what, where=where, remedy="give every request a name of its own")
        length = sum(part[2] for part in row["segments"]) if row.get("segments") is not None else row["prompt_len"]
        if length != row["prompt_len"]:
            what = f"segments of {length} tokens make no prompt_len of {row['prompt_len']}"
            raise InputError(what, where=where, remedy=f"set prompt_len: {length}, or mend the segments")
    return rows


def read_passes(path: Path) -> list[Row]:
    """Recorded passes. Raises InputError for the first line that is no pass, or not the next one."""
    rows = _lines(path)
    for index, row in enumerate(rows):
        where = f"{path}:{index + 1}"
        _check(row, PASS, PASS_OPTIONAL, where)
        if row["step"] != index:
            raise InputError(f"step is {row['step']}, where pass {index} stands", where=where, remedy=RECORD_AGAIN)
        if "free_end" not in row and index < len(rows) - CUT_PASSES:
            raise InputError("free_end is missing", where=where, remedy=RECORD_AGAIN)
    return rows


def _check(row: Any, required: Mapping[str, Check], optional: Mapping[str, Check], where: str) -> None:
    """Raises InputError for the first key of ``row`` that is missing or wrong; keys of no meaning may stand there."""
    if not isinstance(row, dict):
        raise InputError("holds no JSON object", where=where, remedy=RECORD_AGAIN)
    for key, check in required.items():
        if key not in row:
            raise InputError(f"{key} is missing", where=where, remedy=f"set {key}, or {RECORD_AGAIN}")
        _check_value(row[key], check, key, where)
    for key, check in optional.items():
        if row.get(key) is not None:
            _check_value(row[key], check, key, where)


def _check_value(value: Any, check: Check, key: str, where: str) -> None:
    wanted = check(value)
    if wanted is not None:
        shown = json.dumps(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        raise InputError(f"{key} is {shown}", where=where, remedy=f"write {wanted}")


def _bytes(path: Path, where_missing: str) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except FileNotFoundError:
        raise InputError("no such file", where=str(path), remedy=where_missing) from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read: {error}", where=str(path), remedy=RECORD_AGAIN) from None


def _parsed(text: bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", where=where, remedy=RECORD_AGAIN) from None


def _lines(path: Path) -> list[Any]:
    lines = _bytes(path, "keep a case's files together").splitlines()
    return [_parsed(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]

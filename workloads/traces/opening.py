"""Opens a trace, plain or gzip, and tells its format from its content."""

from __future__ import annotations

import difflib
import gzip
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from workloads.errors import WorkloadError

_FOREIGN = {
    b"PAR1": "Parquet",
    b"PK\x03\x04": "a zip archive",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"BZh": "bzip2",
}


_CONVERSATION = {"conversations", "conversation", "messages"}


@contextmanager
def open_trace(path: Path, where: str) -> Iterator[TextIO]:
    """The text of ``path``. Raises WorkloadError where it cannot be read or is cut short."""
    try:
        with path.open("rb") as raw:
            magic = raw.read(6)
            for mark, name in _FOREIGN.items():
                if magic.startswith(mark):
                    raise WorkloadError(
                        f"{path} is {name}, which is not read here", where=where, remedy="convert it to CSV or JSONL"
                    )
            raw.seek(0)
            binary = gzip.GzipFile(fileobj=raw) if magic.startswith(b"\x1f\x8b") else raw
            yield io.TextIOWrapper(binary, encoding="utf-8-sig", errors="replace")
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, _neighbours(path), n=1)
        remedy = f"did you mean {path.parent / near[0]}?" if near else "check the path"
        raise WorkloadError(f"there is no file {path}", where=where, remedy=remedy) from None
    except (EOFError, gzip.BadGzipFile) as error:
        raise WorkloadError(f"{path} is cut short: {error}", where=where, remedy="fetch the file again") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise WorkloadError(f"{path} cannot be read: {reason}", where=where, remedy="give a readable file") from None


def detect_format(path: Path, where: str) -> str:
    """The format of ``path``: one of TraceConfig's, never ``auto``. Raises WorkloadError for an empty file."""
    with open_trace(path, where) as text:
        head = text.read(65_536)
    start = head.lstrip()
    if not start:
        raise WorkloadError(f"{path} is empty", where=where, remedy="give a trace with at least one request")
    if start[0] == "{" and (tool := _benchmark_tool(head)):
        return tool
    if start[0] == "[":
        return "sharegpt" if _is_conversation(start) else "jsonl"
    if start[0] == "{":
        keys = _first_keys(start, head)
        if keys & _CONVERSATION:
            return "sharegpt"
        return "mooncake" if {"hash_ids", "timestamp"} <= keys else "jsonl"
    return _table_format(start.split("\n", 1)[0])


def _benchmark_tool(head: str) -> str | None:
    """The benchmark tool that wrote a JSON object, by keys that stand near its beginning."""

    def has(*names: str) -> bool:
        return all(f'"{name}"' in head for name in names)

    if has("guidellm_version") or has("benchmarks", "type_"):
        return "guidellm"
    if has("aiperf_version") or has("request_throughput", "request_latency", "avg"):
        return "aiperf"
    if has("metadata", "metrics", "benchmark_phase") or has("metadata", "request_start_ns"):
        return "aiperf"
    if has("input_lens", "output_lens") or has("num_prompts", "total_output_tokens", "request_throughput"):
        return "vllm-bench"
    return "vllm-bench" if has("endpoint_type", "model_id", "num_prompts") else None


def _table_format(header: str) -> str:
    names = {name.strip().strip('"').lower() for name in header.split(",")}
    if {"timestamp", "contexttokens", "generatedtokens"} <= names:
        return "azure"
    if {"timestamp", "request tokens", "response tokens"} <= names:
        return "burstgpt"
    if {"arrived_at", "num_prefill_tokens", "num_decode_tokens"} <= names:
        return "vidur"
    return "csv"


def _first_keys(start: str, head: str) -> set[str]:
    """Keys of the first line that is an object with at least two; a broken first line must not decide."""
    for line in start.split("\n")[:100]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and (len(value) > 1 or value.keys() & _CONVERSATION):
            return set(value)
    return {name for name in ("hash_ids", "timestamp", *_CONVERSATION) if f'"{name}"' in head}


def _is_conversation(head: str) -> bool:
    return any(f'"{name}"' in head for name in _CONVERSATION)


def _neighbours(path: Path) -> list[str]:
    return sorted(p.name for p in path.parent.iterdir()) if path.parent.is_dir() else []

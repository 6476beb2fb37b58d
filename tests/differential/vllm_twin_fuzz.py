"""Compares the engine's replay with the vLLM twin on seeded random cases.

    python -m tests.differential.vllm_twin_fuzz --seeds 0:1000 --kind all

prints the first difference of every case that differs, and how many did. ``--save DIR`` keeps their two files for
``kvplan verify schedule``. The exit code is 1 when a case differs.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from simulator import verify_schedule
from tests.differential.vllm_twin import twin_run
from tests.vllm_cases_random import KINDS, random_case


def unsupported(config: dict[str, Any]) -> str | None:
    """What of a case the engine says it cannot replay; None when it replays all."""
    asked: Callable[[dict[str, Any]], str | None] | None = getattr(verify_schedule, "unsupported", None)
    return asked(config) if asked is not None else None


def difference(config: dict[str, Any], requests: list[dict[str, Any]]) -> str | None:
    """The first pass, or the status, in which the engine and the twin differ; None when they agree."""
    twin = twin_run(config, requests)
    ours = verify_schedule.replay(config, requests)
    found = verify_schedule.first_difference(ours.passes, twin.passes)
    if found is None and ours.status != twin.status:
        return f"  all passes agree, but ours ends as {ours.status}, the twin as {twin.status}"
    return found


@contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"not ended after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _compare(seed: int, kind: str, seconds: int) -> str | None:
    config, requests = random_case(seed, kind)
    try:
        with _time_limit(seconds):
            return difference(config, requests)
    except Exception as error:
        where = traceback.format_exception(error, limit=-4)
        return "  " + "".join(where).replace("\n", "\n  ").rstrip()


def _save(folder: Path, seed: int, kind: str) -> None:
    """The case as the recorded ones lie, the twin's passes as the record."""
    import gzip

    config, requests = random_case(seed, kind)
    folder.mkdir(parents=True, exist_ok=True)
    prefix = folder / f"{kind}_{seed}"
    Path(f"{prefix}.config.json").write_text(json.dumps(config))
    Path(f"{prefix}.requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in requests))
    rows = "".join(json.dumps(row) + "\n" for row in twin_run(config, requests).passes)
    Path(f"{prefix}.steps.jsonl.gz").write_bytes(gzip.compress(rows.encode(), mtime=0))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.vllm_twin_fuzz", description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="first:last+1")
    parser.add_argument("--kind", default="all", choices=("all", *KINDS))
    parser.add_argument("--timeout", type=int, default=20, help="seconds for one case")
    parser.add_argument("--show", type=int, default=5, help="differences printed for each kind")
    parser.add_argument("--save", type=Path, help="folder for the files of the cases that differ")
    options = parser.parse_args(arguments)
    first, last = (int(part) for part in options.seeds.split(":"))
    differing = 0
    for kind in KINDS if options.kind == "all" else (options.kind,):
        began = time.perf_counter()
        compared, bad = 0, []
        for seed in range(first, last):
            if unsupported(random_case(seed, kind)[0]):
                continue
            compared += 1
            found = _compare(seed, kind, options.timeout)
            if found is None:
                continue
            bad.append(seed)
            if len(bad) <= options.show:
                print(f"{kind} {seed}: differs\n{found}", flush=True)
            if options.save:
                _save(options.save, seed, kind)
        differing += len(bad)
        seconds = time.perf_counter() - began
        skipped = last - first - compared
        print(
            f"{kind}: {len(bad)} of {compared} differ, {skipped} not supported, {seconds:.1f} s {bad[:40]}", flush=True
        )
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())

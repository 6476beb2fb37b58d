"""The first pass in which two schedules differ, as a person wants to read it: side by side, with the state before."""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import Any

Pass = dict[str, Any]

COMPARED = (
    "t_ns", "k", "start_ns", "arr", "sched", "admit", "preempt", "tok", "ctx", "run", "wait", "free", "evict", "dur_ns",
    "fin", "stall",
)  # fmt: skip
TEXT = {
    "t_ns": "time of the pass (ns)", "k": "step clock", "start_ns": "start of the step (ns)", "arr": "arrived",
    "sched": "scheduled [id, tokens]", "admit": "admitted [id, hit tokens]", "preempt": "preempted",
    "tok": "tokens", "ctx": "context tokens", "run": "running", "wait": "waiting", "free": "free blocks",
    "evict": "cached blocks evicted", "dur_ns": "duration (ns)", "fin": "finished", "stall": "nothing to do",
    "free_end": "free blocks at the end",
}  # fmt: skip
WIDTH = 28
EQUAL_LINES = 2
"""Of equal entries of a list so many stand before and after the differing ones."""


def first_difference(ours: list[Pass], theirs: list[Pass]) -> str | None:
    """The first pass that differs, both sides with the state before; None when all agree."""
    for index in range(max(len(ours), len(theirs))):
        mine = ours[index] if index < len(ours) else None
        real = theirs[index] if index < len(theirs) else None
        if mine is None or real is None:
            return f"  pass {index}: {'the replay' if mine is None else 'the record'} has ended already"
        keys = [key for key in COMPARED if (mine.get(key) or None) != (real.get(key) or None)]
        # A stalled last pass, or one that was cut, may stand without it.
        if "free_end" in real and "free_end" in mine and real["free_end"] != mine["free_end"]:
            keys.append("free_end")
        if keys:
            return "\n".join(_side_by_side(index, keys, mine, real, theirs[:index]))
    return None


def _side_by_side(index: int, keys: list[str], mine: Pass, real: Pass, before: list[Pass]) -> list[str]:
    lines = [f"  pass {index}, differing in {', '.join(keys)}", *_state(before)]
    lines.append(f"    {'':<{WIDTH}} {'recorded':<{WIDTH}} ours")
    for key in (*COMPARED, "free_end"):
        if key not in mine and key not in real:
            continue
        left, right = _cells(real.get(key)), _cells(mine.get(key))
        name = TEXT[key]
        for a, b in _shortened(list(zip_longest(left, right, fillvalue=""))):
            differs = a != b and not a.startswith("...")
            mark = "*" if differs or (name and key in keys) else " "
            lines.append(f"  {mark} {name:<{WIDTH}} {a:<{WIDTH}} {b}".rstrip())
            name = ""
    return lines


def _cells(value: Any) -> list[str]:
    if isinstance(value, list):
        return [json.dumps(entry) for entry in value] or ["-"]
    return ["-" if value is None else str(value)]


def _shortened(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """A long list by its differing entries and their neighbours."""
    differing = [i for i, (a, b) in enumerate(pairs) if a != b]
    if len(pairs) <= 2 * EQUAL_LINES + 2:
        return pairs
    if not differing:
        more = f"... {len(pairs) - 2} more, all equal"
        return [*pairs[:2], (more, "")]
    first, last = max(differing[0] - EQUAL_LINES, 0), min(differing[-1] + EQUAL_LINES + 1, len(pairs))
    shown = pairs[first:last]
    if first:
        shown.insert(0, (f"... {first} equal", ""))
    if last < len(pairs):
        shown.append((f"... {len(pairs) - last} equal", ""))
    return shown


def _state(before: list[Pass]) -> list[str]:
    """Who ran with how many scheduled tokens, and who waited, after the recorded passes so far."""
    if not before:
        return ["  state before: nothing had happened"]
    running: dict[str, int] = {}
    waiting: list[str] = []
    for row in before:
        waiting += row.get("arr", [])
        for name in row.get("preempt", []):
            running.pop(name, None)
            waiting.insert(0, name)
        for name, hit in row.get("admit", []):
            waiting.remove(name)
            running[name] = hit
        for name, tokens in row["sched"]:
            running[name] = running.get(name, 0) + tokens
        for name in row.get("fin", []):
            if running.pop(name, None) is None and name in waiting:
                waiting.remove(name)
    last = before[-1]
    held = ", ".join(f"{name} ({tokens} tokens)" for name, tokens in running.items()) or "nobody"
    queue = ", ".join(waiting[:10]) + (f", ... {len(waiting) - 10} more" if len(waiting) > 10 else "")
    return [
        f"  state before: running {held}",
        f"                waiting {queue or 'nobody'}",
        f"                free {last.get('free_end', last['free'])} blocks",
    ]

"""What ``kvplan workload --prefix-cache`` prints, and the rows of its CSV."""

from __future__ import annotations

from typing import Any

CSV_COLUMNS = (
    *("cache", "eviction", "block_size_tokens", "cache_tokens", "cache_gib"),
    *("cached_tokens", "prompt_tokens", "token_hit_rate"),
)
_CELL = 8
_NAMES = {"hash_chain": "hash chain, blocks of", "radix": "radix, pages of"}


def answer(facts: dict[str, Any]) -> list[str]:
    """The two sentences: what an infinite cache serves, and how large a cache comes near."""
    rate, near = facts["ideal_token_hit_rate"], facts["near_ideal_token_hit_rate"]
    cache = f"hash chain, blocks of {facts['block_size_tokens']}"
    first = (
        f"An infinite prefix cache would serve {percent(rate)} of the {tokens(facts['prompt_tokens'])} prompt tokens"
        f" ({cache})."
    )
    if rate == 0:
        return [first, "No prompt has a full block in common with an earlier one, so no cache size helps."]
    size = tokens(facts["near_ideal_cache_tokens"])
    if facts["near_ideal_cache_gib"] is None:
        what = f"A cache of {size} tokens"
    else:
        per_token = facts["kv_bytes_per_token"] / 1024
        what = (
            f"{number(facts['near_ideal_cache_gib'])} GiB ({size} tokens of {facts['model']}, {per_token:g} KiB each)"
        )
    if facts["near_ideal_cache_tokens"] == facts["smallest_cache_tokens"]:
        what += ", as much as the longest request takes,"
    return [first, f"{what} would come within {100 * facts['within_share']:g} point of it ({percent(near)})."]


def prefix_text(facts: dict[str, Any]) -> str:
    """The answer, a table of hit rates by cache size, and what was assumed."""
    lines = [*answer(facts), "", *_table(facts), ""]
    blocks = f"{percent(facts['ideal_block_hit_rate'])} of {facts['prompt_blocks']:,}"
    lines.append(
        f"Blocks of {facts['block_size_tokens']} that an infinite cache hits, partial last ones counted: {blocks}"
    )
    if facts["rows_left_out"]:
        lines.append(f"Rows left out, as their prompts exceed the context: {facts['rows_left_out']:,}")
    lines += ["", "Assumptions", *(f"  - {line}" for line in facts["assumptions"])]
    if facts["notes"]:
        lines += ["", "Notes", *(f"  - {line}" for line in facts["notes"])]
    return "\n".join(lines).encode("ascii", "backslashreplace").decode("ascii") + "\n"


def csv_rows(facts: dict[str, Any]) -> list[list[object]]:
    """Rows under ``CSV_COLUMNS``; an infinite cache has no size, and its eviction is ``none``."""
    rows: list[list[object]] = []
    for curve in facts["curves"]:
        kind = [curve["cache"], curve["eviction"], curve["block_size_tokens"]]
        for point in curve["points"]:
            size = [point["cache_tokens"], "" if point["cache_gib"] is None else point["cache_gib"]]
            rows.append([*kind, *size, point["cached_tokens"], facts["prompt_tokens"], point["token_hit_rate"]])
        ideal = [curve["ideal_cached_tokens"], facts["prompt_tokens"], curve["ideal_token_hit_rate"]]
        rows.append([curve["cache"], "none", curve["block_size_tokens"], "", "", *ideal])
    return rows


def percent(share: float) -> str:
    """37.3 %; what is above zero but would round to it is said so."""
    return "<0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def tokens(count: int) -> str:
    """Tokens as people say them: 950, 26,648, 144.8 million."""
    if count < 1_000_000:
        return f"{count:,}"
    return f"{count / 1e6:,.1f} million" if count < 1_000_000_000 else f"{count / 1e9:,.2f} billion"


def number(value: float) -> str:
    """A size with three digits at least: 0.52, 18.3, 3,253."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _table(facts: dict[str, Any]) -> list[str]:
    curves, model = facts["curves"], facts["model"] is not None
    lead = 15 + (11 if model else 0)
    title = "Prompt tokens served from the cache, in %, least recently used evicted first"
    groups, sizes = " " * lead, "cache tokens".rjust(15) + ("GiB".rjust(11) if model else "")
    for cache in dict.fromkeys(curve["cache"] for curve in curves):
        mine = [curve for curve in curves if curve["cache"] == cache]
        width = max(_CELL * len(mine), len(_NAMES[cache]) + 3)
        groups += _NAMES[cache].rjust(width)
        sizes += "".join(str(curve["block_size_tokens"]).rjust(_CELL) for curve in mine).rjust(width)
    lines = [title, groups, sizes]
    for size in sorted({point["cache_tokens"] for curve in curves for point in curve["points"]}):
        found = [_rate_at(curve, size) for curve in curves]
        gib = next(p["cache_gib"] for c in curves for p in c["points"] if p["cache_tokens"] == size)
        lines.append(_row(f"{size:,}", number(gib) if model else None, found, curves))
    ideal = [curve["ideal_token_hit_rate"] for curve in curves]
    lines.append(_row("infinite", "" if model else None, ideal, curves))
    return lines


def _row(size: str, gib: str | None, rates: list[float | None], curves: list[dict[str, Any]]) -> str:
    text = size.rjust(15) + ("" if gib is None else gib.rjust(11))
    for cache in dict.fromkeys(curve["cache"] for curve in curves):
        mine = [rate for rate, curve in zip(rates, curves, strict=True) if curve["cache"] == cache]
        cells = "".join(("-" if rate is None else f"{100 * rate:.1f}").rjust(_CELL) for rate in mine)
        text += cells.rjust(max(_CELL * len(mine), len(_NAMES[cache]) + 3))
    return text


def _rate_at(curve: dict[str, Any], size: int) -> float | None:
    return next((p["token_hit_rate"] for p in curve["points"] if p["cache_tokens"] == size), None)

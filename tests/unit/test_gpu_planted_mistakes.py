"""Mistakes known from paged-attention kernels, planted in the source: each must be caught, for the right reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_validate.variants import Variant
from tests.kernel_support import decode_faults, needs_compiler, planted, quick_backend

pytestmark = needs_compiler

TILES, DECODE, MERGE = "decode_tiles.h", "paged_decode", "merge_splits"
SMALL = Variant(64, 16, 4)
WINDOW = Variant(64, 16, 4, window=40)
TEAM = Variant(192, 16, 20)  # its warps share a tile
WRONG, RACE = "numbers are wrong", "no barrier since"

MISTAKES = {
    "identity table": (
        TILES,
        "load_global(table + token / BLOCK_SIZE) * BLOCK_SIZE",
        "token / BLOCK_SIZE * BLOCK_SIZE",
        SMALL,
        WRONG,
    ),
    "tail read from memory": (
        TILES,
        "live = seen(r, tile * TILE + row);",
        "live = seen(r, tile * TILE + row) || row >= 2;",
        SMALL,
        WRONG,
    ),
    "tail of zeros counted": (DECODE, "if (!seen(r, token)) ", "if (token < r.begin) ", SMALL, WRONG),
    "wrong KV head": (DECODE, "k_pool + kv_head * ", "k_pool + (kv_head + 1) % kv_heads * ", SMALL, WRONG),
    "heads interleaved": (
        DECODE,
        "const i64 first_head = (static_cast<i64>(sequence) * kv_heads + kv_head) * GROUP;",
        "const i64 first_head = static_cast<i64>(sequence) * kv_heads * GROUP + kv_head;",
        SMALL,
        "where block 0 has written",
    ),
    "no wait for copies": (DECODE, "copies_wait<STAGES - 1>();", "", SMALL, "read before its copy was waited for"),
    "wait for one copy too few": (
        DECODE,
        "copies_wait<STAGES - 1>();",
        "copies_wait<STAGES>();",
        SMALL,
        "read before its copy was waited for",
    ),
    "no barrier after the wait": (DECODE, "team_barrier();  // every lane", "  // every lane", SMALL, RACE),
    "no barrier before the refill": (DECODE, "team_barrier();  // all have", "  // all have", SMALL, RACE),
    "a warp's barrier where warps share a tile": (TILES, "else block_barrier();", "else warp_barrier();", TEAM, RACE),
    "no barrier before the sums": (DECODE, "  block_barrier();  // the sums", "  // the sums", SMALL, RACE),
    "no barrier after the sums": (DECODE, "lane);\n  block_barrier();\n", "lane);\n", SMALL, RACE),
    "window one too long": (TILES, "length - WINDOW)", "length - WINDOW - 1)", WINDOW, WRONG),
    "window one too short": (TILES, "length - WINDOW)", "length - WINDOW + 1)", WINDOW, WRONG),
    "old sums not scaled down": (DECODE, "soft.sum[n][head] * shrink[n][head]", "soft.sum[n][head]", SMALL, WRONG),
    "splits summed without weights": (MERGE, "value * shrink + partial * weight", "value + partial", SMALL, WRONG),
    "splits' sums forgotten": (MERGE, "stat.second * weight", "weight", SMALL, WRONG),
    "empty splits merged": (MERGE, "if (stat.first == MINUS_INFINITY) continue;", "", SMALL, WRONG),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_caught(mistake: str, tmp_path: Path) -> None:
    name, right, wrong, variant, reason = MISTAKES[mistake]
    backend = quick_backend(folder=tmp_path, texts=planted(name, right, wrong))
    variant = variant.with_splits(3) if name == MERGE else variant
    faults = list(decode_faults(backend, variant))
    assert any(reason in fault for fault in faults), faults


@pytest.mark.parametrize("variant", [SMALL, SMALL.with_splits(3), WINDOW, TEAM], ids=lambda v: v.name)
def test_the_kernel_without_a_mistake_is_right(variant: Variant) -> None:
    assert not list(decode_faults(quick_backend(), variant))

"""Which kernel is compiled: a variant is what its macros fix. And what follows from them, and grids of variants."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpu_validate.number_formats import FORMATS, NumberFormat
from simulator.errors import InputError

HEAD_DIMS = (64, 80, 96, 128, 192, 256)
MAX_BLOCK_SIZE = 256
MAX_GROUP = 128
GRIDS = ("ci", "full", "bench")
_TILE_TOKENS = 16
_BLOCK_BYTES = 72000


@dataclass(frozen=True)
class Variant:
    """One compiled kernel, and into how many splits it is launched.

    Attributes:
        block_size: tokens a block.
        group: query heads of a KV head: 1 is MHA, all query heads MQA.
        dtype: of queries and output, "float16" or "bfloat16".
        kv_dtype: of keys and values: as ``dtype``, or "fp8_e4m3".
        window: tokens that a query sees, its own among them; 0 for all.
        paged: through a block table; False: each sequence in one stretch.
        splits: parts into which a sequence is cut (no macro: the grid's third side). Above 1, merge.cu runs after.
    """

    head_dim: int = 128
    block_size: int = 16
    group: int = 4
    dtype: str = "bfloat16"
    kv_dtype: str = "bfloat16"
    window: int = 0
    paged: bool = True
    splits: int = 1

    def __post_init__(self) -> None:
        _require(self.head_dim % 16 == 0 and 16 <= self.head_dim <= 256, "head_dim", self.head_dim, "one of 64 to 256")
        _require(1 <= self.block_size <= MAX_BLOCK_SIZE, "block_size", self.block_size, f"1 to {MAX_BLOCK_SIZE}")
        _require(1 <= self.group <= MAX_GROUP, "group", self.group, f"1 to {MAX_GROUP}")
        _require(self.dtype in ("float16", "bfloat16"), "dtype", self.dtype, "float16 or bfloat16")
        allowed = (self.dtype, "fp8_e4m3")
        _require(self.kv_dtype in allowed, "kv_dtype", self.kv_dtype, " or ".join(allowed))
        _require(self.window >= 0, "window", self.window, "0 for none, or tokens")
        _require(self.splits >= 1, "splits", self.splits, "1 or more")

    @property
    def name(self) -> str:
        """Short and unique: ``d128-b16-g4-bfloat16-paged``."""
        parts = [f"d{self.head_dim}", f"b{self.block_size}", f"g{self.group}", self.dtype]
        parts += [self.kv_dtype] if self.kv_dtype != self.dtype else []
        parts += [f"w{self.window}"] if self.window else []
        parts += ["paged" if self.paged else "contiguous"]
        parts += [f"s{self.splits}"] if self.splits > 1 else []
        return "-".join(parts)

    @property
    def format(self) -> NumberFormat:
        return FORMATS[self.dtype]

    @property
    def kv_format(self) -> NumberFormat:
        return FORMATS[self.kv_dtype]

    def macros(self) -> tuple[str, ...]:
        """NAME=value of each macro, in the kernels' order; the same for every number of splits."""
        return (
            f"HEAD_DIM={self.head_dim}",
            f"BLOCK_SIZE={self.block_size}",
            f"GROUP={self.group}",
            f"DTYPE={self.format.macro}",
            f"KV_DTYPE={self.kv_format.macro}",
            f"WINDOW={self.window}",
            f"PAGED={int(self.paged)}",
        )

    def with_splits(self, splits: int) -> Variant:
        return replace(self, splits=splits)

    def contiguous(self) -> Variant:
        return replace(self, paged=False)

    def geometry(self) -> Geometry:
        return _geometry(self)


@dataclass(frozen=True)
class Geometry:
    """How paged_decode.cu is launched; its constants of the same names, which tests hold equal.

    Attributes:
        threads: a thread block.
        teams: warps, or groups of warps, that run through tiles of their own.
        shared_bytes: of dynamic shared memory; above 48 KiB the host must raise the kernel's limit.
        blocks_per_sm: thread blocks that a Hopper multiprocessor is meant to hold at once.
    """

    threads: int
    teams: int
    shared_bytes: int
    blocks_per_sm: int


def _geometry(variant: Variant) -> Geometry:
    row_vectors = variant.head_dim * variant.kv_format.size_bytes // 16
    stage_bytes = 2 * _TILE_TOKENS * (row_vectors | 1) * 16
    head_tiles = -(-variant.group // 8)
    team_warps = -(-head_tiles // max(1, 256 // variant.head_dim))
    warp_tiles = -(-head_tiles // team_warps)
    stages = min(17500 * team_warps, _BLOCK_BYTES) // stage_bytes
    stages = max(2, min(8 if team_warps > 1 else 4, stages))
    teams = 1 if team_warps > 1 else min(4, _BLOCK_BYTES // (stages * stage_bytes))
    warps = teams * team_warps
    merge_bytes = warps * 8 * warp_tiles * (variant.head_dim + 4 + 2) * 4
    shared_bytes = max(teams * stages * stage_bytes, merge_bytes)
    registers = warp_tiles * variant.head_dim * 3 // 8 + 80
    blocks = max(1, min(4, 220000 // shared_bytes, 65536 // (registers * 32 * warps)))
    return Geometry(32 * warps, teams, shared_bytes, blocks)


def choose_splits(variant: Variant, *, batch: int, kv_heads: int, tokens: int, processors: int) -> int:
    """How many splits fill the GPU evenly: the fewest whose last wave of thread blocks wastes under a tenth.

    Args:
        tokens: of the longest sequence, as far as its window reaches.
        processors: streaming multiprocessors of the GPU.
    """
    geometry = variant.geometry()
    slots = processors * geometry.blocks_per_sm
    seen = min(tokens, variant.window or tokens)
    most = max(1, seen // (_TILE_TOKENS * geometry.teams * 4))  # four tiles a warp repay a split's start and merge
    best, best_filled = 1, 0.0
    for splits in range(1, min(most, 256) + 1):
        blocks = batch * kv_heads * splits
        filled = blocks / (-(-blocks // slots) * slots)
        if filled > best_filled + 1e-9:
            best, best_filled = splits, filled
        if filled >= 0.9:
            break
    return best


def grid(name: str) -> tuple[Variant, ...]:
    """A grid by name: "ci" (every feature, in seconds of a CPU), "full" (their product), "bench" (what is timed).

    Raises InputError for another name.
    """
    grids = {"ci": _ci, "full": _full, "bench": _bench}
    if name not in grids:
        raise InputError(f"there is no grid {name!r}", where="--grid", remedy=f"one of {', '.join(grids)}")
    return tuple(dict.fromkeys(grids[name]()))


def _ci() -> Iterator[Variant]:
    """Each value of each setting at least once, and every format with every head size, whose code they share."""
    formats = (("bfloat16", "bfloat16"), ("float16", "float16"), ("bfloat16", "fp8_e4m3"), ("float16", "fp8_e4m3"))
    groups, sizes, windows = (4, 1, 8, 12, 5, 32), (16, 1, 7, 64, 24, 256), (0, 0, 33, 0, 0, 16)
    for i, head_dim in enumerate(HEAD_DIMS):
        for j, (dtype, kv_dtype) in enumerate(formats):
            k = i + j
            yield Variant(head_dim, sizes[k % 6], groups[(k + i) % 6], dtype, kv_dtype, windows[(k + 2 * j) % 6])
    yield Variant(128, 16, 4)
    yield Variant(128, 16, 8, "float16", "float16", 100)
    yield Variant(64, 16, 71)
    yield Variant(128, 2, 2, "float16", "float16", 1)


def _full() -> Iterator[Variant]:
    """Head sizes by formats by groups, head sizes by block sizes, windows: every pair of settings that meet in code."""
    formats = (("float16", "float16"), ("bfloat16", "bfloat16"), ("float16", "fp8_e4m3"), ("bfloat16", "fp8_e4m3"))
    sizes, groups = (16, 1, 32, 3, 128, 8, 48, 256), (1, 2, 4, 7, 8, 16, 32, 71)
    for i, (head_dim, group, (dtype, kv_dtype)) in enumerate(itertools.product(HEAD_DIMS, groups, formats)):
        yield Variant(head_dim, sizes[(i + i // 8) % 8], group, dtype, kv_dtype)
    for i, (head_dim, block_size) in enumerate(itertools.product(HEAD_DIMS, sizes)):
        yield Variant(head_dim, block_size, groups[(i + i // 8) % 8], *formats[i % 4])
    for head_dim, window, block_size in itertools.product(HEAD_DIMS, (1, 16, 100), (1, 16, 24)):
        yield Variant(head_dim, block_size, 4, "bfloat16", "bfloat16", window)


def _bench() -> Iterator[Variant]:
    """What is timed on a GPU: the usual shapes, by block size, group and format, paged and contiguous."""
    for block_size in (1, 8, 16, 32, 64, 128, 256):
        yield Variant(128, block_size)
    for head_dim, group in ((64, 8), (80, 1), (96, 1), (128, 1), (128, 8), (128, 16), (128, 32), (192, 4), (256, 2)):
        yield Variant(head_dim, 16, group)
    yield Variant(128, 16, 4, "float16", "float16")
    yield Variant(128, 16, 4, "bfloat16", "fp8_e4m3")
    yield Variant(128, 16, 8, "bfloat16", "fp8_e4m3")
    yield Variant(128, 16, 4, window=4096)
    for block_size in (16, 64):
        yield Variant(128, block_size).contiguous()


def _require(good: bool, setting: str, value: object, remedy: str) -> None:
    if not good:
        raise InputError(f"no kernel has {setting} {value!r}", where=setting, remedy=remedy)

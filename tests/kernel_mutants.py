"""Every index expression of the kernels, wrong in one place at a time: which of these mutants do the tests let pass?

``python -m tests.kernel_mutants`` tries them all (minutes) and lists the survivors.
"""

from __future__ import annotations

import os
import re
import resource
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gpu_validate.backend import KernelError
from gpu_validate.cpu_backend import CpuBackend
from gpu_validate.variants import Variant
from tests.kernel_support import (
    EVERY_LINE,
    decode_faults,
    float8_faults,
    prepared,
    prepared_append,
    source,
    write_faults,
)

# Where the index arithmetic of a file begins; what stands before sizes the launch (tests/unit/test_gpu_variants.py).
STARTS = {
    "decode_tiles.h": "// The tokens of one sequence",
    "paged_decode": "// The running softmax",
    "merge_splits": "KERNEL",
    "append": "constexpr int PIECE",
    "float8.h": "DEVICE",
    "copy_blocks": "KERNEL",
}
_SWAPS = {
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "*",
    "%": "/",
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "<<": ">>",
    ">>": "<<",
    "&": "|",
    "|": "&",
    "&&": "||",
    "||": "&&",
    "+=": "-=",
    "*=": "+=",
    "imin": "imax",
    "imax": "imin",
    "fmaxf": "fminf",
    "fminf": "fmaxf",
}
_SITE = re.compile(
    r"(?<= )(?:[+*]=|<<|>>|[<>=!]=|&&|\|\||[-+*/%<>&|])(?= )"  # binary operators have spaces around them
    r"|\b(?:imin|imax|fmaxf|fminf)(?=\()"
    r"|(?<![\w.])\d+(?![\w.])"  # integers
)
_LIMIT_S = 20  # of the processor, compilers not counted
# Mutants that compute the same: why.
_DEAD_ROW = "where a row that is not read would have been"
_LARGER = "an array larger than its use"
_INSIDE = "const bool inside = tile * TILE >= r.begin && tile * TILE + TILE <= r.end;"
_STATS = "if (dimension == 0) store_global(partial_stats + at, merged);"
EQUIVALENT = {
    ("decode_tiles.h", "0 -> 1", "if (token >= r.end) return 0;"): _DEAD_ROW,
    ("decode_tiles.h", "0 -> 1", "if (!PAGED) at = live ? at : 0;"): _DEAD_ROW,
    ("decode_tiles.h", "< -> <=", "for (int i = 0; i < COPIES; ++i) {"): "the last copies are guarded",
    ("decode_tiles.h", "0 -> 1", "u32 two = 0;"): "queries of heads that do not exist",
    (
        "decode_tiles.h",
        "16 -> 17",
        "load_matrices(bytes, keys + lane % 16 * PITCH + step);",
    ): "lanes 16 to 31 name nothing",
    (
        "decode_tiles.h",
        "16 -> 17",
        "load_matrices_transposed(bytes, values + lane % 16 * PITCH + step);",
    ): "lanes 16 to 31 name nothing",
    ("paged_decode", "2 -> 3", "float max[WARP_TILES][2];"): _LARGER,
    ("paged_decode", "2 -> 3", "float sum[WARP_TILES][2];"): _LARGER,
    ("paged_decode", "2 -> 3", "float shrink[WARP_TILES][2];"): _LARGER,
    ("paged_decode", ">= -> >", _INSIDE): "a whole tile is masked in vain",
    ("paged_decode", "<= -> <", _INSIDE): "a whole tile is masked in vain",
    ("paged_decode", "> -> >=", "rises = rises || highest > soft.max[n][head];"): "scaled by 1",
    (
        "paged_decode",
        "0 -> 1",
        "if (lane / 4 == 0) store_shared(stats + head, Pair{soft.max[n][i], sum});",
    ): "every lane of a head holds the same",
    (
        "paged_decode",
        "0 -> 1",
        "const int capacity_row = PAGED ? 0 : sequence * row_blocks * BLOCK_SIZE;",
    ): "unread with a table",
    ("paged_decode", "1 -> 2", "copies_wait<STAGES - 1>();"): "waits for more than it needs",
    ("paged_decode", "== -> !=", _STATS): "every dimension holds the same",
    ("paged_decode", "0 -> 1", _STATS): "every dimension holds the same",
    ("append", "2 -> 3", "u32 words[2] = {0, 0};"): _LARGER,
    ("float8.h", ">= -> >", "if (size >= 0x43e00000) return static_cast<u8>(sign | 0x7e);"): "448 itself is a number",
    ("float8.h", "10 -> 11", "if (exponent < -10) return static_cast<u8>(sign);"): "the long way gives 0 too",
    (
        "float8.h",
        "< -> <=",
        "const int dropped = 20 + (exponent < -6 ? -6 - exponent : 0);",
    ): "both are 0 at -6",
    (
        "float8.h",
        "< -> <=",
        "return static_cast<u8>(sign | (exponent < -6 ? kept : kept + (static_cast<u32>(exponent + 6) << 3)));",
    ): "both are `kept` at -6",
    ("copy_blocks", "== -> !=", "Vector* pool = blockIdx.y == 0 ? k_pool : v_pool;"): "which pool comes first",
    ("copy_blocks", "0 -> 1", "Vector* pool = blockIdx.y == 0 ? k_pool : v_pool;"): "which pool comes first",
}
_FLAGS = (
    "-O0",
    "-fsanitize=bounds,shift",
    "-fsanitize-undefined-trap-on-error",
)  # compiled fast; an index outside an array ends the process
FAULTS = {"append": write_faults, "copy_blocks": write_faults, "float8.h": float8_faults}


@dataclass(frozen=True)
class Mutant:
    """One change: ``right`` at an offset of a file becomes ``wrong``."""

    file: str
    offset: int
    right: str
    wrong: str

    def text(self) -> str:
        text = source(self.file)
        return text[: self.offset] + self.wrong + text[self.offset + len(self.right) :]

    @property
    def line(self) -> str:
        """The line as it should be, without its comment."""
        text = source(self.file)
        start = text.rfind("\n", 0, self.offset) + 1
        return text[start : text.find("\n", self.offset)].partition("//")[0].strip()

    def __str__(self) -> str:
        number = source(self.file).count("\n", 0, self.offset) + 1
        return f"{self.file}:{number}: {self.right} -> {self.wrong} in: {self.line}"


def mutants() -> list[Mutant]:
    """Operators swapped for their neighbours, integers one too large, minima and maxima exchanged."""
    found = []
    for file, start in STARTS.items():
        text = source(file)
        offset = text.index(start)
        for line in text[offset:].splitlines(keepends=True):
            code = line.partition("//")[0]
            if not code.lstrip().startswith("#") and "__launch_bounds__" not in code:
                for site in _SITE.finditer(code):
                    wrong = _SWAPS.get(site[0]) or str(int(site[0]) + 1)
                    found.append(Mutant(file, offset + site.start(), site[0], wrong))
            offset += len(line)
    return found


def variants_for(file: str) -> tuple[Variant, ...]:
    """Which variants try a mutant of this file, the likeliest to catch it first."""
    if file == "merge_splits":
        return EVERY_LINE[0].with_splits(3), EVERY_LINE[1].with_splits(7)
    if file in FAULTS:
        return EVERY_LINE[:2]
    return (*EVERY_LINE, EVERY_LINE[0].with_splits(3), EVERY_LINE[3].contiguous(), Variant(64, 16, 9, window=1))


def verdict(mutant: Mutant, folder: Path) -> str:
    """ "caught", "refused" (by the compiler) or "survived"; a process of its own, as a mutant may loop for ever."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (_LIMIT_S, _LIMIT_S))
        os._exit(_try(mutant, folder))
    _, status = os.waitpid(child, 0)
    return {0: "survived", 2: "refused"}.get(os.waitstatus_to_exitcode(status), "caught")


def _try(mutant: Mutant, folder: Path) -> int:
    backend = CpuBackend(folder=folder, flags=_FLAGS, texts={mutant.file: mutant.text()})
    for variant in variants_for(mutant.file):
        try:
            fault = next(iter(FAULTS.get(mutant.file, decode_faults)(backend, variant)), None)
        except KernelError:
            return 2
        if fault is not None:
            return 2 if "g++ refused" in fault else 1
    return 0


def prepare(files: set[str]) -> None:
    """Cases are made once, before processes part."""
    for file in files:
        for variant in variants_for(file):
            if file in FAULTS:
                prepared_append(variant)
            else:
                prepared(variant.with_splits(1))


def try_all(which: list[Mutant], workers: int) -> dict[Mutant, str]:
    """The verdict of each mutant."""
    prepare({mutant.file for mutant in which})
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        return dict(zip(which, pool.map(lambda mutant: verdict(mutant, Path(folder)), which), strict=True))


def main() -> int:
    which = [mutant for mutant in mutants() if not sys.argv[1:] or mutant.file in sys.argv[1:]]
    verdicts = try_all(which, os.cpu_count() or 1)
    for kind in ("caught", "refused", "survived"):
        print(f"{kind}: {sum(1 for found in verdicts.values() if found == kind)}")
    for mutant, found in verdicts.items():
        if found == "survived":
            print(mutant)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Do the kernels compute what they should? A grid of variants against exact references, as a report and a file.

For each variant: decode attention through the table against float64 (`tolerance`); the same sequences in one stretch,
bit for bit the same; cut into splits and merged; tokens appended and blocks copied as a BlockManager does, bit for bit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpu_validate import kernel_source
from gpu_validate.append_case import append_shape, make_append_case
from gpu_validate.backend import Backend, KernelError
from gpu_validate.cases import Case, Shape, contiguous_case, every_last_block, lengths_around, make_case
from gpu_validate.number_formats import Bits, to_floats
from gpu_validate.tolerance import Exact, exact_attention, tolerance
from gpu_validate.variants import Variant

SCHEMA = "kvplan-gpu-check"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Finding:
    """One comparison.

    Attributes:
        check: "numpy", "contiguous", "splits", "append" or "copy".
        worst: largest error as a share of what rounding explains (1 and less is right); of bitwise comparisons the
            share of numbers that differ; None where the kernel failed.
        detail: empty where it passed.
    """

    check: str
    variant: str
    lengths: str
    worst: float | None
    passed: bool
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """All findings of a run, and what ran."""

    facts: dict[str, Any]
    kernel_hash: str
    grid: str
    seconds: float
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.passed)

    def document(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        head = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "grid": self.grid, "kernel_hash": self.kernel_hash}
        counts = {"checks": len(self.findings), "failed": len(self.failed), "seconds": round(self.seconds, 1)}
        return {**head, **self.facts, **counts, "findings": [asdict(finding) for finding in self.findings]}

    def write(self, path: Path) -> None:
        """Writes the report as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.document(), indent=1) + "\n")


def run_checks(
    backend: Backend,
    variants: tuple[Variant, ...],
    *,
    grid: str,
    longest: int = 300,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Checks each variant. A kernel that fails to run is a finding, not an error.

    Args:
        grid: its name, for the report.
        longest: tokens of the longest sequence: hundreds on a CPU, tens of thousands on a GPU.
        progress: told how many variants are done, of how many.
    """
    start = time.monotonic()
    backend.prepare(_needed(variants))
    findings: list[Finding] = []
    for i, variant in enumerate(variants):
        progress(i, len(variants))
        findings.extend(check_variant(backend, variant, longest=longest, seed=i))
    progress(len(variants), len(variants))
    return Report(backend.facts(), kernel_source.digest(), grid, time.monotonic() - start, tuple(findings))


def check_variant(backend: Backend, variant: Variant, *, longest: int, seed: int = 0) -> Iterator[Finding]:
    """All comparisons of one paged variant."""
    for shape in shapes(variant, longest=longest, seed=seed):
        yield from _decode_findings(backend, variant, make_case(variant, shape))
    yield from _write_findings(backend, variant, seed)


def shapes(variant: Variant, *, longest: int, seed: int) -> tuple[Shape, ...]:
    """Edges of blocks and tiles after a shared prefix; every fill of a last block, few tokens ruling; a long one."""
    size = variant.block_size
    fills = every_last_block(size)
    some = fills if size <= 16 else tuple(fills[i] for i in (0, 1, size // 2, size - 2, size - 1))
    prefix = size + size // 2 if size + size // 2 < longest else size // 2
    return (
        Shape(lengths_around(size, longest=max(longest, size + 40)), prefix=prefix, seed=seed),
        Shape(some, kv_heads=1, spread=3.0, level=-200.0, seed=seed),
        Shape((longest * 3 + 5,), kv_heads=3, spread=2.0, seed=seed),
    )


def split_counts(variant: Variant) -> tuple[int, ...]:
    """Even and uneven cuts, more splits than some sequences have tiles."""
    return (2, 7) if variant.group % 2 else (3,)


def _needed(variants: tuple[Variant, ...]) -> tuple[Variant, ...]:
    return tuple(
        one
        for variant in variants
        for one in (variant, variant.contiguous(), *map(variant.with_splits, split_counts(variant)))
    )


def _decode_findings(backend: Backend, variant: Variant, case: Case) -> Iterator[Finding]:
    lengths = _lengths(case)
    try:
        truth, paged = exact_attention(case, variant), backend.decode(case, variant)
        yield _within("numpy", variant, lengths, paged, truth)
        straight = backend.decode(contiguous_case(case, variant), variant.contiguous())
        yield _same("contiguous", variant, lengths, [(paged, straight)])
        for splits in split_counts(variant):
            cut = variant.with_splits(splits)
            yield _within("splits", cut, lengths, backend.decode(case, cut), truth)
    except KernelError as error:
        yield Finding("run", variant.name, lengths, None, False, str(error))


def _write_findings(backend: Backend, variant: Variant, seed: int) -> Iterator[Finding]:
    step = make_append_case(variant, append_shape(variant, seed))
    lengths = _lengths(step.before)
    try:
        k_copied, v_copied = backend.copy_blocks(step.before, variant, step.pairs)
        yield _same("copy", variant, lengths, [(k_copied, step.k_copied), (v_copied, step.v_copied)])
        copied = Case(**{**vars(step.before), "k_pool": step.k_copied, "v_pool": step.v_copied})
        k_after, v_after = backend.append(copied, variant, step.new, step.positions)
        yield _same("append", variant, lengths, [(k_after, step.k_after), (v_after, step.v_after)])
    except KernelError as error:
        yield Finding("run", variant.name, lengths, None, False, str(error))


def _within(check: str, variant: Variant, lengths: str, bits: Bits, truth: Exact) -> Finding:
    """Every number within its tolerance; a tolerance of 0 (a sequence of no token) asks for exact zeros."""
    got, allowed = to_floats(bits, variant.dtype), tolerance(truth, variant)
    error = np.abs(got - truth.output)
    shares = np.where(error == 0.0, 0.0, error / np.maximum(allowed, 1e-300))
    shares = np.where(np.isnan(shares), np.inf, shares)
    worst = float(shares.max())
    if worst <= 1.0:
        return Finding(check, variant.name, lengths, worst, True)
    at = tuple(int(i) for i in np.unravel_index(shares.argmax(), shares.shape))
    detail = (
        f"{(shares > 1).sum()} of {shares.size} numbers are wrong; sequence {at[0]}, head {at[1]}, dimension {at[2]}: "
        f"{got[at]:g} instead of {truth.output[at]:g} ± {allowed[at]:.2g}"
    )
    return Finding(check, variant.name, lengths, min(worst, 1e300), False, detail)


def _same(check: str, variant: Variant, lengths: str, pairs: list[tuple[Bits, Bits]]) -> Finding:
    """Bit for bit the same."""
    different = sum(int((got != wanted).sum()) for got, wanted in pairs)
    total = sum(wanted.size for _, wanted in pairs)
    detail = f"{different} of {total} numbers differ" if different else ""
    return Finding(check, variant.name, lengths, different / total, not different, detail)


def _lengths(case: Case) -> str:
    return " ".join(str(length) for length in case.lengths)

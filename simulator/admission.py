"""``mode: admission``: how many requests a KV pool holds at their final length, with no clock.

Requests are placed through the real allocators, in order, until the first that does not fit. This shows a
memory effect; it is not a speed benchmark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from simulator.allocators.base import CacheFull, KvAllocator
from simulator.allocators.block_pool import LESSON_FIFO, VLLM_V1, FreeListPolicy
from simulator.allocators.contiguous import ContiguousPool, Reservation
from simulator.allocators.extents import Fit
from simulator.allocators.paged import PagedAllocator
from simulator.allocators.pools import ContiguousPool as ContiguousPoolConfig
from simulator.allocators.pools import PagedPool, PoolConfig
from simulator.errors import InputError

BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LABEL = "a memory effect, not a speed benchmark"


@dataclass(frozen=True)
class AdmissionResult:
    """What one pool held when the first request did not fit.

    Attributes:
        admitted, offered: requests placed, and requests there were.
        refused_row: row of the first that did not fit; None when all fitted.
        total_slots: usable slots of the pool; one slot holds one token.
        allocated_slots: slots that the admitted requests hold.
        used_slots: of these, slots with a token.
    """

    admitted: int
    offered: int
    refused_row: int | None
    total_slots: int
    allocated_slots: int
    used_slots: int

    @property
    def wasted_slots(self) -> int:
        """Allocated slots minus stored tokens."""
        return self.allocated_slots - self.used_slots

    @property
    def used_share(self) -> float | None:
        """used / allocated; None when nothing was admitted."""
        return self.used_slots / self.allocated_slots if self.allocated_slots else None

    @property
    def binding_limit(self) -> Literal["kv_memory", "requests"]:
        """What ended the admissions: the pool, or that no request was left."""
        return "requests" if self.refused_row is None else "kv_memory"

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self) | {
            "wasted_slots": self.wasted_slots,
            "used_share": self.used_share,
            "binding_limit": self.binding_limit,
        }


def admit_until_refused(
    allocator: KvAllocator,
    prompt_tokens: Iterable[int],
    output_tokens: Iterable[int],
    *,
    max_model_len: int | None = None,
) -> AdmissionResult:
    """Places each request at prompt + output tokens, in order, until the first that does not fit.

    ``max_model_len`` cuts a request's final length, as the server does. ``allocator`` keeps what was placed.

    Raises:
        InputError: a prompt that is not shorter than ``max_model_len``.
    """
    sizes = [(int(p), int(o)) for p, o in zip(prompt_tokens, output_tokens, strict=True)]
    refused_row = None
    for row, (prompt, output) in enumerate(sizes):
        final = prompt + output
        if max_model_len is not None:
            if prompt >= max_model_len:
                raise InputError(
                    f"request {row} has a prompt of {prompt:,} tokens, the context is {max_model_len:,}",
                    remedy=f"raise engine.max_model_len above {prompt:,} or drop the request",
                )
            final = min(final, max_model_len)
        try:
            allocator.add(row, prompt, output, stored_tokens=final)
        except CacheFull:
            refused_row = row
            break
    usage = allocator.usage()
    return AdmissionResult(
        admitted=len(sizes) if refused_row is None else refused_row,
        offered=len(sizes),
        refused_row=refused_row,
        total_slots=usage.total_slots,
        allocated_slots=usage.allocated_slots,
        used_slots=usage.token_slots,
    )


def allocator_for(pool: PoolConfig, max_model_len: int) -> KvAllocator:
    """The allocator of a scenario's pool; of a paged one with a null block, that block is not usable."""
    if isinstance(pool, PagedPool):
        return PagedAllocator(pool.num_gpu_blocks, pool.block_size, policy_for(pool))
    return ContiguousPool(pool.num_slots, max_model_len, pool.reservation, pool.fit)


def policy_for(pool: PoolConfig) -> FreeListPolicy:
    """vLLM's free list where the pool has its null block, else a plain one."""
    return VLLM_V1 if isinstance(pool, ContiguousPoolConfig) or pool.null_block else LESSON_FIFO


@dataclass(frozen=True)
class AdmissionPoint:
    """One layout of a comparison: paged with a block size, or contiguous with a reservation."""

    layout: Literal["paged", "contiguous"]
    block_size: int | None
    reservation: Reservation | None
    result: AdmissionResult

    @property
    def table_entries(self) -> int:
        """Block ids that the tables hold: what small blocks cost. 0 for contiguous."""
        return self.result.allocated_slots // self.block_size if self.block_size else 0

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        layout = {"layout": self.layout, "block_size": self.block_size, "reservation": self.reservation}
        return layout | self.result.as_dict() | {"table_entries": self.table_entries}


def block_sizes_that_fit(pool_slots: int, policy: FreeListPolicy) -> tuple[int, ...]:
    """Those of BLOCK_SIZES of which the pool has a usable block."""
    return tuple(size for size in BLOCK_SIZES if pool_slots // size > policy.null_block)


def admission_by_block_size(
    pool_slots: int,
    max_model_len: int,
    prompt_tokens: Sequence[int],
    output_tokens: Sequence[int],
    *,
    block_sizes: Sequence[int] = BLOCK_SIZES,
    fit: Fit = "first",
    policy: FreeListPolicy = LESSON_FIFO,
) -> list[AdmissionPoint]:
    """The same requests into the same slots: the contiguous reservations, then each block size that fits."""
    points = []
    for reservation in get_args(Reservation):
        contiguous = ContiguousPool(pool_slots, max_model_len, reservation, fit)
        result = admit_until_refused(contiguous, prompt_tokens, output_tokens, max_model_len=max_model_len)
        points.append(AdmissionPoint("contiguous", None, reservation, result))
    for block_size in block_sizes:
        num_blocks = pool_slots // block_size
        if num_blocks <= policy.null_block:
            raise InputError(
                f"a pool of {pool_slots:,} slots has no usable block of {block_size}",
                remedy=f"use blocks of at most {pool_slots // (1 + policy.null_block):,}",
            )
        paged = PagedAllocator(num_blocks, block_size, policy)
        result = admit_until_refused(paged, prompt_tokens, output_tokens, max_model_len=max_model_len)
        points.append(AdmissionPoint("paged", block_size, None, result))
    return points


def admission_warnings(points: Sequence[AdmissionPoint]) -> list[str]:
    """What would mislead in a comparison: a knob that changed nothing, requests that ran out."""
    warnings = []
    short = [p for p in points if p.result.binding_limit == "requests"]
    if short:
        warnings.append(
            f"{len(short)} of {len(points)} layouts admitted all {short[0].result.offered:,} requests: memory did "
            "not bind there, so offer more requests to compare them"
        )
    paged = [p for p in points if p.layout == "paged"]
    if len(paged) > 1 and len({p.result.allocated_slots for p in paged}) == 1:
        warnings.append("the block size changed nothing: every length is a multiple of every block size")
    return warnings

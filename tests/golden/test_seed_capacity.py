"""SEED.md's capacity figures: 16 and 122 requests, 913 of 130,800 slots wasted, 12.9 % used."""

from __future__ import annotations

import csv
from itertools import accumulate, takewhile

import numpy as np
import pytest

from simulator.admission import (
    BLOCK_SIZES,
    admission_by_block_size,
    admission_warnings,
    admit_until_refused,
    allocator_for,
)
from simulator.allocators.block_pool import LESSON_FIFO, VLLM_V1
from simulator.allocators.contiguous import ContiguousPool
from simulator.allocators.paged import PagedAllocator
from simulator.allocators.pools import ContiguousPool as ContiguousConfig
from simulator.allocators.pools import PagedPool
from simulator.errors import InputError
from tests.support import ROOT

SLOTS, CONTEXT = 131_072, 8_192


def seed_requests() -> tuple[list[int], list[int]]:
    """Prompt and output tokens of the 500 committed requests; each half of a length that the seed draws."""
    with (ROOT / "scenarios/data/seed_lengths.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [int(row["prompt_tokens"]) for row in rows], [int(row["output_tokens"]) for row in rows]


def test_the_committed_lengths_are_the_seeds() -> None:
    prompts, outputs = seed_requests()
    lengths = [p + o for p, o in zip(prompts, outputs, strict=True)]
    assert len(lengths) == 500
    assert lengths[:10] == [1717, 1310, 1071, 612, 685, 177, 243, 131, 433, 1646]
    assert sum(lengths) == 546_948
    assert min(lengths) >= 100
    assert max(lengths) <= 2000


def test_a_16_gib_pool_for_llama_3_8b_holds_131072_slots() -> None:
    assert SLOTS == 16 * 2**30 // (2 * 32 * 8 * 128 * 2)


def test_contiguous_admits_16_and_uses_12_9_percent() -> None:
    result = admit_until_refused(ContiguousPool(SLOTS, CONTEXT, "max"), *seed_requests())
    assert result.admitted == result.refused_row == 16
    assert result.allocated_slots == 16 * 8_192
    assert result.used_share is not None
    assert f"{result.used_share:.1%}" == "12.9%"


@pytest.mark.parametrize("policy", [LESSON_FIFO, VLLM_V1], ids=lambda policy: policy.name)
def test_paged_admits_122_and_wastes_913_of_130800(policy: object) -> None:
    allocator = PagedAllocator(SLOTS // 16, 16, policy)  # type: ignore[arg-type]
    result = admit_until_refused(allocator, *seed_requests(), max_model_len=CONTEXT)
    assert (result.admitted, result.wasted_slots, result.allocated_slots) == (122, 913, 130_800)
    assert result.offered == 500
    assert result.binding_limit == "kv_memory"
    assert f"{result.wasted_slots / result.allocated_slots:.1%}" == "0.7%"


def test_a_scenarios_pools_say_the_same() -> None:
    requests = seed_requests()
    paged = admit_until_refused(allocator_for(PagedPool(SLOTS // 16, 16), CONTEXT), *requests)
    old = admit_until_refused(allocator_for(ContiguousConfig(SLOTS, "max"), CONTEXT), *requests)
    assert (old.admitted, old.offered, old.wasted_slots, old.allocated_slots) == (16, 500, 114_137, 131_072)
    assert (paged.admitted, paged.offered, paged.wasted_slots, paged.allocated_slots) == (122, 500, 913, 130_800)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("pool_slots", [4_096, 50_001, 131_072])
@pytest.mark.parametrize("block_size", [1, 7, 16, 256])
def test_other_seeds_pools_and_blocks_follow_the_arithmetic(seed: int, pool_slots: int, block_size: int) -> None:
    rng = np.random.default_rng(seed)
    prompts, outputs = rng.integers(1, 900, 400), rng.integers(1, 900, 400)
    lengths = [int(p + o) for p, o in zip(prompts, outputs, strict=True)]
    blocks = [-(-n // block_size) for n in lengths]
    fitting = list(takewhile(lambda total: total <= pool_slots // block_size, accumulate(blocks)))
    result = admit_until_refused(PagedAllocator(pool_slots // block_size, block_size), prompts, outputs)
    assert result.admitted == len(fitting)
    assert result.allocated_slots == (fitting[-1] if fitting else 0) * block_size
    assert result.used_slots == sum(lengths[: len(fitting)])
    oracle = admit_until_refused(ContiguousPool(pool_slots, 2_048, "oracle"), prompts, outputs)
    assert oracle.admitted == sum(total <= pool_slots for total in accumulate(lengths))
    assert oracle.wasted_slots == 0
    reserved = admit_until_refused(ContiguousPool(pool_slots, 2_048, "max"), prompts, outputs)
    assert reserved.admitted == min(400, pool_slots // 2_048)


def test_block_sizes_1_to_256_against_the_reservations() -> None:
    points = admission_by_block_size(SLOTS, CONTEXT, *seed_requests())
    by_reservation = {p.reservation: p.result.admitted for p in points if p.layout == "contiguous"}
    by_block = {p.block_size: p for p in points if p.layout == "paged"}
    assert tuple(by_block) == BLOCK_SIZES
    assert by_reservation["max"] == 16
    assert by_block[16].result.admitted == 122
    # One token a block wastes nothing, as exact reservations do; larger blocks never admit more.
    assert by_block[1].result.admitted == by_reservation["oracle"]
    counts = [p.result.admitted for p in by_block.values()]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < counts[0]
    assert by_block[1].table_entries == by_block[1].result.used_slots
    assert by_block[256].table_entries < by_block[16].table_entries
    assert admission_warnings(points) == []


def test_a_comparison_says_when_its_knob_changed_nothing() -> None:
    points = admission_by_block_size(8_192, 4_096, [512] * 3, [512] * 3, block_sizes=(1, 16, 256))
    first, second = admission_warnings(points)
    assert "admitted all 3 requests" in first
    assert "the block size changed nothing" in second


def test_the_context_cuts_lengths_and_refuses_longer_prompts() -> None:
    cut = admit_until_refused(PagedAllocator(10, 16), [10], [500], max_model_len=64)
    assert (cut.admitted, cut.used_slots) == (1, 64)
    with pytest.raises(InputError, match="request 1 has a prompt of 64 tokens"):
        admit_until_refused(PagedAllocator(10, 16), [10, 64], [5, 5], max_model_len=64)
    with pytest.raises(InputError, match="no usable block of 128"):
        admission_by_block_size(100, 64, [10], [5])


def test_nothing_admitted_has_no_share() -> None:
    result = admit_until_refused(PagedAllocator(1, 16), [100], [1])
    assert (result.admitted, result.used_share) == (0, None)
    assert result.as_dict()["binding_limit"] == "kv_memory"

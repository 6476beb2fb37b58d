"""The kernels' test cases and their exact answers: held to the lesson's own reading through the table."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_validate.append_case import append_shape, make_append_case
from gpu_validate.cases import Shape, contiguous_case, every_last_block, lengths_around, make_case
from gpu_validate.number_formats import to_floats
from gpu_validate.reference import BlockManager, attention_contiguous, paged_attention
from gpu_validate.tolerance import exact_attention, tolerance
from gpu_validate.variants import Variant, grid

VARIANTS = (Variant(64, 5, 3), Variant(80, 16, 2, "float16", "fp8_e4m3", window=9))
SHAPE = Shape((0, 1, 4, 5, 6, 23, 40), prefix=7, seed=3)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_exact_attention_is_the_lessons(variant: Variant) -> None:
    case = make_case(variant, SHAPE)
    exact, queries = exact_attention(case, variant), to_floats(case.queries, variant.dtype)
    correction = case.scale * np.sqrt(variant.head_dim)  # the lesson divides by the exact root
    for sequence, length in enumerate(SHAPE.lengths):
        for head in range(queries.shape[1]):
            if length == 0:
                assert not exact.output[sequence, head].any()
                continue
            seen = slice(max(0, length - (variant.window or length)), length)
            keys = case.keys[sequence][seen, head // variant.group] * case.k_scale
            values = case.values[sequence][seen, head // variant.group] * case.v_scale
            query = queries[sequence, head] * correction
            assert np.allclose(exact.output[sequence, head], attention_contiguous(query, keys, values), rtol=1e-12)


def test_a_cases_pools_and_tables_lead_paged_attention_to_the_same() -> None:
    variant = VARIANTS[0]
    case = make_case(variant, SHAPE)
    exact, queries = exact_attention(case, variant), to_floats(case.queries, variant.dtype)
    k_pool, v_pool = to_floats(case.k_pool, variant.kv_dtype), to_floats(case.v_pool, variant.kv_dtype)
    for kv_head in range(case.kv_heads):
        manager = BlockManager(len(k_pool), variant.block_size, variant.head_dim)
        manager.k_pool, manager.v_pool = k_pool[:, :, kv_head], v_pool[:, :, kv_head]
        for sequence, length in enumerate(SHAPE.lengths):
            blocks = -(-length // variant.block_size)
            manager.tables[sequence], manager.lengths[sequence] = case.tables[sequence, :blocks].tolist(), length
            for head in range(kv_head * variant.group, (kv_head + 1) * variant.group):
                if length:
                    query = queries[sequence, head] * case.scale * np.sqrt(variant.head_dim)
                    out = paged_attention(query, manager, sequence)
                    assert np.allclose(exact.output[sequence, head], out, rtol=1e-12)


def test_a_case_holds_every_trap() -> None:
    variant = VARIANTS[0]
    case = make_case(variant, SHAPE)
    blocks = [case.tables[i, : -(-n // variant.block_size)].tolist() for i, n in enumerate(SHAPE.lengths)]
    used = sorted({block for row in blocks for block in row})
    assert any(row != sorted(row) for row in blocks), "tables are the identity"
    assert len(used) < sum(len(row) for row in blocks), "no block is shared"
    assert blocks[5][0] == blocks[6][0] and blocks[5][1] != blocks[6][1], "the half-full shared block was not copied"
    nan = np.isnan(to_floats(case.k_pool, variant.kv_dtype)).all(axis=(2, 3))
    assert nan[[i for i in range(len(nan)) if i not in used]].all(), "an unused block holds numbers"
    assert nan[blocks[5][-1]].tolist() == [False] * 3 + [True] * 2, "the tail of the last block holds numbers"
    assert (case.tables[5, len(blocks[5]) :] >= len(case.k_pool)).all(), "entries past the end name blocks"


def test_the_contiguous_case_holds_the_same_numbers() -> None:
    variant = VARIANTS[0]
    case = make_case(variant, SHAPE)
    straight = contiguous_case(case, variant)
    pool = to_floats(straight.v_pool, variant.kv_dtype).reshape(case.batch, -1, case.kv_heads, variant.head_dim)
    for sequence, length in enumerate(SHAPE.lengths):
        assert np.array_equal(pool[sequence, :length], case.values[sequence])
        assert np.isnan(pool[sequence, length:]).all()


def test_lengths_reach_every_edge() -> None:
    assert lengths_around(16, longest=300) == (0, 1, 15, 16, 17, 40, 65, 300)
    assert every_last_block(3) == (4, 5, 6)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_an_append_case_changes_one_row_a_sequence(variant: Variant) -> None:
    step = make_append_case(variant, append_shape(variant, 0))
    changed = (step.k_after != step.k_copied).any(axis=(2, 3))
    assert changed.sum() == (step.positions >= 0).sum()
    assert len(step.pairs) == 2, "of three that share a half-full block two must copy it"
    for sequence, position in enumerate(step.positions):
        if position >= 0:
            block = step.before.tables[sequence, position // variant.block_size]
            assert changed[block, position % variant.block_size]


def test_the_tolerance_is_near_the_outputs_own_rounding() -> None:
    """Were it wide, it would hide mistakes: it stays at the rounding of the output, or of weights in float16."""
    for variant, most in ((Variant(64), 1.25), (Variant(64, dtype="float16", kv_dtype="float16"), 7.0)):
        exact = exact_attention(make_case(variant, Shape((3, 300, 2000))), variant)
        rounding = variant.format.roundoff * np.abs(exact.output).mean(axis=(1, 2))
        assert (tolerance(exact, variant).mean(axis=(1, 2)) < most * rounding).all()


def test_cases_repeat_and_seeds_differ() -> None:
    variant = VARIANTS[0]
    first, again, other = (make_case(variant, Shape((5, 9), seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(first.k_pool, again.k_pool) and np.array_equal(first.queries, again.queries)
    assert not np.array_equal(first.tables, other.tables) or not np.array_equal(first.queries, other.queries)


def test_the_ci_grid_holds_every_value() -> None:
    variants = grid("ci")
    assert {v.head_dim for v in variants} == {64, 80, 96, 128, 192, 256}
    assert {(v.head_dim, v.dtype, v.kv_dtype) for v in variants} >= {
        (dim, dtype, kv)
        for dim in (64, 80, 96, 128, 192, 256)
        for dtype in ("float16", "bfloat16")
        for kv in (dtype, "fp8_e4m3")
    }
    assert {1, 16, 256} <= {v.block_size for v in variants} and any(
        v.block_size % 2 for v in variants if v.block_size > 1
    )
    assert {1, 4, 8, 32, 71} <= {v.group for v in variants}
    assert any(v.window for v in variants) and any(v.window % v.block_size for v in variants if v.window)

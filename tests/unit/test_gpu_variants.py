"""What a variant fixes: macros, names, launch geometry, splits."""

from __future__ import annotations

import ctypes

import pytest

from gpu_validate.variants import GRIDS, Variant, choose_splits, grid
from simulator.errors import InputError
from tests.kernel_support import EVERY_LINE, needs_compiler, quick_backend


@needs_compiler
@pytest.mark.parametrize("variant", (*EVERY_LINE, Variant(128, 16, 128)), ids=lambda v: v.name)
def test_the_host_knows_the_kernels_geometry(variant: Variant) -> None:
    library = quick_backend().library("paged_decode", variant)
    facts = [
        ctypes.c_int.in_dll(library, f"fact_{name}").value
        for name in ("THREADS", "TEAMS", "SHARED_BYTES", "BLOCKS_PER_SM")
    ]
    geometry = variant.geometry()
    assert facts == [geometry.threads, geometry.teams, geometry.shared_bytes, geometry.blocks_per_sm]


@pytest.mark.parametrize("name", GRIDS)
def test_every_variant_of_a_grid_fits_a_multiprocessor(name: str) -> None:
    for variant in grid(name):
        geometry = variant.geometry()
        assert geometry.threads <= 1024 and geometry.threads % 32 == 0
        assert geometry.shared_bytes <= 99 * 1024, "what an sm_89 block may have"
    assert len({variant.name for variant in grid(name)}) == len(grid(name))


def test_the_usual_shape_keeps_three_blocks_on_a_hopper_multiprocessor() -> None:
    geometry = Variant(128, 16, 4).geometry()
    assert geometry.threads == 128 and 3 * (geometry.shared_bytes + 1024) <= 228 * 1024
    in_flight = 3 * geometry.shared_bytes // 2  # half of the tiles at least are on their way
    assert in_flight > 4.8e12 / 132 * 1e-6 * 2, "twice what H200's 4.8 TB/s and a microsecond of latency ask for"


@pytest.mark.parametrize(
    "wrong",
    [
        {"head_dim": 72},
        {"block_size": 0},
        {"block_size": 257},
        {"group": 0},
        {"dtype": "float32"},
        {"window": -1},
        {"kv_dtype": "float16"},
        {"splits": 0},
    ],
    ids=str,
)
def test_what_no_kernel_can_do_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Variant(**wrong)  # type: ignore[arg-type]


def test_an_unknown_grid_is_refused() -> None:
    with pytest.raises(InputError, match="no grid"):
        grid("all")


def test_splits_fill_the_gpu_without_a_thin_last_wave() -> None:
    variant, h200 = Variant(128, 16, 4), 132
    assert choose_splits(variant, batch=64, kv_heads=8, tokens=2048, processors=h200) == 3  # 1536 of 1584 places
    alone = choose_splits(variant, batch=1, kv_heads=8, tokens=131072, processors=h200)
    assert 0.9 * 396 <= alone * 8 <= 396
    assert choose_splits(variant, batch=1, kv_heads=8, tokens=100, processors=h200) == 1
    assert choose_splits(variant, batch=4096, kv_heads=8, tokens=4096, processors=h200) == 1


def test_macros_do_not_depend_on_splits() -> None:
    assert Variant().macros() == Variant(splits=4).macros()
    assert Variant().macros()[0] == "HEAD_DIM=128" and "PAGED=0" in Variant().contiguous().macros()

"""The NumPy reference: scattered blocks give the same answer as one flat array, whatever happened before."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from gpu_validate.reference import (
    BlockManager,
    OutOfBlocks,
    attention_contiguous,
    decode_both_ways,
    paged_attention,
    pairs_with_cache,
    pairs_without_cache,
)

HEAD_DIM = 4
NUM_BLOCKS = 64


def grown_in_turn(block_size: int, *, permuted: bool) -> tuple[BlockManager, dict[str, list[np.ndarray]]]:
    """Two requests of 13 and 7 tokens that grow in turn; unused slots are NaN. Also what was written."""
    rng = np.random.default_rng(block_size)
    order = rng.permutation(NUM_BLOCKS).tolist() if permuted else None
    mgr = BlockManager(NUM_BLOCKS, block_size, HEAD_DIM, free_order=order, unused=np.nan)
    written: dict[str, list[np.ndarray]] = {"x": [], "y": []}
    for rid in written:
        mgr.add_request(rid)
    for i in range(13):
        for rid, n in (("x", 13), ("y", 7)):
            if i < n:
                pair = rng.standard_normal((2, HEAD_DIM))
                mgr.append(rid, pair[0], pair[1])
                written[rid].append(pair)
    return mgr, written


@pytest.mark.parametrize("permuted", [False, True])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_reading_through_the_table_equals_reading_one_array(block_size: int, permuted: bool) -> None:
    mgr, written = grown_in_turn(block_size, permuted=permuted)
    if block_size < 13:
        assert mgr.tables["x"][:2] != [mgr.tables["x"][0], mgr.tables["x"][0] + 1], "tables must not be runs"
    q = np.random.default_rng(99).standard_normal(HEAD_DIM)
    for rid, pairs in written.items():
        keys, values = np.array(pairs)[:, 0], np.array(pairs)[:, 1]
        expected = attention_contiguous(q, keys, values)
        np.testing.assert_allclose(paged_attention(q, mgr, rid), expected, rtol=1e-12)
        np.testing.assert_array_equal(mgr.gather(rid)[0], keys)
        np.testing.assert_array_equal(mgr.gather(rid)[1], values)


def test_attention_is_the_weighted_mean_that_the_formula_says() -> None:
    # Scores 0 and ln(3) after division by sqrt(4): weights 1/4 and 3/4.
    keys = np.array([[0.0, 0, 0, 0], [2 * np.log(3), 0, 0, 0]])
    values = np.array([[8.0, 0, 0, 4], [0.0, 4, 0, 0]])
    out = attention_contiguous(np.array([1.0, 0, 0, 0]), keys, values)
    np.testing.assert_allclose(out, [2, 3, 0, 1])


def test_the_answer_depends_on_the_table() -> None:
    mgr, _ = grown_in_turn(4, permuted=True)
    q = np.ones(HEAD_DIM)
    right = paged_attention(q, mgr, "x")
    mgr.tables["x"][0], mgr.tables["y"][0] = mgr.tables["y"][0], mgr.tables["x"][0]
    assert not np.allclose(paged_attention(q, mgr, "x"), right)


class Shadow:
    """Random operations on a manager, and what each request wrote."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.mgr = BlockManager(24, 4, HEAD_DIM, free_order=self.rng.permutation(24).tolist(), unused=np.nan)
        self.written: dict[int, list[np.ndarray]] = {}
        self.done = dict.fromkeys(("add", "append", "fork", "free", "refused", "copied"), 0)

    def step(self, number: int) -> None:
        kind = str(self.rng.choice(["add", "append", "append", "append", "append", "fork", "free"]))
        if kind == "add" or not self.written:
            kind = "add"
            self.mgr.add_request(number)
            self.written[number] = []
        else:
            rid = int(self.rng.choice(list(self.written)))
            if kind == "append":
                self.append(rid)
            elif kind == "fork":
                self.mgr.fork(rid, number)
                self.written[number] = list(self.written[rid])
            else:
                self.mgr.free(rid)
                del self.written[rid]
        self.done[kind] += 1

    def append(self, rid: int) -> None:
        for _ in range(int(self.rng.integers(1, 6))):
            pair = self.rng.standard_normal((2, HEAD_DIM))
            table = list(self.mgr.tables[rid])
            before = None if self.mgr.free_list else copy.deepcopy(vars(self.mgr))
            try:
                self.mgr.append(rid, pair[0], pair[1])
            except OutOfBlocks:
                assert before is not None, "refused although a block was free"
                for name, value in vars(self.mgr).items():
                    np.testing.assert_equal(value, before[name])
                self.done["refused"] += 1
                return
            self.written[rid].append(pair)
            self.done["copied"] += bool(table) and self.mgr.tables[rid][: len(table)] != table

    def check(self) -> None:
        self.mgr.check()
        assert list(self.mgr.lengths.values()) == [len(pairs) for pairs in self.written.values()]
        for rid, pairs in self.written.items():
            wrote = np.array(pairs).reshape(-1, 2, HEAD_DIM)
            keys, values = self.mgr.gather(rid)
            assert np.array_equal(keys, wrote[:, 0])
            assert np.array_equal(values, wrote[:, 1])


@pytest.mark.parametrize("seed", range(5))
def test_400_mixed_operations_lose_nothing(seed: int) -> None:
    shadow = Shadow(seed)
    for number in range(400):
        shadow.step(number)
        shadow.check()
    assert all(shadow.done.values()), shadow.done  # each kind, refusals and copies really happened
    for rid in list(shadow.written):
        shadow.mgr.free(rid)
    assert sorted(shadow.mgr.free_list) == list(range(24))


def test_a_copy_that_cannot_get_a_block_changes_nothing() -> None:
    mgr = BlockManager(2, 4, 1)
    mgr.add_request("s1")
    for i in range(6):
        mgr.append("s1", np.array([i]), np.array([-i]))
    mgr.fork("s1", "s2")
    before = copy.deepcopy(vars(mgr))
    with pytest.raises(OutOfBlocks):
        mgr.append("s1", np.array([6]), np.array([-6]))
    for name, value in vars(mgr).items():
        np.testing.assert_equal(value, before[name])


def test_a_pool_needs_each_block_once_and_ids_are_unique() -> None:
    with pytest.raises(ValueError, match="each of the 3 blocks once"):
        BlockManager(3, 4, free_order=[0, 1, 1])
    mgr = BlockManager(3, 4)
    mgr.add_request("a")
    with pytest.raises(ValueError, match="already there"):
        mgr.add_request("a")
    with pytest.raises(ValueError, match="already there"):
        mgr.fork("a", "a")
    mgr.check()


@pytest.mark.parametrize(("n", "without"), [(10, 55), (100, 5_050), (1_000, 500_500)])
def test_pairs_table(n: int, without: int) -> None:
    assert pairs_without_cache(n) == without
    assert pairs_with_cache(n) == n
    assert pairs_without_cache(n) / pairs_with_cache(n) == {10: 5.5, 100: 50.5, 1_000: 500.5}[n]


@pytest.mark.parametrize("n", [1, 10, 100])
def test_decoding_with_a_cache_computes_fewer_pairs_and_the_same_outputs(n: int) -> None:
    both = decode_both_ways(n, 8, np.random.default_rng(n))
    assert both.pairs_without == pairs_without_cache(n)
    assert both.pairs_with == pairs_with_cache(n)
    assert both.without_cache.shape == (n, 8)
    np.testing.assert_allclose(both.with_cache, both.without_cache, rtol=1e-9, atol=1e-9)

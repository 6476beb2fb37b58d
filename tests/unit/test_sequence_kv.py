"""Shared blocks of parallel samples and beams: by hand, against real block tables, and in closed form."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.allocators.beam_tables import BeamTables, draw_parents
from simulator.allocators.paged import PagedAllocator
from simulator.allocators.sequence_kv import SequenceKv
from simulator.allocators.swapping_kv import Room


def holder(row: int, prompt: int, sequences: int, *, beam: bool = False) -> Any:
    return SimpleNamespace(row=row, prompt_tokens=prompt, sequences=sequences, beam=beam, held=0, extent=None, phase=0)


def step_all(kv: SequenceKv, step: int) -> int:
    """Serves everybody's growth; the blocks this took."""
    free = kv.free_units
    assert kv.serve(step)
    kv.check()
    return free - kv.free_units


def test_the_lessons_fork_by_hand() -> None:
    """SEED.md, figure 5: B = 4, 6 blocks, a prompt of 6 tokens; the first tokens of two sequences copy block 1 once."""
    kv = SequenceKv(6, 4, 64, watermark=0.0)
    request = holder(0, 6, 2)
    assert kv.room(6) is Room.OK
    kv.allocate(request, 6)
    assert kv.free_units == 4  # blocks 0 and 1
    kv.join(request, 6, 0)
    assert kv.saved_units == 0  # one table until they part
    assert step_all(kv, 0) == 1  # S1 copies block 1 into block 2, S2 writes in place
    assert kv.saved_units == 1  # tables [0, 2] and [0, 1]: four entries, three blocks
    assert step_all(kv, 1) == 0  # token 7 fits
    assert not kv.serve(2)  # token 8 begins a block each; 3 are free, so v0 asks one by one
    assert kv.can_grow(request)
    assert kv.grow(request, 2)
    assert kv.free_units == 1
    kv.leave(request, 9)
    assert request.held == 5
    assert kv.saved_units == 0
    kv.release(request)
    assert kv.free_units == 6
    kv.check()


@pytest.mark.parametrize(
    ("prompt", "block", "n"), [(6, 4, 2), (8, 4, 3), (1, 16, 6), (16, 16, 4), (33, 16, 2), (5, 1, 3)]
)
def test_parallel_samples_hold_the_closed_form(prompt: int, block: int, n: int) -> None:
    """floor(P/B) + n (ceil((P+o)/B) - floor(P/B)) blocks after o tokens each; saved (n - 1) floor(P/B)."""
    kv = SequenceKv(1000, block, 4096, watermark=0.0)
    request = holder(0, prompt, n)
    kv.allocate(request, prompt)
    kv.join(request, prompt, 7)
    kv.paused = 3  # joined at step 7 of the engine: 7 - 0; a pause moves the engine's number on
    for output in range(1, 3 * block + 2):
        step_all(kv, 7 + 3 + output - 1)
        shared = prompt // block
        assert 1000 - kv.free_units == shared + n * (-(-(prompt + output) // block) - shared)
        assert kv.saved_units == (n - 1) * shared


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.sampled_from([1, 2, 4, 16]), st.integers(1, 5), st.integers(0, 10**6), st.floats(0, 1))
def test_beam_tables_count_as_real_tables_do(prompt: int, block: int, beams: int, seed: int, diversity: float) -> None:
    """Against ``PagedAllocator``: forks, copies before writes and frees of whole block tables, step by step."""
    random = Random(seed)
    tables = BeamTables(beams, prompt, block)
    real = PagedAllocator(600, block)
    real.add((0, 0), prompt, 1000)
    for beam in range(1, beams):
        real.fork((0, 0), (0, beam))
    for step in range(40):
        need, free = tables.need(), real.pool.free_blocks
        for beam in range(beams):
            real.append((step, beam))
        tables.append()
        tables.check()
        assert free - real.pool.free_blocks == need
        held = real.pool.usable_blocks - real.pool.free_blocks
        assert tables.held == held
        assert tables.saved == sum(len(table) for table in real.tables.values()) - held
        parents = draw_parents(beams, diversity, random)
        for beam, parent in enumerate(parents):
            real.fork((step, parent), (step + 1, beam))
        for beam in range(beams):
            real.free((step, beam))
        freed = tables.fork(parents)
        tables.check()
        real.check()
        assert tables.held == held - freed == real.pool.usable_blocks - real.pool.free_blocks


def test_beams_that_all_follow_themselves_are_parallel_samples() -> None:
    tables = BeamTables(3, 10, 4)
    for output in range(1, 30):
        tables.append()
        tables.fork(draw_parents(3, 1.0, Random(0)))
        assert tables.held == 2 + 3 * (-(-(10 + output) // 4) - 2)


def test_neutral_beams_part_as_the_theory_of_descent_says() -> None:
    """B = 1: after a fork two beams share all blocks with probability 1/2 (one parent), else they keep their tails.

    So the mean tail after a fork is E = 1/2 (E + 1) = 1.
    """
    random = Random(1)
    tables = BeamTables(2, 1, 1)
    lengths = []
    for _ in range(20_000):
        tables.append()
        tables.fork(draw_parents(2, 0.0, random))
        lengths.append(len(tables.tails[0]))
    mean = sum(lengths) / len(lengths)
    assert mean == pytest.approx(1.0, abs=0.05)


def test_more_diversity_shares_less() -> None:
    """How much the savings depend on the model: saved blocks of 4 beams over 200 tokens, B = 16, prompt of 20."""
    saved = []
    for diversity in (0.0, 0.5, 0.9, 1.0):
        random, tables, total, whole = Random(2), BeamTables(4, 20, 16), 0, 0
        for _ in range(200):
            tables.append()
            total += tables.saved
            whole += tables.saved + tables.held
            tables.fork(draw_parents(4, diversity, random))
        saved.append(total / whole)
    assert saved == sorted(saved, reverse=True)
    assert saved[0] > 0.5 > 0.1 > saved[-1]


def test_a_sequence_must_see_a_free_block_each_even_if_it_needs_none() -> None:
    """``can_append_slots``: a simple test, and the reason why v0 preempts with blocks half full."""
    kv = SequenceKv(2, 16, 64, watermark=0.0)
    request = holder(0, 17, 1)
    kv.allocate(request, 17)
    kv.join(request, 17, 0)
    assert kv.free_units == 0
    assert not kv.can_grow(request)
    assert not kv.serve(0)
    assert kv.grow(request, 0)  # it would fit


def test_watermark_never_later_ok() -> None:
    kv = SequenceKv(100, 16, 4096, watermark=0.05)
    assert kv.room(95 * 16) is Room.OK
    assert kv.room(95 * 16 + 1) is Room.NEVER
    kv.allocate(holder(0, 16, 1), 16)
    assert kv.room(95 * 16) is Room.LATER
    assert kv.room(94 * 16) is Room.OK
    assert kv.unservable(1, 95 * 16) is None
    assert "pool has 100" in (kv.unservable(1, 95 * 16 + 1) or "")


def test_a_group_moves_to_the_cpu_and_back_block_by_block() -> None:
    kv = SequenceKv(20, 4, 64, watermark=0.0, swap_blocks=9)
    request = holder(0, 9, 3, beam=True)
    kv.allocate(request, 9)
    kv.join(request, 9, 0)
    step_all(kv, 0)
    kv.fork_beams(set())
    assert 20 - kv.free_units == kv.held(request, 10) <= 5
    saved, held = kv.saved_units, kv.held(request, 10)
    assert saved > 0
    kv.leave(request, 10)
    assert kv.can_swap_out(request, 10)
    kv.swap_out(request)
    assert (kv.free_units, kv.cpu_free, kv.saved_units) == (20, 9 - held, 0)
    assert kv.can_swap_in(request)
    kv.swap_in(request)
    kv.join(request, 10, 1)
    kv.check()
    assert (20 - kv.free_units, kv.cpu_free, kv.saved_units) == (held, 9, saved)

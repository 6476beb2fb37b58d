"""``PagedKv`` (real block ids) against ``CountingKv`` (numbers only): the same answer to every question.

Random sessions drive both through the door as a scheduler does: admissions, chunks, decode leaps, growth one by
one, preemptions. Both are also held to a third opinion, the plain formulas of SCHEDULERS.md, worked out here
from each request's stored tokens alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from simulator.allocators.counting_kv import CountingKv
from simulator.allocators.kv_cache import KvCache
from simulator.allocators.paged_kv import PagedKv


@dataclass
class Chat:
    """A holder; one is kept for each cache."""

    row: int
    prompt_tokens: int
    output_tokens: int
    final_tokens: int
    held: int = 0
    phase: int = 0
    extent: Any = None


@dataclass
class Session:
    """Two caches side by side, and what each request stores."""

    paged: PagedKv
    counting: CountingKv
    block_size: int
    usable: int
    step: int = 0
    chats: dict[int, tuple[Chat, Chat]] = field(default_factory=dict)  # row -> (paged's, counting's)
    stored: dict[int, int] = field(default_factory=dict)
    decoding: list[int] = field(default_factory=list)

    def free_by_formula(self) -> int:
        return self.usable - sum(-(-tokens // self.block_size) for tokens in self.stored.values())

    def check(self) -> None:
        self.paged.check()
        self.counting.check()
        assert self.paged.free_units == self.counting.free_units == self.free_by_formula()
        for offset in range(self.block_size + 1):
            due = sum(
                (self.stored[row] + offset) % self.block_size == 0 for row in self.decoding
            )  # this step stores one more token on full blocks
            assert self.paged.demand(self.step + offset) == self.counting.demand(self.step + offset) == due
        for most in (1, 7, 1000):
            assert self.paged.horizon(self.step, most) == self.counting.horizon(self.step, most)

    def each(self, row: int) -> list[tuple[KvCache, Chat]]:
        return list(zip((self.paged, self.counting), self.chats[row], strict=True))

    def leave(self, row: int) -> None:
        self.decoding.remove(row)
        for cache, chat in self.each(row):
            cache.leave(chat, self.stored[row])

    def release(self, row: int) -> None:
        if row in self.decoding:
            self.leave(row)
        for cache, chat in self.each(row):
            cache.release(chat)
            assert chat.held == 0
        del self.chats[row], self.stored[row]


def admit(s: Session, rng: np.random.Generator, row: int, w: int, full_rule: bool, limit: int) -> None:
    known = int(rng.integers(1, limit))
    first = int(rng.integers(1, known + 1))
    chats = tuple(Chat(row, known, 1, known) for _ in range(2))
    others = bool(s.chats)
    free, blocks = s.free_by_formula(), -(-first // s.block_size)
    kept = w if others else 0
    expected = blocks + kept <= free and not (full_rule and -(-known // s.block_size) + kept > free)
    before = s.paged.blocks.free_list()
    answers = {s.paged.admit(chats[0], known, first, others), s.counting.admit(chats[1], known, first, others)}
    assert answers == {expected}
    if expected:
        s.chats[row], s.stored[row] = chats, first
        assert s.paged.table(chats[0]) == before[:blocks]
    else:
        assert s.paged.blocks.free_list() == before


def extend(s: Session, rng: np.random.Generator, row: int, limit: int) -> None:
    tokens = int(rng.integers(s.stored[row], max(limit, s.stored[row]) + 1))
    need = -(-tokens // s.block_size) - (-(-s.stored[row] // s.block_size))
    fits = need <= s.free_by_formula()
    for cache, chat in s.each(row):
        assert cache.units_for(chat, tokens) == need
        assert cache.extend(chat, tokens) == fits
    if fits:
        s.stored[row] = tokens


def leap(s: Session, rng: np.random.Generator) -> None:
    steps = int(rng.integers(0, s.paged.horizon(s.step, 40) + 1))
    due = [s.paged.demand(s.step + i) for i in range(min(steps, s.block_size))]
    assert s.paged.advance(s.step, steps) == s.counting.advance(s.step, steps) == due
    for row in s.decoding:
        s.stored[row] += steps
    s.step += steps


def serve_all(s: Session) -> None:
    fits = s.paged.demand(s.step) <= s.free_by_formula()
    assert s.paged.serve(s.step) == s.counting.serve(s.step) == fits
    if fits:
        for row in s.decoding:
            s.stored[row] += 1
        s.step += 1


def one_by_one(s: Session) -> None:
    """A pass that serves decoders in turn; the ones that do not fit leave and join a step later."""
    for row in list(s.decoding):
        before = s.paged.table(s.chats[row][0])
        answers = {cache.grow(chat, s.step) for cache, chat in s.each(row)}
        assert len(answers) == 1
        if answers == {True}:
            s.stored[row] += 1
            assert s.paged.table(s.chats[row][0])[: len(before)] == before
        else:
            s.leave(row)
            for cache, chat in s.each(row):
                cache.join(chat, s.stored[row], s.step + 1)
            s.decoding.append(row)
    s.step += 1


@pytest.mark.parametrize("seed", range(24))
def test_ids_and_counts_agree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    block_size = int(rng.choice([1, 2, 4, 16]))
    num_blocks = int(rng.integers(6, 60))
    watermark, full_rule = float(rng.choice([0.0, 0.05, 0.2])), bool(rng.integers(2))
    limit = block_size * int(rng.integers(2, 2 * num_blocks))
    s = Session(
        PagedKv(num_blocks, block_size, limit, watermark, full_rule),
        CountingKv(num_blocks, block_size, limit, watermark=watermark, reserve_full_sequence=full_rule),
        block_size,
        num_blocks - 1,
    )
    for row in range(250):
        kind = rng.choice(["admit", "extend", "join", "leap", "serve", "one_by_one", "release", "leave"])
        prefilling = [r for r in s.chats if r not in s.decoding]
        if kind == "admit":
            admit(s, rng, row, int(watermark * num_blocks), full_rule, limit)
        elif kind == "extend" and prefilling:
            extend(s, rng, int(rng.choice(prefilling)), limit)
        elif kind == "join" and prefilling:
            joining = int(rng.choice(prefilling))
            for cache, chat in s.each(joining):
                cache.join(chat, s.stored[joining], s.step)
            s.decoding.append(joining)
        elif kind == "leap":
            leap(s, rng)
        elif kind == "serve":
            serve_all(s)
        elif kind == "one_by_one":
            one_by_one(s)
        elif kind == "leave" and s.decoding:
            s.leave(int(rng.choice(s.decoding)))
        elif kind == "release" and s.chats and rng.random() < 0.7:
            s.release(int(rng.choice(list(s.chats))))
        s.check()
    for row in list(s.chats):
        s.release(row)
    assert s.paged.free_units == num_blocks - 1


@pytest.mark.parametrize(("prompt", "final"), [(10, 48), (10, 49), (1, 1), (60, 300)])
def test_both_name_the_same_requests_unservable(prompt: int, final: int) -> None:
    paged, counting = PagedKv(4, 16, 256), CountingKv(4, 16, 256)
    reason = paged.unservable(prompt, final)
    assert (reason is None) == (counting.unservable(prompt, final) is None) == (final <= 48)
    if reason:
        assert "3 usable blocks" in reason
        assert f"{-(-min(final, 256) // 16)} blocks of 16" in reason

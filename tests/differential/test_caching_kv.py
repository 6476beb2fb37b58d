"""``CachingKv`` (names only what can be shared) against ``GroupedKv`` (every block): the same answer to every question.

Once question by question in random sessions, once with the whole engine on top, in leaps and step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simulator.cluster as cluster
from simulator.allocators.block_pool import VLLM_V1, VLLM_V1_2025, FreeListPolicy
from simulator.allocators.caching_kv import CachingKv
from simulator.allocators.content import TokenContent
from simulator.allocators.group_shape import KvGroupShape
from simulator.allocators.grouped_kv import GroupedKv
from simulator.allocators.kv_cache import KvCache
from simulator.allocators.pools import PagedPool, PoolConfig
from simulator.run_log import RunLog
from simulator.schedulers.config import EngineConfig
from simulator.step_time.linear import LinearStepTime
from tests.kv_chats import Chat, chats_of, join, leave, workload_of
from tests.property.test_leaps import assert_same_run
from workloads.workload import PS_PER_S, Segment, Workload

LIMIT = 40
"""max_model_len of the sessions."""


def exact(
    blocks: int,
    size: int,
    limit: int,
    content: TokenContent,
    watermark: float,
    full: bool,
    lag: int,
    policy: FreeListPolicy = VLLM_V1,
) -> GroupedKv:
    return GroupedKv(
        blocks,
        (KvGroupShape(size),),
        limit,
        content,
        caching=True,
        retention_interval=0,
        watermark=watermark,
        reserve_full_sequence=full,
        batched_tokens=64,
        lag=lag,
        bytes_per_token=0,
        policy=policy,
    )


def random_prompts(rng: np.random.Generator, rows: int, longest: int, answers: bool) -> list[tuple[Segment, ...] | int]:
    """Private prompts, system prompts, whole prompts in common; with ``answers`` also later turns of earlier chats."""
    prompts: list[tuple[Segment, ...] | int] = []
    for row in range(rows):
        own = int(rng.integers(1, longest))
        kind = rng.integers(0, 5)
        if kind == 0:
            prompts.append(own)
        elif kind == 1:
            prompts.append((("system", 0, own),))
        elif kind == 2 and answers and row:
            first = int(rng.integers(row))
            before = prompts[first]
            history = ((f"p:{first}", 0, before),) if isinstance(before, int) else before
            turn = (*history, (f"o:{first}", 0, int(rng.integers(1, 8))), (f"u{row}", 0, int(rng.integers(1, 8))))
            prompts.append(turn if sum(part[2] for part in turn) < 3 * longest else own)
        else:
            prompts.append((("system", 0, int(rng.integers(1, longest))), (f"u{row}", 0, own)))
    return prompts


class Pair:
    """Both caches in the same session; every method asks both and compares."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        size, blocks = int(rng.choice([1, 2, 4])), int(rng.integers(8, 40))
        self.lag = int(rng.integers(2))
        self.rows = 14
        answers = bool(rng.integers(2))
        workload = workload_of(random_prompts(rng, self.rows, 14, answers), rng.integers(2, 20, self.rows).tolist())
        content, chats = chats_of(workload)
        self.chats = [(chat, Chat(chat.row, chat.prompt_tokens, chat.output_tokens)) for chat in chats]
        watermark, full = float(rng.choice([0.0, 0.1])), bool(rng.integers(2))
        policy = VLLM_V1 if rng.integers(3) else VLLM_V1_2025
        self.caches: tuple[KvCache, KvCache] = (
            exact(blocks, size, LIMIT, content, watermark, full, self.lag, policy),
            CachingKv(
                blocks,
                size,
                LIMIT,
                content,
                watermark=watermark,
                reserve_full_sequence=full,
                lag=self.lag,
                bytes_per_token=0,
                blank_first=policy is VLLM_V1,
            ),
        )
        assert answers or not self.caches[1].ordered
        self.step = 1
        self.waiting = {row for row in range(self.rows) if chats[row].prompt_tokens < LIMIT}
        self.known = [chat.prompt_tokens for chat in chats]
        self.running: dict[int, str] = {}  # row -> prefill | decode, in order of admission
        self.admissions = 0

    def ask(self, question: Callable[[KvCache, Chat], Any], row: int) -> Any:
        answers = [question(cache, chat) for cache, chat in zip(self.caches, self.chats[row], strict=True)]
        assert answers[0] == answers[1]
        return answers[0]

    def ask_caches(self, question: Callable[[KvCache], Any]) -> Any:
        answers = [question(cache) for cache in self.caches]
        assert answers[0] == answers[1]
        return answers[0]

    def compare(self) -> None:
        for cache in self.caches:
            cache.check()
        self.ask_caches(lambda cache: (cache.free_units, cache.evicted_blocks, cache.saved_units))
        for row in sorted(self.waiting):
            self.ask(lambda cache, chat: cache.hit(chat, self.known[chat.row]), row)
        self.ask_caches(lambda cache: cache.demand(self.step))
        self.horizon()

    def admit(self) -> None:
        if not self.waiting:
            return
        row, chunk = int(self.rng.choice(sorted(self.waiting))), int(self.rng.integers(1, 20))
        hit = self.ask(lambda cache, chat: cache.hit(chat, self.known[row]), row)
        first = min(self.known[row], hit + chunk)
        if self.ask(lambda cache, chat: cache.admit(chat, self.known[row], first, bool(self.running)), row):
            self.waiting.remove(row)
            self.running[row] = "prefill"
            self.admissions += 1
            for chat in self.chats[row]:
                chat.computed, chat.seq = first, self.admissions

    def one_by_one(self) -> None:
        """A pass in the order of the running list that preempts from its end."""
        for row in list(self.running):
            while row in self.running and not self.given(row):
                self.preempt(next(reversed(self.running)))
        self.step += 1
        self.finish()

    def given(self, row: int) -> bool:
        if self.running[row] == "decode":
            return bool(self.ask(lambda cache, chat: cache.grow(chat, self.step), row))
        tokens = min(self.chats[row][0].computed + int(self.rng.integers(1, 9)), self.known[row])
        if not self.ask(lambda cache, chat: cache.extend(chat, tokens), row):
            return False
        for chat in self.chats[row]:
            chat.computed = tokens
        return True

    def serve(self) -> None:
        if self.ask_caches(lambda cache: cache.serve(self.step)):
            self.step += 1
            self.finish()

    def leap(self) -> None:
        steps = min(self.horizon(), int(self.rng.integers(0, 25)))
        if steps:
            self.ask_caches(lambda cache: cache.advance(self.step, steps))
            self.step += steps
            self.finish()

    def horizon(self) -> int:
        """At most as many steps as nobody ends in."""
        left = [self.end(chat) - self.stored(chat) for chat in self.decoders()]
        return int(self.ask_caches(lambda cache: cache.horizon(self.step, min([30, *left]))))

    def end(self, chat: Chat) -> int:
        return min(chat.prompt_tokens + chat.output_tokens - 1, LIMIT - 1)

    def decoders(self) -> list[Chat]:
        return [self.chats[row][0] for row, kind in self.running.items() if kind == "decode"]

    def stored(self, chat: Chat) -> int:
        return chat.computed + self.step - chat.joined_step

    def decode(self) -> None:
        for row, kind in self.running.items():
            chat = self.chats[row][0]
            if kind == "prefill" and chat.computed == self.known[row] and chat.computed < self.end(chat):
                self.running[row] = "decode"
                for cache, mine in zip(self.caches, self.chats[row], strict=True):
                    join(cache, mine, self.step)

    def finish(self) -> None:
        for chat in self.decoders():
            if self.stored(chat) >= self.end(chat):
                self.stop(chat.row)
                if self.lag:
                    self.ask(lambda cache, mine: cache.store(mine, mine.computed), chat.row)
                self.ask(lambda cache, mine: cache.release(mine), chat.row)
                del self.running[chat.row]

    def stop(self, row: int, taken: int = 0) -> None:
        for cache, chat in zip(self.caches, self.chats[row], strict=True):
            leave(cache, chat, self.step + taken)
        self.known[row] = self.chats[row][0].computed + 1 - self.lag

    def preempt(self, row: int) -> None:
        if self.running.pop(row) == "decode":
            self.stop(row)
        self.ask(lambda cache, chat: cache.release(chat), row)
        for chat in self.chats[row]:
            chat.computed = 0
        self.waiting.add(row)

    def preempt_any(self) -> None:
        if self.running:
            self.preempt(int(self.rng.choice(list(self.running))))


ACTIONS = ("admit", "admit", "admit", "one_by_one", "serve", "leap", "decode", "preempt_any")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32 - 1))
def test_both_answer_alike(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pair = Pair(rng)
    for _ in range(60):
        getattr(pair, str(rng.choice(ACTIONS)))()
        pair.compare()


def random_run(seed: int) -> tuple[Workload, EngineConfig, PagedPool]:
    """Chats with beginnings in common, more than the pool holds at once."""
    rng = np.random.default_rng(seed)
    rows = 40
    prompts = random_prompts(rng, rows, 60, answers=seed % 3 == 0)
    lengths = [prompt if isinstance(prompt, int) else sum(part[2] for part in prompt) for prompt in prompts]
    workload = Workload.from_columns(
        np.sort(rng.integers(0, 30, rows)) * (PS_PER_S // 10),
        lengths,
        rng.integers(1, 60, rows),
        priority=rng.integers(0, 3, rows) if seed % 2 else None,
        segments=[None if isinstance(prompt, int) else prompt for prompt in prompts],
    )
    engine = EngineConfig(
        max_model_len=300,
        max_num_seqs=16,
        max_num_batched_tokens=int(rng.integers(16, 120)),
        scheduling_policy="priority" if seed % 2 else "fcfs",
        scheduler_reserve_full_isl=bool(rng.integers(2)),
        watermark=float(rng.choice([0.0, 0.05])),
        enable_prefix_caching=True,
        async_scheduling=bool(rng.integers(2)),
        version="2025" if seed % 5 == 0 else "0.33",
    )
    size = int(rng.choice([1, 4, 16]))
    return workload, engine, PagedPool(int(rng.integers(180, 400)) // size + 2, size)


def exact_cache(pool: PoolConfig, engine: EngineConfig, content: TokenContent, *, stages: int = 1) -> KvCache:
    assert isinstance(pool, PagedPool)
    full = engine.scheduler_reserve_full_isl
    lag = int(engine.async_scheduling)
    policy = VLLM_V1 if engine.version == "0.33" else VLLM_V1_2025
    limit = engine.max_model_len
    return exact(pool.num_gpu_blocks, pool.block_size, limit, content, engine.watermark, full, lag, policy)


@pytest.mark.parametrize("seed", range(18))
def test_the_engine_runs_the_same_on_both(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    workload, engine, pool = random_run(seed)
    step_time = LinearStepTime.from_units(base_ms=6, per_token_us=50, per_context_token_ns=26)

    def run(stepwise: bool) -> RunLog:
        return cluster.simulate(workload, engine, pool, step_time, stepwise=stepwise, max_steps=20_000)

    leaps, steps = run(False), run(True)
    assert_same_run(leaps, steps)
    monkeypatch.setattr(cluster, "make_cache", exact_cache)
    plain = run(True)
    assert steps.requests == plain.requests
    assert steps.replicas[0].segments == plain.replicas[0].segments
    assert_same_run(run(False), plain)

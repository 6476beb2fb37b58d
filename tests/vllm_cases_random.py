"""Random cases in the format of the recorded vLLM schedules: settings and requests, seeded or as a Hypothesis strategy.

Made to meet every rule often: pools that hold hardly one request, budgets of a few tokens, shared prefixes, prompts
that repeat others whole, turns that go on from the answer ``o:X``, priorities, windows of a few tokens.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

KINDS = ("full", "full-async", "swa", "hybrid", "mixed", "step-clock")
MAX_STEPS = 1500

Case = tuple[dict[str, Any], list[dict[str, Any]]]


def random_case(seed: int, kind: str) -> Case:
    """The case with this number, always the same: (config, requests) as in NAME.config.json and NAME.requests.jsonl."""
    return make_case(random.Random(f"{kind}/{seed}"), kind)


def cases(kind: str) -> st.SearchStrategy[Case]:
    """Random cases that Hypothesis can make smaller."""
    return st.randoms(use_true_random=False).map(lambda rng: make_case(rng, kind))


def make_case(rng: random.Random, kind: str) -> Case:
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} is none of {', '.join(KINDS)}")
    config = _config(rng, kind)
    return config, _requests(rng, config)


def _config(rng: random.Random, kind: str) -> dict[str, Any]:
    block_size = rng.choice([1, 1, 2, 4, 8, 16, 16, 32, 64])
    groups = _groups(rng, kind, block_size)
    blocks_long = rng.choice([1, 2, 3, 5, 8, 13, 20, 40])  # full-attention blocks of the longest request
    max_model_len = max(4, block_size * blocks_long + rng.randrange(-2, 3))
    chunked = rng.random() < 0.85
    budget = rng.choice([1, 4, 8, 16, 32, 64, 100, 256, 512])
    if not chunked:
        budget = max(budget, max_model_len)
    most = min(rng.choice([1, 2, 4, 8, 16, 64]), budget)
    retention: int | None = 0
    if any(group["type"] == "swa" for group in groups or ()):
        largest = max(group.get("block_size", block_size) for group in groups or ())
        retention = rng.choice([0, 0, None, largest, 2 * largest, 5 * largest])
    return {
        "max_num_seqs": most,
        "max_num_active_seqs": rng.choice([None, None, rng.randint(1, most)]),
        "max_num_batched_tokens": budget,
        "max_model_len": max_model_len,
        "block_size": block_size,
        "num_gpu_blocks": 1 + _pool(rng, groups or [{"type": "full"}], block_size, max_model_len),
        "enable_prefix_caching": rng.random() < 0.8,
        "enable_chunked_prefill": chunked,
        "long_prefill_token_threshold": rng.choice([0, 0, 1, 7, 16, 40]),
        "long_prefill_token_threshold_adaptive": rng.random() < 0.3,
        "policy": rng.choice(["fcfs", "fcfs", "priority"]),
        "scheduler_reserve_full_isl": rng.random() < 0.6,
        "watermark": rng.choice([0, 0, 0.05, 0.2]),
        "prefill_schedule_interval": rng.choice([1, 1, 2, 3, 5]),
        "async_scheduling": kind == "full-async" or (kind in ("swa", "hybrid", "mixed") and rng.random() < 0.5),
        "kv_groups": groups,
        "prefix_cache_retention_interval": retention,
        "clock": "step" if kind == "step-clock" else "time",
        "step_base_ns": 5_000_000,
        "step_per_token_ns": 50_000,
        "step_per_ctx_ns": 100,
        "empty_step_ns": 1_000_000,
        "max_steps": MAX_STEPS,
    }


def _groups(rng: random.Random, kind: str, block_size: int) -> list[dict[str, Any]] | None:
    if kind not in ("swa", "hybrid", "mixed"):
        return None
    window_size = 2 * block_size if kind == "mixed" else block_size
    base = window_size if rng.random() < 0.5 else block_size
    window = max(1, rng.choice([base, base + 1, base + rng.randrange(1, 20), 3 * base, 5 * base, 2]))
    windowed = {"type": "swa", "window": window, "block_size": window_size}
    if kind == "swa":
        return [windowed]
    full = {"type": "full", "block_size": block_size}
    groups = [dict(full) for _ in range(rng.choice([1, 1, 1, 2]))]
    groups += [dict(windowed) for _ in range(rng.choice([1, 1, 2, 3]))]
    if rng.random() < 0.15:
        groups.append({**windowed, "window": window + rng.randrange(1, 2 * block_size + 2)})
    if rng.random() < 0.1:
        rng.shuffle(groups)
    if kind == "hybrid" and rng.random() < 0.5:  # without a block size of their own they take the engine's
        groups = [{key: value for key, value in group.items() if key != "block_size"} for group in groups]
    return groups


def _pool(rng: random.Random, groups: list[dict[str, Any]], block_size: int, max_model_len: int) -> int:
    """Usable blocks: just enough for the longest request, often; too few for it, rarely."""
    need: int = sum(-(-max_model_len // group.get("block_size", block_size)) for group in groups)
    kind = rng.random()
    if kind < 0.08:
        return max(len(groups), need - rng.randint(1, max(1, need // 2)))
    if kind < 0.55:
        return need + rng.choice([0, 0, 1, 2])
    return int(need * rng.choice([1.5, 2, 3, 6])) + 1


def _requests(rng: random.Random, config: dict[str, Any]) -> list[dict[str, Any]]:
    count = rng.randint(1, 30)
    limit = config["max_model_len"]
    shared = [rng.randint(1, max(1, limit)) for _ in range(rng.randint(1, 3))]  # lengths of common prefixes
    pace = rng.choice([0, 1_000_000, 5_000_000, 12_000_000, 60_000_000])
    now = rng.randint(0, 10_000_000)
    step = rng.randint(0, 5)
    requests: list[dict[str, Any]] = []
    for index in range(count):
        request_id = f"r{index:03d}" if rng.random() < 0.9 else f"q{index}"
        row: dict[str, Any] = {"id": request_id}
        if config["clock"] == "step":
            row["arrival_step"] = step
            step += rng.choice([0, 0, 1, 2, 9])
        else:
            row["arrival_ns"] = now
            now += rng.choice([0, rng.randint(0, 2 * pace), pace]) if rng.random() < 0.95 else 400_000_000
        segments = _segments(rng, index, requests, shared, limit)
        row["prompt_len"] = sum(length for _, _, length in segments)
        row["output_len"] = rng.choice([1, 1, 2, 3, 5, 8, rng.randint(1, 30), rng.randint(1, 120)])
        if segments[0][0] != f"p:{request_id}":
            row["segments"] = segments
        if config["policy"] == "priority":
            row["priority"] = rng.randint(0, 3)
        requests.append(row)
    if rng.random() < 0.1:
        rng.shuffle(requests)  # the order of the file is not the order of arrival
    return requests


def _segments(
    rng: random.Random, index: int, before: list[dict[str, Any]], shared: list[int], limit: int
) -> list[list[Any]]:
    """The prompt: new, behind a common prefix, a repetition of an earlier one, or a further turn after its answer."""
    most = max(1, int(limit * rng.choice([0.2, 0.5, 0.95, 1.1])))
    fresh: list[Any] = [f"u{index}", 0, rng.randint(1, max(1, most // 2))]
    kind = rng.random()
    if before and kind < 0.35:
        earlier = rng.choice(before)
        prompt = earlier.get("segments") or [[f"p:{earlier['id']}", 0, earlier["prompt_len"]]]
        if kind < 0.1:
            return [list(segment) for segment in prompt]
        answer = [f"o:{earlier['id']}", 0, rng.randint(1, earlier["output_len"])]
        return [*(list(segment) for segment in prompt), answer, fresh]
    if kind < 0.7:
        which = rng.randrange(len(shared))
        prefix = [f"g{which}", 0, rng.randint(1, min(shared[which], most))]
        return [prefix] if rng.random() < 0.2 else [prefix, fresh]
    request_id = f"p:r{index:03d}"
    return [[request_id, 0, rng.randint(1, most)]]

"""Requests as a KV cache sees them, driven by hand: what tests of caches by content share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simulator.allocators.content import TokenContent
from simulator.allocators.kv_cache import KvCache
from workloads.workload import Segment, Workload


@dataclass
class Chat:
    """A holder."""

    row: int
    prompt_tokens: int
    output_tokens: int
    final_tokens: int = 0
    held: int = 0
    phase: int = 0
    extent: Any = None
    computed: int = 0
    in_flight: int = 0
    joined_step: int = 0
    seq: int = 0
    sequences: int = 1
    beam: bool = False

    def __post_init__(self) -> None:
        self.final_tokens = self.final_tokens or self.prompt_tokens + self.output_tokens - 1


def workload_of(prompts: Sequence[tuple[Segment, ...] | int], outputs: Sequence[int]) -> Workload:
    """Rows whose prompts are segments, or private tokens in that number."""
    lengths = [prompt if isinstance(prompt, int) else sum(part[2] for part in prompt) for prompt in prompts]
    segments = [None if isinstance(prompt, int) else prompt for prompt in prompts]
    return Workload.from_columns([0] * len(lengths), lengths, outputs, segments=segments)


def chats_of(workload: Workload) -> tuple[TokenContent, list[Chat]]:
    """What the cache is given, and a holder a row."""
    pairs = zip(workload.prompt_tokens.tolist(), workload.output_tokens.tolist(), strict=True)
    return TokenContent(workload), [Chat(row, prompt, output) for row, (prompt, output) in enumerate(pairs)]


def admit(kv: KvCache, chat: Chat, *, chunk: int | None = None, known: int | None = None, others: bool = False) -> int:
    """Admits a chat, with its whole prompt unless told otherwise; returns its hit, or -1 when refused."""
    known = chat.prompt_tokens if known is None else known
    hit = kv.hit(chat, known)
    first = known if chunk is None else min(known, hit + chunk)
    if not kv.admit(chat, known, first, others):
        return -1
    chat.computed = first
    chat.seq = chat.row
    return hit


def join(kv: KvCache, chat: Chat, step: int) -> None:
    """The chat decodes from ``step`` on."""
    chat.joined_step = step
    kv.join(chat, chat.computed, step)


def leave(kv: KvCache, chat: Chat, step: int) -> None:
    """The chat decodes no more; it stands just before ``step``."""
    tokens = chat.computed + step - chat.joined_step
    kv.leave(chat, tokens)
    chat.computed = tokens

"""TensorRT-LLM's micro-batch scheduler (SCHEDULERS.md 9.2): who of those that hold memory computes what now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from simulator.request import Request, RequestState

DECODING = RequestState.DECODING
ChunkingPolicy = Literal["first_come_first_served", "equal_progress"]
Chunks = list[tuple[Request, int]]
NOTHING_REUSED: Mapping[int, int] = {}


def micro_batch(
    fits: Sequence[Request],
    max_num_tokens: int,
    max_batch_size: int,
    chunk_unit: int | None,
    policy: ChunkingPolicy,
    reused: Mapping[int, int] = NOTHING_REUSED,
) -> tuple[list[Request], Chunks]:
    """The decoders that get a token and the (context, tokens) that are computed, from ``fits`` in order.

    A decoder counts one token, a context what is not computed and not reused; ``reused`` gives the cached tokens of
    those that have not started, by ``seq``. The scan ends at the
    first decoder, or whole context, that exceeds ``max_num_tokens``, or when ``max_batch_size`` requests are in. With a
    ``chunk_unit`` contexts do not end it: if they do not fit into what the decoders left, all are cut by ``policy``.
    """
    decodes: list[Request] = []
    contexts: Chunks = []
    tokens = context_tokens = 0
    for request in fits:
        if request.state is DECODING:
            if tokens + 1 > max_num_tokens:
                break
            tokens += 1
            decodes.append(request)
        else:
            rest = request.prompt_tokens + request.generated - request.computed - reused.get(request.seq, 0)
            if chunk_unit is None:
                if tokens + rest > max_num_tokens:
                    break
                tokens += rest
            context_tokens += rest
            contexts.append((request, rest))
        if len(decodes) + len(contexts) >= max_batch_size:
            break
    left = max_num_tokens - tokens
    if chunk_unit is not None and context_tokens > left:
        contexts = CHUNKING[policy](contexts, left, chunk_unit, reused)
    return decodes, contexts


def first_come_first_served(contexts: Chunks, left: int, chunk_unit: int, reused: Mapping[int, int]) -> Chunks:
    """Each context in order takes all it can; a chunk that is not its last is a multiple of the unit."""
    chunks = []
    for request, rest in contexts:
        chunk = rest if rest <= left else left // chunk_unit * chunk_unit
        if chunk:
            chunks.append((request, chunk))
            left -= chunk
    return chunks


def equal_progress(contexts: Chunks, left: int, chunk_unit: int, reused: Mapping[int, int]) -> Chunks:
    """Round after round, each context gets a unit (or its rest, if that is less) while it fits into what is left.

    The rounds begin at a prompt's first token, so that reused ones take rounds, but nothing of what is left.
    """
    free = [reused.get(request.seq, 0) for request, _ in contexts]
    sizes = [0] * len(contexts)  # of the chunks, reused tokens included
    progress = True
    while left and progress:
        progress = False
        for i, (_, rest) in enumerate(contexts):
            size = min(sizes[i] + chunk_unit, free[i] + rest)
            cost = max(0, size - free[i]) - max(0, sizes[i] - free[i])
            if size > sizes[i] and cost <= left:
                sizes[i] = size
                left -= cost
                progress = True
    chunks = [max(0, size - skipped) for size, skipped in zip(sizes, free, strict=True)]
    return [(request, chunk) for (request, _), chunk in zip(contexts, chunks, strict=True) if chunk]


CHUNKING: dict[ChunkingPolicy, Callable[[Chunks, int, int, Mapping[int, int]], Chunks]] = {
    "first_come_first_served": first_come_first_served,
    "equal_progress": equal_progress,
}

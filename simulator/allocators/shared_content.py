"""Which tokens several requests may have in common, as far as the workload names them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from simulator.allocators.content import TokenContent
from workloads.workload import Segment, Workload

SEVERAL = -1


class SharedContent:
    """How long each row's prefix can be another row's too: up to its first token of a stream that it alone names.

    Behind that token every longer prefix is the row's own, so only the row itself can ever find it cached.

    Attributes:
        tokens: row -> length of that prefix, for the rows where it is not 0.
        answers: rows whose answer another row names, after a prefix that may be shared as well.
    """

    def __init__(self, content: TokenContent) -> None:
        self.tokens: dict[int, int] = {}
        self.answers: frozenset[int] = frozenset()
        workload = content.workload
        ids = workload.request_ids
        if workload.segments is None and (ids is None or len(set(ids)) == len(ids)):
            return  # private prompts, private answers
        shared = _shared_streams(workload)
        answers = []
        lengths = workload.prompt_tokens.tolist()
        prompts = workload.segments if workload.segments is not None else [None] * len(workload)
        for row, segments in enumerate(prompts):
            tokens = _leading(segments, shared) if segments is not None else 0
            if segments is None or tokens == lengths[row]:  # it may go on in the answer
                tokens = _leading(content.segments(row), shared)
            if tokens:
                self.tokens[row] = tokens
                if tokens > lengths[row]:
                    answers.append(row)
        self.answers = frozenset(answers)


def _shared_streams(workload: Workload) -> set[str]:
    """The streams that several rows name, each row's answer and unnamed prompt included."""
    named_by: dict[str, int] = {}  # stream -> the row whose prompt names it, or SEVERAL
    prompts = workload.segments if workload.segments is not None else [None] * len(workload)
    for row, segments in enumerate(prompts):
        for stream, _, _ in segments or ():
            if named_by.setdefault(stream, row) != row:
                named_by[stream] = SEVERAL
    shared = {stream for stream, row in named_by.items() if row == SEVERAL}
    for row, segments in enumerate(prompts):
        name = workload.request_id(row)
        own = (f"o:{name}",) if segments is not None else (f"o:{name}", f"p:{name}")
        shared.update(stream for stream in own if named_by.get(stream, row) != row)
    shared.update(_of_doubled_ids(workload))
    return shared


def _of_doubled_ids(workload: Workload) -> Iterable[str]:
    if workload.request_ids is not None:
        for name, rows in Counter(workload.request_ids).items():
            if rows > 1:
                yield from (f"p:{name}", f"o:{name}")


def _leading(segments: Iterable[Segment], shared: set[str]) -> int:
    """Tokens before the first that is in no shared stream."""
    tokens = 0
    for stream, _, length in segments:
        if length and stream not in shared:
            break
        tokens += length
    return tokens

"""Which tokens several requests may have in common, as far as the workload names them."""

from __future__ import annotations

from simulator.allocators.content import TokenContent

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
        names = [content.segments(row) for row in range(len(workload))]
        named_by: dict[str, int] = {}  # stream -> the row that names it, or SEVERAL
        for row, segments in enumerate(names):
            for stream, _, length in segments:
                if length and named_by.setdefault(stream, row) != row:
                    named_by[stream] = SEVERAL
        answers = []
        for row, segments in enumerate(names):
            shared = 0
            for stream, _, length in segments:
                if length and named_by[stream] != SEVERAL:
                    break
                shared += length
            if shared:
                self.tokens[row] = shared
            if shared > workload.prompt_tokens[row]:
                answers.append(row)
        self.answers = frozenset(answers)

"""How much of the decoders' context lies inside sliding windows, for step-time models that ask."""

from __future__ import annotations

from simulator.request import Request, RequestState


class WindowSums:
    """For each window W: the sum over decoders of min(context, W), and how many are still below W.

    A decoder below W grows by a token a step; one at W stays. A leap must end before the first of them fills its
    window. Read once a leap, O(decoders): only models with windows pay for it.
    """

    def __init__(self, windows: tuple[int, ...]) -> None:
        self.windows = windows
        self._decoders: dict[int, Request] = {}

    def join(self, requests: list[Request], step: int) -> None:
        """Notes requests that decode from ``step`` on."""
        for request in requests:
            if request.state is RequestState.DECODING:
                self._decoders[request.seq] = request

    def read(
        self, step: int, skipped: list[Request], most: int, decoding: bool
    ) -> tuple[tuple[tuple[int, int], ...], int]:
        """((sum, growing) per window, for how many steps, ``most`` at most, they grow evenly).

        Contexts are counted after ``step``; ``skipped`` decoders take no part in it, and none does unless
        the step is ``decoding``.
        """
        if not decoding:
            return tuple((0, 0) for _ in self.windows), most
        gone = [seq for seq, r in self._decoders.items() if r.seq != seq or r.state is not RequestState.DECODING]
        for seq in gone:
            del self._decoders[seq]
        out = {request.seq for request in skipped}
        active = [r for seq, r in self._decoders.items() if seq not in out]
        contexts = [r.computed_at(step) + 1 for r in active for _ in range(r.sequences)]
        steps = most
        sums = []
        for window in self.windows:
            below = [context for context in contexts if context < window]
            sums.append((sum(below) + window * (len(contexts) - len(below)), len(below)))
            if below:
                steps = min(steps, window - max(below))
        return tuple(sums), steps

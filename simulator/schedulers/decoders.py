"""The decoding requests of a replica, as one body that gains a token each a step."""

from __future__ import annotations

from heapq import heappop, heappush

from simulator.request import Request, RequestState
from simulator.step_time.base import UNBOUNDED_STEPS

DECODING = RequestState.DECODING


class Decoders:
    """Who decodes, without touching anyone in a step.

    Each request stores the step it joined at; its progress follows from the number of the current step. What a
    step needs of all of them together is kept as sums.

    Invariant (``check``): ``count`` requests of the replica are DECODING; ``stored_tokens`` is the sum of their
    ``computed_at(step)``; the heap has one live entry for each; nobody ends before step ``soonest``. Entries of
    requests that left or were delayed stay until their step comes, which makes ``soonest`` early, never late.
    """

    __slots__ = ("count", "finishes", "last_seq", "soonest", "stored_tokens")

    def __init__(self) -> None:
        self.count = 0
        self.stored_tokens = 0
        self.last_seq = -1  # at least the highest admission number among them
        self.finishes: list[tuple[int, int, Request]] = []  # (finish step, admission number, request)
        self.soonest = UNBOUNDED_STEPS

    def join(self, request: Request, step: int) -> None:
        """The request, up to date, decodes from ``step`` on."""
        request.joined_step = step
        request.state = DECODING
        request.finish_step = finish = step + request.output_tokens - request.generated
        heappush(self.finishes, (finish, request.seq, request))
        if finish < self.soonest:
            self.soonest = finish
        self.count += 1
        self.stored_tokens += request.computed
        if request.seq > self.last_seq:
            self.last_seq = request.seq

    def leave(self, request: Request, step: int) -> None:
        """Brings the request up to date at ``step`` and forgets it; its state is the caller's to set."""
        done = step - request.joined_step
        request.computed += done
        request.generated += done
        request.finish_step = -1
        self.count -= 1
        self.stored_tokens -= request.computed
        if not self.count:
            self.last_seq = -1

    def delay(self, request: Request) -> None:
        """The current step leaves this request out: it is one step behind from now on."""
        request.joined_step += 1
        request.finish_step += 1
        heappush(self.finishes, (request.finish_step, request.seq, request))

    def pop_finished(self, step: int) -> list[Request]:
        """Those that end before ``step``, up to date and in admission order; they are forgotten."""
        done = []
        finishes = self.finishes
        while finishes and finishes[0][0] <= step:
            finish, _, request = heappop(finishes)
            if request.finish_step == finish and request.state is DECODING:
                request.finish_step = -1
                gained = step - request.joined_step
                request.generated += gained
                request.computed = computed = request.computed + gained
                self.stored_tokens -= computed
                done.append(request)
        self.count -= len(done)
        if not self.count:
            self.last_seq = -1
        self.soonest = finishes[0][0] if finishes else UNBOUNDED_STEPS
        return done

    def check(self, running: list[Request], step: int) -> None:
        """Raises AssertionError when the invariant is broken."""
        mine = [r for r in running if r.state is DECODING]
        assert len(mine) == self.count
        assert sum(r.computed_at(step) for r in mine) == self.stored_tokens
        live = {(r.finish_step, r.seq) for r in mine}
        assert all(step < finish and self.soonest <= finish for finish, _ in live)
        assert live <= {(entry[0], entry[1]) for entry in self.finishes}

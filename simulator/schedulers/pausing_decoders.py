"""Decoders that all stand still together, for steps that only prefill."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop

from simulator.request import Request, RequestState
from simulator.schedulers.decoders import Decoders
from simulator.step_time.base import UNBOUNDED_STEPS

DECODING = RequestState.DECODING


class PausingDecoders(Decoders):
    """``Decoders`` with a clock of their own, which ``pause`` stops for a step.

    ``paused`` counts the steps left out. Finish steps (of requests and in the heap) are those of the decode clock, the
    number of the step less ``paused``; ``soonest`` and the requests' ``joined_step`` stay in the numbers of the
    engine's steps, and are moved on by a pause.

    ``late`` says how many of them got their last token when, of those whose last token did not come with the last step;
    the others are up to date.
    """

    __slots__ = ("late", "late_count", "paused")

    def __init__(self) -> None:
        super().__init__()
        self.paused = 0
        self.late: dict[int, int] = {}
        self.late_count = 0

    def pause(self, requests: Iterable[Request], now_ps: int) -> None:
        """A step that started at ``now_ps`` has decoded nobody; the decoders are among ``requests``."""
        self.paused += 1
        if self.soonest < UNBOUNDED_STEPS:
            self.soonest += 1
        for request in requests:  # the one thing that cannot be moved on in common
            if request.state is DECODING:
                request.joined_step += 1
        fresh = self.count - self.late_count
        if fresh:
            self.late[now_ps] = self.late.get(now_ps, 0) + fresh
            self.late_count = self.count

    def forget_late(self, last_token_ps: int) -> None:
        """A late decoder, whose last token came then, is about to leave."""
        self.late[last_token_ps] -= 1
        self.late_count -= 1

    def caught_up(self) -> list[tuple[int, int]]:
        """Everybody gets a token now: (count, time of the last token) of those who were late."""
        groups = [(count, since) for since, count in self.late.items() if count]
        self.late = {}
        self.late_count = 0
        return groups

    def join(self, request: Request, step: int) -> None:
        soonest, paused = self.soonest, self.paused
        super().join(request, step - paused)
        request.joined_step = step
        finish = request.finish_step + paused
        self.soonest = finish if finish < soonest else soonest

    def pop_finished(self, step: int) -> list[Request]:
        done: list[Request] = []
        finishes, clock = self.finishes, step - self.paused
        while finishes and finishes[0][0] <= clock:
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
        self.soonest = finishes[0][0] + self.paused if finishes else UNBOUNDED_STEPS
        return done

    def check(self, running: list[Request], step: int) -> None:
        mine = [r for r in running if r.state is DECODING]
        assert len(mine) == self.count
        assert sum(r.computed_at(step) for r in mine) == self.stored_tokens
        live = {(r.finish_step, r.seq) for r in mine}
        clock = step - self.paused
        assert all(clock < finish and self.soonest <= finish + self.paused for finish, _ in live)
        assert live <= {(entry[0], entry[1]) for entry in self.finishes}
        assert sum(self.late.values()) == self.late_count <= self.count

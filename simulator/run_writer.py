"""Writes one replica's facts into the run log.

Rows go in as packed bytes: several times faster than handing an array one number at a time.
"""

from __future__ import annotations

import struct

from simulator.request import Request
from simulator.run_log import NOT_YET, REQUEST_COLUMNS, SEGMENT_COLUMNS, ReplicaLog, RunLog, Status
from simulator.schedulers.plan import Plan

# The engine packs segments itself, in its hot loop.
PACK_SEGMENT = struct.Struct(f"={len(SEGMENT_COLUMNS)}q").pack
PACK_REQUEST = struct.Struct(f"={len(REQUEST_COLUMNS)}q").pack
FINISHED, REJECTED, UNFINISHED = (int(status) for status in Status)


class RunWriter:
    """The pen of replica ``number``. Holds no facts of its own, but for the numbers of reasons given."""

    __slots__ = ("_contiguous", "_reasons", "_write", "log", "number", "run_log")

    def __init__(self, run_log: RunLog, log: ReplicaLog, number: int) -> None:
        self.run_log = run_log
        self.log = log
        self.number = number
        self._contiguous = log.pool.kind == "contiguous"
        self._write = run_log.requests.frombytes
        self._reasons: dict[str, int] = {}

    def tokens_out_of_step(self, plan: Plan, start_ps: int, end_ps: int) -> None:
        """Of a step of an unstable plan: gaps between tokens longer than a step, and who came back."""
        gaps = self.log.irregular_gaps_ps
        for count, last_token_ps in plan.late:
            gaps.extend([end_ps - last_token_ps] * count)
        self.log.swapped_out_blocks += plan.swapped_out_blocks
        self.log.swapped_in_blocks += plan.swapped_in_blocks
        self.log.swap_fallbacks += plan.swap_fallbacks
        for request in plan.resumed:
            gaps.append(end_ps - request.last_token_ps)
        for request in plan.completing:
            if request.generated:
                gaps.append(end_ps - request.last_token_ps)
        self.returned(plan.admitted, start_ps)

    def returned(self, admitted: list[Request], start_ps: int) -> None:
        """Of those admitted to a step: who comes back after a preemption."""
        for request in admitted:
            if request.preemptions:
                self.log.requeues.extend((request.row, request.preempted_ps, start_ps))
                request.preempted_ps = NOT_YET

    def finished(self, request: Request, now_ps: int) -> None:
        """A request that has ended and still holds its KV."""
        if self._contiguous:
            self._hold(request, now_ps)
        self._write(
            PACK_REQUEST(
                request.row, self.number, request.arrival_ps, request.scheduled_ps, request.first_token_ps, now_ps,
                request.generated, request.preemptions, request.cached_tokens, request.recomputed, FINISHED, 0,
            )
        )  # fmt: skip

    def interrupted(self, request: Request, now_ps: int) -> None:
        """A running request whose replica fails."""
        if self._contiguous:
            self._hold(request, now_ps)

    def rejected(self, request: Request, reason: str, now_ps: int = NOT_YET) -> None:
        """A request that can never be served; one that ran before is given up at ``now_ps`` and waited until then."""
        reasons = self.run_log.reasons
        number = self._reasons.get(reason)
        if number is None:  # another replica may have given it before
            if reason not in reasons:
                reasons.append(reason)
            number = self._reasons[reason] = reasons.index(reason)
        if request.preempted_ps == NOT_YET:
            self._not_finished(request, 0, REJECTED, number)
            return
        self.log.requeues.extend((request.row, request.preempted_ps, now_ps))
        self._not_finished(request, request.generated, REJECTED, number, now_ps)

    def unfinished(self, request: Request, step: int, now_ps: int, *, running: bool) -> None:
        """A request that is left when the run is over at ``step``."""
        if running and self._contiguous:
            self._hold(request, now_ps)
        if not running and request.preempted_ps != NOT_YET:
            self.log.requeues.extend((request.row, request.preempted_ps, NOT_YET))
        self._not_finished(request, request.generated_at(step), UNFINISHED, 0)

    def _hold(self, request: Request, now_ps: int) -> None:
        self.log.holds.extend((request.row, request.admitted_ps, now_ps, request.held, request.final_tokens))

    def _not_finished(self, request: Request, generated: int, status: int, reason: int, end_ps: int = NOT_YET) -> None:
        self._write(
            PACK_REQUEST(
                request.row, self.number, request.arrival_ps, request.scheduled_ps, request.first_token_ps, end_ps,
                generated, request.preemptions, request.cached_tokens, request.recomputed, status, reason,
            )
        )  # fmt: skip

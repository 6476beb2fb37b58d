"""Requests whose replica has failed: what they keep, and what is lost with their KV."""

from __future__ import annotations

from simulator.request import Request, RequestState
from simulator.run_log import NOT_YET


def survivor(request: Request, generated: int) -> Request:
    """The request as another replica gets it: what was streamed stays streamed, and it holds no KV.

    Of a finished member of a static batch, which was not returned yet, the last token is computed again.
    """
    again = Request(
        request.row,
        request.arrival_ps,
        request.prompt_tokens,
        request.output_tokens,
        request.priority,
        request.tie,
        request.sequences,
        request.beam,
    )
    again.generated = min(generated, request.output_tokens - 1)
    again.scheduled_ps = request.scheduled_ps
    again.first_token_ps = request.first_token_ps
    again.preempted_ps = request.preempted_ps
    again.preemptions = request.preemptions
    again.recomputed = request.recomputed
    again.cached_tokens = request.cached_tokens
    again.lost_tokens = getattr(request, "lost_tokens", 0)
    again.last_token_ps = getattr(request, "last_token_ps", NOT_YET)
    if again.preemptions:
        again.state = RequestState.PREEMPTED
    return again


def interrupt(request: Request, computed: int, last_token_ps: int, now_ps: int) -> None:
    """It ran when its replica failed: it waits from now on, as after a preemption by recompute."""
    request.state = RequestState.PREEMPTED
    request.preemptions += 1
    request.preempted_ps = now_ps
    request.last_token_ps = last_token_ps
    lose(request, computed)


def lose(request: Request, computed: int) -> None:
    """The KV of ``computed`` tokens is gone."""
    request.lost_tokens = computed
    request.recomputed += computed


def refit(request: Request, output_tokens: int) -> None:
    """It goes to a replica whose context allows so many output tokens, but keeps what it has."""
    request.output_tokens = max(output_tokens, request.generated + 1)
    request.final_tokens = request.prompt_tokens + request.output_tokens - 1

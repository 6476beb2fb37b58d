"""vLLM's ``prefill_schedule_interval``: passes that hold prefills back while others decode (SCHEDULERS.md 3)."""

from __future__ import annotations

from simulator.schedulers.plan import Plan


class PrefillHold:
    """Counts passes that computed something; interval 1 never holds.

    A running request is in prefill from its first chunk to the pass that completes it, even if a single token is
    missing; a waiting one is a prefill if more than one of its tokens is not cached.
    """

    __slots__ = ("active", "backlog", "executed_steps", "interval", "last_prefill_step", "revoked")

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.active = interval > 1
        self.executed_steps = 0
        self.last_prefill_step = 0
        self.backlog = False
        self.revoked = False  # this pass gave tokens to a prefill and then preempted it: it counts all the same

    def holds(self, running: int, prefilling: int) -> bool:
        """Whether the coming pass leaves prefills out, while somebody decodes (asked only while ``active``)."""
        if self.backlog or self.executed_steps + 1 - self.last_prefill_step >= self.interval:
            return False
        return running > prefilling

    def ran(self, plan: Plan, tokens: int) -> None:
        """Notes a pass."""
        if not tokens:
            return
        self.executed_steps += 1
        went_on = len(plan.chunks) > len(plan.admitted) or self.revoked
        self.revoked = False
        # The chunks of those admitted come last, each from the tokens that were cached on.
        admitted = plan.chunks[len(plan.chunks) - len(plan.admitted) :]
        if went_on or any(r.prompt_tokens + r.generated - (r.computed - n) > 1 for r, n in admitted):
            self.last_prefill_step = self.executed_steps

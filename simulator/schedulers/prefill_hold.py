"""vLLM's ``prefill_schedule_interval``: passes that hold prefills back while others decode (SCHEDULERS.md 3)."""

from __future__ import annotations

from simulator.schedulers.plan import Plan


class PrefillHold:
    """Counts passes that computed something; interval 1 never holds."""

    __slots__ = ("active", "backlog", "executed_steps", "interval", "last_prefill_step")

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.active = interval > 1
        self.executed_steps = 0
        self.last_prefill_step = 0
        self.backlog = False

    def holds(self, decoding: int) -> bool:
        """Whether the coming pass leaves prefills out (asked only while ``active``)."""
        return (
            not self.backlog
            and decoding > 0
            and self.executed_steps + 1 - self.last_prefill_step < self.interval
        )

    def ran(self, plan: Plan, tokens: int) -> None:
        """Notes a pass."""
        if tokens:
            self.executed_steps += 1
        if plan.chunks and any(r.computed - n < r.prompt_tokens + r.generated - 1 for r, n in plan.chunks):
            self.last_prefill_step = self.executed_steps

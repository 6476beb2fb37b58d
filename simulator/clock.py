"""The simulated clock: integer picoseconds in SimPy, with an order for what happens at the same time."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

from simpy import Environment
from simpy.events import Event

# Equal times are ordered by (kind, replica or request number), never by the order of creation, which differs
# between leaps and single steps: first what ends, then what arrives, then the passes that look at both.
FINISH = 0
FLEET = 1 << 39  # replicas fail, start and stop between what ends and what arrives
ARRIVAL = 1 << 40
PASS = 1 << 41


class Alarm(Event):
    """An event ``delay_ps`` from now with a place in the order of equal times.

    SimPy's Timeout, but for the priority, which Timeout fixes.
    """

    def __init__(self, env: Environment, delay_ps: int, priority: int) -> None:
        self.env = env
        self.callbacks = []
        self._value = None
        self._ok = True
        env.schedule(self, priority, delay_ps)  # type: ignore[arg-type]

    def on_time(self, action: Callable[[Event], None]) -> None:
        """Has ``action`` called when the alarm goes off."""
        assert self.callbacks is not None
        self.callbacks.append(action)


def steps_duration(duration_ps: int, growth_ps: int, steps: int) -> int:
    """Length of ``steps`` steps of which step i lasts ``duration_ps + i * growth_ps``."""
    return steps * duration_ps + growth_ps * (steps * (steps - 1) // 2)


def steps_until(duration_ps: int, growth_ps: int, wait_ps: int) -> int:
    """The smallest number of steps, at least one, that together last ``wait_ps`` or longer."""
    if wait_ps <= duration_ps:
        return 1
    n = -(-wait_ps // duration_ps)  # exact without growth, else too many
    if growth_ps * n * n > duration_ps:
        # The positive root of growth/2 n² + (duration - growth/2) n = wait, near the exact integer.
        b = duration_ps - growth_ps / 2
        n = int((sqrt(b * b + 2.0 * growth_ps * wait_ps) - b) / growth_ps)
    together = n * duration_ps + growth_ps * (n * (n - 1) // 2)
    while together < wait_ps:
        together += duration_ps + n * growth_ps
        n += 1
    last = duration_ps + (n - 1) * growth_ps
    while together - last >= wait_ps:
        together -= last
        last -= growth_ps
        n -= 1
    return n

"""A replica's clock: its own time, which runs ahead of SimPy's where nobody can tell, and its waits."""

from __future__ import annotations

from collections.abc import Generator

from simpy import Environment
from simpy.events import Event

from simulator.clock import ARRIVAL, FINISH, PASS, Alarm, steps_duration, steps_until
from simulator.inbox import NEVER_PS, Inbox
from simulator.step_time.base import Segment

Waits = Generator[Event, None, None]


class ReplicaClock:
    """When a replica's next pass and next step begin, and how it waits for them.

    ``now`` is when the next step starts; ``pass_at`` is when the next pass is made: now, but with ``lag`` (async
    scheduling) when the step before it starts. A replica that nobody can reach from outside (``coupled`` False: its
    inbox holds all its arrivals and nobody listens for ends) does not wait for SimPy's clock; all others do, so that
    everything happens in order, and an arrival may cut their leap short.
    """

    __slots__ = ("_alarm", "_bell", "_leap", "_segment", "coupled", "env", "inbox", "lag", "now", "number", "pass_at")

    def __init__(self, env: Environment, number: int, inbox: Inbox, lag: int, *, coupled: bool) -> None:
        self.env = env
        self.number = number
        self.inbox = inbox
        self.lag = lag
        self.coupled = coupled
        self.now = 0
        self.pass_at = 0
        self._bell: Event | None = None  # set while there is nothing to do
        self._alarm: Alarm | None = None  # end of the leap under way, with its segment and its steps
        self._segment = Segment(0, 0, 0)
        self._leap = 0

    def _set_alarm(self, segment: Segment, steps: int) -> Alarm:
        """When the pass after a leap is made, wherever an arrival may move it."""
        self._segment, self._leap = segment, steps
        duration, growth, _ = segment
        end = self.now + steps_duration(duration, growth, steps - self.lag)
        self._alarm = Alarm(self.env, end - int(self.env.now), FINISH + self.number)
        return self._alarm

    def _cut(self) -> None:
        """Ends the leap under way at the first pass at or after SimPy's time."""
        assert self._alarm is not None
        duration, growth, _ = self._segment
        steps = max(self.steps_until_pass(duration, growth, int(self.env.now) - self.now), 1)
        if steps >= self._leap:
            return
        end = self.now + steps_duration(duration, growth, steps - self.lag)
        alarm = Alarm(self.env, end - int(self.env.now), FINISH + self.number)
        alarm.callbacks, self._alarm.callbacks = self._alarm.callbacks, []
        self._alarm = alarm
        self._leap = steps

    def steps_until_pass(self, duration_ps: int, growth_ps: int, wait_ps: int) -> int:
        """Steps of the next leap before the first pass that is made ``wait_ps`` after now, or later."""
        return self.lag + (steps_until(duration_ps, growth_ps, wait_ps) if wait_ps > 0 else 0)

    def _sleep(self) -> Waits:
        """Waits for the next arrival, and for all others of the same time."""
        wait = self.inbox.wake_ps(self.now)
        if not self.coupled:
            self.now = self.pass_at = wait
            return
        self._bell = self.env.event()
        if wait < NEVER_PS:
            Alarm(self.env, wait - self.now, ARRIVAL).on_time(self._ring)
        yield self._bell
        yield Alarm(self.env, 0, PASS + self.number)
        self.now = self.pass_at = int(self.env.now)

    def _ring(self, _: Event | None = None) -> None:
        """Wakes the replica, unless it is awake."""
        if self._bell is not None:
            self._bell.succeed()
            self._bell = None

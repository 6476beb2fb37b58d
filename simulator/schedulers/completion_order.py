"""SGLang's admission where every request runs to its limit: memory along the order of completion."""

from __future__ import annotations

from simulator.schedulers.prefill_budget import PrefillBudget

SPARE_TOKENS_A_REQUEST = 1


class CompletionOrder:
    """Whether all requests together fit at each moment when one of them ends (SGLang's ``add_one_req_ignore_eos``).

    States are (tokens left to generate, tokens held), by tokens left. Every attempt adds its candidate, whether it is
    let in or not: a refusal ends the pass.
    """

    __slots__ = ("_states",)

    def __init__(self, states: list[tuple[int, int]]) -> None:
        self._states = sorted((state for state in states if state[0] > 0), key=lambda state: state[0])

    def add(self, left: int, held: int) -> None:
        """Adds a candidate after the first one; who has most left of all goes in front of the last (as there)."""
        if left <= 0:
            return
        states = self._states
        at = next((i for i, state in enumerate(states) if left <= state[0]), max(0, len(states) - 1))
        states.insert(at, (left, held))

    def fits(self, budget: PrefillBudget, first_tokens: int) -> bool:
        """Whether memory lasts if a request takes ``first_tokens`` now and all then run to their limits."""
        free = budget.remaining_now - first_tokens
        for i, (left, held) in enumerate(self._states):
            others = len(self._states) - i
            if free - left * others <= SPARE_TOKENS_A_REQUEST * others:
                return False
            free += held
        return True

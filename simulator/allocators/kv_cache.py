"""The door between a scheduler and the KV cache of one replica, whatever the layout.

A *holder* is a request that holds KV slots. The scheduler speaks in tokens; the cache answers in yes or no. A no
changes nothing.

Decoding requests grow by one token in every step, so the cache is not asked request by request: a request joins the
decoders once, and the cache answers for all of them together how many steps they can surely grow (``horizon``) and
moves on by that many (``advance``).
"""

from __future__ import annotations

from typing import Any, Protocol

from simulator.run_log import PoolFacts


class Holder(Protocol):
    """What a cache reads of a request, and the three fields that it owns.

    ``final_tokens`` is the number of KV tokens the request will have stored when it ends (prompt + output - 1, the
    last token's KV is never computed), capped by the context; only oracle and pow2 reservations may look at it.
    """

    row: int
    prompt_tokens: int
    output_tokens: int
    final_tokens: int
    held: int  # blocks or slots held now; of a decoder: at the moment it joined (the cache owns it)
    phase: int  # decoders only: growth phase (the cache owns it)
    extent: Any  # cache's own handle (an extent, a block table, None)
    computed: int  # tokens scheduled so far; of a decoder: at the step it joined at
    in_flight: int  # of these, tokens of the step that still runs (async scheduling; else 0)
    joined_step: int  # decoders only
    seq: int  # admission number: the order of the running list
    sequences: int  # sequences of the request that share its prompt (parallel sampling, beam search), mostly 1
    beam: bool  # whether they are the beams of a search, which go on from each other


class KvCache(Protocol):
    """One replica's KV cache. Steps are numbered by the engine; ``step`` is the step being scheduled."""

    pool: PoolFacts
    caching: bool  # whether ``hit`` can be more than 0
    ordered: bool  # whether the order in which running requests get blocks can matter
    growth_may_admit: (
        bool  # whether decoders' growth alone can let in a head that lacks memory (windows, answers shared)
    )
    evicted_blocks: int  # cached blocks that lost their content, so far

    @property
    def saved_units(self) -> int:
        """Units that sharing saves now: blocks over all tables, less the blocks held."""
        ...

    @property
    def free_units(self) -> int:
        """Blocks of ``pool.block_size`` slots (contiguous: of one slot) that nobody holds."""
        ...

    @property
    def surely_servable_tokens(self) -> int:
        """A request with at most this many final tokens is never ``unservable``; 0 where each must be asked."""
        ...

    def unservable(self, prompt_tokens: int, final_tokens: int) -> str | None:
        """Why a request of this size can never be served by an empty cache; None when it can."""
        ...

    def hit(self, holder: Holder, known_tokens: int) -> int:
        """How many of a waiting request's first tokens are cached. Changes nothing."""
        ...

    def admit(self, holder: Holder, known_tokens: int, first_tokens: int, others_run: bool) -> bool:
        """Admits a waiting request whose first chunk ends at ``first_tokens`` of ``known_tokens``.

        Takes the cached tokens that the last ``hit`` of this holder found; the chunk begins behind them.
        """
        ...

    def units_for(self, holder: Holder, tokens: int) -> int:
        """Units that ``extend`` to ``tokens`` would take."""
        ...

    def extend(self, holder: Holder, tokens: int) -> bool:
        """Makes room so that the holder (not a decoder) has ``tokens`` tokens stored."""
        ...

    def store(self, holder: Holder, tokens: int) -> None:
        """Async scheduling: the first ``tokens`` tokens are known now, so their full blocks can be hit."""
        ...

    def release(self, holder: Holder) -> None:
        """Gives back all that a holder (not a decoder) holds."""
        ...

    def join(self, holder: Holder, tokens: int, step: int) -> None:
        """The holder stores ``tokens`` tokens and gains one in every step from ``step`` on."""
        ...

    def leave(self, holder: Holder, tokens: int) -> None:
        """The decoder stores ``tokens`` tokens and stops growing; it still holds its slots."""
        ...

    def grow(self, holder: Holder, step: int) -> bool:
        """Serves one decoder's growth in this step (then ``advance`` is not called for it).

        A pass that serves decoders so must let every other one ``leave`` and ``join`` again a step later.
        """
        ...

    def demand(self, step: int) -> int:
        """Units that the decoders need in this step, all together."""
        ...

    def serve(self, step: int) -> bool:
        """Serves all decoders' growth in this step; False, and nothing changed, when units are short."""
        ...

    def horizon(self, step: int, most: int) -> int:
        """How many steps from ``step`` on, ``most`` at most, the decoders can grow with what is free."""
        ...

    def advance(self, step: int, steps: int) -> list[int]:
        """Serves the decoders' growth in ``steps`` steps from ``step`` on (at most ``horizon``).

        Returns the units taken in each of the first min(steps, block size) of them; after a block size of steps the
        pattern repeats. Contiguous caches, which never grow, return an empty list.
        """
        ...

    def check(self) -> None:
        """Raises AssertionError when the cache's invariant is broken."""
        ...

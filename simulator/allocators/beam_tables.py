"""Block tables of the beams of one beam search: who descends from whom, and which blocks they still share."""

from __future__ import annotations

from random import Random


def draw_parents(beams: int, diversity: float, random: Random) -> list[int]:
    """Which beam each beam of the next step continues.

    Which candidates survive depends on a model's probabilities, which a simulator does not have. The model here is the
    neutral one: parents are drawn uniformly and independently, as in the Wright-Fisher model of descent, so that all
    beams descend from one of about 2 x beams steps ago. It has no parameter to fit. ``diversity`` is the probability
    that a beam continues its own text instead: 1 is independent sampling, and more of it shares less.
    """
    drawn = []
    for beam in range(beams):
        own = diversity > 0 and random.random() < diversity
        drawn.append(beam if own else int(random.random() * beams))
    return drawn


class BeamTables:
    """The tables of ``beams`` sequences of equal length over blocks that only they share (paper, section 4.4).

    All tables begin with the same ``shared`` blocks; ``tails`` are what follows, by numbers that mean something only
    here. A beam may write only into a block that it owns alone, so it first copies a shared one (``append``). After a
    step each beam takes over the table of its parent (``fork``), and blocks that nobody names any more are free. The
    tables begin as the prompt's one; they part with the first append.

    Invariant (``check``): all tails are equally long, and hold together ``shared`` + their length blocks for
    ``tokens`` tokens; ``owners`` counts the tails that name a block; no first block is common to all tails.
    """

    __slots__ = ("beams", "block_size", "next_block", "owners", "parted", "shared", "tails", "tokens")

    def __init__(self, beams: int, prompt_tokens: int, block_size: int) -> None:
        self.beams = beams
        self.block_size = block_size
        self.tokens = prompt_tokens
        self.shared = -(-prompt_tokens // block_size)
        self.tails: list[list[int]] = [[] for _ in range(beams)]
        self.owners: dict[int, int] = {}
        self.parted = False
        self.next_block = 0

    @property
    def held(self) -> int:
        """Blocks held, each counted once."""
        return self.shared + len(self.owners)

    @property
    def saved(self) -> int:
        """Blocks that sharing saves, once there are several tables."""
        if not self.parted:
            return 0
        return self.beams * (self.shared + len(self.tails[0])) - self.held

    def need(self) -> int:
        """Blocks that ``append`` takes."""
        if self.tokens % self.block_size == 0:
            return self.beams
        if not self.tails[0]:
            return self.beams - 1  # the last of them writes in place
        return self.beams - len({tail[-1] for tail in self.tails})

    def append(self) -> None:
        """Every beam stores one token more."""
        self.parted = True
        if self.tokens % self.block_size == 0:
            for tail in self.tails:
                tail.append(self._new())
        else:
            if not self.tails[0]:  # the block that all share is written into
                self.shared -= 1
                block = self._new()
                self.owners[block] = self.beams
                for tail in self.tails:
                    tail.append(block)
            for tail in self.tails:
                last = tail[-1]
                if self.owners[last] > 1:
                    self.owners[last] -= 1
                    tail[-1] = self._new()
        self.tokens += 1

    def fork(self, parents: list[int]) -> int:
        """Beam i continues beam ``parents[i]``; returns how many blocks this frees."""
        before = self.held
        self.tails = [list(self.tails[parent]) for parent in parents]
        owners: dict[int, int] = {}
        for tail in self.tails:
            for block in tail:
                owners[block] = owners.get(block, 0) + 1
        self.owners = owners
        while self.tails[0] and owners[self.tails[0][0]] == self.beams:
            del owners[self.tails[0][0]]
            self.shared += 1
            for tail in self.tails:
                del tail[0]
        return before - self.held

    def _new(self) -> int:
        self.next_block = block = self.next_block + 1
        self.owners[block] = 1
        return block

    def check(self) -> None:
        length = len(self.tails[0])
        assert all(len(tail) == length for tail in self.tails)
        assert self.shared + length == -(-self.tokens // self.block_size)
        owners: dict[int, int] = {}
        for tail in self.tails:
            for block in tail:
                owners[block] = owners.get(block, 0) + 1
        assert owners == self.owners
        assert not length or self.owners[self.tails[0][0]] < self.beams or self.beams == 1

"""How much of a prefix is cached, over all KV groups (SCHEDULERS.md 2 and 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.allocators.cached_blocks import CachedBlocks
from simulator.allocators.group_rules import GroupRules
from simulator.allocators.prefix_hashes import PrefixChain

NULL_BLOCK = 0
"""Stands in a table where a block is out of the window, or was never needed (vLLM's null block)."""


@dataclass(frozen=True)
class Found:
    """A hit.

    Attributes:
        tokens: cached tokens that every group can serve.
        blocks: per group, the block ids from token 0 on, ``NULL_BLOCK`` where none is needed.
        junction_tokens: the longest hit of one type of layers, where that is longer than ``tokens``; else 0.
    """

    tokens: int
    blocks: tuple[list[int], ...]
    junction_tokens: int


class PrefixLookup:
    """Finds the longest hit that all groups agree on. Changes nothing.

    Groups of one shape are one *type*: a block is found only if all of them have it. Full attention comes first;
    each further type accepts a length or shortens it, until all accept.
    """

    def __init__(self, groups: Sequence[GroupRules], cached: CachedBlocks) -> None:
        self._groups = tuple(groups)
        self._cached = cached
        types: dict[GroupRules, list[int]] = {}
        for number, rules in enumerate(groups):
            types.setdefault(rules, []).append(number)
        self._types = sorted(types.items(), key=lambda item: item[0].window_tokens is not None)
        full_types = sum(rules.window_tokens is None for rules in types)
        self._one_round = len(self._types) == 2 and full_types == 1  # shortening keeps a full hit a hit

    def nothing(self) -> Found:
        """No hit."""
        return Found(0, tuple([] for _ in self._groups), 0)

    def find(self, chain: PrefixChain, most_tokens: int) -> Found:
        """The longest hit of at most ``most_tokens`` tokens of this prefix."""
        blocks: list[list[int]] = [[] for _ in self._groups]
        full_tokens: dict[GroupRules, int] = {}
        length, longest = most_tokens, 0
        while True:
            current = length
            for rules, numbers in self._types:
                if rules in full_tokens:  # a full hit cut short is a hit
                    current = min(current, full_tokens[rules])
                    continue
                if rules.window_tokens is None:
                    found = self._full(rules, numbers, chain, current)
                    full_tokens[rules] = len(found[0]) * rules.block_size
                else:
                    found = self._sliding(rules, numbers, chain, current)
                for number, of_group in zip(numbers, found, strict=True):
                    blocks[number] = of_group
                current = len(found[0]) * rules.block_size
                longest = max(longest, current)
            if current >= length:
                break
            length = current
            if self._one_round:
                break
        for rules, of_group in zip(self._groups, blocks, strict=True):
            del of_group[length // rules.block_size :]
        return Found(length, tuple(blocks), longest if longest > length else 0)

    def _at(self, rules: GroupRules, numbers: list[int], chain: PrefixChain, index: int) -> list[int] | None:
        """Block number ``index`` of each of these groups, or None."""
        content = chain.hash((index + 1) * rules.block_size)
        found = []
        for number in numbers:
            block = self._cached.oldest((number, content))
            if block is None:
                return None
            found.append(block)
        return found

    def _full(self, rules: GroupRules, numbers: list[int], chain: PrefixChain, most: int) -> list[list[int]]:
        """From the left while blocks are there; ends on a multiple of the alignment."""
        found: list[list[int]] = [[] for _ in numbers]
        count = 0
        while count < most // rules.block_size:
            here = self._at(rules, numbers, chain, count)
            if here is None:
                break
            for of_group, block in zip(found, here, strict=True):
                of_group.append(block)
            count += 1
        tokens = count * rules.block_size
        tokens -= tokens % rules.alignment_tokens
        for of_group in found:
            del of_group[tokens // rules.block_size :]
        return found

    def _sliding(self, rules: GroupRules, numbers: list[int], chain: PrefixChain, most: int) -> list[list[int]]:
        """From the right: the first aligned position with a whole window before it, or with all blocks from 0."""
        size, alignment, tail = rules.block_size, rules.alignment_tokens, rules.tail_blocks
        found: list[list[int]] = [[NULL_BLOCK] * (most // size) for _ in numbers]
        run = 0
        for index in range(most // size - 1, -1, -1):
            here = self._at(rules, numbers, chain, index)
            if here is None:
                run = 0
                continue
            if run == 0 and (index + 1) * size % alignment:
                continue  # a hit cannot end here
            for of_group, block in zip(found, here, strict=True):
                of_group[index] = block
            run += 1
            if run >= tail:
                for of_group in found:
                    del of_group[index + run :]
                return found
        tokens = run * size
        tokens -= tokens % alignment
        for of_group in found:
            del of_group[tokens // size :]
        return found

"""The KV cache of the vLLM twin: groups of layers that draw blocks from one pool. Source: SCHEDULERS.md 1, 2 and 8."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tests.differential.vllm_twin_blocks import Block, BlockPool, PrefixHashes, TwinRequest


def ceil_div(value: int, by: int) -> int:
    return -(-value // by)


@dataclass(frozen=True)
class GroupSpec:
    """What a group's layers need. ``window`` is None for full attention; sizes in tokens."""

    block_size: int
    window: int | None

    @property
    def hit_blocks(self) -> int:
        """Consecutive cached blocks that a hit needs before its end (window groups only)."""
        assert self.window is not None
        return ceil_div(self.window - 1, self.block_size)

    def skipped_blocks(self, computed: int) -> int:
        """Leading blocks that no token after ``computed`` ones looks at any more."""
        return 0 if self.window is None else max(0, computed - self.window + 1) // self.block_size


@dataclass(frozen=True)
class Hit:
    """Cached blocks of a request: one list a group, null blocks below the window; ``length`` tokens."""

    blocks: list[list[Block]]
    length: int
    junction: int = 0


class TwinCache:
    """All groups of one engine."""

    def __init__(self, config: dict[str, Any]) -> None:
        groups = config["kv_groups"] or [{"type": "full"}]
        self.specs = [GroupSpec(group.get("block_size", config["block_size"]), group.get("window")) for group in groups]
        sizes = [spec.block_size for spec in self.specs]
        self.alignment = math.lcm(*sizes)
        self.hash_size = math.gcd(*sizes)
        self.caching: bool = config["enable_prefix_caching"]
        self.retention: int | None = config["prefix_cache_retention_interval"]
        self.max_model_len: int = config["max_model_len"]
        batches = 2 if config["async_scheduling"] else 1
        self.in_flight_limit: int = config["max_num_batched_tokens"] * batches
        self.pool = BlockPool(config["num_gpu_blocks"])
        self.hashes = PrefixHashes(self.hash_size)
        self.held: list[dict[str, list[Block]]] = [{} for _ in groups]
        self.inserted: list[dict[str, int]] = [{} for _ in groups]  # blocks dealt with by insert(), kept or not
        # Groups that look up together, full attention first.
        kinds = sorted(set(self.specs), key=lambda spec: (spec.window is not None, self.specs.index(spec)))
        self.kinds = [(spec, [g for g, other in enumerate(self.specs) if other == spec]) for spec in kinds]

    # -- look-up

    def look_up(self, request: TwinRequest) -> Hit:
        """The longest hit of a request that has computed nothing; changes nothing but ``request.hashes``."""
        if not self.caching:
            return Hit([[] for _ in self.specs], 0)
        self.hashes.extend(request.hashes, request.tokens)
        limit = len(request.tokens) - 1
        if len(self.specs) == 1:
            blocks, length = self._find(request, 0, limit)
            return Hit(blocks, length)
        return self._common_hit(request, limit)

    def _common_hit(self, request: TwinRequest, limit: int) -> Hit:
        """Each kind of group accepts a length or shortens it, until none does."""
        blocks: list[list[Block]] = [[] for _ in self.specs]
        length, longest = limit, 0
        full_length: int | None = None
        one_round = len(self.kinds) == 2 and self.kinds[0][0].window is None
        while True:
            current = length
            for kind, (spec, groups) in enumerate(self.kinds):
                if spec.window is None and full_length is not None:
                    current = min(current, full_length)
                    continue
                found, current = self._find(request, kind, current)
                for group, of_group in zip(groups, found, strict=True):
                    blocks[group] = of_group
                if spec.window is None:
                    full_length = current
                longest = max(longest, current)
            shortened = current < length
            length = min(length, current)
            if not shortened or one_round:
                break
        for spec, groups in self.kinds:
            if spec.window is None:
                for group in groups:
                    del blocks[group][ceil_div(length, spec.block_size) :]
        return Hit(blocks, length, longest if longest > length else 0)

    def _find(self, request: TwinRequest, kind: int, limit: int) -> tuple[list[list[Block]], int]:
        spec, groups = self.kinds[kind]
        return (
            self._find_full(request, spec, groups, limit)
            if spec.window is None
            else (self._find_window(request, spec, groups, limit))
        )

    def _cached(self, request: TwinRequest, spec: GroupSpec, groups: list[int], index: int) -> list[Block] | None:
        """Block ``index`` of the request in each of ``groups``; None unless every one of them has it."""
        number = request.hashes[(index + 1) * spec.block_size // self.hash_size - 1]
        found = [self.pool.find((group, number)) for group in groups]
        return [block for block in found if block is not None] if None not in found else None

    def _find_full(
        self, request: TwinRequest, spec: GroupSpec, groups: list[int], limit: int
    ) -> tuple[list[list[Block]], int]:
        columns: list[list[Block]] = []
        for index in range(limit // spec.block_size):
            cached = self._cached(request, spec, groups, index)
            if cached is None:
                break
            columns.append(cached)
        length = len(columns) * spec.block_size // self.alignment * self.alignment
        del columns[ceil_div(length, spec.block_size) :]
        return [[column[i] for column in columns] for i in range(len(groups))], length

    def _find_window(
        self, request: TwinRequest, spec: GroupSpec, groups: list[int], limit: int
    ) -> tuple[list[list[Block]], int]:
        size = spec.block_size
        columns = [[self.pool.null] * len(groups) for _ in range(limit // size)]
        run = 0
        for index in range(len(columns) - 1, -1, -1):
            cached = self._cached(request, spec, groups, index)
            if cached is None:
                run = 0
                continue
            if run == 0 and (index + 1) * size % self.alignment != 0:
                continue  # a hit cannot end here
            columns[index] = cached
            run += 1
            if run >= spec.hit_blocks:
                del columns[index + run :]
                break
        else:
            del columns[run:]  # all blocks from the start on: as good as a whole window
            while len(columns) * size % self.alignment != 0:
                columns.pop()
        return [[column[i] for column in columns] for i in range(len(groups))], len(columns) * size

    # -- allocation

    def allocate(
        self, request: TwinRequest, new: int, hit: Hit | None = None, whole: bool = False, watermark: int = 0
    ) -> bool:
        """Room for ``new`` more tokens; with ``hit`` for a request that is being admitted. False: not enough is free.

        ``whole``: all known tokens must fit too, though only the new ones get blocks. ``watermark``: blocks to leave.
        """
        computed = request.computed + (hit.length if hit else 0)
        if whole:
            known = min(len(request.tokens), self.max_model_len)
            if self._need(request, known, computed, hit, capped=True) + watermark > len(self.pool.free):
                return False
        self._free_below_window(request, max(0, computed - request.in_flight))
        end = min(computed + new, self.max_model_len)
        if self._need(request, end, computed, hit) + watermark > len(self.pool.free):
            return False
        if hit:
            self._take_hit(request, hit)
        for group, spec in enumerate(self.specs):
            held = self.held[group].setdefault(request.request_id, [])
            held += self.pool.pop(max(0, ceil_div(end, spec.block_size) - len(held)))
        self.insert(request, min(computed + new, len(request.tokens)))
        return True

    def _need(self, request: TwinRequest, tokens: int, computed: int, hit: Hit | None, capped: bool = False) -> int:
        """Blocks that must leave the free queue so that ``tokens`` tokens have room, over all groups."""
        need = 0
        for group, spec in enumerate(self.specs):
            blocks = ceil_div(tokens, spec.block_size)
            if capped and spec.window is not None:
                most = min(spec.window - 1 + self.in_flight_limit, self.max_model_len)
                blocks = min(blocks, ceil_div(most, spec.block_size) + 1)
            held = len(self.held[group].get(request.request_id, ()))
            hits = hit.blocks[group] if hit else []
            skipped = spec.skipped_blocks(computed)
            need += max(0, blocks - max(skipped, held + len(hits)))
            need += sum(block.users == 0 for block in hits[skipped:] if block is not self.pool.null)
        return need

    def _take_hit(self, request: TwinRequest, hit: Hit) -> None:
        for group, spec in enumerate(self.specs):
            skipped = spec.skipped_blocks(hit.length)
            kept = hit.blocks[group][skipped:]
            self.pool.touch(kept)
            held = [self.pool.null] * skipped + kept
            self.held[group][request.request_id] = held
            self.inserted[group][request.request_id] = len(held)

    def _free_below_window(self, request: TwinRequest, computed: int) -> None:
        for group, spec in enumerate(self.specs):
            held = self.held[group].get(request.request_id, [])
            gone = []
            for index in range(min(spec.skipped_blocks(computed), len(held)) - 1, -1, -1):
                if held[index] is self.pool.null:
                    break
                gone.append(held[index])
                held[index] = self.pool.null
            self.pool.release(gone)

    def free(self, request: TwinRequest) -> None:
        """Gives all blocks of a request back: group by group, each from its last block to its first."""
        for group in range(len(self.specs)):
            held = self.held[group].pop(request.request_id, [])
            self.inserted[group].pop(request.request_id, None)
            self.pool.release(held[::-1])

    # -- insertion

    def insert(self, request: TwinRequest, tokens: int) -> None:
        """The full blocks within the first ``tokens`` tokens become hittable, as far as retention keeps them."""
        if not self.caching:
            return
        self.hashes.extend(request.hashes, request.tokens)
        tokens = tokens // self.alignment * self.alignment
        for group, spec in enumerate(self.specs):
            first = self.inserted[group].get(request.request_id, 0)
            last = tokens // spec.block_size
            if first >= last:
                continue
            held = self.held[group][request.request_id]
            kept = self._retained(request, spec, first, last)
            for index in range(first, last):
                if index in kept and held[index] is not self.pool.null:
                    number = request.hashes[(index + 1) * spec.block_size // self.hash_size - 1]
                    self.pool.insert(held[index], (group, number))
            self.inserted[group][request.request_id] = last

    def _retained(self, request: TwinRequest, spec: GroupSpec, first: int, last: int) -> set[int]:
        """Which of the blocks first..last-1 are worth caching."""
        everything = set(range(first, last))
        if spec.window is None:
            return everything
        kept: set[int] = set()
        segment = self.alignment if self.retention is None else self.retention
        if segment > 0:
            per_segment = segment // spec.block_size
            if spec.hit_blocks >= per_segment:
                return everything
            kept = {index for index in everything if index % per_segment >= per_segment - spec.hit_blocks}
        if self.retention is not None:
            for boundary in (request.prompt_tokens - 1, request.junction):
                end = boundary // self.alignment * self.alignment // spec.block_size
                kept |= everything & set(range(max(0, end - spec.hit_blocks), end))
        return kept

"""One state machine for every allocator: random adds, appends, forks and frees against a shadow memory.

Every stored token has a value of its own; a copy-on-write is applied to the shadow memory as a server would
apply it. So a lost, double-booked or wrongly mapped slot shows as a request that reads back what it never wrote.
"""

from __future__ import annotations

import pickle
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from simulator.allocators.base import CacheFull, Forks, KvAllocator
from simulator.allocators.contiguous import ContiguousPool
from simulator.allocators.paged import PagedAllocator
from tests.property.allocator_cases import CASES, CONTEXT_TOKENS, Case

MAX_REQUESTS = 12


class AllocatorMachine(RuleBasedStateMachine):
    """Random operations; the invariants hold after each."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.allocator: KvAllocator = case.make()
        self.memory: dict[int, int] = {}  # slot -> value written there
        self.written: dict[int, list[int]] = {}  # request -> values in order
        self.room: dict[int, int] = {}  # request -> tokens it may still append
        self.next_id = 0
        self.next_value = 0

    def value(self) -> int:
        self.next_value += 1
        return self.next_value

    def pick(self, number: int) -> int:
        return list(self.written)[number % len(self.written)]

    @precondition(lambda self: len(self.written) < MAX_REQUESTS)
    @rule(prompt=st.integers(0, CONTEXT_TOKENS), output=st.integers(0, CONTEXT_TOKENS))
    def add(self, prompt: int, output: int) -> None:
        output = min(output, CONTEXT_TOKENS - prompt)
        fits = self.case.fits(self.allocator, prompt, output)
        before = pickle.dumps(self.allocator)
        request, self.next_id = self.next_id, self.next_id + 1
        try:
            self.allocator.add(request, prompt, output)
        except CacheFull:
            assert not fits, "refused although there was room"
            assert pickle.dumps(self.allocator) == before, "a refused add changed something"
            return
        assert fits
        self.written[request] = [self.value() for _ in range(prompt)]
        self.room[request] = output
        self.memory.update(zip(self.allocator.slots(request), self.written[request], strict=True))

    @precondition(lambda self: self.written)
    @rule(number=st.integers(0, 999), times=st.integers(1, 5))
    def append(self, number: int, times: int) -> None:
        request = self.pick(number)
        for _ in range(min(times, self.room[request])):
            before = pickle.dumps(self.allocator)
            try:
                placed = self.allocator.append(request)
            except CacheFull:
                assert isinstance(self.allocator, PagedAllocator), "a reservation covers all that was promised"
                assert self.allocator.pool.free_blocks == 0, "refused although there was room"
                assert pickle.dumps(self.allocator) == before, "a refused append changed something"
                return
            if placed.copied is not None:
                assert isinstance(self.allocator, PagedAllocator)
                size = self.allocator.block_size
                old, new = placed.copied
                for offset in range(size):
                    if old * size + offset in self.memory:
                        self.memory[new * size + offset] = self.memory[old * size + offset]
            self.memory[placed.slot] = self.value()
            self.written[request].append(self.memory[placed.slot])
            self.room[request] -= 1

    @precondition(lambda self: isinstance(self.allocator, Forks) and 0 < len(self.written) < MAX_REQUESTS)
    @rule(number=st.integers(0, 999))
    def fork(self, number: int) -> None:
        assert isinstance(self.allocator, Forks)
        parent, child = self.pick(number), self.next_id
        self.next_id += 1
        free = self.allocator.usage().free_slots
        self.allocator.fork(parent, child)
        assert self.allocator.usage().free_slots == free, "a fork takes no slot"
        self.written[child] = list(self.written[parent])
        self.room[child] = self.room[parent]

    @precondition(lambda self: self.written)
    @rule(number=st.integers(0, 999))
    def free(self, number: int) -> None:
        request = self.pick(number)
        self.allocator.free(request)
        del self.written[request], self.room[request]

    @invariant()
    def every_request_reads_back_what_it_wrote(self) -> None:
        assert self.allocator.requests() == list(self.written)
        for request, values in self.written.items():
            slots = self.allocator.slots(request)
            assert len(slots) == self.allocator.tokens(request) == len(values)
            assert [self.memory[slot] for slot in slots] == values

    @invariant()
    def nothing_is_lost_or_double_booked(self) -> None:
        self.allocator.check()
        usage = self.allocator.usage()
        assert min(usage.reserved_slots, usage.internal_slots, usage.external_slots, usage.free_slots) >= 0
        assert usage.allocated_slots + usage.free_slots == usage.total_slots == self.allocator.total_slots
        assert usage.external_slots <= usage.free_slots
        owned = Counter(slot for request in self.written for slot in set(self.allocator.slots(request)))
        assert usage.token_slots == len(owned)
        if isinstance(self.allocator, PagedAllocator):
            pool = self.allocator.pool
            references = Counter(block for table in self.allocator.tables.values() for block in table)
            assert [references[block] for block in range(pool.num_blocks)] == pool.ref_count
            listed = [*references, *pool.free_list(), *([0] if pool.policy.null_block else [])]
            assert sorted(listed) == list(range(pool.num_blocks))
        else:
            assert isinstance(self.allocator, ContiguousPool)
            assert all(count == 1 for count in owned.values())
            extents = [self.allocator.extent(request) for request in self.written]
            held = Counter(s for e in [*extents, *self.allocator.extents.free_extents()] for s in range(e.start, e.end))
            assert held == Counter(range(self.allocator.total_slots))

    def teardown(self) -> None:
        for request in list(self.written):
            self.allocator.free(request)
        assert self.allocator.usage().free_slots == self.allocator.total_slots
        self.allocator.check()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_machine(case: Case) -> None:
    run_state_machine_as_test(
        lambda: AllocatorMachine(case), settings=settings(max_examples=15, stateful_step_count=40, deadline=None)
    )

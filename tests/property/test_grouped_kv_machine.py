"""Random sessions with the prefix cache: its invariant after every action, and no block that holds the wrong tokens.

The machine writes down what every block holds. Whatever a look-up returns must hold the tokens it stands for.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from simulator.allocators.block_pool import VLLM_V1, VLLM_V1_2025
from simulator.allocators.group_shape import KvGroupShape
from simulator.allocators.grouped_kv import GroupedKv
from tests.kv_chats import Chat, admit, chats_of, join, leave, workload_of
from workloads.workload import Segment, Workload

SHAPES = (
    (KvGroupShape(1),),
    (KvGroupShape(4),),
    (KvGroupShape(4, 8),),
    (KvGroupShape(2, 1),),
    (KvGroupShape(2), KvGroupShape(2, 5), KvGroupShape(2, 5)),
    (KvGroupShape(2), KvGroupShape(4, 6)),
    (KvGroupShape(2, 4), KvGroupShape(4), KvGroupShape(4, 9)),
)
ROWS = 12


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Chats that share beginnings, go on where others ended, or share nothing."""
    prompts: list[tuple[Segment, ...] | int] = []
    for row in range(ROWS):
        kind = draw(st.integers(0, 3)) if row else 0
        own = draw(st.integers(1, 12))
        if kind == 0:
            prompts.append(own)
        elif kind == 3:
            first = draw(st.integers(0, row - 1))
            prompts.append(((f"p:{first}", 0, 4), (f"o:{first}", 0, draw(st.integers(1, 6))), (f"u{row}", 0, own)))
        else:
            prompts.append((("system", 0, draw(st.integers(1, 16))), (f"u{row}", 0, own)))
    return workload_of(prompts, [draw(st.integers(2, 9)) for _ in range(ROWS)])


class Sessions(RuleBasedStateMachine):
    """One cache, driven as a scheduler does; passes of several requests are single actions."""

    @initialize(
        workload=workloads(),
        shapes=st.sampled_from(SHAPES),
        blocks=st.integers(8, 60),
        retention=st.sampled_from([0, None, 4, 8]),
        lag=st.integers(0, 1),
        policy=st.sampled_from([VLLM_V1, VLLM_V1_2025]),
        reserve=st.booleans(),
        watermark=st.sampled_from([0.0, 0.1]),
    )
    def begin(self, workload, shapes, blocks, retention, lag, policy, reserve, watermark) -> None:  # type: ignore[no-untyped-def]
        content, self.chats = chats_of(workload)
        self.tokens = [
            [(stream, start + i) for stream, start, length in content.segments(row) for i in range(length)]
            for row in range(ROWS)
        ]
        self.shapes, self.lag, self.step = shapes, lag, 1
        self.usable = blocks - 1
        self.waiting = dict.fromkeys(range(ROWS))
        self.prefilling: dict[int, Chat] = {}
        self.decoding: dict[int, Chat] = {}
        self.known = [chat.prompt_tokens for chat in self.chats]
        self.holds: dict[tuple[int, int], list[tuple[str, int]]] = {}  # (group, block) -> its tokens
        self.kv = GroupedKv(
            blocks,
            shapes,
            24,
            content,
            caching=True,
            retention_interval=retention,
            watermark=watermark,
            reserve_full_sequence=reserve,
            batched_tokens=16,
            lag=lag,
            bytes_per_token=0,
            policy=policy,
        )

    def write(self, chat: Chat, start: int, end: int) -> None:
        """The chat's tokens ``start`` to ``end`` - 1 are computed into its blocks."""
        for group, shape in enumerate(self.shapes):
            table = self.kv.table(chat, group)
            for position in range(start, end):
                block = table[position // shape.block_size]
                here = self.holds.setdefault((group, block), [])
                if block:
                    del here[position % shape.block_size :]
                    here.append(self.tokens[chat.row][position])

    def sees_its_window(self, chat: Chat, done: int, tokens: int) -> None:
        """With ``done`` tokens computed, all that the next one sees has its block, and nothing before it."""
        for group, shape in enumerate(self.shapes):
            table = self.kv.table(chat, group)
            assert len(table) == -(-tokens // shape.block_size)
            first = max(0, done - (shape.window_tokens or done + 1) + 1) // shape.block_size
            assert [index for index, block in enumerate(table) if block] == list(range(first, len(table)))

    @rule(row=st.integers(0, ROWS - 1), chunk=st.integers(1, 16))
    def admit(self, row: int, chunk: int) -> None:
        if row not in self.waiting or self.known[row] >= 24:
            return
        chat, free = self.chats[row], self.kv.blocks.free_list()
        hit = admit(self.kv, chat, chunk=chunk, known=self.known[row], others=bool(self.prefilling or self.decoding))
        if hit < 0:
            assert self.kv.blocks.free_list() == free, "a no changes nothing"
            return
        assert hit < self.known[row]
        for group, shape in enumerate(self.shapes):
            size = shape.block_size
            assert hit % size == 0
            window = max(0, hit - (shape.window_tokens or hit + 1) + 1) // size
            for index, block in enumerate(self.kv.table(chat, group)[: hit // size]):
                assert (block == 0) == (index < window), "everything in the window is there, nothing else"
                if block:
                    assert self.holds[group, block] == self.tokens[row][index * size : (index + 1) * size]
        self.write(chat, hit, chat.computed)
        chat.in_flight = chat.computed - hit if self.lag else 0
        del self.waiting[row]
        self.prefilling[row] = chat

    @precondition(lambda self: self.prefilling)
    @rule(data=st.data(), chunk=st.integers(1, 16))
    def extend(self, data: st.DataObject, chunk: int) -> None:
        chat = self.prefilling[data.draw(st.sampled_from(list(self.prefilling)))]
        tokens = min(chat.computed + chunk, self.known[chat.row])
        need, free = self.kv.units_for(chat, tokens), self.kv.free_units
        done = self.kv.extend(chat, tokens)
        assert done or need > free
        if done:
            self.sees_its_window(chat, chat.computed - chat.in_flight, tokens)
            self.write(chat, chat.computed, tokens)
            chat.in_flight = tokens - chat.computed if self.lag else 0
            chat.computed = tokens

    @precondition(lambda self: self.prefilling)
    @rule(data=st.data())
    def decode(self, data: st.DataObject) -> None:
        chat = self.prefilling[data.draw(st.sampled_from(list(self.prefilling)))]
        if chat.computed == self.known[chat.row] < min(24, len(self.tokens[chat.row])) - 1:
            del self.prefilling[chat.row]
            join(self.kv, chat, self.step)
            self.decoding[chat.row] = chat

    def stored(self, chat: Chat) -> int:
        return chat.computed + self.step - chat.joined_step

    def stop(self, chat: Chat) -> None:
        leave(self.kv, chat, self.step)
        self.known[chat.row] = chat.computed + (0 if self.lag else 1)
        del self.decoding[chat.row]

    @rule()
    def serve(self) -> None:
        for chat in list(self.decoding.values()):
            if self.stored(chat) + 1 >= min(24, len(self.tokens[chat.row])):  # its last token is the one just sampled
                self.stop(chat)
                self.kv.store(chat, chat.computed)
                self.kv.release(chat)
                chat.computed = 0
        need, free = self.kv.demand(self.step), self.kv.free_units
        assert self.kv.serve(self.step) == (need <= free)
        if need <= free:
            for chat in self.decoding.values():
                in_flight = chat.in_flight if self.step == chat.joined_step else self.lag
                self.sees_its_window(chat, self.stored(chat) - in_flight, self.stored(chat) + 1)
                self.write(chat, self.stored(chat), self.stored(chat) + 1)
            self.step += 1

    @precondition(lambda self: self.prefilling or self.decoding)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from([*self.prefilling, *self.decoding]))
        chat = self.chats[row]
        if row in self.decoding:
            self.stop(chat)
        else:
            del self.prefilling[row]
        self.kv.release(chat)
        chat.computed = chat.in_flight = 0
        self.waiting[row] = None

    @invariant()
    def holds_together(self) -> None:
        if hasattr(self, "kv"):
            self.kv.check()
            running = [*self.prefilling.values(), *self.decoding.values()]
            held = {
                block for chat in running for group in range(len(self.shapes)) for block in self.kv.table(chat, group)
            }
            assert self.kv.free_units == self.usable - len(held - {0})


Sessions.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestSessions = Sessions.TestCase

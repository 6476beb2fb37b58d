"""SGLang's scheduler loop written plainly, after the server's own source (0.5.23), one token path at a time.

No clock tricks, no sums kept up to date, no shared code with the simulator: lists in the server's order, floats added
in the server's order, and a cache of page-long token paths. Slow on purpose. Steps last ``STEP_PS``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.radix_twin import NaiveTree, Path

STEP_PS = 10_000_000_000
CLIP = 4096
CONTINUE, NO_TOKEN, OTHER = "continue", "no token", "other"


@dataclass(eq=False)
class Req:
    row: int
    arrival_ps: int
    prompt: int
    max_new: int
    path: Path  # all tokens that it will ever have
    out: int = 0
    prefix: int = 0  # tokens in the pool before the next extend
    end: int = 0  # ... and after it
    kv: int = 0  # tokens stored
    protected: int = 0  # of these, the tree's
    locked: Path = ()

    @property
    def known(self) -> int:
        return self.prompt + self.out


@dataclass
class TwinStep:
    """A step that ran. ``ratio`` is what its pass reckoned with; after a retraction, the new one."""

    chunks: list[tuple[int, int]]
    decodes: list[int]
    retracted: list[int]
    free_pages: int
    evictable_pages: int
    ratio: float


@dataclass
class Settings:
    chunk: int | None
    max_prefill: int
    max_running: int
    conservativeness: float
    ignore_eos: bool
    lpm: bool
    caching: bool
    page: int
    pages: int


@dataclass
class Server:
    settings: Settings
    arrivals: list[Req]
    steps: list[TwinStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        s = self.settings
        self.tree = NaiveTree(s.page)
        self.free = s.pages
        self.waiting: list[Req] = []
        self.running: list[Req] = []
        self.last: list[Req] | None = None  # the last prefill batch
        self.chunked: Req | None = None
        self.full = False
        self.init = min(0.7 * s.conservativeness, 1.0)
        self.min = min(self.init * 0.14, 1.0)
        self.decay = (self.init - self.min) / 600
        self.ratio = self.init
        self.refreshes = 0

    # -- the pool ---------------------------------------------------------------------------------------------

    def evictable(self) -> int:
        return self.tree.evictable if self.settings.caching else 0

    def evict_to_free(self, tokens: int) -> None:
        short = tokens - self.free * self.settings.page
        if short > 0 and self.settings.caching:
            self.free += self.tree.evict(short) // self.settings.page

    def pages(self, tokens: int) -> int:
        return -(-tokens // self.settings.page)

    def checkpoint(self, req: Req, tokens: int) -> None:
        if not self.settings.caching:
            return
        page = self.settings.page
        key = req.path[: tokens // page * page]
        there = len(self.tree.insert(key))
        prompt = req.path[: req.prompt // page * page]
        if 0 < len(prompt) < len(key):
            self.tree.insert(prompt)
        self.free += (there - req.protected) // page
        self.tree.add_locks(req.locked, -1)
        self.tree.add_locks(key, 1)
        req.locked, req.protected = key, len(key)

    def release(self, req: Req) -> None:
        self.free += self.pages(req.kv) - req.protected // self.settings.page
        self.tree.add_locks(req.locked, -1)
        req.locked, req.protected, req.kv = (), 0, 0

    # -- the loop ---------------------------------------------------------------------------------------------

    def serve(self) -> list[TwinStep]:
        now, todo = 0, list(self.arrivals)
        while todo or self.waiting or self.running or self.last or self.chunked:
            while todo and todo[0].arrival_ps <= now:
                self.waiting.append(todo.pop(0))
            used = self.ratio
            batch, retracted = self.next_batch()
            if batch is None:
                self.ratio = self.init
                if not todo:
                    break
                now = todo[0].arrival_ps
                continue
            prefill = batch is self.last
            self.steps.append(
                TwinStep(
                    [(r.row, r.end - r.prefix) for r in batch] if prefill else [],
                    [] if prefill else [r.row for r in batch],
                    retracted,
                    self.free,
                    self.evictable() // self.settings.page,
                    self.ratio if retracted else used,
                )
            )
            now += STEP_PS
            self.process(batch)
        return self.steps

    def process(self, batch: list[Req]) -> None:
        for req in batch:
            if req is self.chunked:
                continue
            req.out += 1
            if req.out == req.max_new:
                self.checkpoint(req, req.known - 1)
                self.release(req)
            elif batch is self.last:
                self.checkpoint(req, req.end)

    def next_batch(self) -> tuple[list[Req] | None, list[int]]:
        if self.chunked is not None:
            self.checkpoint(self.chunked, self.chunked.end)
            self.chunked.prefix = self.chunked.end
        if self.last is not None:
            stay = [r for r in self.last if r is not self.chunked and r.out < r.max_new]
            if len(stay) < len(self.last):
                self.full = False
            if stay:
                if not self.running:
                    self.full = False  # the batch object is the prefill's own
                self.running = self.running + stay
            self.last = None
        stay = [r for r in self.running if r.out < r.max_new]
        if len(stay) < len(self.running):
            self.full = False
        self.running = stay
        prefill = self.new_prefill()
        if prefill is not None:
            self.last = prefill
            return prefill, []
        if not self.running:
            return None, []
        retracted = self.update_running()
        return self.running, retracted

    # -- prefill ----------------------------------------------------------------------------------------------

    def new_prefill(self) -> list[Req] | None:
        s = self.settings
        if not self.running:
            self.full = False
        if (self.full or not self.waiting) and self.chunked is None:
            return None
        if s.max_running - len(self.running) <= 0 and self.chunked is None:
            self.full = True
            return None
        self.calc_priority()
        total: float = 0
        total += sum([min(r.max_new - r.out, CLIP) * (1.0 if s.ignore_eos else self.ratio) for r in self.running])
        self.total, self.current = total, 0
        self.rem_input, self.rem_chunk = s.max_prefill, s.chunk
        self.states: list[tuple[float, int]] | None = None
        can_run: list[Req] = []
        new_chunked: Req | None = None
        if (req := self.chunked) is not None:
            assert self.rem_chunk is not None
            rem = min(self.rem_chunk, int(self.remaining()))
            rem = rem if rem > 0 else self.rem_chunk
            extend = req.known - req.prefix
            req.end = req.prefix + min(extend, rem)
            can_run.append(req)
            self.charge(req.end - req.prefix, 0 if extend > rem else min(req.max_new, CLIP))
            if extend <= rem:
                self.chunked = None
        for req in self.waiting:
            if self.state() == OTHER:
                break
            if len(can_run) >= s.max_running - len(self.running):
                self.full = True
            if self.full:
                break
            result, chunk = self.add_one(req, can_run)
            if result is None:
                can_run.append(req)
                req.end = req.prefix + chunk
                if req.end < req.known:
                    new_chunked = req
                self.charge(chunk, 0 if req is new_chunked else min(req.max_new, CLIP))
                result = self.state()
            if result != CONTINUE:
                if result == NO_TOKEN:
                    self.full = bool(can_run or self.running)
                break
        if not can_run:
            return None
        self.waiting = [r for r in self.waiting if r not in can_run]
        if new_chunked is not None:
            assert self.chunked is None
            self.chunked = new_chunked
        self.alloc_extend(can_run)
        return can_run

    def calc_priority(self) -> None:
        s = self.settings
        if not s.caching:
            return
        if s.lpm and len(self.waiting) <= 128:
            known: NaiveTree = NaiveTree(1)
            last: set[Req] = set()
            matched: dict[Req, int] = {}
            for r in self.waiting:
                path = r.path[: r.known]
                found = len(self.tree.match(path))
                matched[r] = min(found, r.known - 1)
                if found <= 32:
                    if len(known.match(path)) >= 32:
                        last.add(r)
                    else:
                        known.insert(path)
            self.waiting.sort(key=lambda r: -matched[r] if r not in last else float("inf"))
        elif self.waiting:
            if self.refreshes % 32 == 0:
                for r in reversed(self.waiting[:128]):
                    self.tree.match(r.path[: r.known])
            self.refreshes += 1

    def add_one(self, req: Req, can_run: list[Req]) -> tuple[str | None, int]:
        s = self.settings
        if s.caching:
            hit = self.tree.match(req.path[: req.known - 1])
            req.prefix = len(hit)
            self.tree.add_locks(hit, 1)
            result, chunk = self.fits(req, can_run)
            if result is None:
                req.locked, req.protected = hit, len(hit)
            else:
                self.tree.add_locks(hit, -1)
            return result, chunk
        req.prefix = 0
        return self.fits_ignoring_eos(req, can_run) if s.ignore_eos else self.fits(req, can_run)

    def fits(self, req: Req, can_run: list[Req]) -> tuple[str | None, int]:
        page = self.settings.page
        extend = req.known - req.prefix
        if not extend + min(max(req.max_new - req.out, 0), CLIP) + page < self.remaining():
            return NO_TOKEN, 0
        paged = self.pages(extend) * page
        if self.rem_chunk is None:
            return (OTHER, 0) if can_run and paged >= self.rem_input else (None, extend)
        if paged > self.rem_chunk:
            extend = (req.prefix + self.rem_chunk // page * page) // page * page - req.prefix
            if extend <= 0:
                return OTHER, 0
        return None, extend

    def fits_ignoring_eos(self, req: Req, can_run: list[Req]) -> tuple[str | None, int]:
        page, extend = self.settings.page, req.known
        paged = self.pages(extend) * page + page
        if not paged <= min(self.remaining_current(), self.remaining()):
            return NO_TOKEN, 0
        left = req.max_new - req.out
        if self.states is None:
            everybody = [req, *self.running, *can_run]
            self.states = [(r.max_new - r.out, r.known) for r in everybody if r.max_new > r.out]
            self.states.sort(key=lambda state: state[0])
        else:
            i = 0
            for i in range(len(self.states)):
                if left <= self.states[i][0]:
                    break
            self.states.insert(i, (left, req.known))
        rest, freed = self.remaining_current() - paged, 0
        for i, (tokens_left, occupied) in enumerate(self.states):
            n = len(self.states) - i
            if rest + freed - tokens_left * n <= n:
                return NO_TOKEN, 0
            freed += occupied
        if self.rem_chunk is not None and extend > self.rem_chunk:
            return (OTHER, 0) if self.rem_chunk <= 0 else (None, self.rem_chunk)
        return None, extend

    def remaining(self) -> float:
        return self.free * self.settings.page + self.evictable() - self.total

    def remaining_current(self) -> int:
        return self.free * self.settings.page + self.evictable() - self.current

    def charge(self, tokens: int, new_tokens: int) -> None:
        paged = self.pages(tokens) * self.settings.page
        self.total += paged + self.settings.page + new_tokens
        self.current += paged + self.settings.page
        self.rem_input -= paged
        if self.rem_chunk is not None:
            self.rem_chunk -= paged

    def state(self) -> str:
        if not (self.remaining() > 0 and self.remaining_current() > 0):
            return NO_TOKEN
        if self.rem_input <= 0 or (self.rem_chunk is not None and self.rem_chunk <= 0):
            return OTHER
        return CONTINUE

    def alloc_extend(self, batch: list[Req]) -> None:
        page = self.settings.page
        tokens = sum(r.end - r.prefix for r in batch)
        self.evict_to_free(tokens if page == 1 else tokens + len(batch) * page)
        for r in batch:
            self.free -= self.pages(r.end) - self.pages(r.prefix)
            r.kv = r.end
            assert self.free >= 0

    # -- decode -----------------------------------------------------------------------------------------------

    def check_decode_mem(self, batch: list[Req]) -> bool:
        page = self.settings.page
        tokens = page * sum(r.kv % page == 0 for r in batch)
        self.evict_to_free(tokens)
        return self.free * page >= tokens

    def update_running(self) -> list[int]:
        retracted: list[int] = []
        if not self.check_decode_mem(self.running):
            before = len(self.running)
            retracted = self.retract()
            if len(self.running) < before:
                self.full = False
        else:
            self.ratio = max(self.ratio - self.decay, self.min)
        page = self.settings.page
        self.evict_to_free(len(self.running) * page)
        for r in self.running:
            self.free -= r.kv % page == 0
            r.kv += 1
            assert self.free >= 0
        return retracted

    def retract(self) -> list[int]:
        kept = sorted(self.running, key=lambda r: (r.out, -r.prompt), reverse=True)
        gone: list[Req] = []
        first = True
        while first or not self.check_decode_mem(kept):
            if len(kept) == 1:
                break
            first = False
            req = kept.pop()
            self.release(req)
            self.evict_to_free(len(kept) * 20)
            gone.append(req)
        assert self.check_decode_mem(kept)  # no request of these cases is too long for the pool
        self.running = kept
        self.ratio = min(1.0, (sum(r.out for r in kept) + 20 * len(kept)) / (sum(r.max_new for r in kept) + 1))
        self.waiting.extend(gone)
        return [r.row for r in gone]

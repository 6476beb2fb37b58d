"""The vLLM twin: a plain re-implementation of vLLM v1's scheduler, KV cache and of the driver that recorded the cases.

Written from SCHEDULERS.md sections 1 to 5 and 8 and data/vllm_golden/README.md, for comparison with the simulator. It
uses the standard library alone, takes nothing from the simulator, and prefers the plain loop to the fast one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from tests.differential.vllm_twin_blocks import TwinRequest
from tests.differential.vllm_twin_scheduler import Pass, TwinScheduler


@dataclass(frozen=True)
class TwinRun:
    """``passes`` in the recorded format; ``status`` ok, deadlock or max_steps; ``rejected`` ids, in file order."""

    passes: list[dict[str, Any]]
    status: str
    rejected: list[str]


def twin_run(config: dict[str, Any], requests: list[dict[str, Any]]) -> TwinRun:
    """Schedules a recorded case anew, from its settings and requests alone."""
    return _Driver(config, requests).run()


class _Tokens:
    """Gives every token (stream, position) one number."""

    def __init__(self) -> None:
        self._streams: dict[str, int] = {}

    def token(self, stream: str, position: int) -> int:
        return self._streams.setdefault(stream, len(self._streams)) << 40 | position

    def prompt(self, row: dict[str, Any]) -> list[int]:
        segments = row.get("segments") or [[f"p:{row['id']}", 0, row["prompt_len"]]]
        tokens: list[int] = []
        for stream, start, length in segments:
            first = self.token(stream, start)
            tokens.extend(range(first, first + length))
        return tokens

    def output(self, request: TwinRequest) -> int:
        return self.token(f"o:{request.request_id}", request.output_tokens)


@dataclass
class _Batch:
    """A pass on its way through the GPU; ``end_ns`` is None for an empty one, which takes no time."""

    done: Pass
    row: dict[str, Any]
    end_ns: int | None


class _Driver:
    def __init__(self, config: dict[str, Any], requests: list[dict[str, Any]]) -> None:
        self.config = config
        self.scheduler = TwinScheduler(config)
        self.tokens = _Tokens()
        self.step_clock = config["clock"] == "step"
        self.arrival_key = "arrival_step" if self.step_clock else "arrival_ns"
        limit = config["max_model_len"]
        self.rejected = [row["id"] for row in requests if row["prompt_len"] >= limit]
        served = [row for row in requests if row["prompt_len"] < limit]
        self.arrivals = deque(sorted(served, key=lambda row: row[self.arrival_key]))
        self.now_ns = 0
        self.step = 0  # of the step clock
        self.passes: list[dict[str, Any]] = []

    def run(self) -> TwinRun:
        status = self._run_async() if self.config["async_scheduling"] else self._run_sync()
        return TwinRun(self.passes, status, self.rejected)

    def _run_sync(self) -> str:
        while True:
            arrived = self._arrive()
            if not self.scheduler.busy:
                if not self.arrivals:
                    return "ok"
                self._jump()
                continue
            if len(self.passes) == self.config["max_steps"]:
                return "max_steps"
            done, row = self._pass(arrived)
            if self._stalled(done, row):
                if not self.arrivals:
                    return "deadlock"
                row["free_end"] = self._free()
                self._jump()
                continue
            self.now_ns += row["dur_ns"]
            self._complete(done, row)

    def _run_async(self) -> str:
        """Two batches in flight: a pass happens when the batch before it starts. Empty passes queue like others."""
        queue: deque[_Batch] = deque()
        free_at_ns = 0  # when the last queued batch ends
        while True:
            arrived = self._arrive()
            if self.scheduler.busy:
                if len(self.passes) == self.config["max_steps"]:
                    return "max_steps"
                done, row = self._pass(arrived)
                in_flight = any(batch.end_ns is not None for batch in queue)
                if not in_flight and self._stalled(done, row):
                    for batch in queue:
                        self._complete(batch.done, batch.row)
                    queue.clear()
                    if not self.arrivals:
                        return "deadlock"
                    row["free_end"] = self._free()
                    self._jump()
                    continue
                end_ns = None
                if row["dur_ns"]:
                    start_ns = max(self.now_ns, free_at_ns)
                    end_ns = free_at_ns = start_ns + row["dur_ns"]
                    row["start_ns"] = start_ns
                queue.append(_Batch(done, row, end_ns))
                if done.scheduled and len(queue) < 2:
                    continue
            elif not queue:
                if not self.arrivals:
                    return "ok"
                self._jump()
                continue
            batch = queue.popleft()
            if batch.end_ns is not None:
                self.now_ns = batch.end_ns
            self._complete(batch.done, batch.row)

    # -- parts of a round

    def _arrive(self) -> list[str]:
        now = self.step if self.step_clock else self.now_ns
        arrived = []
        while self.arrivals and self.arrivals[0][self.arrival_key] <= now:
            row = self.arrivals.popleft()
            request = TwinRequest(row, row[self.arrival_key], self.tokens.prompt(row))
            self.scheduler.add(request)
            arrived.append(request.request_id)
        return arrived

    def _jump(self) -> None:
        arrival = self.arrivals[0][self.arrival_key]
        if self.step_clock:
            self.step = max(self.step, arrival)
        else:
            self.now_ns = max(self.now_ns, arrival)

    def _pass(self, arrived: list[str]) -> tuple[Pass, dict[str, Any]]:
        scheduler, config = self.scheduler, self.config
        evicted = scheduler.cache.pool.evicted
        done = scheduler.schedule()
        tokens = sum(done.scheduled.values())
        context = sum(scheduler.by_id[request_id].computed for request_id in done.scheduled)
        if done.scheduled:
            dur_ns = config["step_base_ns"] + config["step_per_token_ns"] * tokens + config["step_per_ctx_ns"] * context
        else:
            dur_ns = config["empty_step_ns"] if done.preempted else 0
        row: dict[str, Any] = {
            "step": len(self.passes),
            "t_ns": self.now_ns,
            "sched": [[request_id, new] for request_id, new in done.scheduled.items()],
            "tok": tokens,
            "ctx": context,
            "run": len(scheduler.running),
            "wait": len(scheduler.waiting) + len(scheduler.skipped),
            "free": self._free(),
            "dur_ns": dur_ns,
        }
        optional = {
            "arr": arrived,
            "admit": [[request_id, hit] for request_id, hit in done.admitted],
            "preempt": done.preempted,
            "evict": scheduler.cache.pool.evicted - evicted,
            "k": self.step if self.step_clock else 0,
        }
        row.update({key: value for key, value in optional.items() if value})
        self.passes.append(row)
        self.step += 1
        return done, row

    def _stalled(self, done: Pass, row: dict[str, Any]) -> bool:
        if done.scheduled or done.preempted:
            return False
        row["stall"] = 1
        return True

    def _complete(self, done: Pass, row: dict[str, Any]) -> None:
        finished = self.scheduler.complete(done, self.tokens.output)
        if finished:
            row["fin"] = finished
        row["free_end"] = self._free()

    def _free(self) -> int:
        return len(self.scheduler.cache.pool.free)

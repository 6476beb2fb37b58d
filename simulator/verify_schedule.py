"""Replays recorded schedules of the real vLLM and compares every pass.

The replay sees ``NAME.config.json`` and ``NAME.requests.jsonl`` alone; ``NAME.steps.jsonl.gz`` is opened only to
compare. The format is described in data/vllm_golden/README.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.allocators.pools import KvGroupShape, PagedPool
from simulator.cluster import simulate
from simulator.errors import InputError, KvplanError
from simulator.pass_recorder import PS_PER_NS, PassRecorder
from simulator.recorded_case import read_config, read_passes, read_requests
from simulator.schedule_difference import first_difference
from simulator.schedulers.config import EngineConfig
from simulator.step_clock import StepInbox
from simulator.step_time.linear import LinearStepTime
from workloads.workload import Workload


@dataclass(frozen=True)
class CaseResult:
    """One replayed case; ``text`` says what differs first."""

    name: str
    exact: bool
    text: str


@dataclass(frozen=True)
class Replay:
    """Our passes for a case, and how the run ended."""

    passes: list[dict[str, Any]]
    status: str


def verify_prefix(prefix: str | Path) -> CaseResult:
    """Replays the case whose files begin with ``prefix`` (a path without ``.config.json``).

    Raises:
        InputError: a file of the case is missing or broken.
    """
    prefix = Path(str(prefix).removesuffix(".config.json"))
    settings = prefix.with_name(prefix.name + ".config.json")
    config = read_config(settings)
    requests = read_requests(prefix.with_name(prefix.name + ".requests.jsonl"), by_step=config["clock"] == "step")
    try:
        ours = replay(config, requests)
    except KvplanError as error:  # settings that go ill together: say which case's
        where = f"{settings}: {error.where}" if error.where else str(settings)
        raise InputError(error.what, where=where, remedy=error.remedy) from None
    theirs = read_passes(prefix.with_name(prefix.name + ".steps.jsonl.gz"))
    difference = first_difference(ours.passes, theirs)
    if difference is None:
        return CaseResult(prefix.name, True, f"{prefix.name}: exact, {len(theirs)} passes ({ours.status})")
    return CaseResult(prefix.name, False, f"{prefix.name}: differs\n{difference}")


def replay(config: dict[str, Any], requests: list[dict[str, Any]]) -> Replay:
    """Our schedule for a case, from its settings and requests."""
    requests = [row for row in requests if row["prompt_len"] < config["max_model_len"]]  # the front end's refusals
    by_step = config["clock"] == "step"
    workload = Workload.from_columns(
        [request["arrival_step"] if by_step else request["arrival_ns"] * PS_PER_NS for request in requests],
        [request["prompt_len"] for request in requests],
        [request["output_len"] for request in requests],
        priority=[request.get("priority") or 0 for request in requests],
        segments=[
            tuple((stream, start, length) for stream, start, length in request["segments"] if length)
            if request.get("segments") is not None
            else None
            for request in requests
        ],
        request_ids=[request["id"] for request in requests],
    ).sorted_by_arrival()
    assert workload.request_ids is not None
    clock = StepInbox(workload, config["max_model_len"]) if by_step else None
    recorder = PassRecorder(list(workload.request_ids), clock)
    engine = EngineConfig(
        max_model_len=config["max_model_len"],
        max_num_seqs=config["max_num_seqs"],
        max_num_active_seqs=config["max_num_active_seqs"],
        max_num_batched_tokens=config["max_num_batched_tokens"],
        enable_chunked_prefill=config["enable_chunked_prefill"],
        scheduling_policy=config["policy"],
        long_prefill_token_threshold=config["long_prefill_token_threshold"],
        long_prefill_token_threshold_adaptive=config["long_prefill_token_threshold_adaptive"],
        scheduler_reserve_full_isl=config["scheduler_reserve_full_isl"],
        watermark=config["watermark"],
        prefill_schedule_interval=config["prefill_schedule_interval"],
        enable_prefix_caching=config["enable_prefix_caching"],
        prefix_cache_retention_interval=config["prefix_cache_retention_interval"],
        async_scheduling=config["async_scheduling"],
        on_unservable="faithful",
    )
    log = simulate(
        workload,
        engine,
        PagedPool(config["num_gpu_blocks"], config["block_size"], groups=_groups(config)),
        LinearStepTime(
            config["step_base_ns"] * PS_PER_NS,
            config["step_per_token_ns"] * PS_PER_NS,
            config["step_per_ctx_ns"] * PS_PER_NS,
        ),
        stepwise=True,
        max_steps=config["max_steps"],
        recorders=[recorder],
        inbox=clock,
    )
    return Replay(recorder.passes, log.status)


def _groups(config: dict[str, Any]) -> tuple[KvGroupShape, ...]:
    groups = config["kv_groups"] or ()
    return tuple(KvGroupShape(group.get("block_size", config["block_size"]), group.get("window")) for group in groups)

"""The workload of a scenario, as its engine is able to serve it."""

from __future__ import annotations

from dataclasses import replace

from simulator.deployment import Deployment
from simulator.errors import InputError
from simulator.random_streams import Streams
from workloads.build import build_workload
from workloads.samples import expand_samples
from workloads.workload import Workload


def scenario_workload(deployment: Deployment) -> Workload:
    """Its columns.

    Raises:
        WorkloadError: a value that makes no sense, or a file that cannot be read.
        InputError: the engine cannot serve it.
    """
    settings = deployment.settings
    return _with_samples(build_workload(settings.workload, Streams(settings.seed)), deployment)


def _with_samples(workload: Workload, deployment: Deployment) -> Workload:
    """Requests for several answers as one request each, but for vLLM v0, which serves them as a group."""
    if workload.sequences is None:
        return workload
    preset, clock = deployment.settings.engine.preset, deployment.settings.mode == "serve"
    if clock and deployment.engine.policy.kind == "vllm-v0":
        note = "a request's sequences are one request: output tokens and throughputs count one answer of each"
        return replace(workload, notes=(*workload.notes, note))
    if workload.beam is not None and workload.beam.any():
        raise InputError(
            f"beam search is not simulated {f'with preset {preset}' if clock else 'in mode admission'}",
            where="workload.beam_width",
            remedy="set beam_width: 1 and n, or use preset: vllm-v0" if clock else "set beam_width: 1 and n",
        )
    return one_request_each(workload, preset)


def one_request_each(workload: Workload, preset: str) -> Workload:
    """Every answer that a request asks for as a request of its own, and said so."""
    note = f"each of a request's n answers is a request of its own ({preset} knows no groups), and counted as one"
    return replace(expand_samples(workload), notes=(*workload.notes, note))


def nothing_shared(deployment: Deployment, workload: Workload) -> tuple[str, ...]:
    """Said where prefix caching is on and has nothing to find."""
    if not deployment.engine.enable_prefix_caching or workload.segments is not None:
        return ()
    return (
        "prefix caching is on, and nothing in the workload says which tokens requests share (a prefix, sessions, a "
        "trace with hash ids): every prompt counts as unlike all others, so that only a preempted request finds its "
        "own blocks again",
    )

"""Mode admission: no clock; requests at their final length into the real allocators until one does not fit."""

from __future__ import annotations

from typing import Any

from simulator.admission import (
    LABEL,
    AdmissionPoint,
    AdmissionResult,
    admission_by_block_size,
    admission_warnings,
    admit_until_refused,
    allocator_for,
    block_sizes_that_fit,
    policy_for,
)
from simulator.allocators.pools import ContiguousPool
from simulator.expectations import judge_expectations
from simulator.result import SCHEMA_VERSION
from simulator.run_scenario import Built, labels, names


def admit(built: Built) -> AdmissionResult:
    """``mode: admission``: no clock, each request at its final length, until the first that does not fit."""
    limit = built.deployment.engine.max_model_len
    return admit_until_refused(allocator_for(built.deployment.pool, limit), *_placed(built), max_model_len=limit)


def compare_block_sizes(built: Built) -> list[AdmissionPoint]:
    """The same requests into the same pool: contiguous, and in blocks of 1 to 256 tokens (those that it has room for).

    With the null block of the run's own pool, so that the point at its block size is the run's own result.
    """
    pool = built.deployment.pool
    slots = built.deployment.pool_slots
    policy = policy_for(pool)
    return admission_by_block_size(
        slots,
        built.deployment.engine.max_model_len,
        *_placed(built),
        block_sizes=block_sizes_that_fit(slots, policy),
        fit=pool.fit if isinstance(pool, ContiguousPool) else "first",
        policy=policy,
    )


def _placed(built: Built) -> tuple[list[int], list[int]]:
    """Prompt and output tokens of the requests whose prompts the context takes; ``check_lengths`` names the others."""
    work = built.workload
    short = work.prompt_tokens < built.deployment.engine.max_model_len
    return work.prompt_tokens[short].tolist(), work.output_tokens[short].tolist()


def admission_result(
    built: Built, admitted: AdmissionResult, compared: list[AdmissionPoint], variant: str | None = None
) -> dict[str, Any]:
    """``result.json`` of mode admission."""
    found = {
        "schema_version": SCHEMA_VERSION,
        "mode": "admission",
        "label": LABEL,
        **names(built, variant),
        "labels": labels(built.deployment),
        **admitted.as_dict(),
        "by_block_size": {
            "pool_slots": built.deployment.pool_slots,
            "max_model_len": built.deployment.engine.max_model_len,
            "points": [point.as_dict() for point in compared],
        },
        "warnings": [*built.warnings, *admission_warnings(compared)],
        "assumptions": [*built.assumptions, *built.workload.notes],
    }
    return found | {"expect": judge_expectations(found, built.deployment.settings.expect)}

"""Which setting moves the limit that binds: each candidate knob is tried, and its price in memory stated."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from simulator.errors import KvplanError
from simulator.planner.capacity.candidates import put
from simulator.planner.capacity.facts import GIB, facts_of
from simulator.planner.capacity.plan import Ask, Planner, Sized
from simulator.planner.capacity.probe import ProbeOutcome
from simulator.specs import DTYPE_BITS

_HIGHEST_FRACTION = 0.95
_CHUNKING = ("vllm", "sglang")
"""Presets that cut prompts: in the others a smaller token budget turns long ones away."""
_GPUS_OF_A_NODE = 8


@dataclass(frozen=True)
class Knob:
    """A setting and the value to try."""

    path: str
    value: Any

    @property
    def change(self) -> str:
        """As the report writes it."""
        return f"{self.path}: {self.value}"


def knobs_for(sized: Sized) -> list[Knob]:
    """Settings that can move what binds a deployment, most likely first."""
    facts = sized.facts
    assert facts.built is not None
    deployment = facts.built.deployment
    engine, parallelism = deployment.settings.engine, deployment.parallelism
    bits = 8 * deployment.model.weight_bytes / max(1, deployment.model.parameters)
    narrow_weights = [Knob("engine.weight_dtype", "fp8")] if bits > 12 and engine.weight_dtype in (None, "auto") else []
    narrow_kv = [Knob("engine.kv_cache_dtype", "fp8")] if DTYPE_BITS.get(str(engine.kv_cache_dtype), 16) > 8 else []
    budget, seqs = deployment.engine.max_num_batched_tokens, deployment.engine.max_num_seqs
    chunks = engine.preset in _CHUNKING and engine.enable_chunked_prefill is not False
    larger = [Knob("engine.max_num_batched_tokens", 2 * budget)]
    smaller = [Knob("engine.max_num_batched_tokens", max(256, seqs, budget // 2))] if budget > 256 and chunks else []
    size = 2 * parallelism.tensor_parallel_size
    wider = [Knob("parallelism.tensor_parallel_size", size)] if size <= _GPUS_OF_A_NODE else []
    fraction = engine.gpu_memory_utilization or 0.0
    more_memory = [Knob("engine.gpu_memory_utilization", _HIGHEST_FRACTION)] if 0 < fraction < _HIGHEST_FRACTION else []
    by_limit = {
        "kv_memory": narrow_kv + more_memory + narrow_weights + smaller + wider,
        "max_num_seqs": [Knob("engine.max_num_seqs", 2 * seqs), *narrow_weights, *wider],
        "token_budget": larger + narrow_weights + wider,
        "compute": narrow_weights + smaller + wider,
        "bandwidth": narrow_weights + narrow_kv + wider,
    }
    return by_limit.get(str(limit_of(sized)), smaller + larger + narrow_weights + wider)


def limit_of(sized: Sized) -> str | None:
    """The limit that binds at the lowest rate that fails; where every stable rate passes, when all are sent at once."""
    at = sized.beyond or next((found for found in sized.answered if found.ask.purpose == "saturation"), None)
    if at is None or at.outcome.status != "ok":
        return None
    return str(at.outcome.facts["binding_limit"])


def try_knobs(planner: Planner, sized: Sized) -> dict[Knob, Generator[list[Ask], list[ProbeOutcome], Sized]]:
    """A search for each knob that can be turned at all."""
    found = {}
    for number, knob in enumerate(knobs_for(sized)):
        candidate = sized.facts.candidate
        document = candidate.document.copy()
        try:
            put(document, knob.path, knob.value)
        except KvplanError:
            continue
        changed = replace(candidate, name=f"{candidate.name} knob {number}", document=document)
        (facts,) = facts_of([changed], planner.patches, planner.settings)
        if facts.status == "ok":
            found[knob] = planner.size(facts, purpose="knob", hint_rps=sized.knee_rps)
    return found


def knob_row(knob: Knob, before: Sized, after: Sized) -> dict[str, Any]:
    """What a knob does to the knee of one replica, and what it takes of each GPU's memory."""
    was, now = before.knee_rps_per_replica, after.knee_rps_per_replica
    gpus = (before.facts.gpus_per_replica, after.facts.gpus_per_replica)
    return {
        "change": knob.change,
        "knee_rps": now,
        "knee_gain": None if not was or now is None else now / was - 1.0,
        "gpus_per_replica": gpus[1],
        "knee_gain_per_gpu": None if not was or now is None else (now / gpus[1]) / (was / gpus[0]) - 1.0,
        **{f"{name}_gib_change": _change(name, before, after) for name in ("pool", "activation", "weight")},
        "note": after.reason,
    }


def _change(name: str, before: Sized, after: Sized) -> float | None:
    attribute = {"pool": "kv_pool_bytes_per_gpu", "activation": "activation_bytes", "weight": "weight_bytes_per_gpu"}
    found = []
    for sized in (before, after):
        assert sized.facts.built is not None
        memory = sized.facts.built.deployment.memory
        if memory is None:
            return None
        found.append(getattr(memory, attribute[name]))
    return float(found[1] - found[0]) / GIB

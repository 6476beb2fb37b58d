"""From settings to a scheduler."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from simulator.allocators.kv_cache import KvCache
from simulator.schedulers.config import EngineConfig
from simulator.schedulers.running import Scheduler

SCHEDULERS = {
    "vllm-v1": "chunked_prefill:ChunkedPrefill",
    "request-level": "request_level:RequestLevel",
    "iteration-level": "iteration_level:IterationLevel",
    "vllm-v0": "vllm_v0:VllmV0",
    "trtllm": "trtllm:TrtLlm",
    "sglang": "sglang:Sglang",
}
"""Policy kind to module and class, so that a run imports the one it uses."""


def make_scheduler(config: EngineConfig, kv: KvCache) -> Scheduler:
    """The scheduler of ``config.policy`` over ``kv``."""
    module, name = SCHEDULERS[config.policy.kind].split(":")
    return cast(Scheduler, getattr(import_module(f"simulator.schedulers.{module}"), name)(config, kv))

"""Asks vllm-sr-sim a capacity question; run by the Python that has it, with the question as JSON.

Its command line only knows three GPUs with step times set by hand for Llama-3-70B. This uses its library instead, with
step times that it computes for the model, a prefill chunk of one prompt and a context of one request: its best side.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version

from fleet_sim import ProfileBuilder, ServingConfig
from fleet_sim.hardware import get_hardware
from fleet_sim.models import LLAMA_3_1_8B, LLAMA_3_1_70B
from fleet_sim.optimizer import analytical
from fleet_sim.optimizer.base import FleetOptimizer

MODELS = {"llama-3.1-8b": LLAMA_3_1_8B, "llama-3.1-70b": LLAMA_3_1_70B}
GPUS = {"h100-sxm-80gb": "h100_sxm", "h200-sxm-141gb": "h200_sxm", "a100-sxm-80gb": "a100_sxm"}


def main() -> None:
    question = json.loads(sys.argv[1])
    total = question["prompt_tokens"] + question["output_tokens"]
    lengths = [(total - 1, 0.0), (total, 1.0)]  # every request; the tool makes 80 % of it the prompt
    gpus, rates, best, profiles = {}, {}, None, {}
    for size in question["sizes"]:
        settings = ServingConfig(tp=size, chunk=question["prompt_tokens"], mean_ctx_tokens=total)
        profile = ProfileBuilder().build(
            hw=get_hardware(GPUS[question["gpu"]]), model=MODELS[question["model"]], cfg=settings
        )
        profiles[size] = profile
        if profile.total_kv_blks * 16 < total:
            continue  # the weights leave no room
        optimizer = FleetOptimizer(profile, profile, B_short=total, t_slo_ms=question["ttft_ms"], long_max_ctx=total)
        found = optimizer.optimize(
            lengths, question["rate_rps"], gammas=[1.0], n_sim_requests=20_000, verify_top_n=1, verbose=False
        ).best_simulated
        if not found.slo_met:
            continue
        gpus[size] = found.n_s * size
        rates[size] = analytical.calibrate(lengths, total, profile)[0]
        if best is None or found.cost_per_hr < best[0]:
            tpot = profile.iter_latency(profile.n_slots(total), total) * 1e3
            best = (found.cost_per_hr, found.p99_ttft_short_ms, tpot)
    profile = profiles[question["sizes"][0]]
    context = question["prompt_tokens"] + 1
    print(
        json.dumps(
            {
                "gpus": gpus,
                "replica_rps": rates,
                "usd_per_hour": best[0],
                "ttft_ms": best[1],
                "tpot_ms": best[2],
                "decode_ms": {n: profile.iter_latency(n, context) * 1e3 for n in question["batches"]},
                "prefill_ms": profile.prefill_iter_latency(question["prompt_tokens"], 0, 1, context) * 1e3,
                "version": version("vllm-sr-sim"),
            }
        )
    )


if __name__ == "__main__":
    main()

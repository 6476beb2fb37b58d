"""Asks aiconfigurator a capacity question; run by the Python that has it, with the question as JSON.

The question goes to its ``cli_recommend`` (fewest GPUs for a request rate), of which the aggregated deployments are
compared; it looks at prefill and decode in separate pools too, which is counted in its time.
"""

from __future__ import annotations

import json
import logging
import sys
from importlib.metadata import version

logging.disable(logging.CRITICAL)

from aiconfigurator.cli.api import cli_estimate, cli_recommend  # noqa: E402

MODELS = {"llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B", "llama-3.1-70b": "meta-llama/Meta-Llama-3.1-70B"}
GPUS = {"h100-sxm-80gb": "h100_sxm", "h200-sxm-141gb": "h200_sxm", "a100-sxm-80gb": "a100_sxm"}


def main() -> None:
    question = json.loads(sys.argv[1])
    model, system = MODELS[question["model"]], GPUS[question["gpu"]]
    lengths = {"isl": question["prompt_tokens"], "osl": question["output_tokens"]}
    found = cli_recommend(
        model, system, target_request_rate=question["rate_rps"], backend="vllm", ttft=question["ttft_ms"],
        tpot=question["tpot_ms"], strict_sla=True, **lengths,
    )  # fmt: skip
    rows = [row for row in found.best_configs["agg"].to_dict("records") if row["tp"] in question["sizes"]]
    best = min(rows, key=lambda row: row["total_gpus_needed"])
    split = found.best_configs.get("disagg")
    size = question["sizes"][0]

    def step_ms(mode: str, batch: int) -> float:
        made = cli_estimate(
            model, system, mode=mode, backend_name="vllm", isl=lengths["isl"], osl=2, batch_size=batch, tp_size=size
        )
        return made.ttft if mode == "static_ctx" else made.tpot

    print(
        json.dumps(
            {
                "gpus": {int(row["tp"]): int(row["total_gpus_needed"]) for row in rows if row["pp"] == 1},
                "replica_rps": {int(row["tp"]): float(row["seq/s"]) for row in rows if row["pp"] == 1},
                "usd_per_hour": None,
                "ttft_ms": float(best["ttft"]),
                "tpot_ms": float(best["tpot"]),
                "decode_ms": {batch: step_ms("static_gen", batch) for batch in question["batches"]},
                "prefill_ms": step_ms("static_ctx", 1),
                "version": version("aiconfigurator"),
                "notes": []
                if split is None or not len(split)
                else [f"prefill and decode apart: {int(split['total_gpus_needed'].min())} GPUs"],
            }
        )
    )


if __name__ == "__main__":
    main()

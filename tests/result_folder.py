"""A small result folder with a contiguous and a paged variant, for tests of reports."""

from __future__ import annotations

from pathlib import Path

from simulator.result import ResultContext, result_dict, write_json, write_requests_csv, write_timeline_csv
from tests.synthetic_log import Server, random_workload, server_log

_WORK = random_workload(5, 60, 40_000_000_000, 30)
VARIANTS = {
    "contiguous": server_log(_WORK, Server(blocks=64, max_num_seqs=16, budget=64, reserve=64))[0],
    "paged": server_log(_WORK, Server(blocks=64, max_num_seqs=16, budget=64))[0],
}


def write_folder(folder: Path) -> None:
    """Writes what ``kvplan run`` writes, short of the report."""
    results = {}
    for name, log in VARIANTS.items():
        context = ResultContext(
            model_id="llama-3.1-8b",
            gpu="h100-sxm-80gb",
            name="small",
            variant=name,
            slo={"ttft_ms": {"p99": 500}, "tpot_ms": {"p99": 50}},
            assumptions=("max_num_seqs: 16",),
        )
        results[name] = result_dict(log, context)
        write_json(results[name], folder / name / "result.json")
        write_requests_csv(log, folder / name / "requests.csv")
        write_timeline_csv(log, folder / name / "timeline.csv")
    write_json({"variants": results}, folder / "result.json")

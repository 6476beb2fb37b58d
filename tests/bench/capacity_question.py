"""A capacity question that we and the peers can all be asked, and our answer to it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from simulator.deployment import build_deployment
from simulator.scenario import read_scenario
from simulator.scenario_yaml import parse_yaml
from simulator.step_time.base import Batch
from tests.support import ROOT

BATCHES = (1, 64, 256)
SIZES = (1, 2, 4, 8)
PS_PER_MS = 10**9


@dataclass(frozen=True)
class Question:
    """How many GPUs of one kind serve a load within two limits? Lengths are fixed: not every peer takes others.

    Attributes:
        model, gpu: our names; the peers' scripts know their own.
        rate_rps: requests a second; limits are of p99 where somebody knows percentiles.
    """

    model: str
    gpu: str
    rate_rps: float
    prompt_tokens: int = 1024
    output_tokens: int = 256
    ttft_ms: float = 500.0
    tpot_ms: float = 50.0
    sizes: tuple[int, ...] = SIZES
    batches: tuple[int, ...] = BATCHES

    @property
    def text(self) -> str:
        return (
            f"{self.model} on {self.gpu}, {self.prompt_tokens} + {self.output_tokens} tokens, {self.rate_rps:g} "
            f"requests/s, TTFT <= {self.ttft_ms:g} ms, TPOT <= {self.tpot_ms:g} ms"
        )

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    def scenario(self) -> str:
        """The question as a scenario, all its settings vLLM's defaults."""
        return f"""\
name: question
model: {self.model}
gpu: {self.gpu}
engine: {{preset: vllm, max_model_len: {self.prompt_tokens + self.output_tokens + 1}}}
workload:
  num_requests: 2000
  arrivals: {{kind: poisson, rate_rps: {self.rate_rps}}}
  prompt_tokens: {{kind: fixed, tokens: {self.prompt_tokens}}}
  output_tokens: {{kind: fixed, tokens: {self.output_tokens}}}
slo: {{ttft_ms: {{p99: {self.ttft_ms}}}, tpot_ms: {{p99: {self.tpot_ms}}}}}
capacity: {{tensor_parallel_size: {list(self.sizes)}}}
"""


@dataclass(frozen=True)
class Answer:
    """What one tool said.

    Attributes:
        gpus: of the whole deployment, by tensor-parallel size; sizes that do not serve are missing.
        replica_rps: the load that one replica carries, by tensor-parallel size.
        usd_per_hour: of the cheapest; None where the tool knows no prices.
        ttft_ms, tpot_ms: of the cheapest, in the statistic that the tool has.
        decode_ms: a step with so many requests that decode, each with the prompt in its context, at the first of sizes.
        prefill_ms: a step with one prompt alone.
        version: of the tool.
        seconds: of wall time for the answer, process start included.
    """

    gpus: dict[int, int]
    replica_rps: dict[int, float]
    usd_per_hour: float | None
    ttft_ms: float | None
    tpot_ms: float | None
    decode_ms: dict[int, float]
    prefill_ms: float
    version: str = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def best(self) -> tuple[int, int]:
        """(GPUs, tensor-parallel size) of the smallest deployment."""
        return min((gpus, size) for size, gpus in self.gpus.items())


def our_answer(question: Question, folder: Path) -> Answer:
    """Asks ``kvplan capacity`` in a process of its own."""
    file = folder / "question.yaml"
    file.write_text(question.scenario(), encoding="utf-8")
    out = folder / "ours"
    kvplan = Path(sys.executable).with_name("kvplan")
    command = [str(kvplan), "capacity", str(file), "--out", str(out), "--no-report", "--quiet"]
    begun = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    seconds = time.perf_counter() - begun
    rows = _rows(out / "candidates.csv")
    best = json.loads((out / "answer.json").read_text(encoding="utf-8"))["winner"]
    decode_ms, prefill_ms = our_step_times(question)
    serving = [row for row in rows if row["status"] == "ok"]
    return Answer(
        gpus={int(row["tensor_parallel_size"]): int(row["gpus"]) for row in serving},
        replica_rps={int(row["tensor_parallel_size"]): float(row["knee_rps_per_replica"]) for row in serving},
        usd_per_hour=best["usd_per_hour"],
        ttft_ms=best["p99_ttft_ms"],
        tpot_ms=best["p99_tpot_ms"],
        decode_ms=decode_ms,
        prefill_ms=prefill_ms,
        seconds=seconds,
    )


def our_step_times(question: Question) -> tuple[dict[int, float], float]:
    """(decode steps by batch, one prompt alone), ms, with the default calibration."""
    document = parse_yaml(question.scenario(), "question.yaml")
    patches = [f"parallelism.tensor_parallel_size={question.sizes[0]}"]
    deployment = build_deployment(read_scenario(document, Path("question.yaml"), patches).scenario.settings)
    assert deployment.step_time is not None
    decode_ms = {}
    for requests in question.batches:
        context = requests * (question.prompt_tokens + 1)
        batch = Batch(requests, requests, requests, context, requests, context)
        decode_ms[requests] = deployment.step_time.segment(batch).duration_ps / PS_PER_MS
    tokens = question.prompt_tokens
    prompt = Batch(tokens, 1, 1, tokens, prefills=[(tokens, tokens)])
    return decode_ms, deployment.step_time.segment(prompt).duration_ps / PS_PER_MS


def _rows(path: Path) -> list[dict[str, str]]:
    import csv

    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))

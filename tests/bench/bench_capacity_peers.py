"""The same capacity question for two planners from PyPI and for us: answer, time, and what each leaves out.

Each peer needs an environment of its own (see INSTALL); where it is missing, it is left out of the table.

What their answers rest on, and why they differ (measured in November 2026; the bench prints the figures again):

- aiconfigurator 0.12 takes step times from kernels measured on the GPU, and computes how many requests a steady batch
  of one size completes: no arrivals, no queue, no percentiles, one prompt and one answer length. Its steps are ours:
  on one H100 (8B) 6.2, 10.3 and 19.6 ms at batches of 1, 64 and 256 against 6.7, 9.9 and 19.7, a prompt 22.1 against
  22.4 ms; on two H200 (70B) 21.3, 25.2 and 41.8 against 20.5, 24.3 and 41.9, a prompt 109 against 111 ms (no
  independent check: our default efficiencies sum up its tables). Hence the same GPUs for the 8B model: 5, 6, 8 and 16
  at tensor parallel 1, 2, 4 and 8. It gives a replica more load than we do (24.6 against 22.1 requests/s), and much
  more where prompts are long beside the limit (70B on two H200: 4.9 against 2.7): it asks for the mean TTFT of a full
  batch, we for p99 with random arrivals, and at 3 requests/s one prompt in a hundred waits for four others and misses
  500 ms. So it says 8 GPUs where we say 10.
- vllm-sr-sim serves requests in M/G/c queues whose servers are KV slots. A prompt slows down nobody else's tokens, so
  that a replica carries the load of decoding alone, about twice what the others say: 50 requests/s on one H100, whose
  prompts alone (1,024 tokens) would take three quarters of the GPU's peak FLOP/s. Its TTFT counts a prompt as one
  decode step for each chunk: 5.8 ms, against 15 ms by its own roofline and 22 ms by the others. It knows TTFT limits
  only, makes a fifth of every request its answer, and does not share the KV bytes among the GPUs of a replica.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bench.capacity_question import Answer, Question, our_answer
from tests.support import ROOT

HERE = Path(__file__).parent
INSTALL = """\
python3 -m venv .peer-sr-sim && .peer-sr-sim/bin/pip install vllm-sr-sim
python3 -m venv .peer-aiconfigurator && .peer-aiconfigurator/bin/pip install aiconfigurator==0.12.0
(or name other Pythons by PEER_SR_SIM and PEER_AICONFIGURATOR)"""


@dataclass(frozen=True)
class Peer:
    """One planner: where its Python is, what shows that it is there, the script that asks it."""

    name: str
    variable: str
    folder: str
    module: str
    script: str
    leaves_out: str

    def python(self) -> Path | None:
        """The Python that can import the peer, or None."""
        python = ROOT / os.environ.get(self.variable, f"{self.folder}/bin/python")
        if not python.is_file():
            return None
        probe = subprocess.run([python, "-c", f"import {self.module}"], capture_output=True, check=False)
        return python if probe.returncode == 0 else None

    def answer(self, python: Path, question: Question) -> Answer:
        begun = time.perf_counter()
        proc = subprocess.run(
            [python, "-W", "ignore", HERE / self.script, question.as_json()],
            capture_output=True, text=True, timeout=1800, check=False,
        )  # fmt: skip
        seconds = time.perf_counter() - begun
        if proc.returncode != 0:
            raise RuntimeError(f"{self.name} failed:\n{proc.stderr[-2000:]}")
        said = json.loads(proc.stdout.splitlines()[-1])
        for key in ("gpus", "replica_rps", "decode_ms"):
            said[key] = {int(size): value for size, value in said[key].items()}
        return Answer(**said | {"notes": tuple(said.get("notes", ()))}, seconds=seconds)


PEERS = (
    Peer(
        "aiconfigurator",
        "PEER_AICONFIGURATOR",
        ".peer-aiconfigurator",
        "aiconfigurator",
        "ask_aiconfigurator.py",
        "arrivals, queues, percentiles, lengths that differ, preemption, prices",
    ),
    Peer(
        "vllm-sr-sim",
        "PEER_SR_SIM",
        ".peer-sr-sim",
        "fleet_sim",
        "ask_sr_sim.py",
        "TPOT limits, what prompts cost those who decode, the engine's scheduler, weight and KV formats apart",
    ),
)
OURS_LEAVES_OUT = "kernels measured on each GPU (a roofline with fixed efficiencies), energy"


@pytest.mark.parametrize(
    "question",
    [Question("llama-3.1-8b", "h100-sxm-80gb", 100), Question("llama-3.1-70b", "h200-sxm-141gb", 20, sizes=(2, 4, 8))],
    ids=["8b-h100", "70b-h200"],
)
def bench_the_same_question(question: Question, tmp_path: Path) -> None:
    print(f"\n{question.text}")
    answers = {"kvplan capacity": our_answer(question, tmp_path)}
    missing = []
    for peer in PEERS:
        python = peer.python()
        if python is None:
            missing.append(peer.name)
            continue
        answers[peer.name] = peer.answer(python, question)
    show(question, answers)
    ours = answers["kvplan capacity"]
    measured = answers.get("aiconfigurator")
    if measured is not None:
        for size in ours.gpus.keys() & measured.gpus.keys():
            ratio = ours.gpus[size] / measured.gpus[size]
            assert 0.6 <= ratio <= 1.7, f"tensor parallel {size}: {ratio:.2f} times the GPUs of aiconfigurator"
            assert ours.replica_rps[size] <= 1.2 * measured.replica_rps[size]  # queues do not make it more
        for batch in question.batches:
            assert ours.decode_ms[batch] == pytest.approx(measured.decode_ms[batch], rel=0.3)
        assert ours.prefill_ms == pytest.approx(measured.prefill_ms, rel=0.3)
        assert ours.seconds < measured.seconds
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; to compare:\n{INSTALL}")


def show(question: Question, answers: dict[str, Answer]) -> None:
    leaves_out = {"kvplan capacity": OURS_LEAVES_OUT} | {peer.name: peer.leaves_out for peer in PEERS}
    sizes = "".join(f"{f'tp{size}':>12}" for size in question.sizes)
    print(f"  {'':<18}{'answer':>14}{'USD/h':>8}{'time':>9}  GPUs (requests/s a replica):{sizes}")
    for name, answer in answers.items():
        gpus, size = answer.best
        price = "-" if answer.usd_per_hour is None else f"{answer.usd_per_hour:.2f}"
        cells = "".join(
            f"{f'{answer.gpus[s]} ({answer.replica_rps[s]:.1f})' if s in answer.gpus else '-':>12}"
            for s in question.sizes
        )
        print(f"  {name:<18}{f'{gpus} GPUs, tp{size}':>14}{price:>8}{answer.seconds:>7.1f} s{'':<30}{cells}")
    batches = "".join(f"{f'batch {batch}':>11}" for batch in question.batches)
    print(f"  {'':<18}{'TTFT':>8}{'TPOT':>8}   step times at tp{question.sizes[0]}, ms: prompt    decode:{batches}")
    for name, answer in answers.items():
        steps = "".join(f"{answer.decode_ms[batch]:>11.1f}" for batch in question.batches)
        print(f"  {name:<18}{answer.ttft_ms:>8.1f}{answer.tpot_ms:>8.1f}   {answer.prefill_ms:>26.1f}{'':<11}{steps}")
    for name, answer in answers.items():
        print(f"  {name} {answer.version} leaves out: {leaves_out[name]}")
        for note in answer.notes:
            print(f"  {name}: {note}")

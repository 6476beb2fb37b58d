"""The peer of the speed bench: NVIDIA Dynamo's offline replay (its scheduler simulator, in Rust).

It runs in a virtual environment of its own: ``.peer-venv``, or the Python that PEER_PYTHON names.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.bench.load import BLOCK_SIZE, MAX_NUM_SEQS, NUM_BLOCKS, PROMPT_TOKENS, TOKEN_BUDGET
from tests.bench.pinned import one_core
from tests.support import ROOT

INSTALL = """\
python3 -m venv .peer-venv
.peer-venv/bin/pip install --no-deps ai-dynamo==1.4.2 ai-dynamo-runtime==1.4.2
.peer-venv/bin/pip install msgspec transformers"""

_WALL_TIME = re.compile(r"Wall Time \(ms\):\s*([\d,]+(?:\.\d+)?)")


@dataclass(frozen=True)
class PeerRun:
    """What the peer reports. It does not count its steps, so they are estimated.

    A token waits for one step, thus steps ≈ time / mean gap between tokens, and the mean batch is the output
    tokens over the steps; the server is never idle at this load.
    """

    wall_s: float
    steps: float
    mean_batch: float
    mean_e2el_ms: float


def peer_python() -> Path | None:
    """The Python that can import the peer, or None."""
    python = ROOT / os.environ.get("PEER_PYTHON", ".peer-venv/bin/python")
    if not python.is_file():
        return None
    probe = subprocess.run([python, "-c", "import dynamo.replay"], capture_output=True, check=False)
    return python if probe.returncode == 0 else None


def parse_wall_time_s(stdout: str) -> float:
    """Seconds in the line "Wall Time (ms): 4,057.86", which counts the simulation alone."""
    match = _WALL_TIME.search(stdout)
    if match is None:
        raise ValueError(f"the peer printed no wall time:\n{stdout[-2000:]}")
    return float(match[1].replace(",", "")) / 1e3


def run_peer(python: Path, requests: int, output_tokens: int, rate_rps: float, folder: Path) -> PeerRun:
    """Replays the same load once, on one core; its report is left in ``folder``."""
    report = folder / f"peer-{requests}-{output_tokens}.json"
    engine = {
        "block_size": BLOCK_SIZE,
        "num_gpu_blocks": NUM_BLOCKS,
        "max_num_seqs": MAX_NUM_SEQS,
        "max_num_batched_tokens": TOKEN_BUDGET,
    }
    options = {
        "--input-tokens": PROMPT_TOKENS,
        "--output-tokens": output_tokens,
        "--request-count": requests,
        "--request-rate": rate_rps,
        "--num-workers": 1,
        "--replay-mode": "offline",
        "--extra-engine-args": json.dumps(engine),
        "--report-json": report,
    }
    words = [str(word) for pair in options.items() for word in pair]
    command = [*one_core(), str(python), "-m", "dynamo.replay", *words]
    proc = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800, check=False)
    if proc.returncode != 0:
        raise RuntimeError(f"the peer failed:\n{proc.stderr[-2000:]}")
    said = json.loads(report.read_text(encoding="utf-8"))
    steps = said["duration_ms"] / said["mean_itl_ms"]
    return PeerRun(
        wall_s=parse_wall_time_s(proc.stdout),
        steps=steps,
        mean_batch=said["total_output_tokens"] / steps,
        mean_e2el_ms=said["mean_e2e_latency_ms"],
    )

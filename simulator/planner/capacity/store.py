"""The probes of a search on disk: each lands whole, and none is run twice, whatever ends the process."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simulator.errors import InputError
from simulator.planner.capacity.probe import ProbeOutcome
from simulator.planner.sweep_folder import write_durably
from simulator.result_files import json_text

PROBES = "probes"
ANSWER = "answer.json"
WHOLE = (ANSWER, "candidates.csv", "probes.csv", "winner.yaml", "scenario.yaml", "provenance.json")
"""What stands beside the probes once all are done; ``answer.json`` is written last and removed first."""
_DRAWN = ("report.html", "report.md")


class ProbeStore:
    """``probes/KEY.json``: an outcome, and the hash that says that it is whole and unchanged.

    Invariant: ``answer.json`` stands in the folder only while all that it follows from does too.
    """

    def __init__(self, out: Path) -> None:
        self.out = out

    def ready(self, *, resume: bool, restart: bool) -> None:
        """Readies the folder for a search. Raises InputError where another one was cut short in it."""
        if not (resume or restart) and (standing := self.unfinished()):
            raise InputError(
                f"holds {standing} probes of a search that was cut short",
                where=f"--out {self.out}",
                remedy="--resume continues it, --restart removes them, another --out leaves them",
            )
        if resume:
            self.open_again()
        else:
            self.clear()

    def prepare(self) -> None:
        """Makes the folder. Raises InputError where it cannot be written, or holds something else."""
        where = f"--out {self.out}"
        if self.out.exists() and not self.out.is_dir():
            raise InputError("is a file, not a folder", where=where, remedy="name a folder")
        if (self.out / "result.json").exists() or (self.out / "points").exists():
            raise InputError("holds the result of a run or a sweep", where=where, remedy="name another folder")
        try:
            (self.out / PROBES).mkdir(parents=True, exist_ok=True)
            (self.out / PROBES / ".probe").write_bytes(b"")
            (self.out / PROBES / ".probe").unlink()
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(f"cannot be written: {reason}", where=where, remedy="name another folder") from None

    def unfinished(self) -> int:
        """Probes of a search that was cut short; 0 where there is none, or where it is complete."""
        if (self.out / ANSWER).exists():
            return 0
        return sum(1 for _ in (self.out / PROBES).glob("*.json"))

    def open_again(self) -> None:
        """From now on the search counts as unfinished; what a kill left half written is removed."""
        for name in (*WHOLE, *_DRAWN):
            (self.out / name).unlink(missing_ok=True)
        for left in [*self.out.glob(".*.json.*"), *self.out.glob(".*.csv.*"), *(self.out / PROBES).glob(".*")]:
            left.unlink(missing_ok=True)

    def clear(self) -> None:
        """Removes an earlier search."""
        self.open_again()
        shutil.rmtree(self.out / PROBES)
        (self.out / PROBES).mkdir()

    def read(self, key: str) -> ProbeOutcome | None:
        """A probe that stands there; not one that ``failed``, which gets another try."""
        try:
            whole = json.loads((self.out / PROBES / f"{key}.json").read_text(encoding="utf-8"))
            outcome = ProbeOutcome(**whole["outcome"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if whole.get("sha256") != _sha256(whole["outcome"]) or outcome.status == "failed":
            return None
        return outcome

    def save(self, key: str, outcome: ProbeOutcome) -> None:
        """Writes an outcome, on the disk itself before it bears its name."""
        facts = json.loads(json_text(asdict(outcome)))
        write_durably(self.out / PROBES / f"{key}.json", json_text({"sha256": _sha256(facts), "outcome": facts}))


def _sha256(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

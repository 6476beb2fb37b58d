"""The folder that a command writes: filled beside its final place, then moved there, so that it is whole or absent."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from simulator.errors import InputError

FILES = (
    *("result.json", "requests.csv", "requests.parquet", "timeline.csv", "report.html"),
    *("scenario.resolved.yaml", "provenance.json"),
)
PLOTS = ("pool_shares", "memory_split", "latency_percentiles", "queue_and_batch", "admitted_by_block_size")


class ResultFolder:
    """``with ResultFolder(out) as work: ...`` gives an empty folder; its files move to ``out`` at a normal end.

    Raises InputError, before any work is done, where ``out`` cannot be written. After an error or Ctrl-C nothing of
    the new run is left, and what stood in ``out`` before still does.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self._work: Path | None = None

    def __enter__(self) -> Path:
        where = f"--out {self.out}"
        if self.out.exists() and not self.out.is_dir():
            raise InputError("is a file, not a folder", where=where, remedy="name a folder")
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            self._work = Path(tempfile.mkdtemp(prefix=".kvplan-", dir=self.out))
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(f"cannot be written: {reason}", where=where, remedy="name another folder") from None
        return self._work

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._work is not None
        try:
            if kind is None:
                _clear(self.out)
                _move(self._work, self.out)
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                raise InputError(
                    f"cannot be written: {error.strerror or error}",
                    where=f"--out {self.out}",
                    remedy="free some space, or name another folder",
                ) from None
        finally:
            shutil.rmtree(self._work, ignore_errors=True)
            if kind is not None and not any(self.out.iterdir()):
                self.out.rmdir()


def _clear(out: Path) -> None:
    """Removes what an earlier run left, its result.json first: no file of it is taken for the new run's."""
    whole = out / "result.json"
    try:
        variants = list(json.loads(whole.read_text(encoding="utf-8")).get("variants", {}))
    except (OSError, ValueError, AttributeError):
        variants = []
    whole.unlink(missing_ok=True)
    for folder in (out, *(out / str(name) for name in variants)):
        for name in FILES:
            (folder / name).unlink(missing_ok=True)
        for drawing in (folder / "plots").glob("*.svg"):
            if drawing.stem in PLOTS:
                drawing.unlink()
        for emptied in (folder / "plots", folder):
            if emptied != out and emptied.is_dir() and not any(emptied.iterdir()):
                emptied.rmdir()


def _move(work: Path, out: Path) -> None:
    """Each file takes its place at once, the result.json of the whole last: where it stands, all else does.

    Folders are merged, so that a user's own files beside them survive.
    """
    last = work / "result.json"
    for source in sorted(work.rglob("*"), key=lambda path: (path == last, path)):
        target = out / source.relative_to(work)
        if source.is_dir():
            target.mkdir(exist_ok=True)
        else:
            source.replace(target)

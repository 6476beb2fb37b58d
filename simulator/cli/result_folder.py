"""The folder that a command writes: filled beside its final place, then moved there, so that it is whole or absent."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from simulator.errors import InputError


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
                _move(self._work, self.out)
        finally:
            shutil.rmtree(self._work, ignore_errors=True)
            if kind is not None and not any(self.out.iterdir()):
                self.out.rmdir()


def _move(work: Path, out: Path) -> None:
    """Each file takes its place at once; folders are merged, so that a user's own files beside them survive."""
    for source in sorted(work.rglob("*")):
        target = out / source.relative_to(work)
        if source.is_dir():
            target.mkdir(exist_ok=True)
        else:
            source.replace(target)

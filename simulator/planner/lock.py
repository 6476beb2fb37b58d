"""One writer a folder: a second sweep into it is refused while the first one runs."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

from simulator.errors import InputError

NAME = ".kvplan-sweep.lock"


class FolderLock:
    """``with FolderLock(folder):`` holds the folder; it is let go when the process ends, however it ends.

    Raises InputError where another process holds it. On a system without ``fcntl`` nothing is locked.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._file: int | None = None

    def __enter__(self) -> FolderLock:
        while self._file is None:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                self._lock(file)
                # Whoever held it before may have removed the file that was opened here: then another one counts.
                if os.fstat(file).st_ino == self._path.stat().st_ino:
                    self._file = file
            except FileNotFoundError:
                pass
            finally:
                if self._file is None:
                    os.close(file)
        return self

    def _lock(self, file: int) -> None:
        try:
            import fcntl
        except ImportError:
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                "another sweep is writing there",
                where=f"--out {self._path.parent}",
                remedy="wait for it, or name another folder",
            ) from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        self._path.unlink(missing_ok=True)
        os.close(self._file)
        self._file = None

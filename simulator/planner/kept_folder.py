"""A folder in which work lands part by part, each whole or not at all, and which tells finished from cut short."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from simulator.errors import InputError
from simulator.result_files import whole_file

_DRAWN = ("report.html", "report.md")


class KeptFolder:
    """What a sweep's folder and a capacity search's have in common; each says which files it means.

    Invariant: the first file of ``WHOLE`` stands in it only while all that it follows from does too.

    Attributes:
        PARTS: the folder below it in which parts land; ``LANDED``: pattern of what makes a part count.
        WHOLE: the files of finished work, removed as soon as more is done; the first is written last and goes first.
        FOREIGN: what other commands leave, by what it is.
        WHAT: of which the user hears that so many stand there.
    """

    PARTS: ClassVar[str]
    LANDED: ClassVar[str]
    WHOLE: ClassVar[tuple[str, ...]]
    FOREIGN: ClassVar[dict[str, str]]
    WHAT: ClassVar[str]

    def __init__(self, out: Path) -> None:
        self.out = out

    def prepare(self) -> None:
        """Makes the folder. Raises InputError where it cannot be written, or holds something else."""
        where = f"--out {self.out}"
        if self.out.exists() and not self.out.is_dir():
            raise InputError("is a file, not a folder", where=where, remedy="name a folder")
        for name, what in self.FOREIGN.items():
            if (self.out / name).exists():
                raise InputError(f"holds the result of {what}", where=where, remedy="name another folder")
        try:
            (self.out / self.PARTS).mkdir(parents=True, exist_ok=True)
            probe = self.out / self.PARTS / ".probe"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(f"cannot be written: {reason}", where=where, remedy="name another folder") from None

    def unfinished(self) -> int:
        """Parts of work that was cut short; 0 where there is none, or where it is complete."""
        if (self.out / self.WHOLE[0]).exists():
            return 0
        return sum(1 for _ in (self.out / self.PARTS).glob(self.LANDED))

    def refuse_unfinished(self) -> None:
        """Raises InputError where work that was cut short would be lost."""
        if standing := self.unfinished():
            raise InputError(
                f"holds {standing} {self.WHAT} that was cut short",
                where=f"--out {self.out}",
                remedy="--resume continues it, --restart removes them, another --out leaves them",
            )

    def open_again(self) -> None:
        """From now on the work counts as unfinished; what a kill left half written is removed."""
        for name in (*self.WHOLE, *_DRAWN):
            (self.out / name).unlink(missing_ok=True)
        parts = self.out / self.PARTS
        for left in [*self.out.glob(".*.json.*"), *self.out.glob(".*.csv.*"), *parts.glob(".*"), *parts.glob("*/.*")]:
            left.unlink(missing_ok=True)


def write_durably(path: Path, text: str) -> None:
    """Writes a file whole, and on the disk itself before it bears its name."""
    with whole_file(path) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())

"""The one error tree: each error says what is wrong, where, and a change that would work."""

from __future__ import annotations


class KvplanError(Exception):
    """Base of every error that a user may see.

    Attributes:
        what: the fault in one sentence.
        where: ``file:line:column`` or the dotted path of a setting; None where there is none.
        remedy: a change that would work; None where none is known.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head} ({self.remedy})" if self.remedy else head


class InputError(KvplanError):
    """Bad input or usage: the user can mend it by editing what they gave."""

    exit_code = 2


class DoesNotFitError(KvplanError):
    """The model, or one request of the asked length, does not fit in memory."""

    exit_code = 3

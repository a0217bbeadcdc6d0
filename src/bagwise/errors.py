"""Errors (`BagwiseError`) and warnings (`BagwiseWarning`).

A message says what is wrong, where, what was found and what to do. It never contains a label
value: exceptions end up in logs, and people who read logs may not be allowed to see labels.
"""

import difflib
import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from traceback import extract_tb
from typing import TypeVar

from bagwise._printable import printable

T = TypeVar("T")

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A full disk, or a limit on the disk space of a user or a file."""


class BagwiseError(ValueError):
    """Any error that the caller can correct."""

    parts: "list[BagwiseError]"  # the single errors, if several were combined

    def __str__(self) -> str:
        # Messages name columns and classes, which in an untrusted file can contain anything.
        return printable(super().__str__(), keep="\n")


class Refusals:
    """Collects errors of several blocks, to raise them all at once.

    >>> wrong = Refusals()
    >>> with wrong:
    ...     raise ColumnError("one.")
    >>> with wrong:
    ...     raise LabelError("two.")
    >>> wrong.raise_all()
    Traceback (most recent call last):
    ...
    bagwise.errors.ColumnError: 2 things are wrong with the table:
    1. one.
    2. two.
    """

    def __init__(self) -> None:
        self.errors: list[BagwiseError] = []

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        # A combined error contributes its parts.
        if not isinstance(error, BagwiseError) or isinstance(error, StageError | LowMemoryError):
            return False
        self.errors += getattr(error, "parts", [error])
        return True

    def raise_all(self) -> None:
        """Raise all collected errors as one, of the type of the first."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            lines = (f"{i}. {error}" for i, error in enumerate(self.errors, 1))
            said = "\n".join([f"{len(self.errors)} things are wrong with the table:", *lines])
            together = type(self.errors[0])(said)
            together.parts = self.errors
            raise together


class TableError(BagwiseError):
    """A file or frame cannot be read."""


class ColumnError(BagwiseError):
    """A column is unknown or duplicated, or cannot be used as requested."""


class UnconfirmedColumnsError(ColumnError):
    """Columns that look like names, ids or dates would be published without confirmation."""


class LabelError(BagwiseError):
    """The label column contains something that cannot be aggregated."""


class BoundsError(BagwiseError):
    """The label bounds are missing or impossible."""


class BagTooSmallError(BagwiseError):
    """There are fewer rows than one bag needs."""


class BagsError(BagwiseError):
    """Bag ids or bag labels do not describe a partition of the rows."""


class StrategyError(BagwiseError):
    """A strategy, score or parameter is unknown or not allowed."""


class BudgetError(BagwiseError):
    """A privacy request is impossible or contradicts itself."""


class CertificateError(BagwiseError):
    """A certificate does not follow from its own events."""


class LedgerError(BagwiseError):
    """A ledger is missing, damaged or edited, or belongs to other data."""


class ReleaseError(BagwiseError):
    """A release directory is damaged, edited or incomplete."""


class OutputExistsError(ReleaseError):
    """The output already exists."""


class SignatureError(BagwiseError):
    """A signature is missing or not by this key, or a key is invalid."""


class ModelFileError(BagwiseError):
    """A model file is damaged, edited or from another version."""


class ProjectError(BagwiseError):
    """An annotation project is damaged, or cannot do what was requested."""


class OutputError(BagwiseError):
    """An output cannot be written."""


class LowMemoryError(BagwiseError):
    """There is not enough memory for the request."""

    def __init__(self) -> None:
        super().__init__(
            "there is not enough memory. Nothing was written, and no file was damaged. Close other "
            "programs, raise the limit, or use fewer rows or columns."
        )


class EngineError(BagwiseError):
    """Spark does not start, is not configured safely, or did not finish."""


class MissingExtraError(BagwiseError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} needs an optional dependency: pip install "bagwise[{extra}]"')
        self.extra = extra


class StageError(BagwiseError):
    """An unexpected error in one stage; the original message is withheld."""

    def __init__(self, stage: str, error: BaseException) -> None:
        frames = extract_tb(error.__traceback__)
        last = frames[-1] if frames else None
        where = f" at {Path(last.filename).name}:{last.lineno}" if last else ""
        super().__init__(
            f"{stage} failed unexpectedly: {type(error).__name__}{where}. "
            "The original message is withheld, since it may quote a label. Nothing was written."
        )
        self.stage = stage


class BagwiseWarning(UserWarning):
    """Something that the user should know before going on."""

    def __str__(self) -> str:
        return printable(super().__str__(), keep="\n")


class LeakWarning(BagwiseWarning):
    """The output reveals more about single labels than an average should."""


class DominatedWarning(BagwiseWarning):
    """Another choice would have a smaller error under the same guarantee."""


class WeakPromiseWarning(BagwiseWarning):
    """The guarantee holds, but is so weak that a reader could be almost certain of a label."""


class StrongPromiseWarning(BagwiseWarning):
    """The guarantee holds, but with so few rows its noise hides even the mean of all labels."""


class ClippingWarning(BagwiseWarning):
    """Labels lie outside the bounds; their number is stated only without a guarantee."""


class RankWarning(BagwiseWarning):
    """The features do not determine every coefficient."""


class BiasWarning(BagwiseWarning):
    """With these bags, the loss estimates something other than the row-level model."""


class SeparationWarning(BagwiseWarning):
    """A column separates the labels perfectly, so the best coefficients are infinite."""


class NotConvergedWarning(BagwiseWarning):
    """A fit ended before its equations were solved."""


class NoEvidenceWarning(BagwiseWarning):
    """The features do not explain the bag labels."""


class UnseenLevelWarning(BagwiseWarning):
    """A table has categories that the encoder does not know."""


class TextNumbersWarning(BagwiseWarning):
    """A feature looks like numbers or dates but is text, and is encoded as categories."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return a sentence with the closest known name, or nothing if none is close.

    >>> did_you_mean("kmens", ["random", "kmeans"])
    " Did you mean 'kmeans'?"
    """
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def check_name(
    what: str, name: object, known: Iterable[str], error: type[BagwiseError] = StrategyError
) -> None:
    """Raise an error that lists the known names if a name is not among them.

    >>> check_name("loss", "bagg", ["bag", "instance"])
    Traceback (most recent call last):
    bagwise.errors.StrategyError: unknown loss 'bagg'; known are bag, instance. Did you mean 'bag'?
    """
    names = list(known)
    if not isinstance(name, str) or name not in names:
        raise error(
            f"unknown {what} {name!r}; known are {', '.join(names)}.{did_you_mean(name, names)}"
        )


class Shield:
    """Replace an exception of another library inside a ``with`` by a safe one; drop the original.

    `failure` is the safe one, or a function that makes it of the original.

    Parsers and casts quote the value that they could not read, and ``raise … from None`` only hides
    the original from the printed traceback: it stays reachable as ``__context__``, with its frames
    and their local variables. A shield removes every link to it.

    >>> with Shield(LabelError("not a number")):
    ...     float("secret")
    Traceback (most recent call last):
    bagwise.errors.LabelError: not a number
    """

    def __init__(self, failure: BagwiseError | Callable[[Exception], BagwiseError]) -> None:
        self._failure = failure

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, BagwiseError) or not isinstance(error, Exception):
            return
        if is_low_memory(error):
            failure: BagwiseError = LowMemoryError()
        elif isinstance(error, OSError) and error.errno in NO_ROOM:
            failure = OutputError(
                f"temporary data could not be written: {os.strerror(error.errno)}. It was "
                "removed. Free some disk space, choose an output on another disk, or raise the "
                "memory limit."
            )
        else:
            failure = self._failure(error) if callable(self._failure) else self._failure
        del kind, error, traceback  # this frame is part of the new traceback
        try:
            raise failure
        finally:
            failure.__context__ = None


def shielded(
    action: Callable[[], T], failure: BagwiseError | Callable[[Exception], BagwiseError]
) -> T:
    """Run `action` behind a `Shield`."""
    with Shield(failure):
        return action()


def is_low_memory(error: BaseException) -> bool:
    """Return whether an exception means that there was no memory left.

    Libraries that are loaded on demand then fail to load, with a message of the C library.

    >>> is_low_memory(MemoryError()), is_low_memory(OSError(errno.ENOMEM, "")), is_low_memory(
    ...     ImportError("x.so: failed to map segment from shared object")), is_low_memory(OSError())
    (True, True, True, False)
    """
    if isinstance(error, ImportError):
        return "failed to map segment" in str(error) or "Cannot allocate memory" in str(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    )

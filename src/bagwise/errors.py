"""What can go wrong: errors are a `BagwiseError`, warnings a `BagwiseWarning`.

A message says what was wrong, where, what was found and what to do. It never holds a label
value: exceptions end up in logs, and logs are read by people who may not see labels.
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
"""A full disk, or the end of what a user or a file may have of it."""


class BagwiseError(ValueError):
    """Anything the caller can put right."""

    parts: "list[BagwiseError]"  # of one that several others were made into

    def __str__(self) -> str:
        # Messages name columns and classes, and those of a stranger's file may hold anything.
        return printable(super().__str__(), keep="\n")


class Refusals:
    """Collects what is refused in several blocks, to raise all of it at once.

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
        # An error that was collected itself brings its parts.
        if not isinstance(error, BagwiseError) or isinstance(error, StageError | LowMemoryError):
            return False
        self.errors += getattr(error, "parts", [error])
        return True

    def raise_all(self) -> None:
        """Raise what was refused, as an error of the kind of the first."""
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
    """A column is unknown, doubled, or cannot be used as asked."""


class UnconfirmedColumnsError(ColumnError):
    """Columns would be published that look like names, ids or dates; nobody has confirmed them."""


class LabelError(BagwiseError):
    """The label column holds something that cannot be aggregated."""


class BoundsError(BagwiseError):
    """The label bounds are missing or impossible."""


class BagTooSmallError(BagwiseError):
    """There are fewer rows than one bag needs."""


class BagsError(BagwiseError):
    """Bag ids, or what is given per bag, do not describe a partition of the rows."""


class StrategyError(BagwiseError):
    """A strategy, score or parameter is unknown or does not fit."""


class BudgetError(BagwiseError):
    """A privacy request is impossible or contradicts itself."""


class CertificateError(BagwiseError):
    """A certificate does not follow from its own events."""


class LedgerError(BagwiseError):
    """A ledger is missing, damaged or edited, or is about something else."""


class ReleaseError(BagwiseError):
    """A release directory is damaged, edited or incomplete."""


class OutputExistsError(ReleaseError):
    """The place to write to is taken."""


class SignatureError(BagwiseError):
    """A signature is missing or not by this key, or a key is not one."""


class ModelFileError(BagwiseError):
    """A model file is damaged, edited or from another version."""


class ProjectError(BagwiseError):
    """An annotation project is damaged, or cannot do what is asked of it."""


class OutputError(BagwiseError):
    """A place cannot be written to."""


class LowMemoryError(BagwiseError):
    """The memory is not enough for what was asked."""

    def __init__(self) -> None:
        super().__init__(
            "there is not enough memory. Nothing was written, and no file is damaged by it. Close "
            "other programs, raise the limit, or take fewer rows or columns."
        )


class EngineError(BagwiseError):
    """An engine for many machines does not start, is not set up safely, or did not finish."""


class MissingExtraError(BagwiseError, ImportError):
    """An optional part is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} needs an optional part: pip install "bagwise[{extra}]"')
        self.extra = extra


class StageError(BagwiseError):
    """Something unforeseen happened in one stage; the original message is withheld."""

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
    """Something to know before going on."""

    def __str__(self) -> str:
        return printable(super().__str__(), keep="\n")


class LeakWarning(BagwiseWarning):
    """What leaves says more about single labels than an average would."""


class DominatedWarning(BagwiseWarning):
    """Another choice would have less error under the same promise."""


class WeakPromiseWarning(BagwiseWarning):
    """A promise is kept, and would let a reader be all but certain of a label."""


class StrongPromiseWarning(BagwiseWarning):
    """A promise is kept, and its noise hides even the mean of all labels of so few rows."""


class ClippingWarning(BagwiseWarning):
    """Labels lie outside the bounds; how many is said only when nothing is promised."""


class RankWarning(BagwiseWarning):
    """The features do not determine every coefficient."""


class BiasWarning(BagwiseWarning):
    """A loss, on the bags it is given, estimates something other than the row-level model."""


class SeparationWarning(BagwiseWarning):
    """Labels are told apart without error, so that no finite coefficients are best."""


class NotConvergedWarning(BagwiseWarning):
    """A fit ended before its equations were solved."""


class NoEvidenceWarning(BagwiseWarning):
    """Bag labels say nothing of the features, or what they say is not in the features."""


class UnseenLevelWarning(BagwiseWarning):
    """A table has levels that the encoder was not made from."""


class TextNumbersWarning(BagwiseWarning):
    """A feature that looks like numbers or dates is text, and is encoded level by level."""


class StoppedEarlyWarning(BagwiseWarning):
    """A search was interrupted; what it had found so far is valid and was kept."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return a sentence with the known name that is nearest, or nothing if none is near.

    >>> did_you_mean("kmens", ["random", "kmeans"])
    " Did you mean 'kmeans'?"
    """
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def check_name(
    what: str, name: object, known: Iterable[str], error: type[BagwiseError] = StrategyError
) -> None:
    """Refuse a name that is not one of those known, and list them.

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
    """Replace a foreign exception inside a ``with`` by a described one, and drop the original.

    Parsers and casts quote the value they choked on, and ``raise … from None`` only hides the
    original from the printed traceback: it stays reachable as ``__context__``, with its frames
    and their local variables. Here no link is left.

    >>> with Shield(lambda error: LabelError("not a number")):
    ...     float("secret")
    Traceback (most recent call last):
    bagwise.errors.LabelError: not a number
    """

    def __init__(self, describe: Callable[[Exception], BagwiseError]) -> None:
        self._describe = describe

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, BagwiseError) or not isinstance(error, Exception):
            return
        if is_low_memory(error):
            failure: BagwiseError = LowMemoryError()
        elif isinstance(error, OSError) and error.errno in NO_ROOM:
            failure = OutputError(
                f"what does not fit into memory could not be written: {os.strerror(error.errno)}. "
                "Nothing was left behind. Make room, choose an output on a disk that has some, or "
                "raise the memory limit."
            )
        else:
            failure = self._describe(error)
        del kind, error, traceback  # this frame is part of the new traceback
        try:
            raise failure
        finally:
            failure.__context__ = None


def shielded(action: Callable[[], T], describe: Callable[[Exception], BagwiseError]) -> T:
    """Run `action` behind a `Shield`.

    >>> shielded(lambda: float("secret"), lambda error: LabelError("not a number"))
    Traceback (most recent call last):
    bagwise.errors.LabelError: not a number
    """
    with Shield(describe):
        return action()


def is_low_memory(error: BaseException) -> bool:
    """Tell whether an exception means that there was no memory left, and nothing else.

    Libraries that are loaded when they are needed fail to load then; the loader says so in words
    of the C library.

    >>> is_low_memory(MemoryError()), is_low_memory(OSError(errno.ENOMEM, "")), is_low_memory(
    ...     ImportError("x.so: failed to map segment from shared object")), is_low_memory(OSError())
    (True, True, True, False)
    """
    if isinstance(error, ImportError):
        return "failed to map segment" in str(error) or "Cannot allocate memory" in str(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    )

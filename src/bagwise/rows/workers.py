"""Workers on parts of a table: the tasks of Spark, or anything that can do the same.

Workers move functions to items and tables to targets, and know nothing of what is in them. An item
is anything that can be pickled, a part of a table for instance. Every piece of work also gets the
secret of the run: what is random is a function of it and of row numbers, never of a task, so that
work which is done twice gives the same twice.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from bagwise import errors
from bagwise._types import IntArray
from bagwise.errors import BagwiseError
from bagwise.files.spill import SpillDirectory

T = TypeVar("T")

Work = Callable[[Any, bytes], T]
"""From an item and the secret of the run to a small result."""

Scatter = Callable[[Any, bytes], Iterable[tuple[int, pa.Table]]]
"""From an item and the secret to tables, each for a target."""

Gather = Callable[[int, pa.Table, bytes], T]
"""From a target, all tables for it as one, and the secret, to a small result."""

ROWS_AT_ONCE = 65_536
"""Rows of a table that go to a target together: a few megabytes."""


class Workers(Protocol):
    """Whoever works on items, with a private directory that all of them can reach."""

    @property
    def scratch(self) -> SpillDirectory:
        """The private directory."""

    @property
    def secret(self) -> bytes:
        """A key of 32 bytes that is drawn for the run, and is in no file."""

    def with_secret(self, secret: bytes) -> "Workers":
        """Return the same workers with another secret."""

    def each(self, items: Sequence[Any], work: Work[T]) -> list[T]:
        """Return what work makes of each item, in their order."""

    def exchange(self, items: Sequence[Any], scatter: Scatter, gather: Gather[T]) -> dict[int, T]:
        """Send tables from items to targets; return what gather makes of each target's."""


def split_rows(targets: IntArray, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of a table by target, few enough at a time.

    >>> table = pa.table({"x": [1, 2, 3]})
    >>> [(t, part["x"].to_pylist()) for t, part in split_rows(np.array([1, 0, 1]), table)]
    [(0, [2]), (1, [1, 3])]
    """
    order = np.argsort(targets, kind="stable")
    ordered = targets[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    taken = table.take(pa.array(order))
    for start, stop in zip(starts, np.append(starts[1:], targets.size), strict=True):
        for first in range(int(start), int(stop), ROWS_AT_ONCE):
            yield int(ordered[start]), taken.slice(first, min(ROWS_AT_ONCE, int(stop) - first))


@dataclass(frozen=True)
class Refusal:
    """An error for the caller: it comes back as a result, since to try again would not help."""

    kind: str
    text: str

    def to_error(self) -> BagwiseError:
        """Return the error, of its own kind where a sentence is all that it holds."""
        kind = getattr(errors, self.kind, BagwiseError)
        plain = issubclass(kind, BagwiseError) and kind.__init__ is BagwiseError.__init__
        return kind(self.text) if plain else BagwiseError(self.text)


def guarded(action: Callable[[], T]) -> T | Refusal:
    """Run a step of a task; a message of a library, which might quote a cell, goes nowhere."""
    try:
        return action()
    except BagwiseError as error:
        return Refusal(type(error).__name__, str(error))
    except Exception as error:
        frames = extract_tb(error.__traceback__)
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
        failure = RuntimeError(f"{type(error).__name__} at {where}")
    raise failure


def steps(work: Callable[[Any, bytes], Iterable[T]], item: Any, secret: bytes) -> Iterator[T]:
    """Yield what a generator of ours makes, without the words of a library that fails in it."""
    begun: Any = guarded(lambda: iter(work(item, secret)))
    done = object()
    while True:
        found: Any = begun if isinstance(begun, Refusal) else guarded(lambda: next(begun, done))
        if found is done:
            return
        if isinstance(found, Refusal):
            raise RuntimeError(f"{found.kind} in a task")
        yield found


def pack(table: pa.Table) -> bytes:
    """Return a table as bytes."""
    sink = pa.BufferOutputStream()
    # As one batch, and in a copy: a slice would carry along all that it was cut from.
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def unpack(packed: Any) -> pa.Table:
    """Return a table that was packed."""
    return pa.ipc.open_stream(packed).read_all()

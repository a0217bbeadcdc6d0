"""Work done by tasks of Spark, on items and on tables exchanged between tasks.

A cluster moves functions to items and tables to targets, and knows nothing of what is in them. An
item is anything that can be pickled, a part of a table for instance. Every piece of work also gets
the secret of the run: what is random is a function of it and of row numbers, never of a task, so
that work which is done twice gives the same twice.

Tables go between tasks as whole Arrow batches in one binary cell each: Spark moves, spills,
encrypts and retries them, and never looks at single rows. What is done in a process is under
`guarded` and `steps`, whoever runs it.
"""

import functools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from traceback import extract_tb
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from bagwise import errors
from bagwise._types import IntArray
from bagwise.errors import BagwiseError, EngineError, shielded
from bagwise.files.spill import SpillDirectory
from bagwise.rows.keys import new_secret

T = TypeVar("T")
R = TypeVar("R")

Work = Callable[[Any, bytes], T]
"""From an item and the secret of the run to a small result."""

Scatter = Callable[[Any, bytes], Iterable[tuple[int, pa.Table]]]
"""From an item and the secret to tables, each for a target."""

Gather = Callable[[int, pa.Table, bytes], T]
"""From a target, all tables for it as one, and the secret, to a small result."""

ROWS_AT_ONCE = 65_536
"""Rows of a table that go to a target together: a few megabytes."""

_CELLS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"
_FEW = "16"
_RESULT = "task long, result binary"
_SECRET = b"secret"


@dataclass(frozen=True)
class Cluster:
    """A session of Spark, a place for files that all of its machines can reach, and a secret."""

    session: Any
    scratch: SpillDirectory
    secret: bytes = field(default_factory=new_secret, repr=False)

    def each(self, items: Sequence[Any], work: Work[T]) -> list[T]:
        """Return the result of `work` for each item, in order; each item is one task."""
        found = self._collect(self._items(items).mapInArrow(partial(_run_work, work), _RESULT))
        return [found[number] for number in range(len(items))]

    def exchange(self, items: Sequence[Any], scatter: Scatter, gather: Gather[T]) -> dict[int, T]:
        """Send tables from items to targets; return the result of `gather` for each target."""
        with self._few_cells():
            sent = self.stream(items, scatter)
            return self._collect(sent.groupBy("task").applyInArrow(_gathering(gather), _RESULT))

    def stream(self, items: Sequence[Any], scatter: Scatter) -> Any:
        """Return a DataFrame of packed tables, each with its target as `task`."""
        return self._items(items).mapInArrow(partial(_run_scatter, scatter), _RESULT)

    def keep(
        self, items: Sequence[Any], scatter: Scatter, gather: Gather[T], *, targets: int
    ) -> "Kept[T]":
        """Send tables from items to targets; the results of `gather` stay on the machines."""
        sent = self.stream(items, scatter)
        made = sent.groupBy("task").applyInArrow(_gathering(gather), _RESULT)
        # Spark keeps the partitions of a shuffle as they are, and most of them would be empty: each
        # costs every pass a task.
        return Kept(self, made.coalesce(targets).persist())

    def _items(self, items: Sequence[Any]) -> Any:
        """Return one row for each item, each in a partition of its own, with the secret.

        The table with the items and the secret is broadcast: what a plan or an event log shows of
        it are the names of its columns.
        """
        from pyspark.sql import functions

        count = len(items)
        described = pa.table(
            {
                "number": pa.array(range(count), pa.int64()),
                "item": pa.array([pickle.dumps(item) for item in items], pa.binary()),
                "secret": pa.array([self.secret] * count, pa.binary()),
            }
        )
        told = functions.broadcast(self.session.createDataFrame(described))
        numbers = self.session.range(0, count, 1, count)
        return numbers.join(told, functions.col("id") == functions.col("number")).select(
            "number", "item", "secret"
        )

    def _collect(self, frame: Any) -> dict[int, Any]:
        found = run_job(frame.toArrow)
        results: dict[int, Any] = {}
        for task, packed in zip(
            found.column(0).to_pylist(), found.column(1).to_pylist(), strict=True
        ):
            result = pickle.loads(packed)  # noqa: S301 (from our own tasks)
            if isinstance(result, Refusal):
                raise result.to_error()
            if task in results:
                raise AssertionError("a task has one result")
            results[task] = result
        return results

    @contextmanager
    def _few_cells(self) -> Iterator[None]:
        """Have Spark hand over few cells at a time: each of them is a table."""
        before = self.session.conf.get(_CELLS_AT_ONCE)
        self.session.conf.set(_CELLS_AT_ONCE, _FEW)
        try:
            yield
        finally:
            self.session.conf.set(_CELLS_AT_ONCE, before)


@dataclass(frozen=True)
class Kept(Generic[T]):
    """Parts that tasks have made, in the memory and on the disks of the machines.

    Spark makes them when they are first asked for, and again where a machine was lost.
    """

    cluster: Cluster
    frame: Any

    def over(self, work: Callable[[T], R | None], merge: Callable[[R, R], R]) -> R:
        """Return the result of `work` for each part, merged by each task and then by the driver.

        A part of which it makes None is passed over.
        """
        with self.cluster._few_cells():
            jobs = self.frame.mapInArrow(partial(_run_over, work, merge), _RESULT)
            found = self.cluster._collect(jobs)
        results: list[R] = [found[task] for task in sorted(found)]
        return functools.reduce(merge, results)

    def close(self) -> None:
        """Have Spark forget the parts."""
        self.frame.unpersist()


def run_job(action: Callable[[], T]) -> T:
    """Run a job of Spark; report a failure without the words of the library that failed."""
    return shielded(
        action,
        lambda error: EngineError(
            f"Spark did not finish a job ({type(error).__name__}): a task failed more often than "
            "is allowed, or a machine was lost. Nothing was released. The logs of Spark say where."
        ),
    )


def _told(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Any, bytes]]:
    for batch in batches:
        for number, item, secret in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            yield number, pickle.loads(item), secret  # noqa: S301 (from our own driver)


def _row(task: int, content: bytes) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array([task], pa.int64()), pa.array([content], pa.binary())], names=["task", "result"]
    )


def _run_work(work: Work[Any], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number, item, secret in _told(batches):
        yield _row(number, pickle.dumps(guarded(partial(work, item, secret))))


def _run_over(
    work: Callable[[Any], Any],
    merge: Callable[[Any, Any], Any],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield one result for all parts of a task, under the number of the first."""
    task = 0

    def merged() -> Any:
        nonlocal task
        result = None
        for batch in batches:
            for number, cell in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                part = pickle.loads(cell)  # noqa: S301 (from our own tasks)
                if isinstance(part, Refusal):
                    raise part.to_error()
                found = work(part)
                if result is None:
                    task, result = number, found
                elif found is not None:
                    result = merge(result, found)
        return result

    if (result := guarded(merged)) is not None:
        yield _row(task, pickle.dumps(result))


def _run_scatter(scatter: Scatter, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _, item, secret in _told(batches):
        for target, table in steps(scatter, item, secret):
            # Whoever gathers has to know the secret, which no plan may show.
            yield _row(target, pack(table.replace_schema_metadata({_SECRET: secret})))


def _gathering(gather: Gather[Any]) -> Callable[..., pa.Table]:
    """Return a function with hints of types, by which Spark decides what to hand over."""

    def gathered(key: tuple[pa.Scalar, ...], cells: pa.Table) -> pa.Table:
        target = key[0].as_py()

        def collected() -> Any:
            whole = pa.concat_tables([unpack(cell.as_buffer()) for cell in cells.column(1)])
            secret = whole.schema.metadata[_SECRET]
            return gather(target, whole.replace_schema_metadata(None), secret)

        return pa.Table.from_batches([_row(target, pickle.dumps(guarded(collected)))])

    return gathered


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
    """An error for the caller: it comes back as a result, because a retry would not help."""

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
    """Yield the items of a generator of ours; withhold messages of a library that fails in it."""
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

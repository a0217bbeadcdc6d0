"""Threads for the kernels, which can be stopped with a usable result."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from itertools import pairwise
from types import FrameType
from typing import Any, Self

import joblib
from threadpoolctl import threadpool_limits

ROWS_WORTH_A_THREAD = 30_000  # below this many rows, handing out work costs more than it saves


class Threads:
    """Run kernels over pieces of the data. What they compute does not depend on how many there are.

    Libraries below are held to one thread each: two layers of threads get in each other's way.
    """

    def __init__(self, threads: int | None, *, n_rows: int) -> None:
        wanted = joblib.cpu_count() if threads is None else threads
        self.threads = max(1, wanted) if n_rows >= ROWS_WORTH_A_THREAD else 1
        self._open = ExitStack()
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        self._open.enter_context(threadpool_limits(1))
        if self.threads > 1:
            self._pool = self._open.enter_context(ThreadPoolExecutor(self.threads))
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def run(self, function: Callable[..., Any], pieces: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call `function` with each tuple of arguments, side by side."""
        if self._pool is None or len(pieces) == 1:
            return [function(*piece) for piece in pieces]
        return list(self._pool.map(lambda piece: function(*piece), pieces))

    def ranges(self, count: int, *, at_least: int = 64) -> list[tuple[int, int]]:
        """Cut 0..count into a few ranges per thread."""
        pieces = max(1, min(4 * self.threads if self.threads > 1 else 1, count // at_least))
        edges = [count * p // pieces for p in range(pieces + 1)]
        return list(pairwise(edges))


class Patience:
    """Says when to stop: after `seconds`, or when the user pressed Ctrl-C once."""

    def __init__(self, seconds: float | None = None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self.interrupted = False

    @property
    def is_over(self) -> bool:
        """Whether to come to an end now."""
        return self.interrupted or (self._end is not None and time.monotonic() >= self._end)


_keeps_what_it_has: ContextVar[bool] = ContextVar("keeps_what_it_has", default=True)


@contextmanager
def interrupted_for_good() -> Iterator[None]:
    """Inside, Ctrl-C ends a search as it ends anything else.

    For work that goes on to publish something: whoever presses Ctrl-C wants none of it.
    """
    token = _keeps_what_it_has.set(False)
    try:
        yield
    finally:
        _keeps_what_it_has.reset(token)


@contextmanager
def patience(seconds: float | None) -> Iterator[Patience]:
    """Turn the first Ctrl-C into a request to stop; the second one is an ordinary interrupt."""
    waiting = Patience(seconds)
    if not _keeps_what_it_has.get():
        yield waiting
        return
    if threading.current_thread() is not threading.main_thread():
        yield waiting  # only the main thread hears signals
        return
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield waiting  # someone else decides what Ctrl-C means
        return

    def stop_soon(_signal: int, _frame: FrameType | None) -> None:
        waiting.interrupted = True
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, stop_soon)
    try:
        yield waiting
    finally:
        signal.signal(signal.SIGINT, before)

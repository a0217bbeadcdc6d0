"""Steps that Ctrl-C and its like must not cut in two."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let signals that end a run wait until the block is over; it should be short.

    They are kept by a handler, and raised again afterwards. To block them would not do: another
    thread, such as one of a numerical library, would get them. Python hands signals to the main
    thread only, so that blocks of other threads are never cut.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept: list[int] = []

    def keep(number: int, _frame: object) -> None:
        kept.append(number)

    known = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    before: dict[int, Any] = {
        number: signal.signal(number, keep)
        for number in known
        if signal.getsignal(number) is not None  # one that Python did not set cannot be put back
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in dict.fromkeys(kept):
            signal.raise_signal(number)

"""Locks that end with their process, and steps that signals such as Ctrl-C must not interrupt.

Locks tell a draft that is being written from one that is not. They are advisory (``flock``) on the
file or directory itself. The kernel drops them when the process ends, whatever ended it, and all
containers on one machine see the same ones. Where a file system has none, nothing counts as
abandoned: what is left over stays there, and nothing is lost.
"""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


def _find_locks() -> Any:
    try:
        return import_module("fcntl")
    except ImportError:  # not a POSIX system
        return None


fcntl = _find_locks()


@contextmanager
def holding(path: Path, *, wait: bool = True, without_locks: bool = True) -> Iterator[bool]:
    """Hold the lock of `path`; yield whether it is held, and still belongs to this path.

    Without `wait`, a lock that another has is not held. Where there are no locks, nobody can have
    taken it away either: `without_locks` is what to yield then, for a path that is there.
    """
    descriptor = None
    if fcntl is not None:
        with suppress(OSError):  # gone, or not ours
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield _lock(path, descriptor, wait=wait, without_locks=without_locks)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _lock(path: Path, descriptor: int | None, *, wait: bool, without_locks: bool) -> bool:
    try:
        if descriptor is None:
            return without_locks and path.exists()
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except (BlockingIOError, FileNotFoundError):
        return False  # held by another, or gone
    except OSError:
        return without_locks and path.exists()


def sweep(parent: Path, names: re.Pattern[str], remove: Callable[[Path], object]) -> None:
    """Remove what finished runs left behind; anything whose lock is held is kept."""
    for path in list(parent.iterdir()) if parent.is_dir() else ():
        if names.fullmatch(path.name) and not path.is_symlink():
            with holding(path, wait=False, without_locks=False) as held:
                if held:
                    with suppress(FileNotFoundError):
                        remove(path)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Delay signals that end a run until the block is over; it should be short.

    They are kept by a handler, and raised again afterwards. To block them would not do: another
    thread, such as one of a numerical library, would get them. Python hands signals to the main
    thread only, so that blocks of other threads are never cut.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept: list[int] = []
    known = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    before: dict[int, Any] = {
        number: signal.signal(number, lambda number, _frame: kept.append(number))
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

"""Locks that end with their process: what tells a draft that is being written from one that is not.

They are advisory locks (``flock``) on the file or directory itself. The kernel drops them when the
process ends, whatever ended it, and all containers on one machine see the same ones. Where a file
system has none, nothing counts as abandoned: what is left over stays there, and nothing is lost.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any


def _find_locks() -> Any:
    try:
        return import_module("fcntl")
    except ImportError:  # not a POSIX system
        return None


fcntl = _find_locks()


@contextmanager
def holding(path: Path) -> Iterator[bool]:
    """Hold the lock of `path`, and wait for it first; yield whether it still is what was locked.

    True where there are no locks: then nobody can have taken it away either.
    """
    descriptor = _open(path)
    try:
        if descriptor is None or not _lock(descriptor, wait=True):
            yield path.exists()
        else:
            yield _is_still(path, descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def try_to_hold(path: Path, *, without_locks: bool = False) -> Iterator[bool]:
    """Hold the lock of `path` if nobody else does; yield whether it is held.

    `without_locks` is what to yield where there is none to be had.
    """
    descriptor = _open(path)
    try:
        if descriptor is None:
            yield without_locks
        else:
            locked = _lock(descriptor, wait=False, without_locks=without_locks)
            yield locked and _is_still(path, descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def sweep(parent: Path, names: re.Pattern[str], remove: Callable[[Path], object]) -> None:
    """Remove what runs left that are over; what another one still holds is its own."""
    for path in list(parent.iterdir()) if parent.is_dir() else ():
        if names.fullmatch(path.name) and not path.is_symlink():
            with try_to_hold(path) as held:
                if held:
                    with suppress(FileNotFoundError):
                        remove(path)


def _open(path: Path) -> int | None:
    if fcntl is None:
        return None
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None  # gone, or not ours


def _lock(descriptor: int, *, wait: bool, without_locks: bool = False) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False  # held by another
    except OSError:
        return without_locks
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return os.path.samestat(status, os.fstat(descriptor))

"""Write files and directories so that a reader sees the old state or the new one, never a half.

A new directory is filled beside its target and moved there in one step. A rename cannot replace a
directory that has files in it, so an existing one is exchanged atomically where the system can
(Linux ``renameat2``), and otherwise moved aside first; if the process dies in between, the next
run finds the old directory under its aside name and puts it back.
"""

import ctypes
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from bagwise.errors import OutputExistsError, ReleaseError, shielded

_REPLACE = "Choose another name, or replace it with force=True (--force)."
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextmanager
def new_file(target: Path, *, force: bool) -> Iterator[Path]:
    """Yield a path beside `target` to write to; move it there when the block ends well.

    `force` allows replacing an existing file.
    """
    check_file(target, force=force)
    target = target.resolve()  # through a symbolic link to what it names
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = _beside(target, "new")
    try:
        yield draft
        _sync(draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def new_directory(
    target: Path, *, force: bool, replaceable: Callable[[Path], bool]
) -> Iterator[Path]:
    """Yield an empty directory beside `target`; move it there when the block ends well.

    `force` allows replacing an existing directory, and only one that `replaceable` recognises:
    a mistyped path must not cost a home directory.
    """
    check_target(target, force=force, replaceable=replaceable)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = _beside(target, "new")
    draft.mkdir()
    try:
        yield draft
        for file in draft.iterdir():
            _sync(file)
        check_target(target, force=force, replaceable=replaceable)
        _move_in(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check_file(target: Path, *, force: bool) -> None:
    """Refuse a file that is there already; cheap, so that callers can ask before they start."""
    if target.exists() and not target.is_file():
        raise OutputExistsError(f"{target} is not a regular file; choose another name.")
    if target.exists() and not force:
        raise OutputExistsError(f"{target} already exists. {_REPLACE}")


def check_target(target: Path, *, force: bool, replaceable: Callable[[Path], bool]) -> None:
    """Refuse a target that is taken; cheap, so that callers can ask before they start work."""
    _recover(target)
    if not target.exists():
        return
    if not target.is_dir():
        raise OutputExistsError(
            f"{target} is a file; a release is a directory. Choose another name."
        )
    if not any(target.iterdir()):
        return
    if not force:
        raise OutputExistsError(f"{target} already exists. {_REPLACE}")
    if not replaceable(target):
        raise OutputExistsError(
            f"{target} is not a bagwise release, so --force will not delete it. "
            "Choose another output directory or remove it yourself."
        )


def _recover(target: Path) -> None:
    """Put right what an interrupted run left beside `target`."""
    for leftover in list(_leftovers(target)):
        if leftover.name.endswith(".old") and not target.exists():
            leftover.rename(target)
        else:
            shutil.rmtree(leftover, ignore_errors=True)


def _move_in(draft: Path, target: Path) -> None:
    if target.is_dir() and any(target.iterdir()):
        if _exchange(draft, target):  # `draft` now holds the old directory; the caller removes it
            return
        aside = _beside(target, "old")
        target.rename(aside)
        draft.rename(target)
        shutil.rmtree(aside)
    else:
        shielded(
            lambda: draft.rename(target),
            lambda error: ReleaseError(f"cannot create {target}: {type(error).__name__}"),
        )


def _exchange(first: Path, second: Path) -> bool:
    """Swap two directories in one step; False where the system has no such call."""
    if os.name != "posix":
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    paths = os.fsencode(first), os.fsencode(second)
    return bool(rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0)


def _beside(target: Path, kind: str) -> Path:
    # The process id tells a leftover from another run that is still writing.
    return target.absolute().parent / f".{target.name}.{os.getpid()}-{token_hex(4)}.{kind}"


def _leftovers(target: Path) -> Iterator[Path]:
    pattern = re.compile(rf"\.{re.escape(target.name)}\.(\d+)-[0-9a-f]{{8}}\.(new|old)")
    parent = target.absolute().parent
    for path in parent.iterdir() if parent.is_dir() else ():
        match = pattern.fullmatch(path.name)
        if match and not _is_running(int(match[1])):
            yield path


def _is_running(pid: int) -> bool:
    if os.name != "posix":  # elsewhere signal 0 would end the process
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync(file: Path) -> None:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())

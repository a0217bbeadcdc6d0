"""Write files and directories so that a reader sees the old state or the new one, never a half.

A new directory is filled beside its target and moved there in one step. A rename cannot replace a
directory that has files in it, so an existing one is exchanged atomically where the system can
(Linux ``renameat2``), and otherwise moved aside first; if the process dies in between, the next
run finds the old directory under its aside name and puts it back.
"""

import ctypes
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from bagwise.errors import OutputExistsError, ReleaseError, shielded

_REPLACE = "Choose another name, or replace it with force=True (--force)."
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@dataclass(frozen=True)
class DirectoryKind:
    """What a directory of one kind holds: the only ones that are ever deleted, and nothing else.

    Attributes
    ----------
    name : str
        For messages: "a bagwise release".
    files : frozenset of str
        Names of the files that it may have. It has no directories and no links.
    is_ours : callable
        Tells whether a directory with such files was made here.
    """

    name: str
    files: frozenset[str]
    is_ours: Callable[[Path], bool]


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
def new_directory(target: Path, *, force: bool, kind: DirectoryKind) -> Iterator[Path]:
    """Yield an empty directory beside `target`; move it there when the block ends well.

    `force` allows replacing an existing directory of the same kind, and nothing else: a mistyped
    path must not cost a home directory. No file is deleted but those that the kind names.
    """
    check_target(target, force=force, kind=kind)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = _beside(target, "new")
    draft.mkdir()
    try:
        yield draft
        for file in draft.iterdir():
            _sync(file)
        check_target(target, force=force, kind=kind)
        _move_in(draft, target, kind)
    finally:
        _discard(draft, kind)


def check_file(target: Path, *, force: bool) -> None:
    """Refuse a file that is there already; cheap, so that callers can ask before they start."""
    if target.exists() and not target.is_file():
        raise OutputExistsError(f"{target} is not a regular file; choose another name.")
    if target.exists() and not force:
        raise OutputExistsError(f"{target} already exists. {_REPLACE}")


def check_target(target: Path, *, force: bool, kind: DirectoryKind) -> None:
    """Refuse a target that is taken; cheap, so that callers can ask before they start work."""
    _recover(target, kind)
    if target.is_symlink():
        raise OutputExistsError(f"{target} is a symbolic link. Choose another name.")
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
    _refuse_strangers(target, target, kind)


def _refuse_strangers(directory: Path, target: Path, kind: DirectoryKind) -> None:
    """Refuse to replace `target`, now in `directory`, if anything in it is not of its kind."""
    found = _stranger(directory, kind)
    if found is None and kind.is_ours(directory):
        return
    raise OutputExistsError(
        f"{target}{f' holds {found}, so it' if found else ''} is not {kind.name}, and --force will "
        "not delete it. Choose another output directory or remove it yourself."
    )


def _stranger(directory: Path, kind: DirectoryKind) -> str | None:
    """Describe an entry that a directory of this kind does not have."""
    for entry in directory.iterdir():
        mode = entry.lstat().st_mode
        if stat.S_ISLNK(mode):
            return f"the symbolic link {entry.name!r}"
        if stat.S_ISDIR(mode):
            return f"the directory {entry.name!r}"
        if entry.name not in kind.files or not stat.S_ISREG(mode):
            return f"the file {entry.name!r}"
    return None


def _discard(directory: Path, kind: DirectoryKind) -> None:
    """Delete a directory of this kind, but for what is not of it."""
    for name in kind.files:
        with suppress(OSError):
            (directory / name).unlink()
    with suppress(OSError):
        directory.rmdir()


def _recover(target: Path, kind: DirectoryKind) -> None:
    """Put right what an interrupted run left beside `target`."""
    for leftover in list(_leftovers(target)):
        if leftover.name.endswith(".old") and not target.exists():
            leftover.rename(target)
        else:
            _discard(leftover, kind)


def _move_in(draft: Path, target: Path, kind: DirectoryKind) -> None:
    if target.is_dir() and any(target.iterdir()):
        if _exchange(draft, target):  # `draft` now holds the old directory; the caller removes it
            _take_back(lambda: _exchange(draft, target), draft, target, kind)
            return
        aside = _beside(target, "old")
        target.rename(aside)
        _take_back(lambda: aside.rename(target), aside, target, kind)
        draft.rename(target)
        _discard(aside, kind)
    else:
        shielded(
            lambda: draft.rename(target),
            lambda error: ReleaseError(f"cannot create {target}: {type(error).__name__}"),
        )


def _take_back(undo: Callable[[], object], old: Path, target: Path, kind: DirectoryKind) -> None:
    """Put the old directory back if somebody added to it since it was checked."""
    try:
        _refuse_strangers(old, target, kind)
    except OutputExistsError:
        undo()
        raise


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

"""Write files and directories atomically: a reader sees the old state or the new one.

A new directory is filled beside its target and moved there in one step. A rename cannot replace a
directory that has files in it, so an existing one is exchanged atomically where the system can
(Linux ``renameat2``), and otherwise moved aside first; if the process dies in between, the next
run finds the old directory under its aside name and puts it back.

Until then a draft is readable by its owner only, and its writer holds a lock on it, which ends with
the process however that ends. What nobody holds is swept by the next run in the same directory. A
process id would not do: on a volume that containers share, each of them counts its own.
"""

import ctypes
import errno
import functools
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from bagwise.errors import NO_ROOM, OutputError, OutputExistsError
from bagwise.files.locks import holding, sweep, undisturbed
from bagwise.files.spill import sweep_spills

_REPLACE = "Choose another name, or replace it with force=True (--force)."
_NO_LINKS = "Name the directory that it points to, or choose another name."
_DRAFT_DIRECTORY = re.compile(r"\..+\.[0-9a-f]{16}\.new")
_DRAFT_FILE = re.compile(r"\..+\.[0-9a-f]{16}\.part")
_CLAIM = re.compile(r"\..+\.bagwise-claim")
_own_claims: set[Path] = set()
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@dataclass(frozen=True)
class DirectoryKind:
    """The contents that directories of one kind may have; nothing else is ever deleted.

    Attributes
    ----------
    name : str
        For messages: "a bagwise release".
    files : frozenset of str
        Names of the files that it may have. It has no directories and no links.
    is_ours : callable
        Tells whether a directory with such files was made here.
    parts : re.Pattern, optional
        More names, of files that come in numbers.
    private : frozenset of str
        Names of those that nobody but their owner may ever read: they hold labels.
    """

    name: str
    files: frozenset[str]
    is_ours: Callable[[Path], bool]
    parts: re.Pattern[str] | None = None
    private: frozenset[str] = frozenset()

    def may_hold(self, entry: Path) -> bool:
        """Return whether a file may be in such a directory; one that has just vanished may, too."""
        try:
            regular = stat.S_ISREG(entry.lstat().st_mode)
        except FileNotFoundError:
            return True  # another run has just replaced the directory
        numbered = self.parts is not None and self.parts.fullmatch(entry.name) is not None
        return regular and (entry.name in self.files or numbered)


@contextmanager
def new_file(target: Path, *, force: bool, private: bool = False) -> Iterator[Path]:
    """Yield an empty file beside `target` to write to; move it there if the block succeeds.

    `force` allows replacing an existing file. Only its owner may read the file if it is `private`,
    and whoever the process lets if not.
    """
    check_file(target, force=force)
    named, target = target, target.resolve()  # through a symbolic link to what it names
    with _naming(named):
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target.parent)
        with _held_draft(target, "part", create_private, _remove) as draft:
            yield draft
            _sync(draft)
            draft.replace(target)
            if not private:
                _open_up(target)
            _sync(target.parent)


@contextmanager
def new_directory(target: Path, *, force: bool, kind: DirectoryKind) -> Iterator[Path]:
    """Yield an empty directory beside `target`; move it there if the block succeeds.

    `force` allows replacing an existing directory of the same kind, and nothing else: a mistyped
    path must not cost a home directory. No file is deleted but those that the kind names.
    """
    with _naming(target):
        check_target(target, force=force, kind=kind)
        target.parent.mkdir(parents=True, exist_ok=True)
        create = functools.partial(Path.mkdir, mode=0o700)
        with _held_draft(target, "new", create, lambda path: _discard(path, kind)) as draft:
            yield draft
            for file in draft.iterdir():
                if file.name not in kind.private:
                    _open_up(file)
                _sync(file)
            check_target(target, force=force, kind=kind)
            _sync(draft)
            _move_in(draft, target, kind)
            _open_up(target)
            _sync(target.absolute().parent)


@contextmanager
def reserved(target: Path, *, check: Callable[[], None], size: int) -> Iterator[None]:
    """Reserve `target` for this run until the block ends, so that a paid result can be written.

    `check` refuses a target that is taken. So is one that another run has reserved, and one whose
    disk has not got `size` bytes left.
    """
    check()
    claim = _claim_of(target)
    with ExitStack() as leaving:
        with _naming(target):
            claim.parent.mkdir(parents=True, exist_ok=True)
            with undisturbed():
                flags = os.O_CREAT | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
                file = os.open(claim, flags, 0o600)
                leaving.callback(os.close, file)
                if not leaving.enter_context(holding(claim, wait=False)):
                    raise _reserved(target)
                _own_claims.add(claim)
                leaving.callback(_own_claims.discard, claim)
                leaving.callback(_remove, claim)
            allocate(file, size)
            os.ftruncate(file, 0)
        yield


def allocate(descriptor: int, size: int) -> None:
    """Allocate space on the disk for an open file; fail if there is too little."""
    if hasattr(os, "posix_fallocate"):  # minds quotas, too
        os.posix_fallocate(descriptor, 0, max(size, 1))
    elif os.name == "posix" and shutil.disk_usage(descriptor).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _claim_of(target: Path) -> Path:
    target = target.resolve()
    return target.with_name(f".{target.name}.bagwise-claim")


def _refuse_reserved(target: Path) -> None:
    claim = _claim_of(target)
    if claim.exists() and claim not in _own_claims:
        with holding(claim, wait=False) as free:
            if not free:
                raise _reserved(target)


def _reserved(target: Path) -> OutputExistsError:
    return OutputExistsError(
        f"another run is about to write {target}. Wait until it has ended, or choose another name."
    )


def create_private(path: Path) -> Path:
    """Create an empty file that nobody but its owner may read, to be opened and written."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return path


def check_file(target: Path, *, force: bool) -> None:
    """Refuse an existing file; cheap, so that callers can ask before they start."""
    if target.exists() and not target.is_file():
        raise OutputExistsError(f"{target} is not a regular file; choose another name.")
    if target.exists() and not force:
        raise OutputExistsError(f"{target} already exists. {_REPLACE}")
    _refuse_reserved(target)


def check_target(target: Path, *, force: bool, kind: DirectoryKind) -> None:
    """Refuse a target that is taken; cheap, so that callers can ask before they start work."""
    _recover(target, kind)
    if target.is_symlink():
        raise OutputExistsError(f"{target} is a symbolic link. {_NO_LINKS}")
    _refuse_reserved(target)
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
    if directory.is_symlink():
        raise OutputExistsError(f"{target} is a symbolic link. {_NO_LINKS}")
    strangers = [entry for entry in directory.iterdir() if not kind.may_hold(entry)]
    if not strangers and kind.is_ours(directory):
        return
    holds = f" holds {strangers[0].name!r}, so it" if strangers else ""
    raise OutputExistsError(
        f"{target}{holds} is not {kind.name}, and --force will not delete it. Choose another "
        "output directory or remove it yourself."
    )


def _discard(directory: Path, kind: DirectoryKind) -> None:
    """Delete a directory of this kind, except for files that do not belong to it."""
    for entry in list(directory.iterdir()) if directory.is_dir() else []:
        if kind.may_hold(entry):
            with suppress(OSError):
                entry.unlink()
    with suppress(OSError):
        directory.rmdir()


def _recover(target: Path, kind: DirectoryKind) -> None:
    """Repair the state that interrupted runs left beside `target`."""
    parent = target.absolute().parent

    def put_back(aside: Path) -> None:
        if target.is_symlink() or target.exists():
            _discard(aside, kind)
        else:
            aside.rename(target)

    aside_of_target = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}\.old")
    sweep(parent, aside_of_target, put_back)
    sweep(parent, _DRAFT_DIRECTORY, lambda path: _discard(path, kind))
    _sweep(parent)


def _move_in(draft: Path, target: Path, kind: DirectoryKind) -> None:
    while target.is_symlink() or (target.is_dir() and any(target.iterdir())):
        # Held, so that no other run takes the old directory for one that was left behind.
        with holding(target) as held:
            if held:
                _replace(draft, target, kind)
                return
    try:
        draft.rename(target)
        return
    except OSError as problem:
        if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    raise OutputExistsError(f"{target} was made by another run meanwhile. {_REPLACE}")


def _replace(draft: Path, target: Path, kind: DirectoryKind) -> None:
    """Put the draft into the place of a directory; undone if somebody added to that meanwhile."""
    if _exchange(draft, target):  # `draft` now holds the old directory; the caller removes it
        try:
            _refuse_strangers(draft, target, kind)
        except OutputExistsError:
            _exchange(draft, target)
            raise
        return
    aside = _beside(target, "old")
    target.rename(aside)
    try:
        _refuse_strangers(aside, target, kind)
        draft.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    _discard(aside, kind)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two directories in one step; return False if the system has no such call."""
    if os.name != "posix":
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    paths = os.fsencode(first), os.fsencode(second)
    return bool(rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0)


@contextmanager
def _naming(target: Path) -> Iterator[None]:
    """Report what could not be written, and why, when a disk is full or read-only."""
    failure = None
    try:
        yield
    except OSError as problem:
        # Some libraries put the words of the system into a message of theirs, without a path.
        reason = os.strerror(problem.errno) if problem.errno else type(problem).__name__
        message = f"{target} cannot be written: {reason}."
        if problem.errno in NO_ROOM:
            message += " Nothing was left behind. Make room, or choose a place that has some."
        failure = OutputError(message)
    if failure is not None:
        raise failure


def _beside(target: Path, kind: str) -> Path:
    # In the same directory, so in the same file system: only there a rename is one step.
    return target.absolute().parent / f".{target.name}.{token_hex(8)}.{kind}"


@contextmanager
def _held_draft(
    target: Path, kind: str, create: Callable[[Path], object], remove: Callable[[Path], None]
) -> Iterator[Path]:
    """Yield a new draft whose lock is held, and remove what is left of it at the end.

    Another run may sweep a draft before it is locked, and then there is another one.
    """
    with ExitStack() as leaving:
        while True:
            draft = _beside(target, kind)
            # A signal that waited for this comes at its end, when all that is to be done is known.
            with undisturbed():
                create(draft)
                held = leaving.enter_context(holding(draft))
                leaving.callback(undisturbed()(remove), draft)
            if held:
                break
        yield draft


def _remove(file: Path) -> None:
    file.unlink(missing_ok=True)


def _sweep(parent: Path) -> None:
    """Remove the drafts of killed runs, of whichever kind they were."""
    for names in (_DRAFT_FILE, _CLAIM):
        sweep(parent, names, _remove)
    sweep_spills(parent)


def _open_up(path: Path) -> None:
    """Give what is finished the permissions that a new file or directory would have."""
    usual = 0o777 if path.is_dir() else 0o666
    with suppress(OSError):  # some file systems know no permissions
        # The mask is told only to whoever sets it. What others create meanwhile is too private.
        mask = os.umask(0o077)
        os.umask(mask)
        path.chmod(usual & ~mask)


def _sync(path: Path) -> None:
    """Flush a file, or the names in a directory, to the disk."""
    if os.name != "posix" and path.is_dir():
        return  # elsewhere directories cannot be opened
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

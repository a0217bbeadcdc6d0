"""Open untrusted files: only regular files, never through a link."""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from bagwise.errors import BagwiseError, shielded

# A link may point out of the directory it lies in, and opening a pipe would wait for a writer.
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


@contextmanager
def open_regular(path: Path, *, error: type[BagwiseError]) -> Iterator[BufferedReader]:
    """Yield a regular file, open for reading; refuse links, pipes, devices and directories."""
    if path.is_symlink():
        raise error(f"{path} is a symbolic link. Give the file itself, or copy it here.")
    if not path.exists():
        raise error(f"{path} does not exist. Check the path.")
    if not stat.S_ISREG(path.stat().st_mode):
        raise error(f"{path} is not a regular file.")
    descriptor = shielded(
        lambda: os.open(path, _FLAGS),
        lambda why: error(f"{path} cannot be opened: {getattr(why, 'strerror', why)}."),
    )
    with os.fdopen(descriptor, "rb") as handle:
        # Asked again of what was opened: the name may mean something else by now.
        if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
            raise error(f"{path} is not a regular file.")
        yield handle


def sha256_of(path: Path, *, error: type[BagwiseError]) -> str:
    """Return the SHA-256 of a regular file, in hexadecimal."""
    with open_regular(path, error=error) as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def size_of(handle: BinaryIO) -> int:
    """Return the length of an open file in bytes; the next read starts at its beginning."""
    size = handle.seek(0, os.SEEK_END)
    handle.seek(0)
    return size

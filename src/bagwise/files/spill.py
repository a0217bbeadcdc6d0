"""A private directory for data that does not fit into memory, deleted with the process.

Only its owner can read it. A killed run leaves its directory behind without a lock, and the next
run in the same place deletes it.
"""

import re
import shutil
import weakref
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex

from bagwise.errors import OutputError
from bagwise.files.locks import holding, sweep, undisturbed

_NAME = re.compile(r"\.bagwise\.[0-9a-f]{16}\.spill")


class SpillDirectory:
    """A new directory inside `parent`, deleted together with this object.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     spill = SpillDirectory(Path(parent))
    ...     oct(spill.path.stat().st_mode & 0o777)
    '0o700'
    """

    def __init__(self, parent: Path) -> None:
        try:
            parent.mkdir(parents=True, exist_ok=True)
            sweep_spills(parent)
            # Another run may sweep it before it is locked, and then there is another one.
            while not self._make(parent):
                self.close()
        except OSError as problem:
            raise OutputError(
                f"{parent} takes no directory for what does not fit into memory "
                f"({type(problem).__name__}). Choose another output, or a larger memory limit."
            ) from None

    def _make(self, parent: Path) -> bool:
        """Make the directory and lock it; return whether it still exists then."""
        locked = ExitStack()
        with undisturbed():  # or it would be there, and nobody would know of it
            self.path = parent.absolute() / f".bagwise.{token_hex(8)}.spill"
            self.path.mkdir(mode=0o700)
            held = locked.enter_context(holding(self.path))
            self._end = weakref.finalize(self, _remove, self.path, locked)
        return held

    def new_file(self, kind: str) -> Path:
        """Return a name that no file in the directory has."""
        return self.path / f"{kind}.{token_hex(8)}"

    def close(self) -> None:
        """Remove the directory and all that is in it."""
        self._end()


def sweep_spills(parent: Path) -> None:
    """Remove the directories of finished runs."""
    sweep(parent, _NAME, lambda path: shutil.rmtree(path, ignore_errors=True))


def _remove(path: Path, locked: ExitStack) -> None:
    shutil.rmtree(path, ignore_errors=True)
    locked.close()

"""How much memory a release may use, and how much it would use."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from bagwise.errors import TableError

VECTORS = 6
"""Numbers of 64 bits for each row that a release holds at its peak: labels, orders and bags."""

COPIES = 2.0
"""Times the features of a table that are in memory at the peak of a release."""

BASE = 300 * 2**20
"""Bytes of Python and its libraries."""

_USUAL = 4 * 2**30  # where the system does not say how much it has
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Memory:
    """A limit, and the place for what does not fit.

    Attributes
    ----------
    limit : int
        Bytes.
    spill : Path
        A directory in the file system of the output.
    """

    limit: int
    spill: Path

    @classmethod
    def of(cls, limit: str | int | None, spill: str | Path) -> "Memory":
        """Read a limit as a user gives it; None is half of the machine's memory."""
        return cls(machine_memory() // 2 if limit is None else parse_size(limit), Path(spill))

    def at_once(self, n_rows: int) -> int:
        """Return the bytes of features that may be in memory beside the vectors of all rows."""
        left = self.limit - BASE - 8 * VECTORS * n_rows
        return max(left, self.limit // 8) // 4


def needed(n_rows: int, table_bytes: int) -> int:
    """Return about how many bytes a release needs where the table is in memory.

    >>> round(needed(10_000_000, 10_000_000 * 17 * 8) / 2**30, 1)
    3.3
    """
    return int(BASE + COPIES * table_bytes + 8 * VECTORS * n_rows)


def parse_size(text: str | int) -> int:
    """Return a number of bytes.

    >>> parse_size("2GB"), parse_size("500 MB"), parse_size(1024)
    (2147483648, 524288000, 1024)
    """
    if isinstance(text, int) and not isinstance(text, bool) and text > 0:
        return text
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)I?B?\s*", str(text).upper())
    if found is None or float(found[1]) <= 0:
        raise TableError(f"a memory limit is a size such as 8GB or 500MB, got {text!r}.")
    return int(float(found[1]) * _UNITS[found[2]])


def shown(size: int) -> str:
    """Return a number of bytes for people.

    >>> shown(3 * 2**30), shown(5_000_000)
    ('3.0 GB', '4.8 MB')
    """
    return f"{size / 2**30:.1f} GB" if size >= 2**30 else f"{size / 2**20:.1f} MB"


def machine_memory() -> int:
    """Return how many bytes the machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return _USUAL

"""Keyed fingerprints that recognise tables, requests and ids.

A plain hash of labels would reveal them, because all possible labels can be tried. So every
fingerprint is keyed (BLAKE2b with a key of 32 bytes, RFC 7693) and reveals nothing without the key.
The key is in a file of its own that only its owner can read, and is never exported.
"""

import contextlib
import hashlib
import hmac
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bagwise.errors import ColumnError, LedgerError
from bagwise.files.json_files import canonical
from bagwise.files.regular_files import open_regular
from bagwise.rows.columns import find_column, without_dictionary
from bagwise.rows.parts import Parts
from bagwise.rows.table import Rows

_LENGTH = 32


@dataclass(frozen=True)
class Key:
    """The secret of a ledger; it is not shown by `repr`."""

    secret: bytes = field(repr=False)

    @classmethod
    def create(cls, path: Path) -> "Key":
        """Write a new key that only its owner may read; use an existing one.

        A key that somebody else put there is refused, because it is not our secret.
        """
        with contextlib.suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(path, flags, 0o600), "wb") as handle:
                handle.write(os.urandom(_LENGTH).hex().encode("ascii") + b"\n")
                handle.flush()
                os.fsync(handle.fileno())
        return cls.read(path, own=True)

    @classmethod
    def read(cls, path: Path, *, own: bool = False) -> "Key":
        """Read a key; refuse one that others may read as well, or that is not our `own`."""
        with open_regular(path, error=LedgerError) as handle:
            status = os.fstat(handle.fileno())
            text = handle.read(2 * _LENGTH + 2)
        mode = stat.S_IMODE(status.st_mode)
        if own and os.name == "posix" and status.st_uid != os.geteuid():
            raise LedgerError(
                f"{path} already exists and belongs to another user, who may know this key. "
                "Choose another name for the ledger, or delete the file."
            )
        if os.name == "posix" and mode & 0o077:
            raise LedgerError(
                f"{path} is the key of a ledger, but other users can read it (mode {mode:o}). Run "
                "chmod 600 on it."
            )
        try:
            secret = bytes.fromhex(text.decode("ascii").strip())
        except ValueError:
            secret = b""
        if len(secret) != _LENGTH:
            raise LedgerError(f"{path} is not the key of a ledger. Restore it from a copy.")
        return cls(secret)

    def seal(self, *parts: str) -> str:
        """Return a code over texts that cannot be computed without the key.

        >>> Key(bytes(32)).seal("a", "bc") == Key(bytes(32)).seal("ab", "c")
        False
        """
        return hmac.new(self.secret, canonical(["seal", *parts]), "sha256").hexdigest()

    def of_values(self, values: Any) -> str:
        """Return the fingerprint of plain values, such as a request."""
        return self._hasher(b"values", canonical(values)).hexdigest()

    def of_table(self, rows: Rows | Parts) -> str:
        """Return the fingerprint of a table: its columns, in their order, and all their cells.

        A table in parts is known by their digests, with a key that is made for that.
        """
        if isinstance(rows, Parts):
            parts = rows.digests(self._hasher(b"parts").digest())
            return self.of_values(["parts", rows.num_rows, rows.column_names, parts])
        digest = self._hasher(b"table", str(rows.num_rows).encode("ascii"))
        for name in rows.column_names:
            column = without_dictionary(rows.column(name))
            digest.update(canonical([name, str(column.type)]))
            for part in _cells(column):
                digest.update(part)
        return digest.hexdigest()

    def of_ids(self, ids: Iterable[str]) -> NDArray[np.uint64]:
        """Return sorted fingerprints of ids, 64 bits each.

        Equal ids have equal fingerprints. If two different ids happen to share theirs, a part
        looks larger than it is, and more is charged, never less.
        """
        prints = set()
        for text in ids:
            data = text.encode("utf-8", "surrogatepass")
            digest = hashlib.blake2b(data, key=self.secret, digest_size=8, person=b"bagwise-id")
            prints.add(int.from_bytes(digest.digest(), "big"))
        return np.array(sorted(prints), dtype=np.uint64)

    def _hasher(self, *parts: bytes) -> "hashlib.blake2b":
        hasher = hashlib.blake2b(key=self.secret, digest_size=32, person=b"bagwise")
        for part in parts:
            hasher.update(len(part).to_bytes(8, "big") + part)
        return hasher


def _cells(column: pa.ChunkedArray) -> Iterable[memoryview]:
    """Yield the cells of a column as bytes that do not depend on how it is cut into chunks."""
    whole = pa.chunked_array(column).combine_chunks()
    # Still in chunks if it is too long for one array of its type.
    for part in whole.chunks if isinstance(whole, pa.ChunkedArray) else [whole]:
        batch = pa.record_batch([part], names=["cells"])
        yield memoryview(batch.serialize())


def ids_in(rows: Rows, *, unit: str | None, row_id: str | None) -> tuple[str, list[str]]:
    """Return which kind of ids a table has, and the ids of its units, or of its rows.

    Only whole numbers and text: other types have several spellings of one value, and an id that is
    spelled in two ways would pass for two.
    """
    name, role = (unit, "unit") if unit is not None else (row_id, "row id")
    if name is None:
        raise LedgerError(
            "the ledger has neither a unit nor a row id, so it cannot identify the rows of a part. "
            "Create a ledger with --unit or --row-id, or charge all rows."
        )
    find_column(rows, name, role=role)
    column = without_dictionary(rows.column(name))
    if column.null_count:
        raise ColumnError(f"{role} {name!r} is missing in some rows: whose labels are they?")
    kind = column.type
    if not (
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    ):
        raise ColumnError(
            f"{role} {name!r} is neither whole numbers nor text, but {kind}: the ledger compares "
            "ids as text. Convert the column."
        )
    values = pc.unique(column)
    if unit is None and len(values) != len(column):
        raise ColumnError(
            f"row id {name!r} is repeated in some rows, so it does not identify them."
        )
    spelled = pc.cast(values, pa.large_string()).to_pylist()
    return ("integer" if pa.types.is_integer(kind) else "text"), spelled

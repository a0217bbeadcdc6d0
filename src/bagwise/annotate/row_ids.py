"""Ids of rows: the user's own key, or a fingerprint of what a row holds.

A fingerprint does not depend on where a row stands, so that the same rows have the same ids in a
project that is started again from a sorted or a longer table. And unlike a row number, one that is
off by a digit belongs to no row.
"""

import hashlib

import pyarrow as pa
import pyarrow.compute as pc

from bagwise.errors import ColumnError, ProjectError, shielded
from bagwise.rows.columns import as_text, find_column, without_dictionary

ROW_ID = "row_id"
_DIGITS = 12
_MISSING = "\x00"  # a missing cell is not an empty one
_BETWEEN = "\x1f"


def key_ids(table: pa.Table, name: str) -> list[str]:
    """Return the ids of rows that have a key of their own."""
    column = as_text(without_dictionary(find_column(table, name, role="id")), name=name)
    if column.null_count or pc.count_distinct(column).as_py() != len(column):
        raise ColumnError(f"id {name!r} is missing or repeated in some rows; a key is neither.")
    ids: list[str] = column.to_pylist()
    if any(key != key.strip() or not key for key in ids):
        raise ColumnError(f"id {name!r} is empty in some row, or begins or ends with a blank.")
    return ids


def fingerprints(table: pa.Table) -> list[str]:
    """Return an id for each row from its cells; of equal rows the second and later have a number.

    >>> fingerprints(pa.table({"x": [1, 2, 1], "y": ["a", None, "a"]}))
    ['r752c9cce0559', 'r14cc14223023', 'r752c9cce0559-2']
    """
    if ROW_ID in table.column_names:
        raise ColumnError(
            f"the table has a column {ROW_ID!r}. If it is a key, say id={ROW_ID!r} (--id); if not, "
            "rename it: the project needs that name."
        )
    cells = [pc.fill_null(_spelt(table, name), _MISSING) for name in sorted(table.column_names)]
    seen: dict[str, int] = {}
    ids = []
    for row in zip(*(cell.to_pylist() for cell in cells), strict=True):
        text = _BETWEEN.join(row).encode()
        # With a letter in front: spreadsheets would take some of them for numbers.
        digest = "r" + hashlib.blake2b(text, digest_size=16).hexdigest()[:_DIGITS]
        seen[digest] = seen.get(digest, 0) + 1
        ids.append(digest if seen[digest] == 1 else f"{digest}-{seen[digest]}")
    return ids


def _spelt(table: pa.Table, name: str) -> pa.ChunkedArray:
    column = without_dictionary(table.column(name))
    return shielded(
        lambda: pc.cast(column, pa.string()),
        lambda _: ProjectError(
            f"column {name!r} of type {column.type} cannot be shown or told apart. Leave it out, "
            "or name a key column (--id)."
        ),
    )

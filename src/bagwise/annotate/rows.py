"""The ids of a project's rows, and the choice of rows to label.

An id is the user's own key, or a fingerprint of the contents of a row. It does not depend on the
position of the row, so the same rows have the same ids if a project is restarted from a sorted or
longer table. And unlike a row number, an id with a wrong digit matches no row.

Rows are chosen by their features: "kmeans" draws one row from each bag of similar rows, and
"random" draws rows uniformly. Bags have at least as many rows as there are rows per label. If there
are fewer bags than labels, the largest bags get several.
"""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import FloatArray, IntArray
from bagwise.bagging import assign_bags, find_strategy
from bagwise.errors import ColumnError, ProjectError, StrategyError, check_name, shielded
from bagwise.rows.columns import as_text, find_column, without_dictionary

DESIGNS = ("kmeans", "random")
ROW_ID = "row_id"
_DIGITS = 12
_MISSING = "\x00"  # a missing cell is not an empty one
_BETWEEN = "\x1f"

MOST_ROWS = 100_000
"""Rows that k-means sorts into bags; of a larger table, some drawn at random."""


def choose_rows(
    design: str, X: FloatArray, free: IntArray, *, budget: int, rng: np.random.Generator
) -> IntArray:
    """Return `budget` of the rows `free` of X, in random order and none twice.

    >>> X = np.array([[0.0], [0.1], [9.0], [9.1]])
    >>> rows = choose_rows("kmeans", X, np.arange(4), budget=2, rng=np.random.default_rng(0))
    >>> sorted(X[rows, 0].round())
    [np.float64(0.0), np.float64(9.0)]
    """
    check_name("design", design, DESIGNS)
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or budget < 1:
        raise StrategyError(f"budget must be a whole number of labels, got {budget!r}.")
    if budget > free.size:
        raise StrategyError(
            f"a budget of {budget} labels is more than the {free.size} rows that have none."
        )
    if design == "random":
        return np.asarray(rng.choice(free, budget, replace=False))
    some = rng.permutation(free)[: max(MOST_ROWS, budget)]
    size = -(-some.size // budget)  # rounded up, so that no bag goes without a label
    bags = assign_bags(find_strategy("kmeans"), X[some], None, bag_size=size, rng=rng)
    # `some` is in random order, so the first rows of a bag are rows drawn from it at random.
    order = np.argsort(bags.index, kind="stable")
    place = np.arange(order.size) - np.repeat(np.cumsum(bags.sizes) - bags.sizes, bags.sizes)
    chosen = order[place < np.repeat(shares(bags.sizes, budget), bags.sizes)]
    # In random order, so that whoever stops early has labelled a fair share of the bags.
    return np.asarray(some[rng.permutation(chosen)])


def reason(design: str, *, n_rows: int, budget: int) -> str:
    """Return a sentence on why these rows were chosen."""
    if design == "random":
        return f"They were drawn at random: each of the {n_rows:,} rows was as likely as any other."
    return (
        f"The {n_rows:,} rows were sorted into {budget:,} groups of similar ones and a row was "
        "drawn from each, so that few labels cover the whole table."
    )


def shares(sizes: IntArray, budget: int) -> IntArray:
    """Return how many labels each bag gets: one, and of the rest by size, as far as it has rows.

    >>> shares(np.array([10, 30, 2]), 7)
    array([2, 4, 1])
    """
    if sizes.size > budget:
        raise AssertionError("bags are made no smaller than the rows for each label")
    labels = np.ones(sizes.size, dtype=np.int64)
    for _ in range(budget - sizes.size):
        crowded = np.where(labels < sizes, sizes / labels, 0.0)
        labels[np.argmax(crowded)] += 1
    return labels


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
    """Return an id for each row from its cells; repeated rows get a number as well.

    >>> fingerprints(pa.table({"x": [1, 2, 1], "y": ["a", None, "a"]}))
    ['r752c9cce0559', 'r14cc14223023', 'r752c9cce0559-2']
    """
    if ROW_ID in table.column_names:
        raise ColumnError(
            f"the table has a column {ROW_ID!r}. If it is a key, say id={ROW_ID!r} (--id); if not, "
            "rename it: the project needs that name."
        )
    cells = [pc.fill_null(_as_text(table, name), _MISSING) for name in sorted(table.column_names)]
    seen: dict[str, int] = {}
    ids = []
    for row in zip(*(cell.to_pylist() for cell in cells), strict=True):
        text = _BETWEEN.join(row).encode()
        # With a letter in front: spreadsheets would take some of them for numbers.
        digest = "r" + hashlib.blake2b(text, digest_size=16).hexdigest()[:_DIGITS]
        seen[digest] = seen.get(digest, 0) + 1
        ids.append(digest if seen[digest] == 1 else f"{digest}-{seen[digest]}")
    return ids


def _as_text(table: pa.Table, name: str) -> pa.ChunkedArray:
    column = without_dictionary(table.column(name))
    return shielded(
        lambda: pc.cast(column, pa.string()),
        ProjectError(
            f"column {name!r} of type {column.type} cannot be shown or told apart. Leave it out, "
            "or name a key column (--id)."
        ),
    )

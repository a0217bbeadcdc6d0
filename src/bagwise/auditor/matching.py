"""Find the label of each row of a release in the custodian's table.

Rows are published in a secret order. They are matched by the id if it was published, and otherwise
by their features, unless several rows have the same features.
"""

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import AnyArray
from bagwise.errors import TableError
from bagwise.release.release import Release
from bagwise.rows.columns import without_dictionary
from bagwise.rows.labels import label_codes, label_vector
from bagwise.rows.table import read_table

_ROWS_AT_ONCE = 65_536


def labels_of_rows(release: Release, source: Any) -> tuple[AnyArray, AnyArray]:
    """Return the label of each row, and whether it is certain to be the row's own.

    Labels of a number are clipped as the release clipped them, to the bounds or to a private range;
    those of classes are numbers of classes. Rows with the same features that are in the same bag
    share their labels, and it does not matter which has which.
    """
    table = source if isinstance(source, pa.Table) else read_table(source)
    if table.num_rows != release.bags.n_rows:
        raise TableError(
            f"the table of labels has {table.num_rows} rows and the release has "
            f"{release.bags.n_rows}. Give the very table that was released."
        )
    made = release.provenance
    if made.classes is not None:
        values: AnyArray = label_codes(table, made.label, made.classes)
    else:
        values = label_vector(table, made.label)
        bounds = release.certificate.clipped_to
        values = values if bounds is None else np.clip(values, *bounds)
    if made.id:
        if made.id not in table.column_names:
            raise TableError(f"the table of labels lacks the id {made.id!r} of the release.")
        theirs = without_dictionary(table[made.id])
        places = pc.index_in(release.instances[made.id].cast(theirs.type), value_set=theirs)
        if places.null_count:
            raise TableError("some ids of the release are not in the table of labels.")
        return values[places.to_numpy()], np.ones(len(places), dtype=bool)
    # Rows with the same features side by side, in both tables.
    mine, theirs = _keys(release, release.features), _keys(release, table)
    my_order, their_order = (np.argsort(keys, kind="stable") for keys in (mine, theirs))
    if not np.array_equal(mine[my_order], theirs[their_order]):
        raise TableError(
            "the features of the table of labels are not those of the release. Give the very table "
            "that was released."
        )
    matched = np.empty_like(values)
    matched[my_order] = values[their_order]
    _, first, group = np.unique(mine, return_index=True, return_inverse=True)
    # Rows that look alike but are in different bags are told apart only if it makes no difference.
    of_bags, of_labels = (
        np.bincount(group, weights=of != of[first[group]]) for of in (release.bags.index, matched)
    )
    return matched, ((of_bags == 0) | (of_labels == 0))[group]


def _keys(release: Release, table: pa.Table) -> AnyArray:
    """Return a number for each row that is the same for the same encoded features.

    Of a million rows, two that differ share one with probability below 1e-7.
    """
    columns = table.select(release.encoder.inputs)
    keys = np.empty(columns.num_rows, dtype=np.uint64)
    for start in range(0, columns.num_rows, _ROWS_AT_ONCE):
        X = release.encoder.transform(columns.slice(start, _ROWS_AT_ONCE)) + 0.0  # no minus zero
        for row, values in enumerate(X, start):
            keys[row] = int.from_bytes(hashlib.blake2b(values.tobytes(), digest_size=8).digest())
    return keys

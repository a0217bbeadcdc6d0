"""Predictions for tables of any size: one part of the rows after the other."""

from collections.abc import Iterator

import pyarrow as pa

from bagwise.models.row_model import RowModel
from bagwise.models.tree_model import TreeModel
from bagwise.rows import Rows
from bagwise.rows.columns import find_column


def predict_parts(
    model: RowModel | TreeModel,
    rows: Rows,
    *,
    id: str | None = None,
    rate: bool = False,
    clip: bool = True,
) -> Iterator[pa.Table]:
    """Yield what `predict_table` returns, for one part of the rows after the other."""
    exposure = None if rate else model.exposure
    roles = dict.fromkeys(model.encoder.inputs, "feature")
    roles |= {name: role for name, role in ((exposure, "exposure"), (id, "id")) if name is not None}
    for name, role in roles.items():
        if name not in rows.column_names:
            find_column(rows, name, role=role)  # which says so
    for part in rows.scan(list(roles)):
        yield model.predict_table(part, id=id, rate=rate, clip=clip)

"""Exposure: how long, how often or how much each row was observed for its count."""

from typing import Any

import numpy as np

from bagwise._types import FloatArray
from bagwise.errors import ColumnError
from bagwise.rows.columns import as_float, find_column, is_numeric


def exposure_vector(table: Any, name: str) -> FloatArray:
    """Return the exposure of each row; it is public, and has to be positive.

    >>> import pyarrow as pa
    >>> exposure_vector(pa.table({"years": [1.0, 0.25]}), "years").tolist()
    [1.0, 0.25]
    """
    column = find_column(table, name, role="exposure")
    if not is_numeric(column.type):
        raise ColumnError(f"exposure {name!r} is of type {column.type}, not a number.")
    values = as_float(column)
    check_exposure(name, count_unexposed(values))
    return values


def count_unexposed(values: FloatArray) -> int:
    """Return how many exposures are missing, infinite or not positive."""
    return int((~(np.isfinite(values) & (values > 0))).sum())


def check_exposure(name: str, wrong: int) -> None:
    """Refuse rows that were not observed."""
    if wrong:
        raise ColumnError(
            f"exposure {name!r} is missing, infinite or not positive in {wrong} row(s). A row that "
            "was not observed has no label: drop it."
        )

"""Array types, named by their contents."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
AnyArray = NDArray[Any]


def index_type(count: int) -> "type[np.signedinteger[Any]]":
    """Return the smallest usual integers for places of so many rows.

    Vectors with one number a row are what a release of very many rows has in memory, and half as
    many bytes are enough for places up to two thousand million.

    >>> index_type(10).__name__, index_type(2**31).__name__
    ('int32', 'int64')
    """
    return np.int32 if count < 2**31 else np.int64

"""Ranks of numbers, equal ones at the mean of theirs."""

import numpy as np

from bagwise._types import AnyArray, FloatArray


def mid_ranks(values: AnyArray) -> FloatArray:
    """Return the rank of each value from 1 on; those that are equal share the mean of their ranks.

    As scipy's ``rankdata`` does, whose module takes half a second to import.

    >>> mid_ranks(np.array([30.0, 10.0, 30.0, 20.0]))
    array([3.5, 1. , 3.5, 2. ])
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[place])

"""The few operations that every compiled loop is made of. Importing this module needs numba.

Kernels release the interpreter's lock, so plain Python threads run them side by side, which
compiles in a fraction of the time of numba's own parallel loops. Sums may be reordered for speed
(`FAST_MATH`), the same way on the same machine every time; infinities keep their meaning.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from bagwise._types import AnyArray

FAST_MATH = {"reassoc", "contract", "arcp", "nsz"}

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile a function on first use, and keep the result on disk."""
    compiled: Any = numba.njit(cache=True, nogil=True, fastmath=FAST_MATH, error_model="numpy")(
        function
    )
    return cast(F, compiled)


@kernel
def squared_distance(X: AnyArray, i: int, Y: AnyArray, j: int) -> float:
    """Return ``|X[i] - Y[j]|^2``."""
    total = X.dtype.type(0.0)
    for f in range(X.shape[1]):
        difference = X[i, f] - Y[j, f]
        total += difference * difference
    return total


@kernel
def mix(a: int, b: int) -> int:
    """Hash two integers into 0..2^62-1 (splitmix64): randomness that no thread order can change."""
    z = np.uint64(a) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(b) * np.uint64(0xD1342543DE82EF95)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return np.int64(z >> np.uint64(2))  # type: ignore[return-value]


@kernel
def insert_nearest(ids: AnyArray, distances: AnyArray, row: int, new: int, distance: float) -> bool:
    """Put `new` into the sorted list of `row` if it is near enough and not there; say whether."""
    last = ids.shape[1] - 1
    if distance >= distances[row, last]:
        return False
    for t in range(last + 1):
        if ids[row, t] == new:
            return False
    t = last
    while t > 0 and distances[row, t - 1] > distance:
        distances[row, t] = distances[row, t - 1]
        ids[row, t] = ids[row, t - 1]
        t -= 1
    distances[row, t] = distance
    ids[row, t] = new
    return True

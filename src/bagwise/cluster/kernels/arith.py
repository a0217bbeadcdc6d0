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

SINGULAR = 1e-12  # a determinant up to this, of a change that is 1 where nothing changes
FAST_MATH = {"reassoc", "contract", "arcp", "nsz"}

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile a function on first use, and keep the result on disk."""
    options: dict[str, Any] = {"nogil": True, "fastmath": FAST_MATH, "error_model": "numpy"}
    try:
        compiled: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # nowhere to write to; a place that others can write to would be unsafe
        compiled = numba.njit(**options)(function)
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


@kernel
def lower_trace(
    P: AnyArray, weights: AnyArray, e: AnyArray, h: AnyArray, Pe: AnyArray, Ph: AnyArray,
    worthwhile: float,
) -> bool:  # fmt: skip
    """Update P by the change e h' + h e' of its inverse if tr(W P) falls enough; say whether.

    With p = e'Pe, q = h'Ph, r = e'Ph, the trace changes by

        (q |Pe|^2 - 2 (1+r) (Pe).(Ph) + p |Ph|^2) / ((1+r)^2 - pq)

    with lengths and products weighted by the diagonal of W, and P by a rank-2 update (Woodbury).
    """
    size = e.size
    p, q, r, ee, eh, hh = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for f in range(size):
        first, second = 0.0, 0.0
        for g in range(size):
            first += P[f, g] * e[g]
            second += P[f, g] * h[g]
        Pe[f], Ph[f] = first, second
    for f in range(size):
        p += e[f] * Pe[f]
        q += h[f] * Ph[f]
        r += e[f] * Ph[f]
        ee += weights[f] * Pe[f] * Pe[f]
        eh += weights[f] * Pe[f] * Ph[f]
        hh += weights[f] * Ph[f] * Ph[f]
    determinant = (1.0 + r) * (1.0 + r) - p * q
    if determinant <= SINGULAR:
        return False
    change = (q * ee - 2.0 * (1.0 + r) * eh + p * hh) / determinant
    if not change < -worthwhile:
        return False
    for f in range(size):
        for g in range(size):
            P[f, g] += (
                q * Pe[f] * Pe[g] - (1.0 + r) * (Pe[f] * Ph[g] + Ph[f] * Pe[g]) + p * Ph[f] * Ph[g]
            ) / determinant
    return True

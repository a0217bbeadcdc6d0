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
from bagwise.cluster.state import Clusters

FAST_MATH = {"reassoc", "contract", "arcp", "nsz"}

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F, **options: Any) -> F:
    """Compile a function on first use, and keep the result on disk."""
    try:
        loop: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # nowhere to write to; a place that others can write to would be unsafe
        loop = numba.njit(**options)(function)
    return cast(F, loop)


def kernel(function: F) -> F:
    """Compile a loop of the search."""
    return compiled(function, nogil=True, fastmath=FAST_MATH, error_model="numpy")


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
def leaving(state: Clusters, i: int) -> float:
    """Return by how much the sum of squares falls without row i; its centre moves along."""
    a = state.labels[i]
    size = state.sizes[a]
    return size / (size - 1.0) * squared_distance(state.Z, i, state.C, a)


@kernel
def joining(state: Clusters, i: int, b: int) -> float:
    """Return by how much the sum of squares grows with row i in cluster b (Hartigan 1975)."""
    size = state.sizes[b]
    return size / (size + 1.0) * squared_distance(state.Z, i, state.C, b)


@kernel
def transfer(state: Clusters, i: int, b: int) -> None:
    """Move row i to cluster b, both centres and sizes included."""
    Z, C, sizes, labels = state
    a = labels[i]
    for f in range(Z.shape[1]):
        C[a, f] -= (Z[i, f] - C[a, f]) / (sizes[a] - 1)
        C[b, f] += (Z[i, f] - C[b, f]) / (sizes[b] + 1)
    sizes[a] -= 1
    sizes[b] += 1
    labels[i] = b

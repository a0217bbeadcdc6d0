"""Data that all stages of a search share: sizes, effort, rows and threads.

Nothing here needs numba, because strategies and planner import it without searching.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Self

import joblib
import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from bagwise._types import AnyArray, IntArray

EffortName = Literal["fast", "default", "best"]

SAMPLED_WINDOWS = 1000
SMALLEST_WINDOW, LARGEST_WINDOW = 10, 64
ROWS_WORTH_A_THREAD = 30_000  # below this many rows, handing out work costs more than it saves
CHUNK = 65_536  # rows that are looked at together where all of them would need a copy


@dataclass(frozen=True)
class SizeRange:
    """A number of clusters, and the least and the most rows that each of them may have."""

    clusters: int
    least: int
    most: int

    @classmethod
    def near_equal(cls, n_rows: int, least: int) -> Self:
        """As many clusters as `least` allows, with sizes that differ by one at most.

        >>> SizeRange.near_equal(32, 10)
        SizeRange(clusters=3, least=10, most=11)
        """
        clusters = n_rows // least
        size, rest = divmod(n_rows, clusters)
        return cls(clusters, size, size + (rest > 0))

    def starts(self, n_rows: int) -> IntArray:
        """Where the clusters begin if sizes are as equal as can be, the larger ones spread out."""
        return np.arange(self.clusters + 1) * n_rows // self.clusters

    def nearest(self, sizes: IntArray) -> IntArray:
        """Return sizes in range with the same total, as near to the given ones as can be.

        >>> SizeRange(3, 10, 11).nearest(np.array([8, 10, 13]))
        array([10, 10, 11])
        """
        targets = np.clip(sizes, self.least, self.most)
        missing = int(sizes.sum() - targets.sum())
        while missing:  # the clusters that want it most take one row each, until it adds up
            step = 1 if missing > 0 else -1
            has_room = targets < self.most if step > 0 else targets > self.least
            eager = np.argsort(-step * (sizes - targets), kind="stable")
            chosen = eager[has_room[eager]][: abs(missing)]
            targets[chosen] += step
            missing -= step * chosen.size
        return targets


@dataclass(frozen=True)
class Effort:
    """How long to try, stage by stage."""

    passes: int  # of single rows moving
    list_length: int  # clusters that a row considers
    sweeps: int  # of annealed exchanges
    greedy_sweeps: int  # of exchanges that only improve, at most
    idle: float  # share of rows that a greedy sweep must change to be followed by another
    restarts: int = 1


EFFORTS = {
    "fast": Effort(passes=0, list_length=16, sweeps=0, greedy_sweeps=12, idle=1e-3),
    "default": Effort(passes=20, list_length=16, sweeps=30, greedy_sweeps=6, idle=1e-3),
    "best": Effort(passes=60, list_length=24, sweeps=200, greedy_sweeps=20, idle=0.0),
}


class Threads:
    """Run kernels over pieces of the data. What they compute does not depend on how many there are.

    Libraries below are held to one thread each: two layers of threads get in each other's way.
    """

    def __init__(self, threads: int | None, *, n_rows: int) -> None:
        wanted = joblib.cpu_count() if threads is None else threads
        self.threads = max(1, wanted) if n_rows >= ROWS_WORTH_A_THREAD else 1
        self._open = ExitStack()
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        self._open.enter_context(threadpool_limits(1))
        if self.threads > 1:
            self._pool = self._open.enter_context(ThreadPoolExecutor(self.threads))
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def run(self, function: Callable[..., Any], pieces: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call `function` with each tuple of arguments, side by side."""
        if self._pool is None or len(pieces) == 1:
            return [function(*piece) for piece in pieces]
        return list(self._pool.map(lambda piece: function(*piece), pieces))

    def ranges(self, count: int, *, at_least: int = 64) -> list[tuple[int, int]]:
        """Cut 0..count into a few ranges per thread."""
        pieces = max(1, min(4 * self.threads if self.threads > 1 else 1, count // at_least))
        edges = [count * p // pieces for p in range(pieces + 1)]
        return list(pairwise(edges))


@dataclass(frozen=True)
class Search:
    """One search for a partition."""

    sizes: SizeRange
    effort: Effort
    seed: int
    workers: Threads
    report: Callable[[str, float], None]


class Clusters(NamedTuple):
    """The arrays that loops change when rows move: points, centres, sizes, and labels of rows."""

    Z: AnyArray
    C: AnyArray
    sizes: IntArray
    labels: AnyArray


@dataclass
class OrderedRows:
    """Rows in an order of their own: `ids` says which row stands where, `labels` its cluster."""

    Z: AnyArray
    ids: AnyArray
    labels: AnyArray
    sizes: IntArray
    centres: AnyArray

    @classmethod
    def of(cls, Z: AnyArray, ids: AnyArray, labels: AnyArray, clusters: int) -> "OrderedRows":
        """Describe rows with known labels."""
        rows = cls(Z, ids, labels, np.empty(0, dtype=np.int64), np.empty((clusters, 0)))
        rows.settle()
        return rows

    def settle(self) -> None:
        """Recompute sizes and centres from the labels: updates on the way gather rounding."""
        clusters = self.centres.shape[0]
        self.sizes = np.bincount(self.labels, minlength=clusters)
        count = np.maximum(self.sizes, 1).astype(self.Z.dtype)
        self.centres = sums_of_clusters(self.Z, self.labels, clusters) / count[:, None]

    @property
    def state(self) -> Clusters:
        """The arrays themselves, for the compiled loops."""
        return Clusters(self.Z, self.centres, self.sizes, self.labels)

    @property
    def inertia(self) -> float:
        """Sum of squared distances of the rows from their centres."""
        return inertia_of(self.Z, self.labels, self.centres)


def inertia_of(X: Any, labels: AnyArray, centres: AnyArray) -> float:
    """Return the sum of squared distances of rows, (n, d), from their centres; X may be sparse."""
    total = 0.0
    for first in range(0, labels.size, CHUNK):
        part = slice(first, first + CHUNK)
        rows = X[part].toarray() if sparse.issparse(X) else X[part]
        offset = rows - centres[labels[part]]
        total += float(np.einsum("ij,ij->", offset, offset, dtype=np.float64))
    return total


def sums_of_clusters(X: Any, labels: AnyArray, clusters: int) -> AnyArray:
    """Return the sum of the rows of each cluster, (clusters, d); X may be sparse."""
    n = labels.size
    ones = np.ones(n, dtype=X.dtype)
    total = sparse.csr_array((ones, labels, np.arange(n + 1)), shape=(n, clusters)).T @ X
    return np.ascontiguousarray(total.toarray() if sparse.issparse(total) else total)


def geometric(first: float, last: float, count: int) -> AnyArray:
    """Return `count` numbers from `first` to `last` with a constant ratio."""
    return first * (last / first) ** (np.arange(count) / max(1, count - 1))


def effective_dimension(Z: AnyArray, clusters: int) -> float:
    """Estimate the number of directions in which neighbouring rows differ, all counted equally.

    For w rows with d such directions the participation ratio ``tr(G)^2 / |G|^2`` of their Gram
    matrix is about ``1 / (1/d + 1/(w-1))``. After bisection, neighbours stand side by side.
    """
    n, features = Z.shape
    window = min(n, int(np.clip(n // clusters, SMALLEST_WINDOW, LARGEST_WINDOW)))
    firsts = np.linspace(0, n - window, num=min(SAMPLED_WINDOWS, n // window), dtype=np.int64)
    local = Z[firsts[:, None] + np.arange(window)].astype(np.float64)
    local -= local.mean(axis=1, keepdims=True)
    gram = local @ local.transpose(0, 2, 1)
    squares, traces = np.einsum("bij,bij->b", gram, gram), np.einsum("bii->b", gram)
    differ = squares > 0
    if not differ.any():
        return float(features)
    ratio = float(np.mean(traces[differ] ** 2 / squares[differ]))
    rest = window - 1 - ratio
    dimension = ratio * (window - 1) / rest if rest > 0 else features
    return float(np.clip(dimension, min(2, features), features))

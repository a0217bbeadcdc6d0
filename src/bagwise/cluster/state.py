"""What all stages of a search share: who computes, when to stop, whom to tell, and the seed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from bagwise._types import AnyArray, IntArray
from bagwise.cluster.sizes import SizeRange
from bagwise.cluster.workers import Patience, Workers

CHUNK = 65_536  # rows that are looked at together where all of them would need a copy


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


@dataclass(frozen=True)
class Search:
    """One search for a partition."""

    sizes: SizeRange
    effort: Effort
    seed: int
    workers: Workers
    patience: Patience
    report: Callable[[str, float], None]


@dataclass
class Rows:
    """Rows in an order of their own: `ids` says which row stands where, `labels` its cluster."""

    Z: AnyArray
    ids: AnyArray
    labels: AnyArray
    sizes: IntArray
    centres: AnyArray

    @classmethod
    def of(cls, Z: AnyArray, ids: AnyArray, labels: AnyArray, clusters: int) -> "Rows":
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
    def spread(self) -> float:
        """Sum of squared distances of the rows from their centres."""
        total = 0.0
        for first in range(0, self.labels.size, CHUNK):
            part = slice(first, first + CHUNK)
            offset = self.Z[part] - self.centres[self.labels[part]]
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

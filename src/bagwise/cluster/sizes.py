"""How many clusters there are, and how many rows each may have."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from bagwise._types import IntArray

FEWER_CLUSTERS = 0.03
FEW_DIMENSIONS, MANY_DIMENSIONS = 8, 16


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

    @classmethod
    def free(cls, n_rows: int, least: int, *, dimension: float) -> Self:
        """Sizes from `least` to twice as many less one; a larger cluster could be split.

        In few dimensions it pays to have slightly fewer clusters than fit, so that sizes can follow
        the data. In many, nothing is worth a cluster less.

        >>> SizeRange.free(1000, 10, dimension=3)
        SizeRange(clusters=97, least=10, most=19)
        """
        fewer = FEWER_CLUSTERS * np.clip((MANY_DIMENSIONS - dimension) / FEW_DIMENSIONS, 0, 1)
        clusters = int((1 - fewer) * (n_rows // least))
        # Few rows may need more clusters than that, or some would have to be too large.
        clusters = min(max(clusters, -(-n_rows // (2 * least - 1))), n_rows // least)
        return cls(clusters, least, max(2 * least - 1, -(-n_rows // clusters)))

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

"""The partition of rows into bags, and computations over it in one pass."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from scipy import sparse

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import BagsError, shielded
from bagwise.show import charts, html

if TYPE_CHECKING:
    from bagwise.bagging.quality import BagQuality

LEFT_OUT = -1
_AT_ONCE = 2**20  # rows that are looked at together, where there may be very many


@dataclass(frozen=True, eq=False)
class Bags:
    """Which bag each row is in.

    Parameters
    ----------
    index : (n,) integers
        Bag of each row, 0..m-1 without gaps; -1 for rows in no bag.

    Attributes
    ----------
    sizes : (m,) integers
        Rows in each bag.

    Examples
    --------
    >>> bags = Bags(np.array([0, 1, 0, 1, -1]))
    >>> bags.sizes
    array([2, 2])
    >>> bags.mean(np.array([1.0, 10.0, 3.0, 20.0, 99.0]))
    array([ 2., 15.])
    """

    index: IntArray
    sizes: IntArray = field(init=False)

    def __post_init__(self) -> None:
        self._hold(*_checked(np.array(self.index)))  # of a copy: the caller keeps its own

    @classmethod
    def owning(cls, index: IntArray) -> Self:
        """Make bags from an array that nobody else holds: it is checked, and not copied.

        >>> Bags.owning(np.array([0, 1, 0])).sizes
        array([2, 1])
        """
        return cls._of_valid(*_checked(index))

    @classmethod
    def from_labels(cls, labels: Sequence[Any] | AnyArray) -> Self:
        """Build from any ids, one per row; bags are numbered in the order they first appear.

        >>> Bags.from_labels(["b", "a", "b"]).index
        array([0, 1, 0])
        """
        ids = np.asarray(labels)
        if ids.ndim != 1:
            raise BagsError(f"bag ids must be one per row, got an array of shape {ids.shape}.")
        unusable = BagsError("bag ids cannot be compared: they are missing or of mixed types.")
        index = shielded(lambda: pa.array(ids).dictionary_encode().indices, unusable)
        if index.null_count:
            raise unusable
        return cls.owning(index.to_numpy().astype(np.int64))

    @classmethod
    def singletons(cls, n: int) -> Self:
        """Put each of `n` rows into a bag of its own."""
        return cls(np.arange(n))

    @property
    def n_rows(self) -> int:
        """Number of rows, including those in no bag."""
        return self.index.size

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return self.sizes.size

    @property
    def in_bag(self) -> AnyArray:
        """Mask of the rows that are in a bag, (n,)."""
        return self.index >= 0

    def __len__(self) -> int:
        return self.n_bags

    @property
    def shape(self) -> tuple[int]:
        """One entry for each row: scikit-learn cuts bags into folds with the rows by it."""
        return (self.n_rows,)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        """Return the bag of each row."""
        return np.array(self.index, dtype=dtype, copy=copy)

    def __getitem__(self, rows: Any) -> Self:
        """Select rows, as `take` does; scikit-learn asks for ``bags[rows, ...]``.

        >>> Bags(np.array([0, 1, 0, 1]))[np.array([3, 2])].index
        array([0, 1])
        """
        chosen = rows[0] if isinstance(rows, tuple) else rows
        if np.ndim(chosen) == 0 and not isinstance(chosen, slice):
            raise BagsError("a single row is no bags. Ask for several, or for bags.index[row].")
        return self.take(np.arange(self.n_rows)[chosen])

    def __repr__(self) -> str:
        return (
            f"Bags({self.n_rows} rows in {self.n_bags} bags "
            f"of {self.sizes.min()} to {self.sizes.max()})"
        )

    def _repr_html_(self) -> str:
        return html.table(
            "Bags",
            [
                ("rows", self.n_rows),
                ("bags", self.n_bags),
                ("smallest", self.sizes.min()),
                ("largest", self.sizes.max()),
                ("left out", int((~self.in_bag).sum())),
            ],
        )

    def plot(self) -> charts.Chart:
        """Draw how many bags have how many rows; needs the extra ``bagwise[plot]``."""
        return charts.bag_sizes(self.sizes)

    def sum(self, values: AnyArray) -> AnyArray:
        """Add up `values`, (n,) or (n, d), in each bag; integers stay exact integers."""
        values = self._row_aligned(values)
        if values.ndim == 1:
            # Some rows at a time: as a matrix, they would be there thrice.
            added = np.zeros(self.n_bags, dtype=values.dtype)
            for first in range(0, self.n_rows, _AT_ONCE):
                index, part = self.index[first : first + _AT_ONCE], values[first : first + _AT_ONCE]
                if (index < 0).any():
                    index, part = index[index >= 0], part[index >= 0]
                np.add.at(added, index, part)
            return added
        # One entry per row that is in a bag: O(n), where a dense m x n matrix would be O(mn).
        starts = np.concatenate([[0], np.cumsum(self.in_bag)])
        ones = np.ones(starts[-1], dtype=values.dtype)
        member = sparse.csr_array(
            (ones, self.index[self.in_bag], starts), shape=(self.n_rows, self.n_bags)
        )
        total: AnyArray = member.T @ values
        return total

    def mean(self, values: AnyArray) -> FloatArray:
        """Average `values`, (n,) or (n, d), in each bag."""
        total = self.sum(np.asarray(values, dtype=np.float64))
        return np.asarray(total / (self.sizes if total.ndim == 1 else self.sizes[:, None]))

    def variance(self, values: AnyArray) -> FloatArray:
        """Return the population variance (divided by the size) of `values` in each bag."""
        values = self._row_aligned(np.asarray(values, dtype=np.float64))
        # Around the mean first: the difference of two large sums would lose the digits.
        off_mean = values - self.repeat(self.mean(values))
        return self.mean(off_mean**2)

    def repeat(self, bag_values: AnyArray) -> AnyArray:
        """Give each row the value of its bag: (m,) or (m, d) to (n,) or (n, d); else NaN."""
        bag_values = np.asarray(bag_values)
        if bag_values.shape[:1] != (self.n_bags,):
            raise BagsError(f"expected one value per bag ({self.n_bags}), got {bag_values.shape}.")
        if self.in_bag.all():
            return bag_values[self.index]
        repeated = np.full((self.n_rows, *bag_values.shape[1:]), np.nan)
        repeated[self.in_bag] = bag_values[self.index[self.in_bag]]
        return repeated

    def take(self, rows: IntArray) -> Self:
        """Reorder or select rows; bags are renumbered in the order they first appear.

        So the number of a bag reveals only the position of its first row in the new order.
        """
        index = self.index[rows]
        kept = index >= 0
        if kept.all() and index.size == self.n_rows:
            index, sizes = _checked(index)
            return self._of_valid(*_renumber(index, sizes, out=index))
        renumbered = np.full(index.size, LEFT_OUT, dtype=np.int64)
        renumbered[kept] = type(self).from_labels(index[kept]).index
        return type(self)(renumbered)

    def count_sizes(self) -> dict[int, int]:
        """Return how many bags there are of each size.

        >>> Bags(np.array([1, -1, 0, 1, 2])).count_sizes()
        {1: 2, 2: 1}
        """
        sizes, times = np.unique(self.sizes, return_counts=True)
        return dict(zip(sizes.tolist(), times.tolist(), strict=True))

    def renumbered(self) -> Self:
        """Return the same bags, numbered in the order they first appear.

        >>> Bags(np.array([1, -1, 0, 1])).renumbered().index
        array([ 0, -1,  1,  0])
        """
        out = np.empty_like(self.index)
        return self._of_valid(*_renumber(self.index, self.sizes, out=out))

    @classmethod
    def _of_valid(cls, index: IntArray, sizes: IntArray) -> Self:
        """Make bags from valid arrays that nobody else holds, without copies."""
        made = object.__new__(cls)
        made._hold(index, sizes)
        return made

    def _hold(self, index: IntArray, sizes: IntArray) -> None:
        for name, array in (("index", index), ("sizes", sizes)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def quality(self, X: Any) -> "BagQuality":
        """Measure how much information about X, (n, d), bag means keep; X may be sparse.

        The cost is O(n d^2); `BagQuality` explains the results.

        >>> bags = Bags(np.array([0, 0, 1, 1]))
        >>> round(bags.quality(np.array([[0.0], [2.0], [10.0], [12.0]])).error_ratio, 4)
        1.04
        """
        # Figures are made of bags, so their module imports this one.
        from bagwise.bagging.quality import measure_quality

        return measure_quality(self, X)

    def _row_aligned(self, values: AnyArray) -> AnyArray:
        values = np.asarray(values)
        if values.ndim not in (1, 2) or values.shape[0] != self.n_rows:
            raise BagsError(f"expected one value per row ({self.n_rows}), got {values.shape}.")
        return values


def _checked(index: AnyArray) -> tuple[IntArray, IntArray]:
    """Return the bag of each row and the sizes of bags, or report what is wrong with them."""
    if index.ndim != 1 or not np.issubdtype(index.dtype, np.integer):
        raise BagsError("a bag index is a one-dimensional array of integers.")
    index = index.astype(np.int64, copy=False)
    if index.size == 0 or index.max() < 0:
        raise BagsError("no row is in a bag.")
    if index.min() < LEFT_OUT:
        raise BagsError(f"bag numbers start at 0 (or -1 for left out), got {index.min()}.")
    sizes = np.bincount(index if index.min() >= 0 else index[index >= 0])
    if not sizes.all():
        raise BagsError(f"bag {int(np.argmin(sizes))} is empty. Use Bags.from_labels to relabel.")
    return index, sizes


def _renumber(index: IntArray, sizes: IntArray, *, out: IntArray) -> tuple[IntArray, IntArray]:
    """Return the index and sizes of bags in the order they first appear; `out` may be `index`."""
    first = np.empty(sizes.size, dtype=np.int64)
    blocks = [slice(start, start + _AT_ONCE) for start in range(0, index.size, _AT_ONCE)]
    for block in reversed(blocks):  # backwards, so that the first place is written last
        bags = index[block][::-1]
        places = np.arange(block.start, block.start + bags.size)[::-1]
        first[bags[bags >= 0]] = places[bags >= 0]
    order = np.argsort(first)
    number = np.empty(sizes.size + 1, dtype=np.int64)
    number[order] = np.arange(sizes.size)
    number[LEFT_OUT] = LEFT_OUT  # the last place is that of -1, too
    for block in blocks:
        out[block] = number[index[block]]
    return out, sizes[order]

"""Few large bags of rows that point the same way: bags whose noisy sums say most."""

import functools
import importlib.util
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.bagging._cut import equal_sizes, group_index
from bagwise.bagging._parameters import check_choices, check_clip
from bagwise.bagging.bags import Bags
from bagwise.cluster.aligning import Effort, align_rows
from bagwise.cluster.blocks import RowBlocks, mapped, parts
from bagwise.cluster.metric import Scale, regularised
from bagwise.cluster.search import EffortName, time_limit
from bagwise.cluster.sizes import SizeRange
from bagwise.data.whitening import Columns
from bagwise.errors import MissingExtraError, StrategyError

_log = logging.getLogger("bagwise")

EFFORTS = {
    "fast": Effort(starts=1, sweeps=10, enough=1e-3),
    "default": Effort(starts=4, sweeps=150, enough=1e-5),
    "best": Effort(starts=10, sweeps=1000, enough=1e-6),
}
FEW_ROWS = 5000  # with more, all starts end about equally well
# With very many rows the first sweeps gain nearly all there is to gain.
MANY_ROWS, SWEEPS_OF_MANY = 500_000, 20
# Drawing in the farthest rows raises the leverage of others. It need not be exact.
ROUNDS, NEARLY = 30, 1.5
ROUNDING = 1e-15


@dataclass(frozen=True)
class AlignedBags:
    """Put rows together that point the same way, in few large bags, for labels with privacy noise.

    Parameters
    ----------
    scale : {"whiten", "std", "none"}
        Which squared errors are added up: those of the predictions, so that neither units nor
        correlations matter; those of the coefficients in standard deviations of each column; or
        those of the coefficients in the columns' own units. The last two give up directions in
        which the rows differ much for those in which they hardly differ.
    effort : {"fast", "default", "best"}
        How long to search. At 50,000 rows and 32 columns: about half a second, three and six.
    n_bags : int or None
        Number of bags. None makes one more than there are directions in which the rows differ:
        fewer do not determine a linear model, and more have a larger error.
    max_size : int or None
        The most rows in a bag. There are as many bags as that takes.
    clip : float or None
        Rows with more than `clip` times the average leverage, and more than ``1 / bag_size``, are
        drawn in to that much while bags are chosen, so that no direction belongs to fewer rows
        than a bag has. At least 1; None trusts the model.

    Notes
    -----
    The noise on the sum of a bag's labels does not grow with the bag. So what the labels say of
    the coefficients is ``A = sum s s'`` over the sums s of the bags' rows, and rows that point to
    different sides cancel. The error is ``tr(W A^-1)``, intercept left out; it never rises in the
    search. `bag_size` is a minimum: bags are as large as there are rows for. If too few bags of
    that size fit, as many as fit are made, for the directions of largest spread, and the log says
    so. Where rows do not differ at all, bags are random. Needs ``bagwise[fast]``.

    Guarantee
    ---------
    On the rows as drawn in, ``tr(W A^-1)`` is at most that of the bags along the
    directions of a regular simplex, from which the search starts.

    References
    ----------
    F4 of the theory page, where the privacy noise outweighs that of the labels. Exchange
    algorithms: Fedorov (1972).

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> bags = AlignedBags().assign(X, None, bag_size=50, rng=np.random.default_rng(0))
    >>> bags.n_bags, bool(bags.sizes.min() > 300)
    (3, True)
    """

    name: ClassVar[str] = "aligned"
    summary: ClassVar[str] = "few large bags of rows that point the same way"
    free_sizes: ClassVar[bool] = True
    extra: ClassVar[str] = "fast"
    uses_scores: ClassVar[bool] = False

    scale: Scale = "whiten"
    effort: EffortName = "default"
    n_bags: int | None = None
    max_size: int | None = None
    clip: float | None = 3.0

    def __post_init__(self) -> None:
        check_choices(self, scale=Scale, effort=EffortName)
        for name in ("n_bags", "max_size"):
            value = getattr(self, name)
            if value is not None and not (type(value) is int and value >= 1):
                raise StrategyError(f"{name} must be a whole number from 1, or none: {value!r}.")
        check_clip(self.clip)

    def assign(
        self,
        X: FloatArray,
        scores: FloatArray | None,  # noqa: ARG002 (features alone)
        *,
        bag_size: int,
        rng: np.random.Generator,
    ) -> Bags:
        """Put rows together so that the sums of bags determine the coefficients best."""
        return self.assign_blocks(lambda order: X[order], X.shape[0], bag_size=bag_size, rng=rng)

    def assign_blocks(
        self,
        take: Callable[[IntArray], RowBlocks],
        n_rows: int,
        *,
        bag_size: int,
        rng: np.random.Generator,
    ) -> Bags:
        """Do the same with rows that need not be in memory: the bags are the same."""
        if importlib.util.find_spec("numba") is None:
            raise MissingExtraError("the strategy 'aligned'", "fast")
        order = rng.permutation(n_rows)  # as in k-means bags: the place may tell a label
        index = np.empty(order.size, dtype=np.int64)
        index[order] = self._group(take(order), bag_size, rng)
        return Bags(index)

    def _group(self, X: RowBlocks, bag_size: int, rng: np.random.Generator) -> IntArray:
        """Return the bag of each row."""
        n = X.shape[0]
        if self.clip is not None:
            X = draw_in(X, max(self.clip * X.shape[1] / n, 1 / bag_size))
        rows, weights = coordinates(X, self.scale)
        limits = self._limits(n, rows.shape[1], bag_size)
        if not rows.shape[1]:
            return group_index(equal_sizes(n, bag_size))
        if limits.clusters == 1:
            return np.zeros(n, dtype=np.int64)
        learnable = min(limits.clusters - 1, rows.shape[1])  # one bag is for the intercept
        with time_limit(None) as waiting:
            return align_rows(
                mapped(rows, lambda block: block[:, :learnable], learnable),
                weights[:learnable],
                limits,
                self._effort(n),
                rng=rng,
                waiting=waiting,
            )

    def _effort(self, n: int) -> Effort:
        """Return how long to search n rows."""
        effort = EFFORTS[self.effort]
        if n > FEW_ROWS:
            effort = replace(effort, starts=1)
        if n > MANY_ROWS and self.effort == "default":
            effort = replace(effort, sweeps=SWEEPS_OF_MANY)
        return effort

    def _limits(self, n: int, directions: int, bag_size: int) -> SizeRange:
        """Return how many bags there are, and how many rows each may have."""
        most = n if self.max_size is None else self.max_size
        fewest, largest = -(-n // most), n // bag_size
        wanted = self.n_bags or max(directions + 1, fewest)
        if fewest > largest or (self.n_bags and not fewest <= self.n_bags <= largest):
            bags = f"{self.n_bags} bags" if self.n_bags else "bags"
            raise StrategyError(
                f"{n} rows cannot be put into {bags} of {bag_size} to {most} rows each. "
                "Change n_bags, max_size or bag_size."
            )
        if wanted > largest or (self.n_bags and self.n_bags <= directions):
            _log.warning(
                "aligned bags: %d bags cannot determine %d coefficients and an intercept. Use a "
                "smaller bag_size, or fewer features.",
                min(wanted, largest),
                directions,
            )
        return SizeRange(min(wanted, largest), bag_size, most)


def coordinates(X: RowBlocks, scale: Scale) -> tuple[RowBlocks, FloatArray]:
    """Return X in coordinates of equal spread, (n, r), and what each coefficient's error counts.

    The weights, (r,), rise: the first coordinates are those in which X has the largest spread.
    """
    columns = Columns(X)
    units = columns.axes.units[:, None]
    if not columns.axes.rank:
        return np.empty((X.shape[0], 0)), np.empty(0)
    whitening = regularised(columns.axes)[:, ::-1]
    # Coefficients in standard deviations are those in the new coordinates, mapped by `whitening`.
    back = {
        "whiten": np.eye(whitening.shape[1]),
        "std": whitening,
        "none": units * whitening,
    }[scale]
    weights, turn = np.linalg.eigh(back.T @ back)
    # Units that are far apart leave nothing but rounding of the smallest weights.
    weights = np.maximum(weights, ROUNDING * weights[-1])
    middle, W = columns.mean, units * (whitening @ turn)
    return mapped(X, lambda block: (block - middle) @ W, W.shape[1]), weights


def draw_in(X: RowBlocks, limit: float) -> RowBlocks:
    """Shrink rows towards the mean until hardly any has a leverage above `limit`.

    A row that is very far out hides others, so that one round is not enough.
    """
    for _ in range(ROUNDS):
        columns = Columns(X)
        middle = columns.mean
        W = columns.axes.units[:, None] * regularised(columns.axes)
        most = max(_leverage(X[part], middle, W, X.shape[0]).max() for part in parts(X))
        if most <= NEARLY * limit:
            break
        shrink = functools.partial(_shrink, middle=middle, W=W, limit=limit, n_rows=X.shape[0])
        X = mapped(X, shrink, X.shape[1])
    return X


def _leverage(block: FloatArray, middle: FloatArray, W: FloatArray, n_rows: int) -> FloatArray:
    rows = (block - middle) @ W
    return np.asarray(np.einsum("ij,ij->i", rows, rows) / n_rows)


def _shrink(
    block: FloatArray, *, middle: FloatArray, W: FloatArray, limit: float, n_rows: int
) -> FloatArray:
    leverage = _leverage(block, middle, W, n_rows)
    return middle + (block - middle) * np.sqrt(limit / np.maximum(leverage, limit))[:, None]

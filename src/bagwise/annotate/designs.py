"""Which rows to buy labels for: from bags, or one by one.

=================  =========================================================================
name               which rows
=================  =========================================================================
bags-STRATEGY      one from each bag, of any registered strategy that looks at features only
bags-boosted       one from each bag of rows with like predictions, of the model so far
rows-random        any, each as likely as the others
rows-spread        the one in the middle of each of as many clusters
rows-a-optimal     those that tell most about the coefficients
rows-v-optimal     those that tell most about the predictions
=================  =========================================================================

Bags have at least as many rows as there are rows for each label. Where there are fewer bags than
labels, the largest get several. A design never sees a label; predictions were made from labels that
were bought before.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from bagwise._types import FloatArray, IntArray
from bagwise.annotate.optimal_rows import greedy_rows
from bagwise.annotate.pool import Pool
from bagwise.bagging import STRATEGIES, BaggingStrategy, assign_bags, find_strategy, traits_of
from bagwise.bagging.bags import LEFT_OUT, Bags
from bagwise.errors import ProjectError, StrategyError, check_name

Pick = Literal["random", "medoid"]
PICKS: tuple[Pick, ...] = get_args(Pick)

BOOSTED = "bags-boosted"
OPTIMAL = ("rows-a-optimal", "rows-v-optimal")
"""Designs that take the model at its word up to the most extreme row: yardsticks, never "auto"."""

_PREFIX = "bags-"
_MANY = 24  # draws of rows, once their bags are made
_CANDIDATES = 15_000  # rows that an optimal design chooses from: each step looks at all of them
_STEPS = 25  # of k-means: rows in the middle of clusters need no more


@dataclass(frozen=True)
class Selection:
    """Rows to label.

    Attributes
    ----------
    rows : (m,) integers
        Distinct rows of a pool, in the order in which they are to be labelled.
    weights : (m,)
        Rows of the pool that each stands for.
    bags : Bags or None
        All rows that could be chosen, in bags; None where rows were chosen one by one.
    """

    rows: IntArray
    weights: FloatArray
    bags: Bags | None = None


class Design(Protocol):
    """A way to choose rows."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def summary(self) -> str:
        """What it does, in a few words."""

    @property
    def draws(self) -> int:
        """How many draws tell what to expect of it: 1 where chance decides nothing."""

    def draw(
        self, pool: Pool, *, budget: int, pick: Pick, rng: np.random.Generator, times: int = 1
    ) -> list[Selection]:
        """Choose `budget` of the rows that are free, as often as asked for."""


@dataclass(frozen=True)
class BagDesign:
    """One row of each bag."""

    strategy: BaggingStrategy
    name: str
    summary: str
    draws: int = _MANY

    def draw(
        self, pool: Pool, *, budget: int, pick: Pick, rng: np.random.Generator, times: int = 1
    ) -> list[Selection]:
        """Put the free rows into bags, once, and choose from each."""
        free, scores = pool.free, None
        if self.strategy.uses_scores:
            if pool.predictions is None:
                raise ProjectError(
                    f"{self.name} needs a model of labels bought before. Start with another "
                    "design, import labels, and use this one for the next round."
                )
            scores = pool.predictions[free]
        size = -(-free.size // budget)  # rounded up, so that no bag goes without a label
        bags = assign_bags(self.strategy, pool.X[free], scores, bag_size=size, rng=rng)
        labels = shares(bags.sizes, budget)
        index = np.full(len(pool.X), LEFT_OUT, dtype=np.int64)
        index[free] = bags.index
        among_all, drawn = Bags(index), []
        for _ in range(times):
            rows = _PICKERS[pick](bags, pool.white.rows[free], labels, rng)
            # In random order, so that whoever stops early has labelled a fair share of the bags.
            rows = free[rng.permutation(rows)]
            bag = index[rows]
            drawn.append(Selection(rows, bags.sizes[bag] / labels[bag], among_all))
        return drawn


@dataclass(frozen=True)
class RowDesign:
    """Rows one by one."""

    name: str
    summary: str
    draws: int
    choose: Callable[[Pool, int, np.random.Generator], tuple[IntArray, FloatArray]]

    def draw(
        self,
        pool: Pool,
        *,
        budget: int,
        pick: Pick,  # noqa: ARG002 (there are no bags to pick from)
        rng: np.random.Generator,
        times: int = 1,
    ) -> list[Selection]:
        """Choose among the free rows."""
        return [Selection(*self.choose(pool, budget, rng)) for _ in range(times)]


def shares(sizes: IntArray, budget: int) -> IntArray:
    """Return how many labels each bag gets: one, and of the rest by size, as far as it has rows.

    >>> shares(np.array([10, 30, 2]), 7)
    array([2, 4, 1])
    """
    if sizes.size > budget:
        raise AssertionError("bags are made no smaller than the rows for each label")
    labels = np.ones(sizes.size, dtype=np.int64)
    for _ in range(budget - sizes.size):
        crowded = np.where(labels < sizes, sizes / labels, 0.0)
        labels[np.argmax(crowded)] += 1
    return labels


def _pick_random(
    bags: Bags, white: FloatArray, labels: IntArray, rng: np.random.Generator
) -> IntArray:
    return _first_of_each(bags, rng.random(len(white)), labels)


def _pick_medoid(
    bags: Bags, white: FloatArray, labels: IntArray, rng: np.random.Generator
) -> IntArray:
    distance = np.sum((white - bags.repeat(bags.mean(white))) ** 2, axis=1)
    # Equal rows are equally near: let chance decide, not the order of the table.
    shuffled = rng.permutation(distance.size)
    rank = np.empty(distance.size)
    rank[shuffled[np.argsort(distance[shuffled], kind="stable")]] = np.arange(distance.size)
    return _first_of_each(bags, rank, labels)


def _first_of_each(bags: Bags, rank: FloatArray, labels: IntArray) -> IntArray:
    """Return the rows of each bag that have the lowest rank, as many as it gets labels."""
    inside = np.flatnonzero(bags.in_bag)
    order = inside[np.lexsort((rank[inside], bags.index[inside]))]
    starts = np.concatenate([[0], np.cumsum(bags.sizes)[:-1]])
    place = np.arange(order.size) - np.repeat(starts, bags.sizes)
    return np.asarray(order[place < np.repeat(labels, bags.sizes)], dtype=np.int64)


_PICKERS = {"random": _pick_random, "medoid": _pick_medoid}


def _random_rows(pool: Pool, budget: int, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    rows = rng.choice(pool.free, budget, replace=False)
    return rows, np.full(budget, pool.free.size / budget)


def _spread_rows(pool: Pool, budget: int, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Cluster a sample of the rows, and take the row nearest to each centre."""
    candidates = _candidates(pool, budget, rng)
    points = pool.white.rows[candidates]
    search = KMeans(
        budget, init="random", n_init=1, max_iter=_STEPS, random_state=int(rng.integers(2**31))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of equal rows, for which see below
        found = search.fit(points)
    distance = np.sum((points - found.cluster_centers_[found.labels_]) ** 2, axis=1)
    order = np.lexsort((distance, found.labels_))
    _, first, sizes = np.unique(found.labels_[order], return_index=True, return_counts=True)
    rows, weights = order[first], sizes.astype(np.float64)
    if rows.size < budget:  # rows that are equal cannot be told apart: the rest is drawn
        rest = np.setdiff1d(np.arange(candidates.size), rows)
        more = rng.choice(rest, budget - rows.size, replace=False)
        rows, weights = np.append(rows, more), np.append(weights, np.ones(more.size))
    order = rng.permutation(budget)
    return candidates[rows[order]], weights[order] * (pool.free.size / weights.sum())


def _a_optimal_rows(
    pool: Pool, budget: int, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    spread = pool.X.std(axis=0)
    slopes = pool.white.basis * spread[:, None]  # of standard units, by those of white columns
    return _optimal_rows(pool, budget, rng, slopes.T @ slopes, of_intercept=0.0)


def _v_optimal_rows(
    pool: Pool, budget: int, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    return _optimal_rows(pool, budget, rng, np.eye(pool.white.rows.shape[1]), of_intercept=1.0)


def _optimal_rows(
    pool: Pool, budget: int, rng: np.random.Generator, slopes: FloatArray, of_intercept: float
) -> tuple[IntArray, FloatArray]:
    rows, width = pool.white.rows, pool.white.rows.shape[1]
    Z = np.column_stack([rows, np.ones(len(rows))])
    metric = np.zeros((width + 1, width + 1))
    metric[:width, :width], metric[width, width] = slopes, of_intercept
    noise, signal = pool.prior.label_noise_sd**2, pool.prior.signal_sd**2
    # Slopes of a signal of this size, spread over all directions; of the intercept nothing is
    # believed, and a hundredth of a label's worth keeps the first step finite.
    believed = np.full(width, width * noise / signal if signal > 0 else 1e6)
    precision = np.diag(np.append(np.maximum(believed, 1e-9), 1e-2))
    candidates = _candidates(pool, budget, rng)
    found = greedy_rows(
        Z[candidates], metric, budget=budget, precision=precision, known=Z[pool.labelled]
    )
    return candidates[found], np.full(budget, pool.free.size / budget)


def _candidates(pool: Pool, budget: int, rng: np.random.Generator) -> IntArray:
    most = max(_CANDIDATES, budget)
    if pool.free.size <= most:
        return pool.free
    return np.sort(rng.choice(pool.free, most, replace=False))


ROW_DESIGNS: dict[str, RowDesign] = {
    design.name: design
    for design in (
        RowDesign("rows-random", "rows at random", _MANY, _random_rows),
        RowDesign("rows-spread", "rows in the middle of clusters", 2, _spread_rows),
        RowDesign("rows-a-optimal", "rows that tell coefficients", 1, _a_optimal_rows),
        RowDesign("rows-v-optimal", "rows that tell predictions", 1, _v_optimal_rows),
    )
}


def find_design(name: str) -> Design:
    """Return the design of that name.

    >>> find_design("bags-kmeans").summary
    'one row of each bag: rows with similar features'
    """
    check_name("design", name, design_names(with_model=True))
    if name in ROW_DESIGNS:
        return ROW_DESIGNS[name]
    if name == BOOSTED:
        return BagDesign(find_strategy("sorted"), name, "one row of each bag: like predictions")
    strategy = find_strategy(name.removeprefix(_PREFIX))
    return BagDesign(strategy, name, f"one row of each bag: {traits_of(strategy).summary}")


def design_names(*, with_model: bool = False) -> list[str]:
    """Return the names of all designs; some need a model of labels that were bought before."""
    blind = [f"{_PREFIX}{name}" for name in STRATEGIES if not find_strategy(name).uses_scores]
    return [*blind, *([BOOSTED] if with_model else []), *ROW_DESIGNS]


def check_pick(pick: str) -> Pick:
    """Return how a row is picked from its bag.

    >>> check_pick("medoid")
    'medoid'
    """
    check_name("pick", pick, PICKS)
    return PICKS[PICKS.index(pick)]


def check_budget(budget: object, pool: Pool) -> int:
    """Refuse a number of labels that there are no rows for."""
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or budget < 1:
        raise StrategyError(f"budget must be a whole number of labels, got {budget!r}.")
    if budget > pool.free.size:
        raise StrategyError(
            f"a budget of {budget} labels is more than the {pool.free.size} rows that have none."
        )
    return int(budget)

"""Which rows to buy labels for, from their features alone.

======  ==============================================================================
name    which rows
======  ==============================================================================
kmeans  one of each bag of similar rows, drawn at random
random  any, each as likely as the others
======  ==============================================================================

Bags have at least as many rows as there are rows for each label. Where there are fewer bags than
labels, the largest get several.
"""

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.bagging import assign_bags, find_strategy
from bagwise.errors import StrategyError, check_name

DESIGNS = ("kmeans", "random")

MOST_ROWS = 100_000
"""Rows that k-means sorts into bags; of a larger table, some drawn at random."""


def choose_rows(
    design: str, X: FloatArray, free: IntArray, *, budget: int, rng: np.random.Generator
) -> IntArray:
    """Return `budget` of the rows `free` of X, in random order and none twice.

    >>> X = np.array([[0.0], [0.1], [9.0], [9.1]])
    >>> rows = choose_rows("kmeans", X, np.arange(4), budget=2, rng=np.random.default_rng(0))
    >>> sorted(X[rows, 0].round())
    [np.float64(0.0), np.float64(9.0)]
    """
    check_name("design", design, DESIGNS)
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or budget < 1:
        raise StrategyError(f"budget must be a whole number of labels, got {budget!r}.")
    if budget > free.size:
        raise StrategyError(
            f"a budget of {budget} labels is more than the {free.size} rows that have none."
        )
    if design == "random":
        return np.asarray(rng.choice(free, budget, replace=False))
    some = rng.permutation(free)[: max(MOST_ROWS, budget)]
    size = -(-some.size // budget)  # rounded up, so that no bag goes without a label
    bags = assign_bags(find_strategy("kmeans"), X[some], None, bag_size=size, rng=rng)
    # `some` is in random order, so the first rows of a bag are rows drawn from it at random.
    order = np.argsort(bags.index, kind="stable")
    place = np.arange(order.size) - np.repeat(np.cumsum(bags.sizes) - bags.sizes, bags.sizes)
    chosen = order[place < np.repeat(shares(bags.sizes, budget), bags.sizes)]
    # In random order, so that whoever stops early has labelled a fair share of the bags.
    return np.asarray(some[rng.permutation(chosen)])


def reason(design: str, *, n_rows: int, budget: int) -> str:
    """Say in a sentence why these rows were chosen."""
    if design == "random":
        return f"They were drawn at random: each of the {n_rows:,} rows was as likely as any other."
    return (
        f"The {n_rows:,} rows were sorted into {budget:,} groups of similar ones and a row was "
        "drawn from each, so that few labels cover the whole table."
    )


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

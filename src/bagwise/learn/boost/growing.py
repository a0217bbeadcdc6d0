"""Grow boosted trees for a bag loss with LightGBM, and notice when to stop by held-out bags.

Held-out bags have weight zero: their rows are there, so that every round tells what it predicts for
them, and pull at no tree. So one table of bins serves all folds, and no fold predicts anew.

This module imports LightGBM, so nothing imports it before trees are grown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.learn.bag_data import BagData
from bagwise.learn.boost.objective import BagObjective
from bagwise.models.links import SOFTMAX
from bagwise.models.trees import Levels, Tree

_BAGS_IN_LEAF = 3.0  # as many as a leaf needs, in units of curvature
_WORTH_A_ROUND = 3e-3  # what the error has to fall by within the rounds of patience
_FAR_BEHIND = 1.5  # times the error of another way: no share of a blend would be left
_SHRINKAGE = 2.0  # a leaf is pulled to zero as by two bags that say nothing


@dataclass(frozen=True)
class Shape:
    """What single trees are like.

    Attributes
    ----------
    leaves : int
    random_cuts : bool
        Cuts are drawn, one for each column, and the best of them is taken (Geurts, Ernst and
        Wehenkel 2006): trees that follow noise less, and average to something smoother.
    """

    leaves: int
    random_cuts: bool = False


@dataclass(frozen=True)
class Rows:
    """The rows in the form in which trees see them.

    Attributes
    ----------
    table : lightgbm.Dataset
    n_rows : int
    """

    table: Any
    n_rows: int

    @classmethod
    def of(cls, X: FloatArray, levels: Levels) -> "Rows":
        """Sort values into bins, once for all trees."""
        columns = np.column_stack(levels.columns(X))
        options = {"verbose": -1, "use_missing": False, "feature_pre_filter": False}
        table = lightgbm.Dataset(
            columns,
            label=np.zeros(len(X)),
            categorical_feature=levels.categories,
            params={**options, "min_data_in_bin": 1},
        )
        return cls(table.construct(), len(X))


@dataclass(frozen=True)
class Growth:
    """How trees are grown, whatever their shape.

    Attributes
    ----------
    rows : Rows
    link : str
    learning_rate : float
    threads : int
    seed : int
    """

    rows: Rows
    link: str
    learning_rate: float
    threads: int
    seed: int

    def begin(self, objective: BagObjective, shape: Shape) -> "Growing":
        """Start without any tree."""
        outputs = objective.labels.shape[1] if self.link == SOFTMAX else 1
        options = {
            "objective": "none",
            "num_class": outputs,
            "num_leaves": shape.leaves,
            "extra_trees": shape.random_cuts,
            "learning_rate": self.learning_rate,
            "min_sum_hessian_in_leaf": _BAGS_IN_LEAF,
            "lambda_l2": _SHRINKAGE,
            "min_data_in_leaf": 1,  # of rows, which say nothing by themselves
            # One level against all others: sorting levels by noisy labels would follow the noise.
            "max_cat_to_onehot": 1_000_000,
            "use_missing": False,
            "feature_pre_filter": False,
            "num_threads": self.threads,
            "deterministic": True,
            "force_col_wise": True,
            "seed": self.seed,
            "verbose": -1,
        }
        return Growing(lightgbm.Booster(options, self.rows.table), objective)


@dataclass
class Growing:
    """Trees that are being grown."""

    booster: Any
    objective: BagObjective
    stuck: bool = False

    def grow(self) -> FloatArray:
        """Add one round of trees; return the means of all bags *before* it."""
        self.stuck = self.booster.update(fobj=self.objective)
        return self.objective.bag_means

    def trees(self) -> tuple[tuple[Tree, ...], ...]:
        """Return the trees of each output."""
        found = self.booster.dump_model()["tree_info"]
        outputs = 1 if self.objective.labels.ndim == 1 else self.objective.labels.shape[1]
        trees = [Tree.from_lightgbm(tree["tree_structure"]) for tree in found]
        return tuple(tuple(trees[output::outputs]) for output in range(outputs))


@dataclass(frozen=True)
class Tried:
    """What held-out bags say of one way to grow trees.

    Attributes
    ----------
    rounds : int
        At which they were predicted best.
    error : float
        Their mean squared error then, weighted.
    means : (m,) or (m, classes)
        What was predicted for each bag by trees that had not seen it.
    """

    rounds: int
    error: float
    means: FloatArray


def try_out(
    growth: Growth,
    shape: Shape,
    objectives: Sequence[BagObjective],
    held_out: IntArray,
    weight: FloatArray,
    *,
    most: int,
    patience: int,
    rival: float = np.inf,
) -> Tried:
    """Grow all folds side by side until held-out bags have not got better for a while.

    Parameters
    ----------
    objectives : one for each fold
        With weight zero for the bags that the fold holds out.
    held_out : (m,) ints
        The fold that holds out each bag.
    weight : (m,) or (m, classes)
        How much each bag counts when it is held out.
    rival : float
        The least error of other ways. What is far behind after a while is not followed on.
    """
    folds = [growth.begin(objective, shape) for objective in objectives]
    labels = objectives[0].labels
    best, since = Tried(0, np.inf, np.zeros_like(labels)), (0, np.inf)
    for round_ in range(most + 1):
        means = np.empty_like(labels)
        for number, fold in enumerate(folds):
            here = held_out == number
            means[here] = fold.grow()[here]
        error = float(np.sum(weight * (means - labels) ** 2) / np.sum(weight))
        if error < best.error:
            best = Tried(round_, error, means)
        if error < since[1] * (1 - _WORTH_A_ROUND):
            since = round_, error
        hopeless = round_ >= 2 * patience and error > _FAR_BEHIND * rival
        if hopeless or round_ - since[0] >= patience or all(fold.stuck for fold in folds):
            break
    return best


def grow_all(growth: Growth, shape: Shape, objective: BagObjective, rounds: int) -> Growing:
    """Grow so many rounds of trees from all bags."""
    growing = growth.begin(objective, shape)
    for _ in range(rounds):
        growing.grow()
        if growing.stuck:
            break
    return growing


def held_out_folds(data: BagData, n_folds: int, seed: int) -> IntArray:
    """Return the fold of each bag; folds differ by one bag at most."""
    order = np.random.default_rng(seed).permutation(data.bags.n_bags)
    fold = np.empty(data.bags.n_bags, dtype=np.int64)
    fold[order] = np.arange(order.size) % n_folds
    return fold

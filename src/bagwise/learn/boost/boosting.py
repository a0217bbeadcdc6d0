"""Grow boosted trees for a bag loss with LightGBM, choose by held-out bags how, and blend.

Every way, a start and a shape of trees, is tried on folds of whole bags, which tells its best
number of rounds and what it predicts for bags that it has not seen. Held-out bags have weight zero:
their rows are there, so that every round tells what it predicts for them, and pull at no tree. So
one table of bins serves all folds, and no fold predicts anew.

The weights of the blend are those with which held-out predictions come closest to the labels, none
of them negative (stacked regressions; Breiman 1996, Mach. Learn. 24), pulled towards equal ones
where held-out bags are too few to tell. A start that does not help gets no weight. Noise on the
labels adds the same to the error of every way, so that it cannot mislead the choice, only blur it;
what is reported has it taken out.
"""

import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from scipy.optimize import nnls

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import MissingExtraError
from bagwise.learn.bag_data import BagData
from bagwise.learn.boost.objective import BagObjective
from bagwise.learn.boost.starts import STARTS, LabelModel, Start, constant_start
from bagwise.models.links import SOFTMAX
from bagwise.models.trees import Levels, Member, Tree
from bagwise.show.stages import report_progress

FEWEST_BAGS = 20  # with fewer, held-out bags say nothing, and trees follow chance
_BAGS_IN_FOLD = 20
_BAGS_IN_LEAF = 3.0  # as many as a leaf needs, in units of curvature
_WORTH_A_ROUND = 3e-3  # what the error has to fall by within the rounds of patience
_FAR_BEHIND = 1.5  # times the error of another way: no share of a blend would be left
_SHRINKAGE = 2.0  # a leaf is pulled to zero as by two bags that say nothing
_NEGLIGIBLE = 0.05  # of the blend


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


_PILOT_ROUNDS, _PILOT = 100, Shape(leaves=8)


@dataclass(frozen=True)
class Way:
    """One way to boost, and what held-out bags say of it.

    Attributes
    ----------
    rounds : int
        At which they were predicted best.
    error : float
        Their mean squared error then, weighted.
    means : (m,) or (m, classes)
        What was predicted for each bag by trees that had not seen it.
    """

    start: str
    shape: Shape
    rounds: int
    error: float
    means: FloatArray


@dataclass
class Growing:
    """Trees that are being grown."""

    booster: Any
    objective: BagObjective
    stuck: bool = False

    def grow(self, rounds: int = 1) -> FloatArray:
        """Add rounds of trees; return the means of all bags *before* the last of them."""
        for _ in range(rounds):
            self.stuck = self.booster.update(fobj=self.objective)
            if self.stuck:
                break
        return self.objective.bag_means

    def trees(self) -> tuple[tuple[Tree, ...], ...]:
        """Return the trees of each output."""
        outputs = 1 if self.objective.labels.ndim == 1 else self.objective.labels.shape[1]
        info = self.booster.dump_model()["tree_info"]
        trees = [Tree.from_lightgbm(tree["tree_structure"]) for tree in info]
        return tuple(tuple(trees[output::outputs]) for output in range(outputs))


@dataclass(frozen=True)
class Boosting:
    """What to learn from, and how; `BaggedBooster` explains the parameters.

    Attributes
    ----------
    table : lightgbm.Dataset
        The rows in the form in which trees see them.
    threads : int
        0 for as many as LightGBM likes; trees are the same.
    """

    data: BagData
    model: LabelModel
    table: Any
    learning_rate: float
    threads: int
    seed: int
    shapes: Sequence[Shape]
    starts: Sequence[str]
    most: int
    patience: int
    n_folds: int

    def run(self, weight: FloatArray) -> tuple[tuple[Member, ...], tuple[Way, ...], FloatArray]:
        """Return the fits that make up a model, all ways that were tried, and each one's share."""
        # 1. Of few bags only the start is fitted.
        usable = _counts(weight)
        count = int(usable.sum())
        if count < FEWEST_BAGS:
            alone = self._member(1.0, self._start(self.starts[-1], weight, usable), weight)
            return (alone,), (), np.zeros(0)
        # 2. Try all ways. Of few bags more are left to learn from, or all would be tried on too
        #    little.
        n_folds = self.n_folds if count >= _BAGS_IN_FOLD * self.n_folds else 2 * self.n_folds
        folds = held_out_folds(self.data, min(n_folds, count), self.seed)
        ways = tuple(self._try_all(weight, folds, min(n_folds, count)))
        # 3. Fit those that the blend needs to all bags.
        blend = blend_weights([way.means for way in ways], self.data.labels, weight)
        members = [
            self._member(share, self._start(way.start, weight, usable), weight, way)
            for share, way in zip(blend.tolist(), ways, strict=True)
            if share > 0
        ]
        return tuple(members), ways, blend

    def predict_bags(self, chosen: AnyArray, weight: FloatArray) -> FloatArray:
        """Fit quickly to the bags in the mask, with weights; return the mean of every bag."""
        used = _where(chosen, weight)
        start = constant_start(self.data, self.model, used, _counts(used))
        growing = self._begin(self._objective(start, used), _PILOT)
        growing.grow(_PILOT_ROUNDS)
        return growing.grow()

    def _try_all(self, weight: FloatArray, folds: IntArray, n_folds: int) -> Iterator[Way]:
        total, done, least = len(self.starts) * len(self.shapes), 0, np.inf
        usable = _counts(weight)
        for name in self.starts:
            kept = [folds != fold for fold in range(n_folds)]
            tried = [STARTS[name](self.data, self.model, weight, usable & here) for here in kept]
            starts = [start for start in tried if start is not None]
            if len(starts) < n_folds:
                continue
            objectives = [
                self._objective(start, _where(here, weight))
                for start, here in zip(starts, kept, strict=True)
            ]
            for shape in self.shapes:
                way = self._try(name, shape, objectives, folds, weight, rival=least)
                least = min(least, way.error)
                yield way
                done += 1
                report_progress("trying ways to boost", done / total)
        report_progress("trying ways to boost", 1.0)

    def _try(
        self,
        start: str,
        shape: Shape,
        objectives: Sequence[BagObjective],
        held_out: IntArray,
        weight: FloatArray,
        *,
        rival: float,
    ) -> Way:
        """Grow all folds side by side until held-out bags have not got better for a while.

        The objective of a fold has weight zero for the bags that it holds out. `rival` is the least
        error of other ways: what is far behind after a while is not followed on.
        """
        growing = [self._begin(objective, shape) for objective in objectives]
        labels = self.data.labels
        best, since = Way(start, shape, 0, np.inf, np.zeros_like(labels)), (0, np.inf)
        for round_ in range(self.most + 1):
            means = np.empty_like(labels)
            for number, fold in enumerate(growing):
                here = held_out == number
                means[here] = fold.grow()[here]
            error = float(np.sum(weight * (means - labels) ** 2) / np.sum(weight))
            if error < best.error:
                best = Way(start, shape, round_, error, means)
            if error < since[1] * (1 - _WORTH_A_ROUND):
                since = round_, error
            hopeless = round_ >= 2 * self.patience and error > _FAR_BEHIND * rival
            late = round_ - since[0] >= self.patience
            if hopeless or late or all(fold.stuck for fold in growing):
                break
        return best

    def _begin(self, objective: BagObjective, shape: Shape) -> Growing:
        """Start without any tree."""
        options = {
            "objective": "none",
            "num_class": objective.labels.shape[1] if self.model.link == SOFTMAX else 1,
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
        return Growing(lightgbm().Booster(options, self.table), objective)

    def _start(self, name: str, weight: FloatArray, usable: AnyArray) -> Start:
        """Start from all bags, which may have no linear fit even if every fold had one."""
        start = STARTS[name](self.data, self.model, weight, usable)
        return start or constant_start(self.data, self.model, weight, usable)

    def _objective(self, start: Start, weight: FloatArray) -> BagObjective:
        scores = start.scores(self.data.X)
        if self.model.link != SOFTMAX:
            scores = scores[:, 0]
        return BagObjective(
            self.data.bags, self.data.labels, weight=weight, link=self.model.link, start=scores
        )

    def _member(
        self, share: float, start: Start, weight: FloatArray, way: Way | None = None
    ) -> Member:
        """Fit all bags by a way; without one, to nothing but the start."""
        growing = self._begin(
            self._objective(start, weight), Shape(2) if way is None else way.shape
        )
        growing.grow(0 if way is None else way.rounds)
        return Member(
            weight=share,
            coef=tuple(map(tuple, start.coef.tolist())),
            intercept=tuple(start.intercept.tolist()),
            low=tuple(start.low.tolist()),
            high=tuple(start.high.tolist()),
            trees=growing.trees(),
        )


def lightgbm() -> ModuleType:
    """Return LightGBM, or say that it is missing; nothing else imports it."""
    if importlib.util.find_spec("lightgbm") is None:
        raise MissingExtraError("BaggedBooster", "boost")
    return importlib.import_module("lightgbm")


def table_of_bins(X: FloatArray, levels: Levels) -> Any:
    """Sort values into bins, once for all trees."""
    table = lightgbm().Dataset(
        np.column_stack(levels.columns(X)),
        label=np.zeros(len(X)),
        categorical_feature=levels.categories,
        params={
            "verbose": -1,
            "use_missing": False,
            "feature_pre_filter": False,
            "min_data_in_bin": 1,
        },
    )
    return table.construct()


def held_out_folds(data: BagData, n_folds: int, seed: int) -> IntArray:
    """Return the fold of each bag; folds differ by one bag at most."""
    order = np.random.default_rng(seed).permutation(data.bags.n_bags)
    fold = np.empty(data.bags.n_bags, dtype=np.int64)
    fold[order] = np.arange(order.size) % n_folds
    return fold


def _counts(weight: FloatArray) -> AnyArray:
    """Return which bags count."""
    return np.asarray(np.any(weight.reshape(len(weight), -1) > 0, axis=1))


def blend_weights(
    predicted: Sequence[FloatArray], labels: FloatArray, weight: FloatArray
) -> FloatArray:
    """Return weights, not negative and adding up to 1, whose blend comes close to the labels.

    They are pulled towards equal ones, as by a belief that each is one in so many, give or take as
    much: few bags, and noisy ones, cannot tell. Equal weights are seldom far from the best
    (Claeskens et al. 2016, Int. J. Forecasting 32), and bag means do not show all that rows are off
    by. Weights below one in twenty are dropped: they cost trees and change nothing.

    Examples
    --------
    >>> labels = np.array([1.0, 2.0, 3.0, 4.0])
    >>> blend_weights([labels + 1, labels - 1, 5 - labels], labels, np.ones(4)).round(6)
    array([0.5, 0.5, 0. ])
    >>> blend_weights([labels + 1, labels + 0.9], labels, np.ones(4)).round(2)    # who can tell?
    array([0.44, 0.56])
    """
    root = np.sqrt(np.ravel(weight))
    target = np.ravel(labels) * root
    columns = np.column_stack([np.ravel(means) * root for means in predicted])
    plain = _weights_of_least_error(columns, target, pull=0.0)
    variance = float(np.mean((columns @ plain - target) ** 2))
    # A normal belief of deviation 1/K about each of K weights is worth so much in squared errors.
    blend = _weights_of_least_error(columns, target, pull=variance * columns.shape[1] ** 2)
    blend = np.where(blend >= _NEGLIGIBLE, blend, 0.0)
    return np.asarray(blend / blend.sum())


def _weights_of_least_error(columns: FloatArray, target: FloatArray, *, pull: float) -> FloatArray:
    """Return weights that add up to 1, with `pull` times their squared distance from equal ones."""
    count = columns.shape[1]
    # A row of its own that outweighs all others makes them add up to 1.
    heavy = 1e4 * max(1e-300, float(np.abs(columns).max()), float(np.abs(target).max()))
    root = np.sqrt(pull)
    weights, _ = nnls(
        np.vstack([columns, root * np.eye(count), np.full(count, heavy)]),
        np.concatenate([target, np.full(count, root / count), [heavy]]),
    )
    return np.asarray(weights / weights.sum())


def _where(chosen: AnyArray, weight: FloatArray) -> FloatArray:
    return np.where(chosen if weight.ndim == 1 else chosen[:, None], weight, 0.0)


def shapes_of(leaves: Sequence[int]) -> tuple[Shape, ...]:
    """Return the shapes to try: the largest trees with drawn cuts, the others with the best ones.

    A single number of leaves is tried with both.

    >>> [(shape.leaves, shape.random_cuts) for shape in shapes_of([4, 8])]
    [(4, False), (8, True)]
    """
    *plain, largest = sorted(set(leaves))
    drawn = Shape(largest, random_cuts=True)
    return (*(Shape(count) for count in plain or [largest]), drawn)

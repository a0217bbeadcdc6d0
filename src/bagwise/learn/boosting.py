"""Grow boosted trees for a bag loss with LightGBM, and choose and blend them on held-out bags.

Every combination of a start and a shape of trees is tried on folds of whole bags, which show its
best number of rounds and its predictions for unseen bags. Held-out bags have weight zero: their
rows are in the data, so that every round predicts them, but they influence no tree. So one table of
bins serves all folds, and no fold has to predict again.

The weights of the blend are those with which held-out predictions come closest to the labels, none
of them negative (stacked regressions; Breiman 1996, Mach. Learn. 24), pulled towards equal ones
where held-out bags are too few to tell. A start that does not help gets no weight. Noise on the
labels adds the same to the error of every way, so that it cannot mislead the choice, only blur it;
what is reported has it taken out.
"""

import importlib
import importlib.util
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from scipy.optimize import nnls

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import BagwiseError, BagwiseWarning, MissingExtraError
from bagwise.families import find_family
from bagwise.glm.data import BagData
from bagwise.learn.bag_objective import BagObjective
from bagwise.learn.estimator import BaggedGLM
from bagwise.models.trees import LINKS, SOFTMAX, Levels, Member, Tree
from bagwise.privacy.noise import LabelKind
from bagwise.show.stages import report_progress

FEWEST_BAGS = 20  # with fewer, held-out bags say nothing, and trees follow chance
_BAGS_IN_FOLD = 20
_BAGS_IN_LEAF = 3.0  # as many as a leaf needs, in units of curvature
_BAGS_TO_TELL = 2000  # held-out bags that tell ways apart: of more bags, fewer folds are tried
_WORTH_A_ROUND = 3e-3  # what the error has to fall by within the rounds of patience
_FAR_BEHIND = 1.5  # times the error of another way: no share of a blend would be left
_SHRINKAGE = 2.0  # a leaf is pulled to zero as by two bags that say nothing
_NEGLIGIBLE = 0.05  # of the blend
_ROUNDS_TOLD = 10  # after which progress is reported
_TRACE = 1e-6  # of the spread of the labels: noise that nobody would notice
_LEAST_SHARE = 0.01  # of a class, where a fit starts
STARTS = ("constant", "glm")


class Shape(NamedTuple):
    """The shape of single trees.

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


class Trial(NamedTuple):
    """One way to boost, with its results on held-out bags.

    Attributes
    ----------
    rounds : int
        At which they were predicted best.
    error : float
        Their mean squared error then, weighted.
    means : (m,) or (m, classes)
        What was predicted for each bag by trees that had not seen it; NaN where all have.
    """

    start: str
    shape: Shape
    rounds: int
    error: float
    means: FloatArray


@dataclass(frozen=True)
class Boosting:
    """The data and settings of boosting; `BaggedBooster` explains the parameters.

    Attributes
    ----------
    link : str
        Of the trees: scores may be any number.
    table : lightgbm.Dataset
        The rows in the form in which trees see them.
    threads : int
        0 for as many as LightGBM likes; trees are the same.
    """

    data: BagData
    family: str
    link: str
    label_kind: LabelKind
    table: Any
    learning_rate: float
    threads: int
    seed: int
    shapes: Sequence[Shape]
    starts: Sequence[str]
    most: int
    patience: int
    n_folds: int

    def run(self, weight: FloatArray) -> tuple[tuple[Member, ...], tuple[Trial, ...], FloatArray]:
        """Return the fits that make up a model, all ways that were tried, and each one's share."""
        # 1. Of few bags only the start is fitted.
        usable = _counts(weight)
        count = int(usable.sum())
        if count < FEWEST_BAGS:
            alone = self._start(self.starts[-1], weight) or self._constant(weight)
            return (alone,), (), np.zeros(0)
        # 2. Try all ways. Of few bags more are left to learn from, or all would be tried on too
        #    little.
        n_folds = self.n_folds if count >= _BAGS_IN_FOLD * self.n_folds else 2 * self.n_folds
        n_folds = min(n_folds, count)
        # Folds differ by one bag at most.
        order = np.random.default_rng(self.seed).permutation(len(usable))
        folds = np.argsort(order) % n_folds
        tried = min(n_folds, math.ceil(_BAGS_TO_TELL * n_folds / count))
        ways = tuple(self._try_all(weight, folds, tried))
        # 3. Fit those that the blend needs to all bags.
        held = folds < tried
        means = [way.means[held] for way in ways]
        blend = blend_weights(means, self.data.labels[held], weight[held])
        members = []
        for number, (share, way) in enumerate(zip(blend.tolist(), ways, strict=True)):
            report_progress("growing the trees of the blend", number / len(ways))
            if share > 0:
                # All bags may have no linear fit even if every fold had one.
                start = self._start(way.start, weight) or self._constant(weight)
                growing = self._begin(start, weight, way.shape)
                growing.grow(way.rounds)
                members.append(replace(start, weight=share, trees=growing.trees()))
        report_progress("growing the trees of the blend", 1.0)
        return tuple(members), ways, blend

    def predict_bags(self, chosen: AnyArray, weight: FloatArray) -> FloatArray:
        """Fit quickly to the bags in the mask, with weights; return the mean of every bag."""
        used = _where(chosen, weight)
        growing = self._begin(self._constant(used), used, _PILOT)
        growing.grow(_PILOT_ROUNDS)
        return growing.grow()

    def _try_all(self, weight: FloatArray, folds: IntArray, n_folds: int) -> Iterator[Trial]:
        ways = list(product(self.starts, self.shapes))
        # Held-out bags have weight zero.
        used = [_where(folds != fold, weight) for fold in range(n_folds)]
        starts = {name: [self._start(name, here) for here in used] for name in self.starts}
        least, none = np.inf, np.zeros_like(self.data.labels)
        for done, (name, shape) in enumerate(ways):
            growing = [
                self._begin(start, here, shape)
                for start, here in zip(starts[name], used, strict=True)
                if start is not None
            ]
            if len(growing) < n_folds:  # some fold has no linear fit
                continue
            best, error_then, since = Trial(name, shape, 0, np.inf, none), np.inf, 0
            for round_, means in enumerate(self._held_out(growing, folds)):
                if round_ % _ROUNDS_TOLD == 0:
                    share = (done + round_ / self.most) / len(ways)
                    report_progress("trying ways to boost", share)
                held = folds < n_folds
                off = weight[held] * (means[held] - self.data.labels[held]) ** 2
                error = float(np.sum(off) / np.sum(weight[held]))
                if error < best.error:
                    best = Trial(name, shape, round_, error, means)
                if error < error_then * (1 - _WORTH_A_ROUND):
                    since, error_then = round_, error
                # What is far behind another way after a while is not followed on.
                hopeless = round_ >= 2 * self.patience and error > _FAR_BEHIND * least
                if hopeless or round_ - since >= self.patience:
                    break
            least = min(least, best.error)
            yield best
        report_progress("trying ways to boost", 1.0)

    def _held_out(self, growing: Sequence["Growing"], folds: IntArray) -> Iterator[FloatArray]:
        """Grow all folds side by side; yield the predictions for held-out bags, round by round."""
        for _ in range(self.most + 1):
            means = np.full_like(self.data.labels, np.nan)
            for number, fold in enumerate(growing):
                here = folds == number
                means[here] = fold.grow()[here]
            yield means
            if all(fold.stuck for fold in growing):
                return

    def _begin(self, start: Member, weight: FloatArray, shape: Shape) -> "Growing":
        """Begin without any tree."""
        data, link = self.data, self.link
        scores = start.scores(data.X, ())
        objective = BagObjective(
            data.bags,
            data.labels,
            weight=weight,
            link=link,
            start=scores if link == SOFTMAX else scores[:, 0],
        )
        options = {
            "objective": "none",
            "num_class": objective.labels.shape[1] if link == SOFTMAX else 1,
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

    def _start(self, name: str, weight: FloatArray) -> Member | None:
        """Return the start that trees are added to; None if there is no fit."""
        return self._constant(weight) if name == "constant" else self._linear(_counts(weight))

    def _constant(self, weight: FloatArray) -> Member:
        """Start from the mean label of the bags, which noise may have moved anywhere."""
        by_bag = weight if weight.ndim == 1 else weight.mean(axis=1)
        mean = np.average(self.data.labels, axis=0, weights=by_bag)
        if self.link == SOFTMAX:
            score: FloatArray = np.log(np.clip(mean, _LEAST_SHARE, 1.0))
        else:
            inside = find_family(self.family).interior(float(mean))
            score = np.atleast_1d(LINKS[self.link].score(np.asarray(inside)))
        return _without_trees(np.zeros((score.size, self.data.X.shape[1])), score, score, score)

    def _linear(self, chosen: AnyArray) -> Member | None:
        """Start from a linear fit to the chosen bags, shrunk as far as the labels suggest.

        Centroids stand for their bags, which is exact for the identity link, and near enough for a
        start for others. Trees learn what is left.
        """
        if np.count_nonzero(chosen) < 2:  # one bag says nothing about any slope
            return None
        data, rows = self.data, chosen[self.data.bags.index]
        glm = BaggedGLM(self.family, "aggregate", label_kind=self.label_kind)
        # Without known noise nothing would be shrunk, and few bags would not bear many columns.
        trace = _TRACE * float(np.std(data.labels)) + np.finfo(float).tiny
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", BagwiseWarning)
            try:
                glm.fit(
                    data.X[rows],
                    data.bags.repeat(data.labels)[rows],
                    bags=data.bags.index[rows],
                    noise_sd=data.bags.repeat(np.maximum(data.noise_sd, trace))[rows],
                    sample_weight=data.bags.repeat(data.weight)[rows],
                )
            except BagwiseError:  # such as labels that the family cannot have
                return None
        if not glm.converged_:
            return None
        coef, intercept = np.atleast_2d(glm.coef_), np.atleast_1d(glm.intercept_)
        if self.link == SOFTMAX:  # against the first class, whose scores are zero
            coef = np.vstack([np.zeros_like(coef[:1]), coef])
            intercept = np.append(0.0, intercept)
        scores = data.X[rows] @ coef.T + intercept
        return _without_trees(coef, intercept, scores.min(axis=0), scores.max(axis=0))


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
        """Return the trees for each output."""
        outputs = 1 if self.objective.labels.ndim == 1 else self.objective.labels.shape[1]
        info = self.booster.dump_model()["tree_info"]
        trees = [Tree.from_lightgbm(tree["tree_structure"]) for tree in info]
        return tuple(tuple(trees[output::outputs]) for output in range(outputs))


def _without_trees(
    coef: FloatArray, intercept: FloatArray, low: FloatArray, high: FloatArray
) -> Member:
    return Member(
        weight=1.0,
        coef=tuple(map(tuple, coef.tolist())),
        intercept=tuple(intercept.tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        trees=((),) * len(coef),
    )


def lightgbm() -> ModuleType:
    """Return LightGBM, or report that it is missing; nothing else imports it."""
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

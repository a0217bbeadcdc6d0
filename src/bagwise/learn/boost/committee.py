"""Choose by held-out bags how to boost, and blend the ways that held-out bags speak for.

Every way, a start and a shape of trees, is tried on folds of whole bags (`try_out`), which tells
its best number of rounds and what it predicts for bags that it has not seen. The weights of the
blend are those with which these predictions come closest to the labels, none of them negative
(stacked regressions; Breiman 1996, Mach. Learn. 24), pulled towards equal ones where held-out bags
are too few to tell. A start that does not help gets no weight.

Noise on the labels adds the same to the error of every way, so that it cannot mislead the choice,
only blur it; what is reported has it taken out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.learn.bag_data import BagData
from bagwise.learn.boost.growing import Growth, Shape, Tried, grow_all, held_out_folds, try_out
from bagwise.learn.boost.objective import BagObjective
from bagwise.learn.boost.starts import STARTS, LabelModel, Start, constant_start
from bagwise.models.links import SOFTMAX
from bagwise.models.trees import Member
from bagwise.show.stages import report_progress

FEWEST_BAGS = 20  # with fewer, held-out bags say nothing, and trees follow chance
_BAGS_IN_FOLD = 20
_PILOT_ROUNDS, _PILOT = 100, Shape(leaves=8)
_NEGLIGIBLE = 0.05  # of the blend


@dataclass(frozen=True)
class Way:
    """One way to boost, and what held-out bags say of it."""

    start: str
    shape: Shape
    tried: Tried


@dataclass(frozen=True)
class Committee:
    """The fits that make up a model.

    Attributes
    ----------
    members : tuple of Member
        Their weights add up to 1.
    ways : tuple of Way
        All that were tried.
    blend : (ways,)
        The weight of each.
    """

    members: tuple[Member, ...]
    ways: tuple[Way, ...]
    blend: FloatArray


@dataclass(frozen=True)
class Boosting:
    """What to learn from, and how; `BaggedBooster` explains the parameters."""

    data: BagData
    model: LabelModel
    growth: Growth
    shapes: Sequence[Shape]
    starts: Sequence[str]
    most: int
    patience: int
    n_folds: int

    def run(self, weight: FloatArray) -> Committee:
        """Try all ways, and fit those that the blend needs to all bags."""
        usable = self._counts(weight)
        count = int(usable.sum())
        if count < FEWEST_BAGS:
            start = self._start_of_all(self.starts[-1], weight, usable)
            alone = self._member(1.0, start, Shape(2), 0, weight)
            return Committee((alone,), (), np.zeros(0))
        # Of few bags more are left to learn from, or all ways would be tried on too little.
        n_folds = self.n_folds if count >= _BAGS_IN_FOLD * self.n_folds else 2 * self.n_folds
        n_folds = min(n_folds, count)
        folds = held_out_folds(self.data, n_folds, self.growth.seed)
        ways = tuple(self._try_all(weight, folds, n_folds))
        blend = blend_weights([way.tried.means for way in ways], self.data.labels, weight)
        members = []
        for share, way in zip(blend.tolist(), ways, strict=True):
            if share > 0:
                start = self._start_of_all(way.start, weight, usable)
                members.append(self._member(share, start, way.shape, way.tried.rounds, weight))
        return Committee(tuple(members), ways, blend)

    def predict_bags(self, chosen: AnyArray, weight: FloatArray) -> FloatArray:
        """Fit quickly to the bags in the mask, with weights; return the mean of every bag."""
        used = _where(chosen, weight)
        start = constant_start(self.data, self.model, used, self._counts(used))
        growing = grow_all(self.growth, _PILOT, self._objective(start, used), _PILOT_ROUNDS)
        return growing.grow()

    def _try_all(self, weight: FloatArray, folds: IntArray, n_folds: int) -> Iterator[Way]:
        total, done, least = len(self.starts) * len(self.shapes), 0, np.inf
        usable = self._counts(weight)
        for name in self.starts:
            found = [self._start(name, weight, usable & (folds != f)) for f in range(n_folds)]
            starts = [start for start in found if start is not None]
            if len(starts) < n_folds:
                continue
            objectives = [
                self._objective(start, _where(folds != number, weight))
                for number, start in enumerate(starts)
            ]
            for shape in self.shapes:
                tried = try_out(
                    self.growth, shape, objectives, folds, weight,
                    most=self.most, patience=self.patience, rival=least,
                )  # fmt: skip
                least = min(least, tried.error)
                yield Way(name, shape, tried)
                done += 1
                report_progress("trying ways to boost", done / total)
        report_progress("trying ways to boost", 1.0)

    def _start(self, name: str, weight: FloatArray, chosen: AnyArray) -> Start | None:
        return STARTS[name](self.data, self.model, weight, chosen)

    def _start_of_all(self, name: str, weight: FloatArray, usable: AnyArray) -> Start:
        """Start from all bags, which may have no linear fit even if every fold had one."""
        found = self._start(name, weight, usable)
        return found or constant_start(self.data, self.model, weight, usable)

    def _objective(self, start: Start, weight: FloatArray) -> BagObjective:
        scores = start.scores(self.data.X)
        if self.model.link != SOFTMAX:
            scores = scores[:, 0]
        return BagObjective(
            self.data.bags, self.data.labels, weight=weight, link=self.model.link, start=scores
        )

    def _member(
        self, share: float, start: Start, shape: Shape, rounds: int, weight: FloatArray
    ) -> Member:
        growing = grow_all(self.growth, shape, self._objective(start, weight), rounds)
        return Member(
            weight=share,
            coef=tuple(map(tuple, start.coef.tolist())),
            intercept=tuple(start.intercept.tolist()),
            low=tuple(start.low.tolist()),
            high=tuple(start.high.tolist()),
            trees=growing.trees(),
        )

    @staticmethod
    def _counts(weight: FloatArray) -> AnyArray:
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
    found = _weights_of_least_error(columns, target, pull=variance * columns.shape[1] ** 2)
    found = np.where(found >= _NEGLIGIBLE, found, 0.0)
    return np.asarray(found / found.sum())


def _weights_of_least_error(columns: FloatArray, target: FloatArray, *, pull: float) -> FloatArray:
    """Return weights that add up to 1, with `pull` times their squared distance from equal ones."""
    count = columns.shape[1]
    # A row of its own that outweighs all others makes them add up to 1.
    heavy = 1e4 * max(1e-300, float(np.abs(columns).max()), float(np.abs(target).max()))
    root = np.sqrt(pull)
    found, _ = nnls(
        np.vstack([columns, root * np.eye(count), np.full(count, heavy)]),
        np.concatenate([target, np.full(count, root / count), [heavy]]),
    )
    return np.asarray(found / found.sum())


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

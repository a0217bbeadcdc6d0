"""Queries on the labels, and how far one unit can move their answers.

A query is a frozen record of public numbers. It knows how far the labels of one protected unit move
its answer, in each norm for which somebody has worked that out, and what can be recomputed of the
answer from outside. The noise is a matter of the law that goes with it (`Mechanism`): most queries
have one for all numbers, and picks one for each size of bag.

All answers are whole multiples of a public grid (`grid`), so that moves are whole numbers of steps.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from operator import attrgetter
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import BudgetError, CertificateError
from bagwise.files.records import Record
from bagwise.privacy.curves import Curve, GaussianCurve, GroupCurve, PickCurve, WorstCurve
from bagwise.privacy.dispersion import ClaimedNoise
from bagwise.privacy.grid import LABEL_STEPS, LOSS_STEPS, grid_step, labels_to_steps, one_hot
from bagwise.privacy.laws.law import LARGEST_COUNT, Law, Move, Norm, exported_coin
from bagwise.privacy.laws.randomised_response import RandomisedResponse, keep_or_replace
from bagwise.privacy.laws.unbiased import CHANCES, Unbiased
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds

Laws = tuple[Law, ...]
Draw = Callable[[int], FloatArray]

LARGEST_REACH = 2**62
"""Steps that a unit may move an answer by: noise is drawn on 64-bit integers."""

MOST_SIZES = 10_000
"""Sizes of bags that a query may list. So many different ones take fifty million rows."""

_UPWARDS = 1 + 2.0**-48
"""The logarithms of a cost are right to a few units in the last place; this is more than those."""

_SHARP = 1e-6
"""What a density is smoothed by, in standard deviations of the noise: as good as not at all."""


class Frequencies(NamedTuple):
    """How often each label is reported, and the ends of its chance, whatever the true ones are."""

    counts: IntArray
    least: FloatArray
    most: FloatArray


class Query(Record, frozen=True, kw_only=False, tag_field="kind"):
    """A map of the labels whose answer is hidden by a law."""

    labels_bags: ClassVar[bool] = False
    """Whether the answers are the labels of bags."""
    bounds_groups: ClassVar[bool] = False
    """Whether several rows of a unit are covered by the bound for groups, with scores before it."""

    @classmethod
    def called(cls) -> str:
        """Return the name that certificates use for it."""
        return str(attrgetter("__struct_config__.tag")(cls))

    @property
    def hides(self) -> str:
        """The hidden quantity, in a word or two."""
        return self.called().replace("-", " ")

    @property
    def grid_step(self) -> float:
        """The width of a step of the answers."""
        raise AssertionError(f"the {self.hides} are not on a grid")

    @property
    def unit_rows(self) -> int:
        """The number of rows of a unit that it allows for, by default its own `rows`."""
        return int(attrgetter("rows")(self))

    @property
    def bag_sizes(self) -> tuple[int, ...]:
        """Sizes of bags that have a law each; none if one law is for all."""
        return ()

    @property
    @abstractmethod
    def moves(self) -> dict[Norm, Move]:
        """How far the labels of one unit move the answer, in each norm with a known cost."""

    def move(self, norm: Norm) -> Move:
        """Return how far the labels of one unit move the answer in a norm."""
        return self.moves[norm]

    def check(self, bounds: Bounds) -> None:
        """Raise CertificateError if no release within these bounds could ask this."""
        del bounds
        if not 1 <= self.unit_rows <= LARGEST_COUNT:
            raise impossible(self)

    def curve(self, laws: Laws, units: int) -> Curve:
        """Return delta at any epsilon >= 0, for the labels of so many units together."""
        move = self.move(laws[0].norm)
        return laws[0].curve(move._replace(times=move.times * units))

    def pure_epsilon(self, laws: Laws, units: int) -> Fraction | None:
        """Return what the labels of so many units cost without a delta; None if they need one."""
        move = self.move(laws[0].norm)
        return laws[0].pure_epsilon(move._replace(times=move.times * units))

    def extremes(self, laws: Laws) -> tuple[float, int] | None:
        """Return bounds of the curve of every size at once, for picks with Gaussian noise."""
        del laws
        return None

    def neighbours(self, laws: Laws, source: NoiseSource) -> list[tuple[Draw, Draw]]:
        """Return draws on the two tables easiest to tell apart, for every possible worst case."""
        law, move = laws[0], self.move(laws[0].norm)
        return [
            (
                lambda count: law.scores(move, count, source, moved=True),
                lambda count: law.scores(move, count, source, moved=False),
            )
        ]

    def exported(self, laws: Laws, google: Any) -> list[Any]:
        """Return it as events of Google's dp-accounting."""
        return [laws[0].exported(self.move(laws[0].norm), google)]


class BagLabels(Query, frozen=True, kw_only=False, tag_field="kind"):
    """A query whose answers are the labels of bags."""

    labels_bags: ClassVar[bool] = True
    combine: ClassVar[Literal["sum", "mean", "pick"]] = "sum"
    """What a bag has of its rows."""

    def measure(self, labels: AnyArray, bounds: Bounds, classes: int) -> AnyArray:
        """Return the contribution of each row: whole steps, in one amount or more."""
        del classes
        return labels_to_steps(labels, bounds=bounds, step=self.grid_step)

    @abstractmethod
    def hide(self, laws: Laws, told: AnyArray, sizes: IntArray, source: NoiseSource) -> FloatArray:
        """Return the labels of bags above the lower bound: (bags,), or (bags, classes).

        It is `told` what the rows of each bag have together, (amounts, bags).
        """

    @abstractmethod
    def noise_sd(self, laws: Laws, sizes: IntArray) -> FloatArray:
        """Return the standard deviation of the noise on the label of a bag of each size."""

    def claimed_noise(self, laws: Laws, sizes: IntArray) -> ClaimedNoise | None:
        """Return the noise on each bag label; None where labels are replaced, not moved."""
        del laws, sizes
        return None

    def suits_classes(self, laws: Laws, classes: int | None) -> bool:
        """Return whether it suits a label with this many classes; None stands for a number."""
        del laws
        return classes is None

    def contradiction(
        self, laws: Laws, labels: FloatArray, sizes: IntArray, low: float
    ) -> str | None:
        """Return why these answers cannot be labels of bags; None if they can."""
        del laws, labels, sizes, low
        return None

    def frequencies(self, laws: Laws, labels: FloatArray, sizes: IntArray) -> Frequencies | None:
        """Return how often each label is reported; None where labels are moved, not replaced."""
        del laws, labels, sizes
        return None

    def log_likelihood(
        self, laws: Laws, shown: FloatArray, exact: FloatArray, sizes: IntArray
    ) -> FloatArray:
        """Return the log likelihood of bag labels given the exact ones, up to a constant.

        Both are (bags,), or (bags, classes).
        """
        off = (shown - exact).T / self.noise_sd(laws, sizes)
        value, _ = laws[0].terms(off, np.full(off.shape, _SHARP))
        return np.asarray(np.atleast_2d(value).sum(axis=0))


def root_steps(square: int) -> int:
    """Return the root of a square, in label steps, rounded up in integers: no float ends below."""
    return math.isqrt(max(0, LABEL_STEPS**2 * square - 1)) + 1


def impossible(query: Query) -> CertificateError:
    """Return the error for impossible parameters."""
    return CertificateError(f"the query for {query.hides} has impossible parameters.")


def check_grid(query: Query, bounds: Bounds) -> None:
    """Refuse a step that does not fit labels within these bounds."""
    if not (math.isfinite(query.grid_step) and query.grid_step > 0):
        raise impossible(query)
    if not math.isclose(query.grid_step, (bounds[1] - bounds[0]) / LABEL_STEPS, rel_tol=1e-9):
        raise CertificateError(f"the query for {query.hides} is not on the grid of its bounds.")


class BagMeans(BagLabels, frozen=True, tag="bag-means"):
    """The label sum of every bag, later divided by the bag's size.

    Sensitivity: bags are disjoint. The r labels of a unit move the sums by r times the width of the
    bounds in L1, however they are spread over bags, and in L2 by the width times the root of the
    sum over bags of the unit's squared rows there. One number moves by r widths if all of a unit's
    rows are in one bag; else r numbers move by one width each.

    Attributes
    ----------
    rows : int
        Rows of a unit, at most.
    square : int
        Sum over bags of the squared number of a unit's rows in each, at most.
    together : bool
        Whether all rows of a unit are in one bag.
    """

    numbers_moved: ClassVar[int] = 1
    """Sums that one row moves: the move of a unit is so many times as large, or as many."""

    grid_step: float
    rows: int = 1
    square: int = 1
    together: bool = True

    @classmethod
    def of(
        cls, bounds: Bounds, *, rows: int = 1, square: int = 1, touched: int | None = None
    ) -> Self:
        """Return the query for units of `rows` rows in at most `touched` bags (None: `rows`)."""
        if square > rows**2:  # an L2 length is at most that in L1
            raise BudgetError(f"a unit of {rows} rows moves bag sums by {rows} labels at most.")
        together = (rows if touched is None else touched) == 1
        return cls(grid_step(bounds), rows, max(square, rows), together)

    @property
    def unit_rows(self) -> int:
        """Rows of a unit; in different bags they count by the root of their number."""
        return min(self.rows, self.square)

    @property
    def moves(self) -> dict[Norm, Move]:
        """How far the labels of one unit move the sums."""
        moved = self.numbers_moved * self.rows
        one_number = self.together and self.numbers_moved == 1
        return {
            "L1": Move(LABEL_STEPS * moved),
            "L2": Move(root_steps(self.numbers_moved * self.square)),
            "number": Move(LABEL_STEPS * moved) if one_number else Move(LABEL_STEPS, moved),
        }

    def check(self, bounds: Bounds) -> None:
        """Refuse parameters that no release within these bounds could have."""
        if not 1 <= self.rows <= LARGEST_COUNT or not self.rows <= self.square <= self.rows**2:
            raise impossible(self)
        if self.rows == 1 and not self.together:
            raise impossible(self)
        check_grid(self, bounds)

    def hide(self, laws: Laws, told: AnyArray, sizes: IntArray, source: NoiseSource) -> FloatArray:
        """Return noisy means of bags with these sums of steps."""
        noisy = told[0] + laws[0].draw(told.size, source)
        return np.asarray(self.grid_step * noisy / sizes)

    def noise_sd(self, laws: Laws, sizes: IntArray) -> FloatArray:
        """Return the standard deviation of the noise on the mean of a bag of each size."""
        return laws[0].sd * self.grid_step / np.asarray(sizes)

    def claimed_noise(self, laws: Laws, sizes: IntArray) -> ClaimedNoise:
        """Return the noise on each mean."""
        return ClaimedNoise(sizes / self.grid_step, laws[0].within, laws[0].beyond)

    def contradiction(
        self, laws: Laws, labels: FloatArray, sizes: IntArray, low: float
    ) -> str | None:
        """Return what is wrong with sums that are not whole steps, as far as doubles can tell."""
        del laws
        each = sizes if labels.ndim == 1 else sizes[:, None]
        steps = (labels - low) * each / self.grid_step
        rounding = 8 * np.finfo(float).eps * (np.abs(labels) + abs(low)) * each / self.grid_step
        sure = rounding < 0.01
        if np.any(np.abs(steps - np.rint(steps))[sure] > 0.02):
            return "bag labels are not on the grid that their noise is drawn on."
        return None


class ClassShares(BagMeans, frozen=True, tag="class-shares"):
    """The count of every class in every bag, later divided by the bag's size.

    Sensitivity: a count is the sum of a label that is 0 or 1. A row that changes its class moves
    two of them by one: twice as far in L1, root 2 times as far in L2, and two numbers.
    """

    numbers_moved: ClassVar[int] = 2

    def measure(self, labels: AnyArray, bounds: Bounds, classes: int) -> AnyArray:
        """Return one whole label in the column of each row's class, and zeros in the others."""
        del bounds
        if labels.min() < 0 or labels.max() >= classes:
            raise AssertionError("labels were found to be classes before")
        return LABEL_STEPS * one_hot(labels, classes).T

    def hide(self, laws: Laws, told: AnyArray, sizes: IntArray, source: NoiseSource) -> FloatArray:
        """Return noisy shares of classes."""
        noisy = told.T + laws[0].draw(told.size, source).reshape(told.T.shape)
        return self.grid_step * noisy / sizes[:, None]

    def suits_classes(self, laws: Laws, classes: int | None) -> bool:
        """Return whether there are classes."""
        del laws
        return classes is not None


class Labels(Query, frozen=True, tag="labels"):
    """Every label, to sort rows by; any use of the noisy labels is post-processing.

    Sensitivity: the r labels of a unit move by the width of the bounds each: r times it in L1, root
    r times it in L2.
    """

    grid_step: float
    rows: int = 1

    @property
    def moves(self) -> dict[Norm, Move]:
        """How far the labels of one unit move."""
        return {"L1": Move(LABEL_STEPS * self.rows), "L2": Move(root_steps(self.rows))}

    def check(self, bounds: Bounds) -> None:
        """Refuse parameters that no release within these bounds could have."""
        super().check(bounds)
        check_grid(self, bounds)


class Statistic(Query, frozen=True, tag="model"):
    """The statistics ``sum_i b_i y_i`` of a model, whose columns b_i have length one in a norm.

    Sensitivity: `private_model` rounds columns and labels to integers before they meet, and states
    how far one label moves the rounded sum in the norm of its columns. The labels of a unit may all
    move it the same way.

    Attributes
    ----------
    reach : int
        How far all labels of a unit move the sum, in grid steps.
    norm : {"L1", "L2"}
        In which the columns have length one.
    """

    grid_step: float
    reach: int
    norm: Literal["L1", "L2"]

    @property
    def unit_rows(self) -> int:
        """Rows of a unit: each moves the sum by a label at least."""
        return self.reach // LABEL_STEPS

    @property
    def moves(self) -> dict[Norm, Move]:
        """How far the labels of one unit move the sum; columns are made for one norm."""
        return {self.norm: Move(self.reach)}

    def check(self, bounds: Bounds) -> None:
        """Refuse parameters that no release within these bounds could have."""
        if not LABEL_STEPS <= self.reach <= LARGEST_REACH:
            raise impossible(self)
        check_grid(self, bounds)


class MeanLoss(Query, frozen=True, tag="mean-loss"):
    """The summed losses of a model on rows, later divided by their number.

    Its grid is in units of the loss, and `LOSS_STEPS` steps are the largest that a row counts with.
    Sensitivity: `private_loss` adds up what each row of a unit can lose at most.

    Attributes
    ----------
    reach : int
        How far the labels of a unit move the sum, in grid steps.
    """

    grid_step: float
    reach: int

    @property
    def unit_rows(self) -> int:
        """Rows of a unit, by the least that they can lose, whatever is predicted (`private_loss`).

        A prediction has a bound at least half the width away: a quarter of the largest square.
        """
        return 4 * self.reach // LOSS_STEPS

    @property
    def moves(self) -> dict[Norm, Move]:
        """How far the labels of one unit move the sum: one number."""
        return {"L1": Move(self.reach)}

    def check(self, bounds: Bounds) -> None:
        """Refuse parameters that no loss within these bounds could have."""
        usual = math.isfinite(self.grid_step) and self.grid_step > 0
        if not usual or not 1 <= self.reach <= LARGEST_REACH:
            raise impossible(self)
        width = bounds[1] - bounds[0]
        # The largest loss may have been set anywhere below the one that the bounds allow.
        if self.grid_step * LOSS_STEPS > max(width, width**2) * (1 + 1e-9):
            raise CertificateError("the query for mean loss is not on the grid of its bounds.")
        if self.unit_rows < 1:
            raise CertificateError("the query for mean loss does not fit the bounds.")


class SingleLabels(BagLabels, frozen=True, tag="single-labels"):
    """Every label by itself, as the label of a bag of one row.

    Sensitivity: any label becomes any other; the labels of a unit are reported one by one.

    Attributes
    ----------
    low, high : float
        What labels are clipped to.
    rows : int
        Rows of a unit, at most.
    """

    combine: ClassVar[Literal["sum", "mean", "pick"]] = "mean"

    low: float
    high: float
    rows: int = 1

    @classmethod
    def of(cls, bounds: Bounds, rows: int) -> Self:
        """Return the query for labels within bounds, for units of so many rows."""
        return cls(float(bounds[0]), float(bounds[1]), rows)

    @property
    def moves(self) -> dict[Norm, Move]:
        """The change of this many labels into any others."""
        return {"label": Move(times=self.rows)}

    def check(self, bounds: Bounds) -> None:
        """Refuse parameters that no release within these bounds could have."""
        super().check(bounds)
        if (self.low, self.high) != (float(bounds[0]), float(bounds[1])):
            raise CertificateError("the query for single labels does not fit the bounds.")

    def reported(self, laws: Laws) -> FloatArray:
        """Return the numbers that may be reported, in units of the label."""
        return self.low + (self.high - self.low) * np.array(cast(Unbiased, laws[0]).outputs)

    def scaled(self, labels: FloatArray) -> FloatArray:
        """Return labels, clipped, as parts of the width of the bounds."""
        return np.asarray(np.clip(labels, self.low, self.high) - self.low) / (self.high - self.low)

    def measure(self, labels: AnyArray, bounds: Bounds, classes: int) -> AnyArray:
        """Return labels unchanged."""
        del bounds, classes
        return labels

    def hide(self, laws: Laws, told: AnyArray, sizes: IntArray, source: NoiseSource) -> FloatArray:
        """Return the reported value of each label, drawn from a table of chances."""
        del sizes
        law = cast(Unbiased, laws[0])
        points = law.round(self.scaled(told[0]), source)
        return (self.high - self.low) * np.array(law.outputs)[law.randomise(points, source)]

    def noise_sd(self, laws: Laws, sizes: IntArray) -> FloatArray:
        """Return the root mean square of the noise, over all labels alike."""
        return np.where(np.asarray(sizes) == 1, (self.high - self.low) * laws[0].sd, np.nan)

    def contradiction(
        self, laws: Laws, labels: FloatArray, sizes: IntArray, low: float
    ) -> str | None:
        """Return what is wrong with labels that the table of chances does not report."""
        del low
        if sizes.max() > 1:
            return "single labels are those of bags of one row, and these have more."
        possible = self.reported(laws)
        off = np.abs(labels - possible[_nearest(labels, possible)])
        if np.any(off > 1e-9 * (self.high - self.low)):
            return "some labels are none of those that the certificate says are reported."
        return None

    def frequencies(self, laws: Laws, labels: FloatArray, sizes: IntArray) -> Frequencies:
        """Return how often each output is reported."""
        del sizes
        possible = self.reported(laws)
        counts = np.bincount(_nearest(labels, possible), minlength=possible.size)
        chances = np.array(cast(Unbiased, laws[0]).chances) / CHANCES
        return Frequencies(counts, chances.min(axis=0), chances.max(axis=0))

    def log_likelihood(
        self, laws: Laws, shown: FloatArray, exact: FloatArray, sizes: IntArray
    ) -> FloatArray:
        """Return the logarithm of the chance of what was reported."""
        del sizes
        place = _nearest(shown, self.reported(laws))[:, None]
        shares = cast(Unbiased, laws[0]).shares_of(self.scaled(exact))
        return np.asarray(np.log(np.take_along_axis(shares, place, axis=1)[:, 0]))


def _nearest(values: FloatArray, possible: FloatArray) -> IntArray:
    """Return which of some numbers, in their order, is nearest to each value."""
    middles = (possible[1:] + possible[:-1]) / 2
    return np.searchsorted(middles, values)


class Picks(BagLabels, frozen=True):
    """One label of each bag, drawn in secret; each size of bag has a law of its own.

    Curve: a label that is shown with probability 1/k, and costs what a curve c says if it is, costs
    ``c(log(1 + k (e^epsilon - 1))) / k`` (P1 on the theory page): attained when all other rows of
    the bag agree. Without a delta that is ``log(1 + (e^epsilon - 1) / k)``. A label is in one bag
    only, so all bags together cost what the worst one costs. Several rows of a unit are covered by
    the bound for groups.

    Attributes
    ----------
    sizes : tuple of int
        The sizes of bags that occur, in order.
    rows : int
        Rows of a unit, at most.
    """

    combine: ClassVar[Literal["sum", "mean", "pick"]] = "pick"

    sizes: tuple[int, ...]
    rows: int

    @property
    def bag_sizes(self) -> tuple[int, ...]:
        """The sizes of bags."""
        return self.sizes

    def check(self, bounds: Bounds) -> None:
        """Refuse impossible sizes of bags and numbers of rows in a unit."""
        super().check(bounds)
        if not 1 <= len(self.sizes) <= MOST_SIZES or list(self.sizes) != sorted(set(self.sizes)):
            raise impossible(self)
        if not 1 <= self.sizes[0] <= self.sizes[-1] <= LARGEST_COUNT:
            raise impossible(self)

    def curve(self, laws: Laws, units: int) -> Curve:
        """Return the curve of the worst size, for all rows of so many units."""
        pairs, rows = zip(self.sizes, laws, strict=True), self.rows * units
        each = [PickCurve(law.curve(self.move(law.norm)), size) for size, law in pairs]
        one = each[0] if len(each) == 1 else WorstCurve(tuple(each))
        return one if rows == 1 else GroupCurve(one, rows)

    def cost(self, law: Law, size: int) -> float:
        """Return what a pick among so many rows costs without a delta; rounded up."""
        return math.log1p(law.growth(self.move(law.norm)) / size) * _UPWARDS

    def pure_epsilon(self, laws: Laws, units: int) -> Fraction | None:
        """Return what all rows of so many units cost together."""
        if any(law.needs_delta for law in laws):
            return None
        each = (self.cost(law, size) for size, law in zip(self.sizes, laws, strict=True))
        return self.rows * units * Fraction(max(each))

    def neighbours(self, laws: Laws, source: NoiseSource) -> list[tuple[Draw, Draw]]:
        """Return draws of the smallest and the largest bag: between them, chances fall like noise.

        All other labels of the bag are at one end, and the changed one is picked or not.
        """

        def pair(size: int, law: Law) -> tuple[Draw, Draw]:
            move = self.move(law.norm)

            def unmoved(count: int) -> FloatArray:
                return law.scores(move, count, source, moved=False)

            def picked(count: int) -> FloatArray:
                chosen = source.index_below(np.full(count, size)) == 0
                moved = law.scores(move, count, source, moved=True)
                return np.where(chosen, moved, unmoved(count))

            return picked, unmoved

        both = list(zip(self.sizes, laws, strict=True))
        return [pair(*each) for each in {0: both[0], len(both) - 1: both[-1]}.values()]

    def by_size(self, sizes: IntArray, values: Sequence[float]) -> FloatArray:
        """Return the value of each bag's size; NaN for a size that has none."""
        known = dict(zip(self.sizes, values, strict=True))
        return np.array([known.get(size, np.nan) for size in sizes.tolist()])

    def exported(self, laws: Laws, google: Any) -> list[Any]:
        """Return events of dp-accounting: one for each size, or the worst of its cost.

        It has mixtures of Gaussians only.
        """
        pure = self.pure_epsilon(laws, 1)
        if pure is not None:
            return [exported_coin(float(pure), google)]
        return [
            google.MixtureOfGaussiansDpEvent(
                law.sd / LABEL_STEPS, [0.0, 1.0], [1 - 1 / size, 1 / size]
            )
            for size, law in zip(self.sizes, laws, strict=True)
        ]


class BagPicks(Picks, frozen=True, tag="bag-picks"):
    """One label of each bag, with noise by the bag's size."""

    bounds_groups: ClassVar[bool] = True

    grid_step: float

    @classmethod
    def of(cls, bounds: Bounds, sizes: Iterable[int], rows: int) -> Self:
        """Return the query for labels within bounds, and bags of these sizes."""
        return cls(tuple(sorted(set(sizes))), rows, grid_step(bounds))

    @property
    def moves(self) -> dict[Norm, Move]:
        """How far one label moves: the width of the bounds."""
        return {"L1": Move(LABEL_STEPS), "L2": Move(LABEL_STEPS)}

    def check(self, bounds: Bounds) -> None:
        """Refuse parameters that no release within these bounds could have."""
        super().check(bounds)
        check_grid(self, bounds)

    def extremes(self, laws: Laws) -> tuple[float, int] | None:
        """Return the largest mu and the smallest size: bounds of the curve of every size at once.

        None unless the noise is Gaussian, for which P2 has a closed form after scores.
        """
        curves = [law.curve(self.move(law.norm)) for law in laws]
        mus = [curve.mu for curve in curves if isinstance(curve, GaussianCurve)]
        return (max(mus), self.sizes[0]) if len(mus) == len(curves) else None

    def hide(self, laws: Laws, told: AnyArray, sizes: IntArray, source: NoiseSource) -> FloatArray:
        """Return picked labels with the noise of each size."""
        noisy = told[0].copy()
        for size, law in zip(self.sizes, laws, strict=True):
            here = np.flatnonzero(sizes == size)
            noisy[here] += law.draw(here.size, source)
        return np.asarray(self.grid_step * noisy.astype(np.float64))

    def noise_sd(self, laws: Laws, sizes: IntArray) -> FloatArray:
        """Return the standard deviation of the noise on a bag of each size; NaN if it has none."""
        return self.grid_step * self.by_size(sizes, [law.sd for law in laws])

    def claimed_noise(self, laws: Laws, sizes: IntArray) -> ClaimedNoise:
        """Return the noise on each label."""

        def each(chance: str, steps: FloatArray) -> FloatArray:
            chances = np.full(steps.shape, np.nan)
            for size, law in zip(self.sizes, laws, strict=True):
                here = sizes == size
                chances[here] = getattr(law, chance)(steps[here])
            return chances

        return ClaimedNoise(
            np.full(sizes.size, 1 / self.grid_step),
            lambda steps: each("within", steps),
            lambda steps: each("beyond", steps),
        )


class ClassPicks(Picks, frozen=True, tag="class-picks"):
    """The class of one row of each bag, kept by a chance that depends on the bag's size."""

    @property
    def moves(self) -> dict[Norm, Move]:
        """The change of one class into any other."""
        return {"class": Move()}

    def keep_chances(self, laws: Laws, sizes: IntArray) -> FloatArray:
        """Return the chance of keeping the class for each bag; NaN for a size that has none."""
        return self.by_size(sizes, [law.keep for law in _responses(laws)])

    def measure(self, labels: AnyArray, bounds: Bounds, classes: int) -> AnyArray:
        """Return classes unchanged."""
        del bounds, classes
        return labels

    def hide(self, laws: Laws, told: AnyArray, sizes: IntArray, source: NoiseSource) -> FloatArray:
        """Return what an unbiased estimate makes of each picked class, kept or replaced."""
        keep, classes = self.keep_chances(laws, sizes), _responses(laws)[0].classes
        return self.estimates(laws, keep_or_replace(told[0], keep, classes, source), sizes)

    def estimates(self, laws: Laws, reported: IntArray, sizes: IntArray) -> FloatArray:
        """Return an unbiased estimate of each class's share in each bag, (m, classes)."""
        estimates = np.full((sizes.size, _responses(laws)[0].classes), np.nan)
        for size, law in zip(self.sizes, _responses(laws), strict=True):
            here = sizes == size
            estimates[here] = law.estimates(reported[here])
        return estimates

    def noise_sd(self, laws: Laws, sizes: IntArray) -> FloatArray:
        """Return the standard deviation of the estimated share of a class."""
        return self.by_size(sizes, [law.sd for law in laws])

    def suits_classes(self, laws: Laws, classes: int | None) -> bool:
        """Return whether its laws name as many classes."""
        return all(law.classes == classes for law in _responses(laws))

    def contradiction(
        self, laws: Laws, labels: FloatArray, sizes: IntArray, low: float
    ) -> str | None:
        """Return why numbers cannot come from one reported class per bag; None if they can."""
        del low
        expected = self.estimates(laws, labels.argmax(axis=1), sizes)
        if not np.allclose(labels, expected, rtol=1e-9, atol=1e-12):
            return "bag labels are not those that picked classes and their chances make."
        return None

    def frequencies(self, laws: Laws, labels: FloatArray, sizes: IntArray) -> Frequencies:
        """Return how often each class is reported."""
        classes, keep = _responses(laws)[0].classes, self.keep_chances(laws, sizes)
        counts = np.bincount(labels.argmax(axis=1), minlength=classes)
        rarest = float((1 - keep).min()) / (classes - 1)
        return Frequencies(counts, np.full(classes, rarest), np.full(classes, float(keep.max())))

    def log_likelihood(
        self, laws: Laws, shown: FloatArray, exact: FloatArray, sizes: IntArray
    ) -> FloatArray:
        """Return the logarithm of the chance of the class that was reported: the largest entry."""
        keep = self.keep_chances(laws, sizes)
        agrees = shown.argmax(axis=1) == exact.argmax(axis=1)
        return np.log(np.where(agrees, keep, (1 - keep) / (shown.shape[1] - 1)))


def _responses(laws: Laws) -> tuple[RandomisedResponse, ...]:
    return cast(tuple[RandomisedResponse, ...], laws)


class RangeCounts(Query, frozen=True, tag="range-counts"):
    """Counts of values beyond each of several public candidates, one of which is chosen.

    Sensitivity: one label moves all counts the same way, by one at most (`private_range`, with the
    proof); the epsilon of its law is for all rows of a unit together.

    Attributes
    ----------
    of : {"bounds", "range", "limit"}
        What is chosen: bounds of the labels, a range within stated bounds that labels are clipped
        to, a limit for what a private model leaves of labels.
    rows : int
        Rows of a unit that it was set for.
    """

    of: Literal["bounds", "range", "limit"]
    rows: int = 1

    @property
    def hides(self) -> str:
        """What is chosen."""
        return self.of

    @property
    def moves(self) -> dict[Norm, Move]:
        """One choice."""
        return {"choice": Move()}

    def neighbours(self, laws: Laws, source: NoiseSource) -> list[tuple[Draw, Draw]]:
        """Return no draws: a choice has no number to test."""
        del laws, source
        return []


QUERIES: dict[str, type[Query]] = {
    query.called(): query
    for query in (
        BagMeans,
        ClassShares,
        SingleLabels,
        BagPicks,
        ClassPicks,
        Labels,
        Statistic,
        RangeCounts,
        MeanLoss,
    )
}
"""All that is ever asked of labels, by name."""

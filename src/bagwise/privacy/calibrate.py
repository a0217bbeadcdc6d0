"""From (epsilon, delta) to noise: the events that will be carried out.

Noise scales are rounded up to whole grid steps, and the accountant is asked again before an event
that completes a budget is handed out.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol, TypeVar

from bagwise.data.labels import Bounds
from bagwise.errors import BoundsError, BudgetError
from bagwise.privacy.accounting import gaussian_part, pure_epsilon, total_delta
from bagwise.privacy.curves import check_delta, check_epsilon, composed_pick_mu, gaussian_mu
from bagwise.privacy.events import (
    LABEL_STEPS,
    Event,
    GaussianBagMeans,
    GaussianLabels,
    GaussianModel,
    LaplaceBagMeans,
    LaplaceMeanLoss,
    NoisyChoice,
    PickedLabels,
    RandomisedPicks,
)
from bagwise.privacy.samplers import LARGEST_SCALE as LARGEST_LAPLACE_SCALE

G = TypeVar("G", GaussianLabels, GaussianModel, GaussianBagMeans)
L = TypeVar("L", LaplaceBagMeans, LaplaceMeanLoss)
E = TypeVar("E", GaussianBagMeans, LaplaceBagMeans, LaplaceMeanLoss, PickedLabels, RandomisedPicks)

LARGEST_SCALE = 2**31
"""Noise scales, in grid steps, whose square still fits 64 bits."""

CHANCES = 2**32
"""Chances of randomised response are whole multiples of one in this many."""

_PICK_DELTA_SHARE = 0.01  # of 1/size; near 1/size the noise vanishes and delta shows a label


def grid_step(bounds: Bounds) -> float:
    """Return the width of one step; exact, since the number of steps is a power of two."""
    low, high = bounds
    step = (high - low) / LABEL_STEPS
    if step * LABEL_STEPS != high - low:
        raise BoundsError(f"bounds ({low:g}, {high:g}) are too narrow to put a grid between them.")
    return step


class Calibration(Protocol):
    """A way to choose noise for every mechanism, given what was asked for.

    `ExactCalibration` is the one that delivers what it says. Experiments may bring another to show
    what its noise is worth; a release made with it says NOT PRIVATE.
    """

    is_exact: ClassVar[bool]

    @property
    def epsilon(self) -> float:
        """What was asked for."""

    @property
    def delta(self) -> float:
        """What was asked for."""

    @property
    def bounds(self) -> Bounds:
        """Public range of a label."""

    @property
    def prior(self) -> tuple[NoisyChoice, ...]:
        """What was spent before, on the bounds."""

    def labels(self, *, share: float, square: int = 1) -> GaussianLabels:
        """Noise on every label, for scores."""

    def model(self, *, share: float, sensitivity_steps: int) -> GaussianModel:
        """Noise on the statistics of a linear model, for scores."""

    def bag_means(
        self, *, square: int = 1, rows: int = 1, spent: Sequence[Event] = ()
    ) -> GaussianBagMeans | LaplaceBagMeans:
        """Noise on bag sums."""

    def picks(
        self,
        *,
        sizes: Iterable[int],
        rows: int = 1,
        spent: Sequence[Event] = (),
        smallest: int | None = None,
    ) -> PickedLabels:
        """Noise on picked labels."""

    def class_picks(self, *, classes: int, sizes: Iterable[int], rows: int = 1) -> RandomisedPicks:
        """Chances of keeping picked classes."""

    def per_row(self, rows: int) -> "Calibration":
        """Return the calibration for single rows that covers groups of `rows`."""


@dataclass(frozen=True)
class ExactCalibration:
    """The least noise that the accountant accepts, for label privacy (epsilon, delta) in `bounds`.

    Guarantee: the events of one release, together, have ``total_delta(events, epsilon) <= delta``.

    References
    ----------
    Thms 4 and 5. Status: corrected, E1 and E2: the printed noise is short by a factor of 2 in
    variance, and for picks by an amplification that does not hold (true epsilon 45 instead of 0.5
    at bag size 50).
    """

    is_exact: ClassVar[bool] = True

    epsilon: float
    delta: float
    bounds: Bounds
    prior: tuple[NoisyChoice, ...] = ()

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        grid_step(self.bounds)
        for event in self.prior:
            check_epsilon(event.epsilon)
        if self.left <= 0:
            raise BudgetError(
                f"the bounds have spent {self.epsilon - self.left:g} of epsilon {self.epsilon:g}: "
                "nothing is left for the release. Give it more."
            )

    @property
    def left(self) -> float:
        """What the bounds have left of epsilon."""
        return self.epsilon - math.fsum(event.epsilon for event in self.prior)

    def labels(self, *, share: float, square: int = 1) -> GaussianLabels:
        """Return noise on every label that spends `share` of the budget, in units of mu squared.

        A protected unit can move the labels ``sqrt(square)`` times as far as one row.
        """
        return self._gaussian(GaussianLabels, _root_steps(square), self._mu(share))

    def model(self, *, share: float, sensitivity_steps: int) -> GaussianModel:
        """Return noise on statistics that a protected unit moves by `sensitivity_steps` at most."""
        return self._gaussian(GaussianModel, sensitivity_steps, self._mu(share))

    def bag_means(
        self, *, square: int = 1, rows: int = 1, spent: Sequence[Event] = ()
    ) -> GaussianBagMeans | LaplaceBagMeans:
        """Return noise on bag sums that fits the budget after `spent`.

        A protected unit moves the sums ``sqrt(square)`` times as far as one label in L2, and `rows`
        times as far in L1. The noise of a bag's mean is the scale divided by the bag's own size.
        With delta = 0 it is Laplace noise.
        """
        if self.delta == 0:
            step = grid_step(self.bounds)
            return self._checked(self._laplace(LaplaceBagMeans, LABEL_STEPS * rows, step), spent)
        left = self._mu(1.0) ** 2 - gaussian_part(spent) ** 2
        if left <= 0:
            raise BudgetError("the scores spend the whole budget; give them a smaller share.")
        event = self._gaussian(GaussianBagMeans, _root_steps(square), math.sqrt(left))
        return self._checked(event, spent)

    def picks(
        self,
        *,
        sizes: Iterable[int],
        rows: int = 1,
        spent: Sequence[Event] = (),
        smallest: int | None = None,
    ) -> PickedLabels:
        """Return noise on picked labels, for each bag size, that fits the budget after `spent`.

        If scores decide how large a row's bag is, give the `smallest` that a bag can be: then every
        size gets the noise of that one. Noise by size would be read together with the scores, and
        the worst size may be another for every score.

        More than one of the `rows` of a protected unit is covered by the general bound for groups,
        for the picks and for what was spent on scores, which must have been calibrated by row.
        """
        if self.delta == 0:
            raise BudgetError("picked labels need a positive delta; or use label_kind='mean'.")
        epsilon, delta = row_budget(self.left, self.delta, rows)
        step, mu_scores = grid_step(self.bounds), gaussian_part(spent)
        occurring = sorted({int(size) for size in sizes})
        if spent and smallest is None:
            smallest = occurring[0]
        scales = []
        for size in occurring if smallest is None else [smallest]:
            if delta > _PICK_DELTA_SHARE / size:
                raise BudgetError(
                    f"delta = {delta:g} is too large for picked labels from bags of {size}: such "
                    f"noise would lean on delta instead of epsilon. Choose delta <= "
                    f"{_PICK_DELTA_SHARE / size:g}, or label_kind='mean'."
                )
            mu = composed_pick_mu(epsilon, delta, mu_scores, size)
            scales.append((size, _whole_scale(LABEL_STEPS / mu) * step))
        if smallest is not None:
            scales = [(size, scales[0][1]) for size in sorted({smallest, *occurring})]
        return self._checked(PickedLabels(LABEL_STEPS * step, tuple(scales), step, rows), spent)

    def class_picks(self, *, classes: int, sizes: Iterable[int], rows: int = 1) -> RandomisedPicks:
        """Return the chances of keeping a picked class, for each bag size; they need no delta."""
        growth = math.expm1(self.left / rows)
        keeps = []
        for size in sorted({int(size) for size in sizes}):
            odds = 1 + size * growth  # of the kept class against each other one
            # A whole number of 2**-32, rounded down: less truth, more privacy.
            keep = math.floor(odds / (odds + classes - 1) * CHANCES) / CHANCES
            if _picks_epsilon(classes, size, keep) > self.left / rows:  # by rounding, an ulp
                keep -= 1 / CHANCES
            if keep * classes <= 1:
                raise BudgetError("so little epsilon leaves nothing of a picked class.")
            keeps.append((size, min(keep, 1 - 1 / CHANCES)))
        return self._checked(RandomisedPicks(classes, tuple(keeps), rows), ())

    def mean_loss(self, *, sensitivity_steps: int, step: float) -> LaplaceMeanLoss:
        """Return noise on summed losses that a protected unit moves by `sensitivity_steps` at most.

        `step` is the grid of the losses, in their units. It needs no delta.
        """
        return self._checked(self._laplace(LaplaceMeanLoss, sensitivity_steps, step), ())

    def per_row(self, rows: int) -> "ExactCalibration":
        """Return the calibration for single rows that covers groups of `rows`."""
        epsilon, delta = row_budget(self.left, self.delta, rows)
        return ExactCalibration(epsilon, delta, self.bounds)

    def _mu(self, share: float) -> float:
        if not 0 < share <= 1:
            raise BudgetError(f"score_share must be above 0 and at most 1, got {share:g}.")
        return math.sqrt(share) * gaussian_mu(self.left, self.delta)

    def _gaussian(self, kind: type[G], shift: int, mu: float) -> G:
        step = grid_step(self.bounds)
        return kind(shift * step, _whole_scale(shift / mu) * step, step)

    def _laplace(self, kind: type[L], shift: int, step: float) -> L:
        # In fractions: a quotient of doubles that should be whole may end just below it.
        left = Fraction(self.epsilon) - sum(Fraction(event.epsilon) for event in self.prior)
        scale = _whole_scale(shift / left, largest=LARGEST_LAPLACE_SCALE)
        return kind(shift * step, scale * step, step)

    def _checked(self, event: E, spent: Sequence[Event]) -> E:
        if total_delta([*self.prior, *spent, event], self.epsilon) > self.delta:
            raise BudgetError(
                "calibration ended on the wrong side of the budget; please report it."
            )
        return event


def _picks_epsilon(classes: int, size: int, keep: float) -> float:
    return pure_epsilon(RandomisedPicks(classes, ((size, min(keep, 1 - 1 / CHANCES)),)))


def row_budget(epsilon: float, delta: float, rows: int) -> tuple[float, float]:
    """Return what one row may spend so that `rows` of them together spend (epsilon, delta)."""
    if rows == 1:
        return epsilon, delta
    return epsilon / rows, delta * math.expm1(epsilon / rows) / math.expm1(epsilon)


def _root_steps(square: int) -> int:
    # The root of an integer, rounded up in integers: a float could end below the truth.
    return math.isqrt(LABEL_STEPS**2 * square - 1) + 1


def _whole_scale(scale: float | Fraction, *, largest: int = LARGEST_SCALE) -> int:
    if not scale <= largest:
        raise BudgetError(
            "so little epsilon and delta asks for more noise than can be drawn safely."
        )
    return max(1, math.ceil(scale))

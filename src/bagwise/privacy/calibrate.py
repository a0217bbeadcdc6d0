"""From (epsilon, delta) to noise: the mechanisms that will be carried out.

Each mechanism knows the noise that a cost allows; here budgets are divided, and the accountant is
asked again before a mechanism that completes a budget is handed out.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol, TypeVar

from bagwise.data.labels import Bounds
from bagwise.errors import BudgetError
from bagwise.privacy.accounting import gaussian_part, total_delta
from bagwise.privacy.curves import check_delta, check_epsilon, gaussian_mu
from bagwise.privacy.grid import grid_step
from bagwise.privacy.mechanisms import (
    GaussianLabels,
    GaussianModel,
    HidesBagMeans,
    LaplaceMeanLoss,
    MeansBudget,
    Mechanism,
    NoisyChoice,
    PickedLabels,
    RandomisedPicks,
    bag_means_mechanisms,
)
from bagwise.privacy.mechanisms.gaussian import root_steps

M = TypeVar("M", bound=Mechanism)

WORTHWHILE = 0.02
"""Share of its variance that a less known kind of noise must save to be preferred: every reader of
a certificate has to understand what it names."""


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
        self,
        *,
        square: int = 1,
        rows: int = 1,
        numbers: int | None = None,
        spent: Sequence[Mechanism] = (),
    ) -> HidesBagMeans:
        """Noise on bag sums."""

    def picks(
        self,
        *,
        sizes: Iterable[int],
        rows: int = 1,
        spent: Sequence[Mechanism] = (),
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

    Guarantee: the mechanisms of one release, together, have
    ``total_delta(mechanisms, epsilon) <= delta``.

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
        for choice in self.prior:
            check_epsilon(choice.epsilon)
        if self.left <= 0:
            raise BudgetError(
                f"the bounds have spent {self.epsilon - self.left:g} of epsilon {self.epsilon:g}: "
                "nothing is left for the release. Give it more."
            )

    @property
    def left(self) -> float:
        """What the bounds have left of epsilon."""
        return self.epsilon - math.fsum(choice.epsilon for choice in self.prior)

    @property
    def _exactly_left(self) -> Fraction:
        return Fraction(self.epsilon) - sum(Fraction(choice.epsilon) for choice in self.prior)

    def labels(self, *, share: float, square: int = 1) -> GaussianLabels:
        """Return noise on every label that spends `share` of the budget, in units of mu squared.

        A protected unit can move the labels ``sqrt(square)`` times as far as one row.
        """
        step = grid_step(self.bounds)
        return GaussianLabels.calibrated(shift=root_steps(square), mu=self._mu(share), step=step)

    def model(self, *, share: float, sensitivity_steps: int) -> GaussianModel:
        """Return noise on statistics that a protected unit moves by `sensitivity_steps` at most."""
        step = grid_step(self.bounds)
        return GaussianModel.calibrated(shift=sensitivity_steps, mu=self._mu(share), step=step)

    def bag_means(
        self,
        *,
        square: int = 1,
        rows: int = 1,
        numbers: int | None = None,
        spent: Sequence[Mechanism] = (),
    ) -> HidesBagMeans:
        """Return noise on bag sums that fits the budget after `spent`.

        A protected unit moves the sums ``sqrt(square)`` times as far as one label in L2, `rows`
        times as far in L1, and so many `numbers` at once; as many as it has rows if nobody says.
        The noise of a bag's mean is the scale divided by the bag's own size. It is Gaussian, or
        with delta = 0 the least that needs none.
        """
        budget = MeansBudget(
            epsilon=self._exactly_left,
            mu=self._mu_left(spent) if self.delta > 0 else None,
            step=grid_step(self.bounds),
            square=square,
            rows=rows,
            numbers=rows if numbers is None else numbers,
        )
        kinds = bag_means_mechanisms().values()
        offers = [offer for kind in kinds if (offer := kind.for_budget(budget)) is not None]
        wanted = [o for o in offers if (o.pure_epsilon is None) == (self.delta > 0)]
        return self._checked(_least_noise(wanted), spent)

    def picks(
        self,
        *,
        sizes: Iterable[int],
        rows: int = 1,
        spent: Sequence[Mechanism] = (),
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
        occurring = sorted({int(size) for size in sizes})
        alike = bool(spent) or smallest is not None
        if smallest is not None:
            occurring = sorted({smallest, *occurring})
        event = PickedLabels.calibrated(
            epsilon=epsilon,
            delta=delta,
            mu_scores=gaussian_part(spent),
            sizes=occurring,
            step=grid_step(self.bounds),
            rows=rows,
            alike=alike,
        )
        return self._checked(event, spent)

    def class_picks(self, *, classes: int, sizes: Iterable[int], rows: int = 1) -> RandomisedPicks:
        """Return the chances of keeping a picked class, for each bag size; they need no delta."""
        event = RandomisedPicks.calibrated(
            epsilon=self.left / rows,
            classes=classes,
            sizes=sorted({int(size) for size in sizes}),
            rows=rows,
        )
        return self._checked(event, ())

    def mean_loss(self, *, sensitivity_steps: int, step: float) -> LaplaceMeanLoss:
        """Return noise on summed losses that a protected unit moves by `sensitivity_steps` at most.

        `step` is the grid of the losses, in their units. It needs no delta.
        """
        event = LaplaceMeanLoss.calibrated(
            shift=sensitivity_steps, epsilon=self._exactly_left, step=step
        )
        return self._checked(event, ())

    def per_row(self, rows: int) -> "ExactCalibration":
        """Return the calibration for single rows that covers groups of `rows`."""
        epsilon, delta = row_budget(self.left, self.delta, rows)
        return ExactCalibration(epsilon, delta, self.bounds)

    def _mu(self, share: float) -> float:
        if not 0 < share <= 1:
            raise BudgetError(f"score_share must be above 0 and at most 1, got {share:g}.")
        return math.sqrt(share) * gaussian_mu(self.left, self.delta)

    def _mu_left(self, spent: Sequence[Mechanism]) -> float:
        left = self._mu(1.0) ** 2 - gaussian_part(spent) ** 2
        if left <= 0:
            raise BudgetError("the scores spend the whole budget; give them a smaller share.")
        return math.sqrt(left)

    def _checked(self, mechanism: M, spent: Sequence[Mechanism]) -> M:
        if total_delta([*self.prior, *spent, mechanism], self.epsilon) > self.delta:
            raise BudgetError(
                "calibration ended on the wrong side of the budget; please report it."
            )
        return mechanism


def _least_noise(offers: Sequence[HidesBagMeans]) -> HidesBagMeans:
    """Return the offer with the least noise; a plainer one, listed before, if it is hardly more."""
    best, *others = offers
    for offer in others:
        if offer.sum_sd**2 <= (1 - WORTHWHILE) * best.sum_sd**2:
            best = offer
    return best


def row_budget(epsilon: float, delta: float, rows: int) -> tuple[float, float]:
    """Return what one row may spend so that `rows` of them together spend (epsilon, delta)."""
    if rows == 1:
        return epsilon, delta
    return epsilon / rows, delta * math.expm1(epsilon / rows) / math.expm1(epsilon)

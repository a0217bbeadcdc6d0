"""From (epsilon, delta) to noise: the mechanisms that will be carried out.

Each mechanism knows the noise that a cost allows; here budgets are divided, and the accountant is
asked again before a mechanism that completes a budget is handed out.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal, Protocol, TypeVar, get_args

import numpy as np

from bagwise.errors import BudgetError, check_name
from bagwise.privacy.accounting import gaussian_part, pure_total, total_delta
from bagwise.privacy.curves import check_delta, check_epsilon, gaussian_mu
from bagwise.privacy.grid import LABEL_STEPS, grid_step
from bagwise.privacy.mechanisms import (
    GaussianLabels,
    GaussianModel,
    HidesBagMeans,
    HidesPicks,
    LabelChannel,
    LaplaceLabels,
    LaplaceMeanLoss,
    LaplaceModel,
    LaplacePicks,
    MeansBudget,
    Mechanism,
    NoisyChoice,
    PickedLabels,
    RandomisedPicks,
    UnbiasedLabels,
    bag_means_mechanisms,
)
from bagwise.privacy.mechanisms.gaussian import root_steps
from bagwise.rows.labels import Bounds

M = TypeVar("M", bound=Mechanism)

NoiseKind = Literal["auto", "laplace", "staircase", "gaussian", "unbiased"]

SINGLE_LABELS: dict[str, type[LabelChannel]] = {UnbiasedLabels.noise: UnbiasedLabels}
"""Ways to report every label by itself, by the name that `noise` takes."""
"""What noise to use: "auto" is the least that keeps the promise, the others insist on one."""

ScoreNoise = Literal["laplace", "gaussian"]
"""What noise scores may have."""

WORTHWHILE = 0.02
"""Share of its variance that a less known kind of noise, or one that needs a delta, must save to be
preferred: every reader of a certificate has to understand what it names and promises."""

_HALVINGS = 24  # of the interval in which the cost of a pure mechanism after Gaussian scores lies


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

    @property
    def score_noises(self) -> tuple[ScoreNoise, ...]:
        """What noise scores may have."""

    def labels(self, *, share: float, square: int = 1) -> GaussianLabels | LaplaceLabels:
        """Noise on every label, for scores."""

    def model(self, *, share: float, sensitivity_steps: int) -> GaussianModel:
        """Gaussian noise on the statistics of a linear model, which move so far in L2."""

    def laplace_model(self, *, share: float, sensitivity_steps: int) -> LaplaceModel:
        """Laplace noise on the statistics of a linear model, which move so far in L1."""

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
    ) -> HidesPicks:
        """Noise on picked labels."""

    def class_picks(self, *, classes: int, sizes: Iterable[int], rows: int = 1) -> RandomisedPicks:
        """Chances of keeping picked classes."""

    def per_row(self, rows: int) -> "Calibration":
        """Return the calibration for single rows that covers groups of `rows`."""


@dataclass(frozen=True)
class ExactCalibration:
    """The least noise that the accountant accepts, for label privacy (epsilon, delta) in `bounds`.

    Everything that the choice of noise depends on is public: the promise, the bags, the units.

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
    noise: NoiseKind = "auto"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        check_name("noise", self.noise, get_args(NoiseKind), BudgetError)
        if self.noise == "gaussian" and self.delta == 0:
            raise BudgetError(
                "noise='gaussian' needs a positive delta. Give one, or leave noise at 'auto'."
            )
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

    @property
    def score_noises(self) -> tuple[ScoreNoise, ...]:
        """What noise scores may have. Staircase noise is for single numbers, which no score is."""
        laplace: tuple[ScoreNoise, ...] = () if self.noise == "gaussian" else ("laplace",)
        gaussian: tuple[ScoreNoise, ...] = () if self.noise == "laplace" else ("gaussian",)
        return (*laplace, *(gaussian if self.delta > 0 else ()))

    def labels(self, *, share: float, square: int = 1) -> GaussianLabels | LaplaceLabels:
        """Return noise on every label that spends `share` of the budget.

        The share is one of mu squared for Gaussian noise and one of epsilon for Laplace noise; the
        less noise of both is taken. A protected unit has `square` labels: it moves them by the root
        of that in L2, and by all of it in L1.
        """
        step = grid_step(self.bounds)
        offers: list[GaussianLabels | LaplaceLabels] = []
        if "laplace" in self.score_noises:
            shift, epsilon = LABEL_STEPS * square, self._epsilon(share)
            offers.append(LaplaceLabels.calibrated(shift=shift, epsilon=epsilon, step=step))
        if "gaussian" in self.score_noises:
            mu = self._mu(share)
            offers.append(GaussianLabels.calibrated(shift=root_steps(square), mu=mu, step=step))
        return min(offers, key=lambda offer: offer.number_sd)

    def model(self, *, share: float, sensitivity_steps: int) -> GaussianModel:
        """Return noise on statistics that a protected unit moves so far in L2.

        `share` is one of mu squared.
        """
        step = grid_step(self.bounds)
        return GaussianModel.calibrated(shift=sensitivity_steps, mu=self._mu(share), step=step)

    def laplace_model(self, *, share: float, sensitivity_steps: int) -> LaplaceModel:
        """Return noise on statistics that a protected unit moves so far in L1.

        `share` is one of epsilon.
        """
        epsilon, step = self._epsilon(share), grid_step(self.bounds)
        return LaplaceModel.calibrated(shift=sensitivity_steps, epsilon=epsilon, step=step)

    def bag_means(
        self,
        *,
        square: int = 1,
        rows: int = 1,
        numbers: int | None = None,
        spent: Sequence[Mechanism] = (),
    ) -> HidesBagMeans:
        """Return the least noise on bag sums that fits the budget after `spent`.

        A protected unit moves the sums ``sqrt(square)`` times as far as one label in L2, `rows`
        times as far in L1, and so many `numbers` at once; as many as it has rows if nobody says.
        The noise of a bag's mean is the scale divided by the bag's own size. Noise without a delta
        is always an answer to a promise with one, and mostly the better one.
        """
        if square > rows**2:  # an L2 length is at most that in L1
            raise BudgetError(f"a unit of {rows} rows moves bag sums by {rows} labels at most.")
        budget = MeansBudget(
            epsilon=self._exactly_left,
            mu=self._mu_left(spent),
            step=grid_step(self.bounds),
            square=square,
            rows=rows,
            numbers=rows if numbers is None else numbers,
        )
        chosen, refused = _bag_means(self, tuple(spent), budget)
        if chosen is None:
            raise refused or BudgetError(
                f"noise={self.noise!r} is not possible for these bags. Leave noise at 'auto'."
            )
        return self._checked(chosen, spent)

    def single_labels(self, noise: str, *, rows: int = 1) -> LabelChannel:
        """Return the chances by which every label is reported by itself; they need no delta."""
        kind = SINGLE_LABELS[noise]
        event = kind.calibrated(epsilon=_below(self._exactly_left / rows), bounds=self.bounds)
        return self._checked(event.widened(rows), ())

    def picks(
        self,
        *,
        sizes: Iterable[int],
        rows: int = 1,
        spent: Sequence[Mechanism] = (),
        smallest: int | None = None,
    ) -> HidesPicks:
        """Return the least noise on picked labels that fits the budget after `spent`.

        Each bag size has its own; a mapping tells how often each occurs. If scores decide how
        large a row's bag is, give the `smallest`
        that a bag can be: then every size gets the noise of that one. Noise by size would be read
        together with the scores, and the worst size may be another for every score.

        More than one of the `rows` of a protected unit is covered by the general bound for groups,
        for the picks and for what was spent on scores, which must have been calibrated by row.
        """
        if self.noise in SINGLE_LABELS:
            raise BudgetError(f"noise={self.noise!r} is for single labels (bag_size=1), not picks.")
        if self.noise == "staircase":
            raise BudgetError("noise='staircase' is for means; picks have 'laplace' or 'gaussian'.")
        counted = Counter(sizes)
        every, times = (np.array(list(some)) for some in (counted.keys(), counted.values()))
        occurring = sorted({*every.tolist(), *([] if smallest is None else [smallest])})
        alike = bool(spent) or smallest is not None
        offers: list[HidesPicks] = []
        refused: BudgetError | None = None
        for offer in (self._laplace_picks, self._gaussian_picks):
            try:
                offers.extend(offer(occurring, rows, tuple(spent), alike))
            except BudgetError as error:  # the other kind may still do
                refused = refused or error
        if not offers:
            raise refused or BudgetError("picked labels need Laplace noise or a positive delta.")

        def noise(offer: HidesPicks) -> float:
            each = offer.noise_sd(every) / offer.grid_step
            return float(np.linalg.norm(each * np.sqrt(times)))

        least = min(offers, key=noise)
        return self._checked(least, spent)

    def _laplace_picks(
        self, sizes: list[int], rows: int, spent: tuple[Mechanism, ...], alike: bool
    ) -> list[HidesPicks]:
        if self.noise == "gaussian":
            return []
        step = grid_step(self.bounds)

        def cost(epsilon: Fraction) -> LaplacePicks:
            each = _below(epsilon / rows)
            return LaplacePicks.calibrated(
                epsilon=each, sizes=sizes, step=step, rows=rows, alike=alike
            )

        return [_dearest(self, spent, cost, rows)]

    def _gaussian_picks(
        self, sizes: list[int], rows: int, spent: tuple[Mechanism, ...], alike: bool
    ) -> list[HidesPicks]:
        if self.noise == "laplace" or self.delta == 0:
            return []
        if any(mechanism.pure_epsilon is not None for mechanism in spent):
            return []  # no closed form, and Laplace noise is less after scores that cost no delta
        epsilon, delta = row_budget(self.left, self.delta, rows)
        event = PickedLabels.calibrated(
            epsilon=epsilon,
            delta=delta,
            mu_scores=gaussian_part(spent),
            sizes=sizes,
            step=grid_step(self.bounds),
            rows=rows,
            alike=alike,
        )
        return [event]

    def class_picks(self, *, classes: int, sizes: Iterable[int], rows: int = 1) -> RandomisedPicks:
        """Return the chances of keeping a picked class, for each bag size; they need no delta."""
        if self.noise != "auto":
            raise BudgetError(
                "picked classes are hidden by randomised response, which has no other noise. "
                "Leave noise at 'auto'."
            )
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
        return ExactCalibration(epsilon, delta, self.bounds, noise=self.noise)

    def within(self, bounds: Bounds, event: NoisyChoice) -> "ExactCalibration":
        """Return the calibration for a private range of labels, and for what finding it left."""
        return dataclasses.replace(self, bounds=bounds, prior=(*self.prior, event))

    def with_noise(self, noise: NoiseKind) -> "ExactCalibration":
        """Return the calibration with this kind of noise."""
        return dataclasses.replace(self, noise=noise)

    def _epsilon(self, share: float) -> Fraction:
        _check_share(share)
        return Fraction(share) * self._exactly_left

    def _mu(self, share: float) -> float:
        _check_share(share)
        return math.sqrt(share) * gaussian_mu(self.left, self.delta)

    def _mu_left(self, spent: Sequence[Mechanism]) -> float | None:
        """Return what is left for Gaussian noise; None if there is nothing.

        Epsilons that need no delta are taken off the top: they change likelihoods by so much.
        """
        if self.delta == 0:
            return None
        pure = math.fsum(float(m.pure_epsilon) for m in spent if m.pure_epsilon is not None)
        if self.left <= pure:
            return None
        try:
            whole = gaussian_mu(self.left - pure, self.delta)
        except BudgetError:
            if self.noise == "gaussian":
                raise
            return None  # a delta too small for Gaussian noise is no reason against other noise
        left = whole**2 - gaussian_part(spent) ** 2
        return math.sqrt(left) if left > 0 else None

    def _checked(self, mechanism: M, spent: Sequence[Mechanism]) -> M:
        if total_delta([*self.prior, *spent, mechanism], self.epsilon) > self.delta:
            raise BudgetError(
                "calibration ended on the wrong side of the budget; please report it."
            )
        return mechanism


@lru_cache(maxsize=256)
def _bag_means(
    rule: ExactCalibration, spent: tuple[Mechanism, ...], budget: MeansBudget
) -> tuple[HidesBagMeans | None, BudgetError | None]:
    """Return the least of all noise on bag sums that is wanted and possible, or why there is none.

    Remembered, since a plan asks for the same noise again and again.
    """
    offers: list[HidesBagMeans] = []
    refused: BudgetError | None = None
    for name, kind in bag_means_mechanisms().items():
        if rule.noise not in ("auto", name):
            continue
        try:
            offer = _offer(rule, spent, budget, kind)
        except BudgetError as error:  # another kind may still do
            refused = refused or error
        else:
            offers.extend([] if offer is None else [offer])
    return (_least_noise(offers), None) if offers else (None, refused)


def _offer(
    rule: ExactCalibration,
    spent: tuple[Mechanism, ...],
    budget: MeansBudget,
    kind: type[HidesBagMeans],
) -> HidesBagMeans | None:
    """Return the least noise of one kind; None where it cannot be used."""
    first = kind.for_budget(budget)
    if first is None:
        if kind.needs_delta and rule.delta > 0 and spent:
            raise BudgetError("the scores spend the whole budget; give them a smaller share.")
        return None
    if first.pure_epsilon is None or not spent:
        return first

    def cost(epsilon: Fraction) -> HidesBagMeans:
        offer = kind.for_budget(dataclasses.replace(budget, epsilon=epsilon))
        if offer is None:
            raise AssertionError("whether a kind can be used does not depend on epsilon")
        return offer

    return _dearest(rule, spent, cost)


def _dearest(
    rule: ExactCalibration,
    spent: tuple[Mechanism, ...],
    cost: Callable[[Fraction], M],
    rows: int = 1,
) -> M:
    """Return the mechanism that costs as much as fits after `spent`; it needs no delta itself.

    After others without a delta that is what they leave of epsilon. After Gaussian noise it is more
    than that noise leaves at this delta, since the worst of both hardly ever comes together: the
    accountant composes both curves, and the largest cost that it accepts is found by halving.
    Scores of a unit were set by row where `rows` is above 1, as for picks.
    """
    before = [m.widened(rows) for m in spent]
    pure = pure_total(before)
    left = rule._exactly_left
    if pure is not None:
        if left <= pure:
            raise BudgetError("the scores spend the whole budget; give them a smaller share.")
        return cost(left - pure)

    def fits(epsilon: Fraction) -> M | None:
        try:
            mechanism = cost(epsilon)
        except BudgetError:  # more noise than can be drawn
            return None
        whole: list[Mechanism] = [*rule.prior, *spent, mechanism]
        return mechanism if total_delta(whole, rule.epsilon) <= rule.delta else None

    low, high, best = Fraction(0), left, None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        found = fits(middle)
        low, high, best = (low, middle, best) if found is None else (middle, high, found)
    if best is None:
        raise BudgetError("the scores spend the whole budget; give them a smaller share.")
    return best


def _least_noise(offers: Sequence[HidesBagMeans]) -> HidesBagMeans:
    """Return the offer with the least noise; one before it if it is hardly more.

    Those without a delta come first, and of them the plainer ones.
    """
    best, *others = sorted(offers, key=lambda offer: offer.pure_epsilon is None)
    for offer in others:
        # In steps, so that bounds have no part in it; no squares, which may overflow.
        if (
            offer.sum_sd / offer.grid_step
            <= math.sqrt(1 - WORTHWHILE) * best.sum_sd / best.grid_step
        ):
            best = offer
    return best


def _below(value: Fraction) -> float:
    """Return the largest double that is not above a fraction, or the one before."""
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, 0.0)


def _check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise BudgetError(f"score_share must be above 0 and at most 1, got {share:g}.")


def row_budget(epsilon: float, delta: float, rows: int) -> tuple[float, float]:
    """Return what one row may spend so that `rows` of them together spend (epsilon, delta)."""
    if rows == 1:
        return epsilon, delta
    return epsilon / rows, delta * math.expm1(epsilon / rows) / math.expm1(epsilon)

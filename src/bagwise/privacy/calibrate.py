"""From (epsilon, delta) to noise: the mechanisms that will be carried out.

Each law knows the noise that a cost allows. Here is which law is least for a query under a promise,
and what is left of a budget after some were paid for; the accountant is asked again before a
mechanism that completes a budget is handed out.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal, Protocol

import numpy as np

from bagwise.errors import BudgetError, check_name
from bagwise.privacy.accounting import gaussian_part, pure_total, total_delta
from bagwise.privacy.curves import check_delta, check_epsilon, composed_pick_mu, gaussian_mu
from bagwise.privacy.grid import grid_step
from bagwise.privacy.laws import NOISES, Law, Noise, RandomisedResponse, Unbiased
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.queries import (
    BagMeans,
    BagPicks,
    ClassPicks,
    ClassShares,
    Labels,
    MeanLoss,
    Picks,
    Query,
    SingleLabels,
    Statistic,
)
from bagwise.rows.labels import Bounds

NoiseKind = str
"""What noise to use: "auto" is the least that keeps the promise, others insist on one law."""

SINGLE_LABELS = (Unbiased.called(),)
"""Laws that report every label by itself, by the name that `noise` takes."""

NOISE_KINDS = ("auto", *NOISES, *SINGLE_LABELS)

ScoreNoise = Literal["laplace", "gaussian"]
"""What noise scores may have."""

WORTHWHILE = 0.02
"""Share of its variance that a less known kind of noise, or one that needs a delta, must save to be
preferred: every reader of a certificate has to understand what it names and promises."""

_DELTA_SHARE = 0.01  # of 1/size; near 1/size the noise vanishes and delta shows a label
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
    def prior(self) -> tuple[Mechanism, ...]:
        """What was spent before, on the bounds."""

    @property
    def score_noises(self) -> tuple[ScoreNoise, ...]:
        """What noise scores may have."""

    def labels(self, *, share: float, square: int = 1) -> Mechanism:
        """Noise on every label, for scores."""

    def model(self, *, share: float, sensitivity_steps: int) -> Mechanism:
        """Gaussian noise on the statistics of a linear model, which move so far in L2."""

    def laplace_model(self, *, share: float, sensitivity_steps: int) -> Mechanism:
        """Laplace noise on the statistics of a linear model, which move so far in L1."""

    def bag_means(
        self,
        *,
        square: int = 1,
        rows: int = 1,
        numbers: int | None = None,
        spent: Sequence[Mechanism] = (),
    ) -> Mechanism:
        """Noise on bag sums."""

    def shares(self, *, square: int = 1, rows: int = 1) -> Mechanism:
        """Noise on counts of classes."""

    def picks(
        self,
        *,
        sizes: Iterable[int],
        rows: int = 1,
        spent: Sequence[Mechanism] = (),
        smallest: int | None = None,
    ) -> Mechanism:
        """Noise on picked labels."""

    def class_picks(self, *, classes: int, sizes: Iterable[int], rows: int = 1) -> Mechanism:
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
    prior: tuple[Mechanism, ...] = ()
    noise: NoiseKind = "auto"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        check_name("noise", self.noise, NOISE_KINDS, BudgetError)
        if self.noise == "gaussian" and self.delta == 0:
            raise BudgetError(
                "noise='gaussian' needs a positive delta. Give one, or leave noise at 'auto'."
            )
        grid_step(self.bounds)
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
        return Fraction(self.epsilon) - sum(m.pure_epsilon or 0 for m in self.prior)

    @property
    def score_noises(self) -> tuple[ScoreNoise, ...]:
        """What noise scores may have. Staircase noise is for single numbers, which no score is."""
        laplace: tuple[ScoreNoise, ...] = () if self.noise == "gaussian" else ("laplace",)
        gaussian: tuple[ScoreNoise, ...] = () if self.noise == "laplace" else ("gaussian",)
        return (*laplace, *(gaussian if self.delta > 0 else ()))

    def labels(self, *, share: float, square: int = 1) -> Mechanism:
        """Return noise on every label that spends `share` of the budget.

        The less noise of all laws that scores may have is taken. A protected unit has `square`
        labels: it moves them by the root of that in L2, and by all of it in L1.
        """
        query = Labels(grid_step(self.bounds), square)
        offers = [self._part(query, NOISES[noise], share) for noise in self.score_noises]
        return min(offers, key=lambda offer: offer.number_sd)

    def model(self, *, share: float, sensitivity_steps: int) -> Mechanism:
        """Return noise on statistics that a protected unit moves so far in L2."""
        query = Statistic(grid_step(self.bounds), sensitivity_steps, "L2")
        return self._part(query, NOISES["gaussian"], share)

    def laplace_model(self, *, share: float, sensitivity_steps: int) -> Mechanism:
        """Return noise on statistics that a protected unit moves so far in L1."""
        query = Statistic(grid_step(self.bounds), sensitivity_steps, "L1")
        return self._part(query, NOISES["laplace"], share)

    def _part(self, query: Query, law: type[Noise], share: float) -> Mechanism:
        """Return a query with this law that spends a share of epsilon, or of mu squared."""
        if not 0 < share <= 1:
            raise BudgetError(f"score_share must be above 0 and at most 1, got {share:g}.")
        cost: Fraction | float = Fraction(share) * self._exactly_left
        if law.needs_delta:
            cost = math.sqrt(share) * gaussian_mu(self.left, self.delta)
        noise = law.least(query.move(law.norm), cost)
        if noise is None:
            raise BudgetError(f"{law.called()} noise cannot be drawn for so large a unit.")
        return Mechanism(query, (noise,))

    def bag_means(
        self,
        *,
        square: int = 1,
        rows: int = 1,
        numbers: int | None = None,
        spent: Sequence[Mechanism] = (),
    ) -> Mechanism:
        """Return the least noise on bag sums that fits the budget after `spent`.

        A protected unit moves the sums ``sqrt(square)`` times as far as one label in L2, `rows`
        times as far in L1, and so many `numbers` at once; as many as it has rows if nobody says.
        The noise of a bag's mean is the scale divided by the bag's own size.
        """
        if square > rows**2:  # an L2 length is at most that in L1
            raise BudgetError(f"a unit of {rows} rows moves bag sums by {rows} labels at most.")
        together = (rows if numbers is None else numbers) == 1
        query = BagMeans(grid_step(self.bounds), rows, max(square, rows), together)
        return self.least(query, spent)

    def shares(self, *, square: int = 1, rows: int = 1) -> Mechanism:
        """Return the least noise on counts of classes that fits the budget."""
        return self.least(
            ClassShares(grid_step(self.bounds), rows, max(square, rows), together=rows == 1)
        )

    def mean_loss(self, *, sensitivity_steps: int, step: float) -> Mechanism:
        """Return noise on summed losses that a protected unit moves by `sensitivity_steps` at most.

        `step` is the grid of the losses, in their units.
        """
        return self.least(MeanLoss(step, sensitivity_steps))

    def least(self, query: Query, spent: Sequence[Mechanism] = ()) -> Mechanism:
        """Return a query with the least noise that fits the budget after `spent`.

        Noise without a delta is always an answer to a promise with one, and mostly the better one.
        """
        chosen, refused = _least(self, query, tuple(spent))
        if chosen is None:
            raise refused or BudgetError(
                f"noise={self.noise!r} is not possible for these {query.hides}. Leave noise at "
                "'auto'."
            )
        return self._checked(chosen, spent)

    def single_labels(self, noise: str, *, rows: int = 1) -> Mechanism:
        """Return the chances by which every label is reported by itself; they need no delta."""
        check_name("noise", noise, SINGLE_LABELS, BudgetError)
        law = Unbiased.least(_below(self._exactly_left / rows))
        low, high = self.bounds
        return self._checked(Mechanism(SingleLabels(float(low), float(high), rows), (law,)), ())

    def picks(
        self,
        *,
        sizes: Iterable[int],
        rows: int = 1,
        spent: Sequence[Mechanism] = (),
        smallest: int | None = None,
    ) -> Mechanism:
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
        if self.noise != "auto" and NOISES[self.noise].norm not in BagPicks.norms:
            raise BudgetError(
                f"noise={self.noise!r} is for means; picks have 'laplace' or 'gaussian'."
            )
        counted = Counter(sizes)
        every, times = (np.array(list(some)) for some in (counted.keys(), counted.values()))
        occurring = sorted({*every.tolist(), *([] if smallest is None else [smallest])})
        query = BagPicks(tuple(occurring), rows, grid_step(self.bounds))
        alike = bool(spent) or smallest is not None
        offers: list[Mechanism] = []
        refused: BudgetError | None = None
        for name, law in NOISES.items():
            if law.norm not in query.norms or self.noise not in ("auto", name):
                continue
            try:
                offers.extend(self._pick_offers(query, law, tuple(spent), alike))
            except BudgetError as error:  # another law may still do
                refused = refused or error
        if not offers:
            raise refused or BudgetError("picked labels need Laplace noise or a positive delta.")

        def noise(offer: Mechanism) -> float:
            each = offer.noise_sd(every) / offer.grid_step
            return float(np.linalg.norm(each * np.sqrt(times)))

        return self._checked(min(offers, key=noise), spent)

    def _pick_offers(
        self, query: BagPicks, law: type[Noise], spent: tuple[Mechanism, ...], alike: bool
    ) -> Iterator[Mechanism]:
        """Yield picks with noise of this law, if it can be used: by the cost of one row."""
        if not law.needs_delta:

            def cost(epsilon: Fraction) -> Mechanism:
                each = _below(epsilon / query.rows)

                def least(size: int) -> Law:
                    return _least_for_pick(query, size, each, lambda e: _drawable(law, query, e))

                return _by_size(query, least, alike)

            yield _dearest(self, spent, cost, query.rows)
        # No closed form after scores that cost no delta, and other noise is less then.
        elif self.delta > 0 and all(m.pure_epsilon is None for m in spent):
            epsilon, delta = row_budget(self.left, self.delta, query.rows)
            mu_scores = gaussian_part(spent)

            def least(size: int) -> Law:
                if delta > _DELTA_SHARE / size:
                    raise BudgetError(
                        f"delta = {delta:g} is too large for picked labels from bags of {size}: "
                        "such noise would lean on delta instead of epsilon. Choose delta <= "
                        f"{_DELTA_SHARE / size:g}, or label_kind='mean'."
                    )
                mu = composed_pick_mu(epsilon, delta, mu_scores, size)
                return _drawable(law, query, mu)

            yield _by_size(query, least, alike)

    def class_picks(self, *, classes: int, sizes: Iterable[int], rows: int = 1) -> Mechanism:
        """Return the chances of keeping a picked class, for each bag size; they need no delta."""
        if self.noise != "auto":
            raise BudgetError(
                "picked classes are hidden by randomised response, which has no other noise. "
                "Leave noise at 'auto'."
            )
        query = ClassPicks(tuple(sorted({int(size) for size in sizes})), rows)
        each = _below(self._exactly_left / rows)

        def least(size: int) -> Law:
            return _least_for_pick(
                query, size, each, lambda e: RandomisedResponse.least(classes, e)
            )

        return self._checked(_by_size(query, least, alike=False), ())

    def per_row(self, rows: int) -> "ExactCalibration":
        """Return the calibration for single rows that covers groups of `rows`."""
        epsilon, delta = row_budget(self.left, self.delta, rows)
        return ExactCalibration(epsilon, delta, self.bounds, noise=self.noise)

    def within(self, bounds: Bounds, event: Mechanism) -> "ExactCalibration":
        """Return the calibration for a private range of labels, and for what finding it left."""
        return dataclasses.replace(self, bounds=bounds, prior=(*self.prior, event))

    def after(self, event: Mechanism | None) -> "ExactCalibration":
        """Return the calibration for what a search leaves, if there is one."""
        return self if event is None else self.within(self.bounds, event)

    def with_noise(self, noise: NoiseKind) -> "ExactCalibration":
        """Return the calibration with this kind of noise."""
        return dataclasses.replace(self, noise=noise)

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

    def _checked(self, mechanism: Mechanism, spent: Sequence[Mechanism]) -> Mechanism:
        if total_delta([*self.prior, *spent, mechanism], self.epsilon) > self.delta:
            raise BudgetError(
                "calibration ended on the wrong side of the budget; please report it."
            )
        return mechanism


@lru_cache(maxsize=256)
def _least(
    rule: ExactCalibration, query: Query, spent: tuple[Mechanism, ...]
) -> tuple[Mechanism | None, BudgetError | None]:
    """Return the least of all noise on a query that is wanted and possible, or why there is none.

    Remembered, since a plan asks for the same noise again and again.
    """
    offers: list[Mechanism] = []
    refused: BudgetError | None = None
    for name, law in NOISES.items():
        if law.norm not in query.norms or rule.noise not in ("auto", name):
            continue
        try:
            offer = _offer(rule, query, law, spent)
        except BudgetError as error:  # another law may still do
            refused = refused or error
        else:
            offers.extend([] if offer is None else [offer])
    return (_least_noise(offers), None) if offers else (None, refused)


def _offer(
    rule: ExactCalibration, query: Query, law: type[Noise], spent: tuple[Mechanism, ...]
) -> Mechanism | None:
    """Return a query with the least noise of one law; None where it cannot be used."""
    move = query.move(law.norm)
    if law.needs_delta:
        mu = rule._mu_left(spent)
        if mu is None and rule.delta > 0 and spent:
            raise BudgetError("the scores spend the whole budget; give them a smaller share.")
        noise = None if mu is None else law.least(move, mu)
        return None if noise is None else Mechanism(query, (noise,))
    if law.least(move, rule._exactly_left) is None:
        return None  # whatever epsilon is
    return _dearest(
        rule, spent, lambda epsilon: Mechanism(query, (_drawable(law, query, epsilon),))
    )


def _drawable(law: type[Noise], query: Query, cost: Fraction | float) -> Noise:
    """Return the least noise of a law that makes a query cost so much; refuse what has none."""
    noise = law.least(query.move(law.norm), cost)
    if noise is None:
        raise BudgetError(f"{law.called()} noise cannot be drawn for so large a unit.")
    return noise


def _by_size(query: Picks, least: Callable[[int], Law], alike: bool) -> Mechanism:
    """Return picks with the noise of each size; that of the first where bags follow scores."""
    if alike:
        return Mechanism(query, (least(query.sizes[0]),) * len(query.sizes))
    return Mechanism(query, tuple(map(least, query.sizes)))


def _least_for_pick(query: Picks, size: int, epsilon: float, least: Callable[[float], Law]) -> Law:
    """Return the least noise with which a pick among `size` rows costs `epsilon` at most.

    Picking its row in secret brings the cost e of a label down to ``log(1 + (exp(e) - 1) / size)``,
    so that the label itself may cost ``log(1 + size (exp(epsilon) - 1))`` (LP on the theory page).
    """
    inner = math.log1p(size * math.expm1(epsilon))
    if not inner > 0:
        raise BudgetError("so little epsilon leaves nothing of a picked label.")
    law = least(inner)
    while query.cost(law, size) > epsilon:
        law = law.less_certain()
    return law


def _dearest(
    rule: ExactCalibration,
    spent: tuple[Mechanism, ...],
    cost: Callable[[Fraction], Mechanism],
    rows: int = 1,
) -> Mechanism:
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

    def fits(epsilon: Fraction) -> Mechanism | None:
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


def _least_noise(offers: Sequence[Mechanism]) -> Mechanism:
    """Return the offer with the least noise; one before it if it is hardly more.

    Those without a delta come first, and of them the plainer ones.
    """
    best, *others = sorted(offers, key=lambda offer: offer.law.needs_delta)
    for offer in others:
        if offer.law.sd <= math.sqrt(1 - WORTHWHILE) * best.law.sd:
            best = offer
    return best


def _below(value: Fraction) -> float:
    """Return the largest double that is not above a fraction, or the one before."""
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, 0.0)


def row_budget(epsilon: float, delta: float, rows: int) -> tuple[float, float]:
    """Return what one row may spend so that `rows` of them together spend (epsilon, delta)."""
    if rows == 1:
        return epsilon, delta
    return epsilon / rows, delta * math.expm1(epsilon / rows) / math.expm1(epsilon)

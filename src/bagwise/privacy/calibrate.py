"""From (epsilon, delta) to noise: calibrate the mechanisms that will be carried out.

Each law knows the noise that a cost allows. Here is which law is least for a query under a promise,
and what is left of a budget after some were paid for; the accountant is asked again before a
mechanism that completes a budget is handed out.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Literal

from bagwise.errors import BudgetError, check_name
from bagwise.privacy.accounting import gaussian_part, pure_total, total_delta
from bagwise.privacy.curves import check_delta, check_epsilon, composed_pick_mu, gaussian_mu
from bagwise.privacy.grid import grid_step
from bagwise.privacy.laws import LAWS, NOISES, Law, Unbiased
from bagwise.privacy.laws.law import below
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.queries import Picks, Query
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
_ROUNDING = 1e-12  # of an epsilon, more than logarithms and exponentials are off
_HALVINGS = 24  # of the interval in which the cost of a pure mechanism after Gaussian scores lies
_ALL_SPENT = "the scores spend the whole budget; give them a smaller share."

Least = Callable[[Fraction | float], Law]
"""The least noise of a law at a cost."""


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
        """The epsilon that earlier private choices have left."""
        return self.epsilon - math.fsum(choice.epsilon for choice in self.prior)

    @property
    def exactly_left(self) -> Fraction:
        """The same without rounding."""
        return Fraction(self.epsilon) - sum(m.pure_epsilon or 0 for m in self.prior)

    @property
    def score_noises(self) -> tuple[ScoreNoise, ...]:
        """The noise that scores may have. Staircase noise is for single numbers, not for scores."""
        laplace: tuple[ScoreNoise, ...] = () if self.noise == "gaussian" else ("laplace",)
        gaussian: tuple[ScoreNoise, ...] = () if self.noise == "laplace" else ("gaussian",)
        return (*laplace, *(gaussian if self.delta > 0 else ()))

    def least(
        self,
        query: Query,
        spent: Sequence[Mechanism] = (),
        *,
        counts: Mapping[int, int] | None = None,
        classes: int = 0,
    ) -> Mechanism:
        """Return a query with the least noise that fits the budget after `spent`.

        Noise without a delta is always an answer to a promise with one, and mostly the better one.
        Picks have noise by the size of the bag. If scores were bought they may decide how large a
        row's bag is: then every size gets the noise of the first, the smallest that a bag can be.
        Noise by size would be read together with the scores, and the worst size may be another for
        every score. Which law is less is decided by how often each size occurs, if `counts` tell.
        Picks of one of `classes` keep it by a chance, and need no delta.

        More than one of the rows of a protected unit is covered by the general bound for groups,
        for picks and for what was spent on scores, which must have been calibrated by row.
        """
        times = tuple(counts.get(size, 0) if counts else 1 for size in query.bag_sizes)
        return _least(self, query, tuple(spent), times, classes)

    def part(self, query: Query, noise: ScoreNoise, share: float) -> Mechanism:
        """Return a query with this noise that spends a share of epsilon, or of mu squared."""
        if not 0 < share <= 1:
            raise BudgetError(f"a share must be above 0 and at most 1, got {share:g}.")
        law = NOISES[noise]
        cost: Fraction | float = Fraction(share) * self.exactly_left
        if law.needs_delta:
            cost = math.sqrt(share) * gaussian_mu(self.left, self.delta)
        return Mechanism(query, (law.least(query.moves[law.norm], cost),))

    def per_row(self, rows: int) -> "ExactCalibration":
        """Return the calibration for single rows that covers groups of `rows`."""
        epsilon, delta = row_budget(self.left, self.delta, rows)
        return ExactCalibration(epsilon, delta, self.bounds, noise=self.noise)

    def within(self, bounds: Bounds, *searches: Mechanism | None) -> "ExactCalibration":
        """Return the calibration for a private range, with the budget left after finding it."""
        made = tuple(event for event in searches if event is not None)
        return dataclasses.replace(self, bounds=bounds, prior=(*self.prior, *made))

    def after(self, *searches: Mechanism | None) -> "ExactCalibration":
        """Return the calibration for the budget that searches leave, if there are any."""
        return self.within(self.bounds, *searches)

    def with_noise(self, noise: NoiseKind) -> "ExactCalibration":
        """Return the calibration with this kind of noise."""
        return dataclasses.replace(self, noise=noise)

    def mu_left(self, spent: Sequence[Mechanism]) -> float | None:
        """Return the mu left for Gaussian noise; None if nothing is left.

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


@lru_cache(maxsize=256)
def _least(
    rule: ExactCalibration,
    query: Query,
    spent: tuple[Mechanism, ...],
    times: tuple[int, ...],
    classes: int,
) -> Mechanism:
    """Return the least of all noise on a query that is requested and possible.

    Remembered, since a plan asks for the same noise again and again.
    """
    offers: list[Mechanism] = []
    refused: BudgetError | None = None
    for name, law in LAWS.items():
        if law.norm not in query.moves or rule.noise not in ("auto", name):
            continue
        find = _offer_with_delta if law.needs_delta else _offer_without_delta
        least = partial(law.least, query.moves[law.norm]._replace(classes=classes))
        try:
            offer = find(rule, query, least, spent)
        except BudgetError as error:  # another law may still do
            refused = refused or error
        else:
            offers.extend([] if offer is None else [offer])
    if not offers:
        raise refused or BudgetError(
            f"noise={rule.noise!r} is not possible for these {query.hides}"
            + (" without a delta." if rule.noise == "auto" else ". Leave noise at 'auto'.")
        )

    def noise(offer: Mechanism) -> float:
        each = zip(offer.laws, times or (1,), strict=True)
        return math.hypot(*(law.sd * math.sqrt(n) for law, n in each))

    # One that comes earlier is taken if it has hardly more noise, but for picks: those without a
    # delta come first, and of them the plainer ones.
    worthwhile = 0.0 if times else WORTHWHILE
    best, *others = sorted(offers, key=lambda offer: offer.law.needs_delta)
    for offer in others:
        if noise(offer) <= math.sqrt(1 - worthwhile) * noise(best):
            best = offer
    if total_delta([*rule.prior, *spent, best], rule.epsilon) > rule.delta:
        raise BudgetError("calibration ended on the wrong side of the budget; please report it.")
    return best


def _offer_with_delta(
    rule: ExactCalibration, query: Query, least: Least, spent: tuple[Mechanism, ...]
) -> Mechanism | None:
    """Return a query with the least noise of a law that needs a delta; None if it has no use."""
    if not isinstance(query, Picks):
        mu = rule.mu_left(spent)
        if mu is None and rule.delta > 0 and spent:
            raise BudgetError(_ALL_SPENT)
        return None if mu is None else Mechanism(query, (least(mu),))
    # No closed form after scores that cost no delta, and other noise is less then.
    if rule.delta == 0 or any(m.pure_epsilon is not None for m in spent):
        return None
    epsilon, delta = row_budget(rule.left, rule.delta, query.rows)
    mu_scores = gaussian_part(spent)

    def of_size(size: int) -> Law:
        if delta > _DELTA_SHARE / size:
            raise BudgetError(
                f"delta = {delta:g} is too large for picked labels from bags of {size}: "
                "such noise would lean on delta instead of epsilon. Choose delta <= "
                f"{_DELTA_SHARE / size:g}, or label_kind='mean'."
            )
        return least(composed_pick_mu(epsilon, delta, mu_scores, size))

    return _by_size(query, of_size, alike=bool(spent))


def _offer_without_delta(
    rule: ExactCalibration, query: Query, least: Least, spent: tuple[Mechanism, ...]
) -> Mechanism:
    """Return a query with the least noise of a law that needs no delta.

    After others without a delta it costs what they leave of epsilon. After Gaussian noise it costs
    more than that noise leaves at this delta, since the worst of both hardly ever comes together:
    the accountant composes both curves, and the largest cost that it accepts is found by halving.
    Scores before picks were set by row, and have to cover the rows of a unit.
    """

    def at(epsilon: Fraction) -> Mechanism:
        if isinstance(query, Picks):
            return _picks_at(query, least, epsilon, alike=bool(spent))
        return Mechanism(query, (least(epsilon),))

    rows = query.rows if isinstance(query, Picks) else 1
    pure, left = pure_total([m.widened(rows) for m in spent]), rule.exactly_left
    if pure is not None:
        if left <= pure:
            raise BudgetError(_ALL_SPENT)
        return at(left - pure)
    low, high, best = Fraction(0), left, None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        try:
            made = at(middle)
        except BudgetError:  # more noise than can be drawn
            fits = False
        else:
            fits = total_delta([*rule.prior, *spent, made], rule.epsilon) <= rule.delta
        low, high, best = (middle, high, made) if fits else (low, middle, best)
    if best is None:
        raise BudgetError(_ALL_SPENT)
    return best


def _picks_at(query: Picks, least: Least, epsilon: Fraction, *, alike: bool) -> Mechanism:
    """Return the picks that cost epsilon for all rows of a unit, given the least law at a cost.

    Picking its row in secret brings the cost e of a label down to ``log(1 + (exp(e) - 1) / size)``,
    so that the label itself may cost ``log(1 + size (exp(epsilon) - 1))`` (LP on the theory page).
    """
    each = below(epsilon / query.rows)

    def of_size(size: int) -> Law:
        inner = math.log1p(size * math.expm1(each))
        if not inner > 0:
            raise BudgetError("so little epsilon leaves nothing of a picked label.")
        while query.cost(law := least(inner), size) > each:  # by a rounding
            inner *= 1 - _ROUNDING
        return law

    return _by_size(query, of_size, alike=alike)


def _by_size(query: Picks, of_size: Callable[[int], Law], *, alike: bool) -> Mechanism:
    """Return picks with the noise of each size; that of the first where bags follow scores."""
    if alike:
        return Mechanism(query, (of_size(query.sizes[0]),) * len(query.sizes))
    return Mechanism(query, tuple(map(of_size, query.sizes)))


def row_budget(epsilon: float, delta: float, rows: int) -> tuple[float, float]:
    """Return what one row may spend so that `rows` of them together spend (epsilon, delta)."""
    if rows == 1:
        return epsilon, delta
    return epsilon / rows, delta * math.expm1(epsilon / rows) / math.expm1(epsilon)

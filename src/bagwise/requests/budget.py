"""The budget of a request: a promise or none, its bounds, its unit; and its certificate."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from bagwise.errors import BoundsError, BudgetError, check_name
from bagwise.privacy import Certificate
from bagwise.privacy.accounting import delivered
from bagwise.privacy.calibrate import (
    NOISE_KINDS,
    Calibration,
    ExactCalibration,
    NoiseKind,
)
from bagwise.privacy.circumstances import Circumstance, OtherRule, SimulatedNoise
from bagwise.privacy.curves import check_delta, check_epsilon
from bagwise.privacy.mark import Mark
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.private_bounds import PrivateBounds
from bagwise.privacy.promise import check_promise
from bagwise.privacy.units import Units, units_of
from bagwise.requests.records import Privacy
from bagwise.rng import NoiseSource, SecureNoise
from bagwise.rows import Rows
from bagwise.rows.columns import find_column
from bagwise.rows.labels import Bounds, check_bounds

AnyBounds = Sequence[float] | PrivateBounds | None
_OTHERWISE = " If a label is one of several classes, name them instead: classes=[...] (--classes)."


@dataclass(frozen=True)
class Budget:
    """What is promised about labels, and whose; what was spent on it before.

    Attributes
    ----------
    calibration : Calibration or None
        None where nothing is promised, and nothing is hidden.
    bounds : (lo, hi) or None
        Public range of a label.
    unit : str or None
        The column whose values are protected together; None: each row by itself.
    noise_source : NoiseSource
    """

    calibration: Calibration | None = None
    bounds: Bounds | None = None
    unit: str | None = None
    noise_source: NoiseSource = field(default_factory=SecureNoise)

    @classmethod
    def of(
        cls,
        epsilon: float | None,
        delta: float | None,
        *,
        bounds: AnyBounds = None,
        unit: str | None = None,
        classes: bool = False,
        not_private: bool = False,
        privacy: Privacy | None = None,
        what: str = "release",
    ) -> Self:
        """Check what a user asks for; `what` is the word for it in messages.

        Without a delta the promise is pure.

        >>> Budget.of(1.0, None, bounds=(0, 5)).calibration
        ExactCalibration(epsilon=1.0, delta=0.0, bounds=(0.0, 5.0), prior=(), noise='auto')
        """
        privacy = privacy or Privacy()
        noise, calibration = privacy.noise, privacy.calibration
        if isinstance(noise, NoiseSource):
            raise BudgetError(
                "noise= takes the name of a kind of noise; a source of randomness goes to "
                "noise_source=."
            )
        check_name("noise", noise, NOISE_KINDS, BudgetError)
        if classes and bounds is not None:
            raise BoundsError("a label with classes has no bounds; leave them out.")
        limits, prior = _resolve_bounds((0.0, 1.0) if classes else bounds, unit, what)
        source = privacy.noise_source or SecureNoise()
        if calibration is not None:
            rule: Calibration | None = _check_experiment(
                calibration, prior, alone=epsilon is delta is None, not_private=not_private
            )
        elif _wants_noise(epsilon, delta, source, not_private=not_private, what=what):
            rule = _exact_calibration(epsilon, delta, limits, prior, noise, what)
        else:
            rule, limits = None, None if classes else limits
        if noise != "auto" and not isinstance(rule, ExactCalibration):
            raise BudgetError(f"noise={noise!r} belongs to a promise; give an epsilon with it.")
        return cls(rule, limits if rule is None else rule.bounds, unit, source)

    def check_rows(self, n_rows: int) -> None:
        """Refuse an empty promise; experiments, which promise nothing, may have any parameters."""
        rule = self.calibration
        if rule is not None and rule.is_exact and self.noise_source.is_secret:
            check_promise(rule.epsilon, rule.delta, n_rows=n_rows)

    def units_in(self, table: Rows) -> Units:
        """Return who is protected; refuse bounds that were found for smaller units."""
        if self.unit is None:
            return Units()
        find_column(table, self.unit, role="unit")
        units = units_of(table, self.unit)
        self.check_units(units.largest)
        return units

    def check_units(self, largest: int) -> None:
        """Refuse bounds that were found for units of fewer rows than the largest has."""
        prior = () if self.calibration is None else self.calibration.prior
        if any(event.unit_rows < largest for event in prior):
            raise BudgetError(
                f"the bounds were found for units of fewer than {largest} rows. "
                "Find them again on this table, with the same unit."
            )


def _resolve_bounds(
    bounds: AnyBounds, unit: str | None, what: str
) -> tuple[Bounds | None, tuple[Mechanism, ...]]:
    """Return the public range of a label, and what was spent on finding it."""
    if not isinstance(bounds, PrivateBounds):
        return check_bounds(bounds), ()
    if bounds.unit != unit:
        raise BoundsError(
            f"the bounds were found for unit {bounds.unit!r}, the {what} protects {unit!r}. "
            "Find them again with the same unit."
        )
    return check_bounds(bounds.bounds), (bounds.event,)


def _wants_noise(
    epsilon: float | None, delta: float | None, source: NoiseSource, *, not_private: bool, what: str
) -> bool:
    """Tell whether anything is to be hidden; experiments hide it behind noise that is no secret."""
    given = epsilon is not None or delta is not None
    if not source.is_secret and not not_private:
        raise BudgetError("simulated noise is not private: say so with not_private=True.")
    if given and not_private and source.is_secret:
        raise BudgetError("give either epsilon, or not_private, not both.")
    if not given and not not_private:
        raise BudgetError(
            f"say how private the {what} is: epsilon (for example --epsilon 1), with a delta or "
            "without, or not_private=True (--not-private) to release exact aggregates."
        )
    return given


def _exact_calibration(
    epsilon: float | None,
    delta: float | None,
    bounds: Bounds | None,
    prior: tuple[Mechanism, ...],
    noise: NoiseKind,
    what: str,
) -> ExactCalibration:
    """Return the rule for a promise; one without a delta is pure."""
    if epsilon is None:
        raise BudgetError("a delta alone promises nothing; give an epsilon with it.")
    delta = 0.0 if delta is None else delta
    check_epsilon(epsilon)
    check_delta(delta)
    if bounds is None:
        raise BoundsError(
            f"a private {what} needs bounds=(lo, hi) (--bounds LO HI): the range a label can have, "
            f"known without looking at these labels.{_OTHERWISE if what == 'release' else ''}"
        )
    return ExactCalibration(float(epsilon), float(delta), bounds, prior, noise)


def _check_experiment(
    calibration: Calibration, prior: tuple[Mechanism, ...], *, alone: bool, not_private: bool
) -> Calibration:
    if prior:
        raise BudgetError("a calibration brings its own bounds; it cannot charge for others.")
    if not alone:
        raise BudgetError("a calibration brings its own epsilon and delta; do not give them too.")
    if calibration.is_exact:
        raise BudgetError("the exact calibration is what epsilon and delta stand for; give those.")
    if not not_private:
        raise BudgetError("only the exact calibration delivers privacy; say not_private=True.")
    return calibration


def certify(
    events: tuple[Mechanism, ...],
    budget: Budget,
    *,
    unit_rows: int,
    smallest_bag: int | None = None,
    tightened: Bounds | None = None,
    limit: float | None = None,
    circumstances: tuple[Circumstance, ...] = (),
    mark: Mark | None = None,
) -> Certificate:
    """Return the certificate of whatever spent a budget, checked against its own events."""
    rule = budget.calibration
    why_not: tuple[Circumstance, ...] = ()
    # Nothing is claimed where the noise, or the rule for it, is for experiments.
    if rule is not None and not budget.noise_source.is_secret:
        why_not = (SimulatedNoise(),)
    elif rule is not None and not rule.is_exact:
        why_not = (OtherRule(epsilon=float(rule.epsilon), delta=float(rule.delta)),)
    asked = None if why_not or rule is None else (rule.epsilon, rule.delta)
    epsilon, delta = (None, None) if asked is None else delivered(events, *asked)
    certificate = Certificate(
        epsilon=epsilon,
        delta=delta,
        bounds=None
        if budget.bounds is None
        else (float(budget.bounds[0]), float(budget.bounds[1])),
        events=events,
        smallest_bag=smallest_bag,
        noise_source=budget.noise_source.name if events else "none",
        unit=None if rule is None else budget.unit,
        unit_rows=1 if rule is None else unit_rows,
        circumstances=(*why_not, *circumstances),
        asked_epsilon=None if asked is None else asked[0],
        asked_delta=None if asked is None else asked[1],
        tightened=tightened,
        limit=limit,
        # What promises nothing spends nothing that could be named, and repeats where its seed does.
        mark=None if asked is None else mark or Mark.new(),
    )
    certificate.check()
    return certificate

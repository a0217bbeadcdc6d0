"""The budget of a request: its guarantee if any, its bounds, its unit, and its certificate."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np
import pyarrow as pa

from bagwise.errors import BoundsError, BudgetError, check_name
from bagwise.families import find_family
from bagwise.privacy import Certificate
from bagwise.privacy.accounting import delivered
from bagwise.privacy.calibrate import (
    NOISE_KINDS,
    ExactCalibration,
)
from bagwise.privacy.circumstances import Circumstance, Mark, SimulatedNoise
from bagwise.privacy.curves import check_delta, check_epsilon
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.private_range import ANY_LABEL
from bagwise.privacy.promise import check_promise
from bagwise.privacy.units import Units, units_of
from bagwise.requests.records import Privacy
from bagwise.rng import NoiseSource, SecureNoise
from bagwise.rows.columns import find_column
from bagwise.rows.labels import Bounds, check_bounds
from bagwise.rows.table import Rows

AnyBounds = Sequence[float] | Literal["auto"] | None
_STAND_IN: Bounds = (0.0, 1.0)  # nothing is settled by where bounds are: true and false have these
_OTHERWISE = " If a label is one of several classes, name them instead: classes=[...] (--classes)."


@dataclass(frozen=True)
class Budget:
    """The guarantee that is promised about labels, and the unit that it protects.

    Attributes
    ----------
    calibration : ExactCalibration or None
        None where nothing is promised, and nothing is hidden.
    bounds : (lo, hi) or None
        Public range of a label; a stand-in until it is found. None: nobody has stated one.
    find_within : (lo, hi) or None
        Ends that labels have by nature, perhaps infinite: bounds are to be found privately within.
    unit : str or None
        The column whose values are protected together; None: each row by itself.
    noise_source : NoiseSource
    """

    calibration: ExactCalibration | None = None
    bounds: Bounds | None = None
    unit: str | None = None
    noise_source: NoiseSource = field(default_factory=SecureNoise)
    find_within: Bounds | None = None

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
        family: str = "auto",
        what: str = "release",
    ) -> Self:
        """Check the user's arguments; `what` is the word for the output in messages.

        Without a delta the promise is pure. Where bounds are to be found, labels of a family have
        its ends.

        >>> Budget.of(1.0, None, bounds=(0, 5)).calibration
        ExactCalibration(epsilon=1.0, delta=0.0, bounds=(0.0, 5.0), prior=(), noise='auto')
        """
        privacy = privacy or Privacy()
        noise = privacy.noise
        if isinstance(noise, NoiseSource):
            raise BudgetError(
                "noise= must be the name of a kind of noise; pass a source of randomness as "
                "noise_source=."
            )
        check_name("noise", noise, NOISE_KINDS, BudgetError)
        if classes and bounds is not None:
            raise BoundsError("a label with classes has no bounds; leave them out.")
        asked = (0.0, 1.0) if classes else bounds
        found, source = asked == "auto", privacy.noise_source or SecureNoise()
        ends = ANY_LABEL if family == "auto" else find_family(family).label_range
        limits = ends if found else check_bounds(asked)
        stand_in = limits is None or not np.isfinite(limits).all()
        rule: ExactCalibration | None = None
        if _wants_noise(epsilon, delta, source, not_private=not_private, what=what):
            if epsilon is None:
                raise BudgetError("a delta alone promises nothing; give an epsilon with it.")
            delta = 0.0 if delta is None else delta
            check_epsilon(epsilon)
            check_delta(delta)
            within = _STAND_IN if stand_in or limits is None else limits
            rule = ExactCalibration(float(epsilon), float(delta), within, noise=noise)
        elif classes:
            limits = None
        if found and rule is None:
            raise BoundsError(
                "bounds='auto' are found privately: give an epsilon, or bounds=(lo, hi)."
            )
        if noise != "auto" and rule is None:
            raise BudgetError(f"noise={noise!r} belongs to a promise; give an epsilon with it.")
        return cls(
            rule,
            limits if rule is None or limits is None else rule.bounds,
            unit,
            source,
            find_within=ends if found and stand_in else None,
        )

    @property
    def rule(self) -> ExactCalibration:
        """The rule for noise, if there is to be any."""
        if self.calibration is None:
            raise AssertionError("where nothing is promised there is no rule for noise")
        return self.calibration

    @property
    def promises(self) -> bool:
        """Whether anything is promised: experimental noise promises nothing."""
        return self.calibration is not None and self.noise_source.is_secret

    @property
    def has_bounds(self) -> bool:
        """Whether bounds are stated, or nothing needs them."""
        stated = self.calibration is None or self.bounds is not None
        return stated and self.find_within is None

    def of_type(self, kind: pa.DataType | None, what: str) -> Self:
        """Return the budget of a label of this type, if it has bounds; None is no type to go by.

        True and false are 1 and 0: they need no bounds, and none are looked for.
        """
        if self.has_bounds:
            return self
        if kind is not None and pa.types.is_boolean(kind):
            return replace(self, bounds=_STAND_IN, find_within=None)
        if self.bounds is None or kind is None:
            auto = " If nobody knows it: bounds='auto' (--bounds auto)." if kind is not None else ""
            raise BoundsError(
                f"a private {what} needs bounds=(lo, hi) (--bounds LO HI): the range of possible "
                f"labels, known without looking at these labels.{auto}"
                f"{_OTHERWISE if what == 'release' else ''}"
            )
        return self

    def check_rows(self, n_rows: int) -> None:
        """Refuse an empty promise; experiments, which promise nothing, may have any parameters."""
        if self.promises:
            check_promise(self.rule.epsilon, self.rule.delta, n_rows=n_rows)

    def units_in(self, table: Rows) -> Units:
        """Return who is protected."""
        if self.unit is None:
            return Units()
        find_column(table, self.unit, role="unit")
        return units_of(table, self.unit)


def _wants_noise(
    epsilon: float | None, delta: float | None, source: NoiseSource, *, not_private: bool, what: str
) -> bool:
    """Return whether anything is to be hidden; experiments use noise that is not secret."""
    given = epsilon is not None or delta is not None
    if not source.is_secret and not not_private:
        raise BudgetError("simulated noise is not private: say so with not_private=True.")
    if given and not_private and source.is_secret:
        raise BudgetError("give either epsilon, or not_private, not both.")
    if not given and not not_private:
        raise BudgetError(
            f"state how private the {what} must be: epsilon (for example --epsilon 1), with or "
            "without a delta, or not_private=True (--not-private) for exact aggregates."
        )
    return given


def certify(
    events: tuple[Mechanism, ...],
    budget: Budget,
    *,
    unit_rows: int,
    smallest_bag: int | None = None,
    limit: float | None = None,
    circumstances: tuple[Circumstance, ...] = (),
    mark: Mark | None = None,
) -> Certificate:
    """Return the certificate of an output that spent a budget, checked against its own events."""
    rule = budget.calibration
    # Nothing is claimed where the noise is for experiments.
    why_not = () if rule is None or budget.promises else (SimulatedNoise(),)
    asked = None if why_not or rule is None else (rule.epsilon, rule.delta)
    epsilon, delta = (None, None) if asked is None else delivered(events, *asked)
    ranged = rule is not None and any(event.hides == "range" for event in rule.prior)
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
        tightened=rule.bounds if rule is not None and ranged else None,
        limit=limit,
        # Outputs without a guarantee spend nothing to be named, and repeat if their seed does.
        mark=None if asked is None else mark or Mark.new(),
    )
    certificate.check()
    return certificate

"""Candidates compared by noisy counts, and only one of them told: bounds, a range, a limit."""

from fractions import Fraction
from typing import Any, ClassVar, Self

from bagwise.privacy.curves import MEANINGLESS_EPSILON
from bagwise.privacy.loss_distributions import PureCurve
from bagwise.privacy.mechanisms.mechanism import LARGEST_COUNT, Hides, Tagged, impossible
from bagwise.privacy.mechanisms.randomised_response import exported_coin
from bagwise.rows.labels import Bounds


class NoisyChoice(Tagged, frozen=True, tag="noisy-choice", kw_only=False):
    """Bounds for labels, chosen `epsilon`-privately without a delta (`private_range`).

    Attributes
    ----------
    epsilon : float
        For all rows of a unit together.
    rows : int
        Rows of a unit that it was set for.
    """

    hides: ClassVar[Hides] = "bounds"

    epsilon: float
    rows: int = 1

    @property
    def pure_epsilon(self) -> Fraction:
        """What it costs, without a delta."""
        return Fraction(self.epsilon)

    @property
    def curve(self) -> PureCurve:
        """The worst that a pure mechanism can be: a coin."""
        return PureCurve(self.epsilon)

    def widened(self, rows: int) -> Self:
        """Return what it amounts to for `rows` units: epsilons add up."""
        return type(self)(self.epsilon * rows, self.rows * rows)

    def check(self, bounds: Bounds | None) -> None:  # noqa: ARG002 (it may have found them)
        """Refuse parameters that nothing can have."""
        if not (0 < self.epsilon <= MEANINGLESS_EPSILON and 1 <= self.rows <= LARGEST_COUNT):
            raise impossible(self.kind)

    def allows_units(self, rows: int, bounds: Bounds | None) -> bool:  # noqa: ARG002
        """Tell by the rows that it names."""
        return self.rows >= rows

    def exported(self, google: Any) -> list[Any]:
        """Return it as an event of dp-accounting."""
        return [exported_coin(self.epsilon, google)]


class NoisyRange(NoisyChoice, frozen=True, tag="noisy-range", kw_only=False):
    """A range within the bounds that labels were clipped to, chosen in the same way."""

    hides: ClassVar[Hides] = "range"


class NoisyLimit(NoisyChoice, frozen=True, tag="noisy-limit", kw_only=False):
    """A limit that was set to what a private model leaves of labels, chosen in the same way."""

    hides: ClassVar[Hides] = "limit"

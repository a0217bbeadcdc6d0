"""Candidates compared with noisy counts of labels, and only one of them told: private bounds."""

from fractions import Fraction
from typing import Any, ClassVar

from bagwise.data.labels import Bounds
from bagwise.privacy.curves import MEANINGLESS_EPSILON
from bagwise.privacy.loss_distributions import PureCurve
from bagwise.privacy.mechanisms.mechanism import LARGEST_COUNT, Hides, Tagged, impossible
from bagwise.privacy.mechanisms.randomised_response import exported_coin


class NoisyChoice(Tagged, frozen=True, tag="noisy-choice", kw_only=False):
    """A choice that is `epsilon`-private without a delta; `private_bounds` has the proof.

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

    def widened(self, rows: int) -> "NoisyChoice":
        """Return what it amounts to for `rows` units: epsilons add up."""
        return NoisyChoice(self.epsilon * rows, self.rows * rows)

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

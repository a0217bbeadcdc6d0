"""Exponential noise on the costs of candidates, of which only the cheapest is published.

Report noisy max with exponential noise, which is permute-and-flip; the proof is in `private_range`,
beside the choice itself. All that the accountant uses is that it is pure: its curve is that of the
worst mechanism of its epsilon, a coin (Kairouz, Oh and Viswanath 2015).
"""

from fractions import Fraction
from typing import ClassVar

from bagwise.privacy.curves import MEANINGLESS_EPSILON, StepCurve, pure_curve
from bagwise.privacy.laws.law import Law, Move, Norm


class Exponential(Law, frozen=True, tag="exponential"):
    """Noise that makes a choice cost `epsilon`, for all rows of a unit together."""

    norm: ClassVar[Norm] = "choice"

    epsilon: float

    def curve(self, move: Move) -> StepCurve:
        """Return the curve of a coin; epsilons of several units add up."""
        return pure_curve(self.epsilon * move.times)

    def pure_epsilon(self, move: Move) -> Fraction:
        """Return the cost of a choice."""
        return Fraction(self.epsilon) * move.times

    def is_possible(self, move: Move) -> bool:
        """Return whether its parameters are meaningful."""
        del move
        return 0 < self.epsilon <= MEANINGLESS_EPSILON

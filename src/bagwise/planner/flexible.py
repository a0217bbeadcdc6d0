"""Bags for learners that are not linear, such as boosted trees and networks.

No exact error is known for them, as it is for linear models. Two things are known of it, both as
shares of what a learner could explain with the labels of all rows:

- *Noise.* A learner that spends p parameters on n rows in bags of k, whose labels vary by v around
  what bags expect, is off by about ``p v k / n``, as least squares is. Privacy noise on a mean of k
  labels has a variance that falls with the square of k, so that large bags are better.
- *Mixing.* What tells rows of a bag apart is hard to learn. On real tables trees kept less the
  larger bags were, by about the same for every doubling, whatever the noise.

So there is one best size, which falls with epsilon and with the number of rows. The two constants
were read off public tables; between sizes next to each other on the grid the difference is small.

Where epsilon is large, no rows need to be mixed: every label is reported by itself, by an unbiased
randomizer. Boosted trees spend more parameters on such labels, since no bag holds them together.

Which rows are near is told by a private model, if one can be bought that tells anything: its error
is known in advance, from the features and the promise. With many columns and few rows it would be
noise, and noise for a metric is worse than none.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from bagwise.bagging import BaggingStrategy
from bagwise.bagging.kmeans_bags import KMeansBags
from bagwise.errors import BudgetError, StrategyError
from bagwise.planner.candidates import buy_model, response_of
from bagwise.planner.problem import Problem
from bagwise.planner.request import Prior, powers, usable
from bagwise.privacy.aggregate import LabelKind
from bagwise.privacy.calibrate import ExactCalibration

PARAMETERS = 80
"""As many as boosted trees seem to spend under privacy noise."""

PARAMETERS_ON_ROWS = 450
"""The same where every label is reported by itself: on California housing, the one table that it
was read off, 350 to 540 at epsilon 0.5 to 4."""

MIXING = 0.04
"""Share of what could be learnt that is lost each time that bags are 2.7 times as large."""

SINGLY: Final = "unbiased"
"""How single labels are reported."""

_LARGEST = 1e6  # times what could be learnt: nothing is left, and numbers stay finite

FEWEST_BAGS = 50
"""Fewer bags leave trees nothing to be chosen by."""


AFFORDABLE = 10.0
"""Error of a private model's predictions by noise, in variances of the signal as it is believed to
be, up to which its metric is worth having. It looks like much: signals are often stronger than that
belief, models are shrunk, and a metric need not be right to be useful. Of public tables, those at 6
and 8 gained by it in bags of 20 and 50, and one at 55 lost."""


def bags_for_flexible(problem: Problem) -> BaggingStrategy:
    """Return the strategy for learners that are not linear; features and promise decide."""
    by_model, rule = KMeansBags(scale="model"), problem.calibration
    if rule is None or problem.classes is not None:
        return KMeansBags()
    bought = buy_model(problem, by_model, rule, bag_size=1)
    if bought is None or bought.error > AFFORDABLE * problem.prior.signal_sd**2:
        return KMeansBags()
    return by_model


@dataclass(frozen=True)
class FlexibleProblem:
    """What the size of bags depends on; all of it is public.

    Attributes
    ----------
    n_rows, largest_unit : int
    prior : Prior
    rule : ExactCalibration or None
        None when not private.
    label_kind : {"mean", "pick"}
    classes : int or None
    """

    n_rows: int
    prior: Prior
    rule: ExactCalibration | None
    label_kind: LabelKind = "mean"
    classes: int | None = None
    largest_unit: int = 1

    @classmethod
    def of(cls, problem: Problem, label_kind: LabelKind = "mean") -> "FlexibleProblem":
        """Return what is left of the features for the choice of a size: how many rows there are."""
        sample = problem.sample
        return cls(
            sample.n_rows,
            problem.prior,
            problem.calibration,
            label_kind,
            problem.classes,
            sample.largest,
        )

    def noise_lost(self, bag_size: int) -> float:
        """Return the share of the signal that is lost to noise on the labels of bags."""
        own = self.prior.label_noise_sd**2
        if self.label_kind == "mean":
            own /= bag_size
        per_bag = own + self._privacy_sd(bag_size) ** 2
        return self._lost_to(PARAMETERS * per_bag * bag_size)

    def lost_singly(self) -> float:
        """Return the share that is lost if every label is reported by itself; all of it is noise.

        >>> rules = [ExactCalibration(epsilon, 0.0, (0.0, 1.0)) for epsilon in (1.0, 2.0, 4.0)]
        >>> problems = [FlexibleProblem(16_000, Prior(0.088, 0.088), rule) for rule in rules]
        >>> [one.lost_singly() < one.lost(one.best_size(least=10)) for one in problems]
        [False, False, True]
        """
        if self.rule is None or self.classes is not None or self.label_kind != "mean":
            return float("inf")
        try:
            channel = self.rule.single_labels(SINGLY, rows=self.largest_unit)
        except BudgetError:
            return float("inf")
        own = self.prior.label_noise_sd
        response = response_of(channel, math.hypot(self.prior.signal_sd, own))
        return self._lost_to(PARAMETERS_ON_ROWS * (own**2 + response.noise_sd**2))

    def _lost_to(self, variance: float) -> float:
        signal = (self.prior.signal_sd or self.prior.label_noise_sd) ** 2
        return min(_LARGEST, float(variance / (self.n_rows * signal)))

    def lost(self, bag_size: int) -> float:
        """Return about which share of what could be learnt is lost; to compare sizes by.

        >>> rule = ExactCalibration(1.0, 0.0, (0.0, 1.0))
        >>> problem = FlexibleProblem(8_000, Prior(0.088, 0.088), rule)
        >>> min([10, 20, 50, 100, 200], key=problem.lost)
        50
        """
        return self.noise_lost(bag_size) + MIXING * float(np.log(bag_size))

    def sizes(self, *, least: int, most: int | None = None) -> list[int]:
        """Return the sizes worth a comparison, from `least` on."""
        wanted = powers(self.n_rows // FEWEST_BAGS, least)
        return usable(wanted, n_rows=self.n_rows, most=most)

    def best_size(self, *, least: int, most: int | None = None) -> int:
        """Return the size at which least is lost."""
        return min(self.sizes(least=least, most=most), key=self.lost)

    def _privacy_sd(self, bag_size: int) -> float:
        if self.rule is None:
            return 0.0
        rows, size = self.largest_unit, np.array([bag_size])
        try:
            if self.label_kind == "mean":
                rows *= 1 if self.classes is None else 2  # a changed class changes two counts
                means = self.rule.bag_means(square=rows**2, rows=rows, numbers=rows)
                return float(means.noise_sd(size)[0])
            if self.classes is None:
                picks = self.rule.picks(sizes=[bag_size], rows=rows)
                return float(picks.noise_sd(size)[0])
        except BudgetError:
            return float("inf")  # another size may do
        raise StrategyError(
            "no bag size is known for picked classes: name one (bag_size, --bag-size)."
        )

"""Bags for nonlinear learners, such as boosted trees and networks.

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

A private model determines which rows are near, if one can be bought that is informative: its error
is known in advance, from the features and the promise. With many columns and few rows it would be
noise, and noise for a metric is worse than none.
"""

import numpy as np

from bagwise.bagging import BaggingStrategy
from bagwise.bagging.kmeans_bags import KMeansBags
from bagwise.errors import StrategyError
from bagwise.planner.candidates import (
    Candidate,
    candidates_of,
    response_of,
    single_channel,
    single_labels,
)
from bagwise.planner.problem import PlanProblem, powers, usable
from bagwise.privacy.noise import LabelKind
from bagwise.requests.bag_labels import Reach
from bagwise.requests.verbs import SMALLEST
from bagwise.show.stages import report_progress

PARAMETERS = 80
"""As many as boosted trees seem to spend under privacy noise."""

PARAMETERS_ON_ROWS = 450
"""The same where every label is reported by itself: on California housing, the one table that it
was read off, 350 to 540 at epsilon 0.5 to 4."""

MIXING = 0.04
"""Share of what could be learnt that is lost each time that bags are 2.7 times as large."""

FEWEST_BAGS = 50
"""Fewer bags leave trees nothing to be chosen by."""

AFFORDABLE = 10.0
"""Error of a private model's predictions by noise, in variances of the signal as it is believed to
be, up to which its metric is worth having. It looks like much: signals are often stronger than that
belief, models are shrunk, and a metric need not be right to be useful. Of public tables, those at 6
and 8 gained by it in bags of 20 and 50, and one at 55 lost."""

_LARGEST = 1e6  # times what could be learnt: nothing is left, and numbers stay finite


def for_flexible(problem: PlanProblem) -> list[Candidate]:
    """Return bags at the best size and its neighbours, and single labels if they are allowed.

    They are in the order of what a flexible learner is expected to lose.
    """
    sizes = sizes_for(problem)
    if not problem.bag_sizes:
        best = sizes.index(best_size(problem))
        sizes = sizes[max(0, best - 1) : best + 2]
    strategy = bags_for_flexible(problem)
    ranked: list[tuple[float, Candidate]] = []
    for place, size in enumerate(sizes):
        report_progress(f"{strategy.name} bags of {size}", place / len(sizes))
        means = (one for one in candidates_of(problem, strategy, size) if one.label_kind == "mean")
        ranked += [(lost(problem, size), one) for one in means]
    if problem.single_labels:
        ranked += [(lost_singly(problem), one) for one in single_labels(problem)]
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


def bags_for_flexible(problem: PlanProblem) -> BaggingStrategy:
    """Return the strategy for learners that are not linear; features and promise decide."""
    bought = problem.buy_metric()
    if bought is None or bought.error > AFFORDABLE * problem.prior.signal_sd**2:
        return KMeansBags()
    return KMeansBags(scale="model")


def sizes_for(problem: PlanProblem) -> list[int]:
    """Return the sizes that were named, or those worth a comparison, from the least on."""
    n_rows = problem.sample.n_rows
    least = problem.request.min_bag_size or SMALLEST
    wanted = problem.bag_sizes or powers(n_rows // FEWEST_BAGS, least)
    return usable(wanted, n_rows=n_rows, most=problem.max_bag_size)


def best_size(problem: PlanProblem, kind: LabelKind = "mean") -> int:
    """Return the size at which the loss is least."""
    return min(sizes_for(problem), key=lambda size: lost(problem, size, kind))


def lost(problem: PlanProblem, bag_size: int, kind: LabelKind = "mean") -> float:
    """Return roughly the share of what could be learnt that is lost, for comparing sizes."""
    return noise_lost(problem, bag_size, kind) + MIXING * float(np.log(bag_size))


def noise_lost(problem: PlanProblem, bag_size: int, kind: LabelKind = "mean") -> float:
    """Return the share of the signal that is lost to noise on the labels of bags."""
    if kind == "pick" and problem.classes is not None:
        raise StrategyError(
            "no bag size is known for picked classes: name one (bag_size, --bag-size)."
        )
    prior, rule = problem.prior, problem.rule
    per_bag = prior.label_noise_sd**2 / (bag_size if kind == "mean" else 1)
    if rule is not None:
        reach = Reach.at_worst({bag_size: 1}, problem.sample.largest)
        event = problem.event(kind, reach, rule)
        if event is None:  # another size may do
            return _LARGEST
        per_bag += float(event.noise_sd(np.array([bag_size]))[0]) ** 2
    return _lost_to(problem, PARAMETERS * per_bag * bag_size)


def lost_singly(problem: PlanProblem) -> float:
    """Return the share that is lost to noise if every label is reported by itself."""
    prior, channel = problem.prior, single_channel(problem)
    if channel is None:
        return float("inf")
    variance = prior.label_noise_sd**2 + response_of(channel, prior)[1] ** 2
    return _lost_to(problem, PARAMETERS_ON_ROWS * variance)


def _lost_to(problem: PlanProblem, variance: float) -> float:
    signal = (problem.prior.signal_sd or problem.prior.label_noise_sd) ** 2
    return min(_LARGEST, float(variance / (problem.sample.n_rows * signal)))

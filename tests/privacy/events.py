"""Mechanisms with a sensitivity and a noise of one's choice, or with the noise that a rule sets."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import msgspec
import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.grid import grid_step
from bagwise.privacy.laws import Gaussian, Laplace
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import centred_steps
from bagwise.privacy.queries import (
    BagMeans,
    BagPicks,
    ClassPicks,
    ClassShares,
    Labels,
    MeanLoss,
    SingleLabels,
    Statistic,
)
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds


def laplace(shift: int, scale: int, step: float = 1.0) -> Mechanism:
    """Laplace noise on a number that moves by `shift` steps."""
    return Mechanism(MeanLoss(step, shift), (Laplace(scale),))


def gaussian(shift: int, scale: int) -> Mechanism:
    """Gaussian noise on numbers that move by `shift` steps in L2."""
    return Mechanism(Statistic(1.0, shift, "L2"), (Gaussian(scale),))


def with_noise(event: Any, factor: float) -> Mechanism:
    """Return the same query with so much of its noise."""
    laws = (
        msgspec.structs.replace(law, scale=max(1, round(factor * law.scale))) for law in event.laws
    )
    return Mechanism(event.query, tuple(laws))


def moving(event: Any, steps: int) -> Mechanism:
    """Return the same noise on an answer that moves by so many steps."""
    return Mechanism(msgspec.structs.replace(event.query, reach=steps), event.laws)


def bag_means(rule: Any, *, spent: Sequence[Mechanism] = (), **unit: int) -> Any:
    """Return bag means with the noise that a rule leaves them."""
    return rule.least(BagMeans.of(rule.bounds, **unit), spent)


def class_shares(rule: Any, **unit: int) -> Mechanism:
    """Return shares of classes with their noise."""
    return rule.least(ClassShares.of(rule.bounds, **unit))


def bag_picks(
    rule: Any,
    sizes: Iterable[int],
    *,
    rows: int = 1,
    spent: Sequence[Mechanism] = (),
    smallest: int | None = None,
) -> Mechanism:
    """Return picks with the noise of each size; `smallest` is asked for, and may not occur."""
    counts = Counter(sizes)
    query = BagPicks.of(rule.bounds, [*counts, *([] if smallest is None else [smallest])], rows)
    return rule.least(query, spent, counts=counts)


def class_picks(rule: Any, *, classes: int, sizes: Iterable[int], rows: int = 1) -> Mechanism:
    """Return picked classes with their chances."""
    return rule.least(ClassPicks(tuple(sorted(set(sizes))), rows), classes=classes)


def single_labels(rule: Any, rows: int = 1) -> Mechanism:
    """Return single labels with the table of chances that they are reported by."""
    return rule.with_noise("unbiased").least(SingleLabels.of(rule.bounds, rows))


def every_label(rule: Any, *, share: float, square: int = 1) -> Mechanism:
    """Return every label, for scores, with the less noise of those that scores may have."""
    query = Labels(grid_step(rule.bounds), square)
    offers = [rule.part(query, noise, share) for noise in rule.score_noises]
    return min(offers, key=lambda offer: offer.number_sd)


def model(rule: Any, noise: str, *, share: float, reach: int) -> Mechanism:
    """Return the statistics of a model with noise of this kind."""
    query = Statistic(grid_step(rule.bounds), reach, "L1" if noise == "laplace" else "L2")
    return rule.part(query, noise, share)


def mean_loss(rule: Any, *, reach: int, step: float) -> Mechanism:
    """Return a mean loss with its noise."""
    return rule.least(MeanLoss(step, reach))


def centred_means(
    labels: FloatArray,
    predictions: FloatArray,
    bags: Bags,
    bounds: Bounds,
    event: Mechanism,
    source: NoiseSource,
) -> FloatArray:
    """Return noisy means of labels that were centred on predictions."""
    both = centred_steps(labels, predictions, bounds=bounds, step=event.grid_step)
    left, expected = (bags.sum(steps) for steps in both)
    return event.hide(left[None], bags.sizes, low=bounds[0], source=source, expected=expected)


def outputs_of(event: Any) -> FloatArray:
    """Return what may be reported of a single label."""
    return np.asarray(event.query.low + event.grid_step * np.array(event.law.outputs))


def reported(labels: FloatArray, event: Mechanism, source: NoiseSource) -> FloatArray:
    """Return what is reported of single labels."""
    query = cast(SingleLabels, event.query)
    told = query.measure(labels, (query.low, query.high), 0)[None]
    return event.hide(told, np.ones(labels.size, np.int64), low=query.low, source=source)


def mechanism_for(
    kind: str, *, epsilon: float, delta: float = 0.0, bag_size: int = 50, classes: int = 2
) -> Mechanism:
    """Return a mechanism of this kind with the noise that a release of such a promise has."""
    law, _, what = kind.partition("-")
    if kind == "randomised-response-class-picks":
        law, what = "auto", "class-picks"
    rule = ExactCalibration(epsilon, delta, (0.0, 1.0)).with_noise(law)
    makers: dict[str, Callable[[], Mechanism]] = {
        "bag-means": lambda: bag_means(rule),
        "bag-picks": lambda: bag_picks(rule, sizes=[bag_size]),
        "labels": lambda: every_label(rule, share=1.0),
        "class-picks": lambda: class_picks(rule, classes=classes, sizes=[bag_size]),
    }
    return makers[what]()

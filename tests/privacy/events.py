"""Mechanisms with a sensitivity and a noise of one's choice, and the same with other noise."""

from collections.abc import Callable
from typing import Any

import msgspec

from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.laws import Gaussian, Laplace
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.queries import MeanLoss, Statistic


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


def mechanism_for(
    kind: str, *, epsilon: float, delta: float = 0.0, bag_size: int = 50, classes: int = 2
) -> Mechanism:
    """Return a mechanism of this kind with the noise that a release of such a promise has."""
    law, _, what = kind.partition("-")
    if kind == "randomised-response-class-picks":
        law, what = "auto", "class-picks"
    rule = ExactCalibration(epsilon, delta, (0.0, 1.0)).with_noise(law)
    makers: dict[str, Callable[[], Mechanism]] = {
        "bag-means": rule.bag_means,
        "bag-picks": lambda: rule.picks(sizes=[bag_size]),
        "labels": lambda: rule.labels(share=1.0),
        "class-picks": lambda: rule.class_picks(classes=classes, sizes=[bag_size]),
    }
    return makers[what]()

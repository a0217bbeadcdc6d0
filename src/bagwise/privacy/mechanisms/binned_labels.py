"""Randomised response on bins: the interval of every label, or by chance another one.

The bounds are cut into d intervals of about the same length. A label reports its own with
probability ``e^epsilon / (e^epsilon + d - 1)``, or else any other alike, as the number that undoes
this on average: its expected value is the middle of the true interval. Fewer intervals are coarser,
more of them are kept less often; d has the least mean square if every label is as likely. Where it
is known which labels are likely, other intervals are better; learning that privately would cost a
part of epsilon.

References
----------
Ghazi, Kamath, Kumar, Manurangsi, Sekhari and Zhang (2023), Regression with label differential
privacy, ICLR: for a known distribution of labels, randomised response on intervals has the least
expected loss of all mechanisms. Theirs reports the number of least loss, which leans towards the
mean; this one is for learners that expect labels without a bias.
"""

import math
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np

from bagwise.data.labels import Bounds
from bagwise.errors import BudgetError
from bagwise.privacy.mechanisms.label_channel import CHANCES, LabelChannel

POINTS = 61
"""Points that labels are rounded to: so many that up to twelve intervals can be nearly even."""


class BinnedLabels(LabelChannel, frozen=True, tag="binned-labels", kw_only=False):
    """Randomised response on intervals."""

    noise: ClassVar[str] = "bins"
    is_unbiased: ClassVar[bool] = False

    @classmethod
    def calibrated(cls, *, epsilon: float, bounds: Bounds, rows: int = 1) -> Self:
        """Return the intervals with the least error that cost `epsilon` for each row of a unit."""
        offers = [_table(epsilon, count) for count in range(2, POINTS + 1)]
        made = [cls(0.0, 1.0, *offer) for offer in offers if offer is not None]
        if not made:
            raise BudgetError("so little epsilon leaves nothing of a single label.")
        best = min(made, key=lambda one: one.mean_square)
        return cls(float(bounds[0]), float(bounds[1]), best.outputs, best.chances, rows)


@lru_cache(maxsize=1024)
def _table(
    epsilon: float, count: int
) -> tuple[tuple[float, ...], tuple[tuple[int, ...], ...]] | None:
    """Return outputs and chances of so many intervals; None if nothing is left of a label."""
    odds = math.exp(min(epsilon, 30.0))
    # The chance of a wrong one is rounded up: less truth, more privacy.
    other = math.ceil(CHANCES / (odds + count - 1)) + 1
    keep = CHANCES - (count - 1) * other
    if keep <= other:
        return None
    points = np.linspace(0.0, 1.0, POINTS)
    bin_of = np.minimum((np.arange(POINTS) * count) // POINTS, count - 1)
    middles = np.bincount(bin_of, weights=points) / np.bincount(bin_of)
    share, wrong = keep / CHANCES, other / CHANCES
    outputs = (middles - wrong * middles.sum()) / (share - wrong)
    chances = np.where(bin_of[:, None] == np.arange(count), keep, other)
    return tuple(outputs.tolist()), tuple(tuple(row) for row in chances.tolist())

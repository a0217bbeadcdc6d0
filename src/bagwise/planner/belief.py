"""Prior beliefs about the labels: whatever cannot be known from features is a stated prior."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bagwise.errors import StrategyError
from bagwise.families import Family
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.promise import LARGEST_EPSILON
from bagwise.privacy.queries import BagMeans
from bagwise.requests.answers import Answers
from bagwise.requests.budget import Budget
from bagwise.requests.provenance import prior_text
from bagwise.requests.queries import REACH
from bagwise.rows.labels import Bounds
from bagwise.theory.beliefs import DEFAULT_MISFIT

FEW_BAGS = 0.05
"""What few bags cost beyond the exact errors, a share of the signal's variance for each coefficient
per bag. The errors suppose that the fit knows how strong slopes and noise are, and that a misfit is
the same everywhere. Real fits have to find out, and real misfits are often in a few bags that lie
far out. Neighbouring bag sizes of 88 public tables differ in what a model keeps as if it were 0.05
at epsilon 0.5, 0.09 at 1 and more at 4, and sizes chosen with 0.02 to 0.1 keep about as much as
those with 0.05."""
_SPREAD = 8.0  # ranges in standard deviations of a label: its bounds are rarely reached


@dataclass(frozen=True)
class Prior:
    """A stated belief about the labels, in their units; never taken from them.

    Attributes
    ----------
    signal_sd : float
        Standard deviation of the expected labels over the rows, as far as they are linear.
    label_noise_sd : float
        Standard deviation of a label around its expectation.
    factor : float
        How far each may be off: plans are judged at these ends too.
    misfit : float
        Variance of the part of the expected labels that is not linear in the features, as a share
        of that of the linear part.
    few_bags : float
        What few bags cost besides, as a share of the signal's variance for each coefficient per
        bag; 0 where a private model has told what labels are like.

    Examples
    --------
    >>> Prior(signal_sd=2.0, label_noise_sd=1.0).scenarios()["weak signal"]
    Prior(signal_sd=0.6666666666666666, label_noise_sd=1.0, factor=3.0, misfit=0.05)
    """

    signal_sd: float
    label_noise_sd: float
    factor: float = 3.0
    misfit: float = DEFAULT_MISFIT
    few_bags: float = field(default=FEW_BAGS, repr=False)

    def __post_init__(self) -> None:
        for name in ("signal_sd", "label_noise_sd", "misfit", "few_bags"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 <= value < math.inf):
                raise StrategyError(f"{name} of a prior must be finite and not negative.")
        if self.signal_sd == 0 and self.label_noise_sd == 0:
            raise StrategyError("a prior without signal and without noise leaves nothing to plan.")
        if not 1 <= self.factor < math.inf:
            raise StrategyError(f"factor of a prior must be at least 1, got {self.factor!r}.")

    def scenarios(self) -> dict[str, "Prior"]:
        """Return the belief itself and its extremes.

        A signal is weak or strong beside the noise of labels. Labels have bounds, so neither may
        grow: a weak signal is less of a signal, and a strong one has less noise beside it.
        """
        by = self.factor
        return {
            "as stated": self,
            "weak signal": replace(self, signal_sd=self.signal_sd / by),
            "strong signal": replace(self, label_noise_sd=self.label_noise_sd / by),
            "no misfit": replace(self, misfit=0.0),
            "large misfit": replace(self, misfit=self.misfit * by),
        }

    def text(self) -> str:
        """Return the belief in words."""
        return prior_text(self.signal_sd, self.label_noise_sd, self.factor, self.misfit)


def read_prior(
    prior: Any, bounds: Bounds | None, family: Family, *, classes: int | None = None
) -> Prior:
    """Return a prior as given, or one that the bounds and the family suggest.

    A label's standard deviation is taken to be an eighth of its range, half of its variance being
    signal. Without bounds everything is in units of a label's standard deviation. Families without
    a free dispersion know their noise from the mean, taken to be in the middle of the bounds. For
    classes it is the belief about the indicator of each, all being equally frequent; the signal is
    as strong beside the noise as with two of them.
    """
    if isinstance(prior, Prior):
        return prior
    if prior is not None:
        if isinstance(prior, str) or not hasattr(prior, "__len__") or len(prior) not in (2, 3):
            raise StrategyError(
                "prior is a Prior, or (signal_sd, label_noise_sd), or these and the misfit."
            )
        misfit = float(prior[2]) if len(prior) == 3 else DEFAULT_MISFIT
        return Prior(float(prior[0]), float(prior[1]), misfit=misfit)
    if classes is not None:
        noise = math.sqrt(1 / classes * (1 - 1 / classes))
        return Prior(noise * 2 / _SPREAD / math.sqrt(2), noise)
    label_sd = 1.0 if bounds is None else (bounds[1] - bounds[0]) / _SPREAD
    noise = label_sd / math.sqrt(2)
    if family.knows_dispersion and bounds is not None:
        middle = family.interior((bounds[0] + bounds[1]) / 2)
        eta = family.predictor(np.array(middle))
        noise = math.sqrt(float(family.variance(eta)))
    return Prior(label_sd / math.sqrt(2), noise)


def look_ahead(answers: Answers) -> tuple[Budget, Prior | None]:
    """Return the budget and the belief of a plan after private answers, which are all paid for.

    The budget is one of Laplace noise of the size that the bags will have; its bounds are as wide
    as what it hides. The belief is what a private model tells of the labels, if there is one.
    """
    budget, rule = answers.budget, answers.budget.rule
    means = rule.least(BagMeans.of(rule.bounds), answers.events)
    width, bounds, prior = rule.bounds[1] - rule.bounds[0], rule.bounds, None
    # Staircase noise of a large epsilon is so small that no Laplace noise of a sane one is.
    epsilon = min(LARGEST_EPSILON, math.sqrt(2) * width / means.number_sd)
    if answers.limit is not None:
        left, signal, error = (answers.limit / REACH) ** 2, answers.signal, answers.error
        # The model's own error is in both. And labels miss the model by no more than it leaves: by
        # half of that if the misfit is three times as large as believed.
        left, signal = max(left - error, left / 10), max(signal - error, signal / 10)
        misfit = min(DEFAULT_MISFIT, left / 6 / max(signal, 1e-300))
        # A fit has the less to find out.
        prior = Prior(math.sqrt(signal), math.sqrt(left), misfit=misfit, few_bags=0.0)
        bounds = (0.0, 2 * answers.limit)
    ahead = ExactCalibration(epsilon, 0.0, bounds, noise="laplace")
    return replace(budget, calibration=ahead, bounds=bounds), prior

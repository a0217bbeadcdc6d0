"""Single labels beside bags: every row reported by chance, with the error that a learner has.

What is reported of a label y has the expected value r(y), which is y within the bounds and a bound
beyond. Over labels that vary as the prior says, around the middle of the bounds, r is close to the
line with slope ``b = cov(r, y) / var(y)``. A learner then finds b times the slopes, which costs
``(1 - b)^2`` of the signal's variance, however many rows there are; whatever else varies around the
line is noise, which becomes less with more rows.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging import find_strategy
from bagwise.errors import BudgetError
from bagwise.planner.candidates import Candidate
from bagwise.planner.prior import Prior
from bagwise.planner.problem import Bagged, Problem
from bagwise.privacy.calibrate import SINGLE_LABELS
from bagwise.privacy.laws import Unbiased
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.queries import SingleLabels
from bagwise.theory.exact import Risk
from bagwise.theory.moments import prior_risk

_PLACES = 2001  # of labels, for integrals over their distribution
_SPREADS = 6.0


class Response(NamedTuple):
    """What is reported of labels: a line, and what varies around it."""

    slope: float
    noise_sd: float


def response_of(channel: Mechanism, label_sd: float) -> Response:
    """Return slope and noise of what is reported of normal labels around the middle of the bounds.

    >>> from bagwise.privacy.calibrate import ExactCalibration
    >>> unbiased = ExactCalibration(1.0, 0.0, (0.0, 1.0)).single_labels("unbiased")
    >>> [round(response_of(unbiased, label_sd).slope, 2) for label_sd in (0.125, 0.5)]
    [1.0, 0.68]
    """
    spread = np.linspace(-_SPREADS, _SPREADS, _PLACES)
    weight = np.exp(-(spread**2) / 2)
    weight /= weight.sum()
    query, law = cast(SingleLabels, channel.query), cast(Unbiased, channel.law)
    labels = (query.low + query.high) / 2 + label_sd * spread
    shares, outputs = law.shares_of(query.scaled(labels)), query.reported(channel.laws)
    expected = shares @ outputs
    square = shares @ outputs**2
    slope = float(weight @ (expected * label_sd * spread)) / label_sd**2
    line = float(weight @ expected) + slope * label_sd * spread
    around = float(weight @ (square - 2 * expected * line + line**2))
    return Response(slope, math.sqrt(max(around, 0.0)))


def single_labels(problem: Problem) -> Iterator[Candidate]:
    """Yield every way to report single labels under the promise, if labels are numbers."""
    rule = problem.calibration
    if rule is None or problem.classes is not None:
        return
    strategy = find_strategy("random")
    bagged = problem.bag(strategy, 1)
    for noise in SINGLE_LABELS:
        try:
            channel = rule.single_labels(noise, rows=problem.sample.largest)
        except BudgetError:
            continue
        risks = {
            name: _risk(bagged, prior, channel) for name, prior in problem.prior.scenarios().items()
        }
        yield Candidate(
            bagging=strategy,
            scores="none",
            bag_size=1,
            label_kind="mean",
            loss="bag",
            score_share=None,
            delta=0.0,
            n_bags=bagged.n_bags,
            coefficients=problem.coefficients,
            predictions=risks["as stated"],
            slopes=_risk(bagged, problem.prior, channel, problem.slope_metric).total,
            scenarios={name: risk.total for name, risk in risks.items()},
            noise=noise,
        )


def _risk(
    bagged: Bagged,
    prior: Prior,
    channel: Mechanism,
    metric: FloatArray | None = None,
) -> Risk:
    label_sd = math.hypot(prior.signal_sd, prior.label_noise_sd)
    response = response_of(channel, label_sd)
    size = response.slope if response.slope > 0 else 1.0
    risk = prior_risk(
        bagged.moments,
        signal_sd=size * prior.signal_sd,
        label_noise_sd=size * prior.label_noise_sd,
        misfit=prior.misfit,
        label_kind="mean",
        loss="bag",
        noise_sd=response.noise_sd,
        repeats=bagged.repeats,
        metric=metric,
    )
    bias = risk.bias + (1 - size) ** 2 * prior.signal_sd**2
    return replace(risk, bias=bias, total=risk.total - risk.bias + bias)

"""Candidate releases, each with the error that a learner would have.

Nothing here takes labels as an argument. Bags are made from the features as a release would make
them, and their error is exact; those in the metric of a private model follow a model whose noise
and theta are drawn from the stated prior. Single labels, each reported at random, are candidates
like others.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from bagwise.bagging import BaggingStrategy, find_strategy, settings_of
from bagwise.planner.belief import Prior
from bagwise.planner.problem import BAGS_PER_COEFFICIENT, PlanProblem, title
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.laws import Unbiased
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import LabelKind
from bagwise.privacy.queries import SingleLabels
from bagwise.requests.bag_labels import Reach
from bagwise.requests.queries import price_model
from bagwise.theory.exact import Risk

SINGLY: Final = "unbiased"
"""How single labels are reported."""

_PLACES = 2001  # of labels, for integrals over their distribution
_SPREADS = 6.0


@dataclass(frozen=True)
class Candidate:
    """One way to make a release, and what a learner should expect of it.

    Attributes
    ----------
    bagging : BaggingStrategy
        The strategy with its parameters; `strategy` is its name, `parameters` those that are set.
    bag_size, n_bags : int
        Smallest number of rows in a bag, and how many bags there are.
    coefficients : int
        How many a linear model has, the intercept included.
    risks : dict of str to Risk
        Expected mean square of the error of predictions, in squared units of the label, as stated
        and if the prior is off; for classes the sum over all of them.
    delta : float or None
        The delta that is needed: 0 where the least noise that keeps the promise needs none.
    label_kind, loss, scores : str
    noise : str
        "auto", or how single labels are reported.
    """

    bagging: BaggingStrategy
    bag_size: int
    n_bags: int
    coefficients: int
    risks: dict[str, Risk]
    delta: float | None
    label_kind: LabelKind = "mean"
    loss: str = "bag"
    scores: str = "none"
    noise: str = "auto"

    @property
    def strategy(self) -> str:
        """Name of the strategy."""
        return self.bagging.name

    @property
    def parameters(self) -> dict[str, Any]:
        """The strategy's parameters that differ from their defaults."""
        return settings_of(self.bagging)

    @property
    def title(self) -> str:
        """The strategy and what is set of its parameters; or how single labels are reported."""
        return title(self.bagging) if self.noise == "auto" else f"single labels, {self.noise}"

    @property
    def predictions(self) -> Risk:
        """The error of predictions if labels are as stated."""
        return self.risks["as stated"]

    @property
    def scenarios(self) -> dict[str, float]:
        """The error of predictions as stated, and if the prior is off."""
        return {name: risk.total for name, risk in self.risks.items()}

    @property
    def rmse(self) -> float:
        """Root of the expected mean square of the error of predictions."""
        return float(np.sqrt(self.predictions.total))

    @property
    def few_bags(self) -> bool:
        """Whether there are fewer than three bags for each coefficient: too few for intervals."""
        return self.n_bags < BAGS_PER_COEFFICIENT * self.coefficients

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        left_out = ("bagging", "risks")
        names = [f.name for f in dataclasses.fields(self) if f.name not in left_out]
        risk = dataclasses.asdict(self.predictions)
        return {
            "strategy": self.strategy,
            "parameters": self.parameters,
            **{name: getattr(self, name) for name in names},
            "few_bags": self.few_bags,
            "intervals": not self.few_bags,
            "rmse": self.rmse,
            **{f"predictions_{name}": value for name, value in risk.items()},
            **{f"if_{name.replace(' ', '_')}": e for name, e in self.scenarios.items()},
        }


def candidates_of(
    problem: PlanProblem, strategy: BaggingStrategy, bag_size: int
) -> Iterator[Candidate]:
    """Yield bags of one strategy and size with each kind of label whose noise is known."""
    bagged = problem.bag(strategy, bag_size)
    if bagged is None:
        return
    for kind in problem.label_kinds:
        if strategy.uses_scores and kind != "mean":
            continue
        if (noise := problem.noise(kind, bagged, problem.rule)) is None:
            continue
        sd, delta = noise
        yield Candidate(
            strategy,
            bag_size,
            bagged.n_bags,
            problem.coefficients,
            {
                name: problem.risk(bagged, prior, kind, sd)
                for name, prior in problem.prior.scenarios().items()
            },
            delta,
            label_kind=kind,
            scores="model" if strategy.uses_scores else "none",
        )


def at_rules(
    problem: PlanProblem, candidate: Candidate, rules: Sequence[ExactCalibration]
) -> tuple[tuple[float, float], ...]:
    """Return the error of a candidate by the epsilon of other rules; its bags stay the same."""
    bagged, points = problem.bag(candidate.bagging, candidate.bag_size), []
    if bagged is None or candidate.noise != "auto":
        return ()
    for rule in rules:
        noise = problem.noise(candidate.label_kind, bagged, rule)
        if noise is not None:
            risk = problem.risk(bagged, problem.prior, candidate.label_kind, noise[0])
            points.append((rule.epsilon, float(np.sqrt(risk.total))))
    return tuple(points)


def response_of(channel: Mechanism, prior: Prior) -> tuple[float, float]:
    """Return slope and noise of reported values for normal labels centred in the bounds.

    What is reported of a label y has the expected value r(y), which is y within the bounds and a
    bound beyond. Over labels that vary as the prior says, around the middle of the bounds, r is
    close to the line with slope ``b = cov(r, y) / var(y)``. A learner then finds b times the
    slopes, which costs ``(1 - b)^2`` of the signal's variance, however many rows there are;
    whatever else varies around the line is noise, which becomes less with more rows.

    >>> rule = ExactCalibration(1.0, 0.0, (0.0, 1.0))
    >>> unbiased = rule.least(SingleLabels.of(rule.bounds, 1))
    >>> [round(response_of(unbiased, Prior(0.0, sd))[0], 2) for sd in (0.125, 0.5)]
    [1.0, 0.68]
    """
    label_sd = math.hypot(prior.signal_sd, prior.label_noise_sd)
    spread = np.linspace(-_SPREADS, _SPREADS, _PLACES)
    weight = np.exp(-(spread**2) / 2)
    weight /= weight.sum()
    query, law = cast(SingleLabels, channel.query), cast(Unbiased, channel.law)
    labels = (query.low + query.high) / 2 + label_sd * spread
    shares = law.shares_of(query.measure(labels, (query.low, query.high), 0))
    outputs = query.low + query.grid_step * np.array(law.outputs)
    expected = shares @ outputs
    square = shares @ outputs**2
    slope = float(weight @ (expected * label_sd * spread)) / label_sd**2
    line = float(weight @ expected) + slope * label_sd * spread
    around = float(weight @ (square - 2 * expected * line + line**2))
    return slope, math.sqrt(max(around, 0.0))


def single_channel(problem: PlanProblem) -> Mechanism | None:
    """Return the unbiased randomizer of single labels; None if they cannot be reported."""
    rule, reach = problem.rule, Reach.at_worst({1: 1}, problem.sample.largest)
    if rule is None or problem.classes is not None:
        return None
    return problem.event("mean", reach, rule.with_noise(SINGLY))


def single_labels(problem: PlanProblem) -> list[Candidate]:
    """Return single labels, each reported by an unbiased randomizer, if labels are numbers."""
    strategy, channel = find_strategy("random"), single_channel(problem)
    bagged = problem.bag(strategy, 1)
    if channel is None or bagged is None:
        return []
    risks = {}
    for name, prior in problem.prior.scenarios().items():
        slope, noise_sd = response_of(channel, prior)
        size = slope if slope > 0 else 1.0
        signal_sd, label_noise_sd = size * prior.signal_sd, size * prior.label_noise_sd
        seen = dataclasses.replace(prior, signal_sd=signal_sd, label_noise_sd=label_noise_sd)
        risk = problem.risk(bagged, seen, "mean", noise_sd)
        bias = risk.bias + (1 - size) ** 2 * prior.signal_sd**2
        risks[name] = dataclasses.replace(risk, bias=bias)
    return [Candidate(strategy, 1, bagged.n_bags, problem.coefficients, risks, 0.0, noise=SINGLY)]


def direct_release(problem: PlanProblem, rule: ExactCalibration) -> Risk:
    """Return the error of a linear model that is released directly, the yardstick.

    It has the noise of the kind that leaves it less error, as `release_model` has, and is shrunk as
    far as the noise suggests: with a signal of variance s in white columns and an error of variance
    r before shrinkage, the posterior mean is off by ``s r / (s + r)``.
    """
    # The weights of the private fit are nearly those of least squares: sigma^2 p / n.
    prior, rows = problem.prior, problem.sample.largest
    rank = problem.design_for("gaussian").rank
    by_labels = prior.label_noise_sd**2 * rank / problem.sample.n_rows
    privacy = min(
        price_model(rule, problem.design_for(noise), noise, 1.0, unit_rows=rows).error
        for noise in rule.score_noises
    )
    signal, unshrunk = prior.signal_sd**2, by_labels + privacy
    kept = signal / (signal + unshrunk)
    return Risk(
        bias=(1 - kept) ** 2 * signal,
        choice=0.0,
        label_noise=kept**2 * by_labels,
        privacy=kept**2 * privacy,
    )

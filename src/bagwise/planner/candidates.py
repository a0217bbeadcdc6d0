"""What could be released: each choice with the error that a learner would have.

Labels are not an argument of anything here. Bags that need no scores are made from the features as
a release would make them, and their error is exact. Bags that follow a private model depend on that
model's noise and on theta: both are drawn from what is stated, a few times, and the exact error
given the bags is averaged. Single labels, each reported by chance, are candidates like others.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, cast

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging import (
    BaggingStrategy,
    assign_bags,
    find_strategy,
    measures_by_scores,
    settings_of,
)
from bagwise.errors import BudgetError
from bagwise.planner.problem import Bagged, Problem, title
from bagwise.planner.request import BAGS_PER_COEFFICIENT, LABEL_KINDS, Prior
from bagwise.planner.sample import SEED
from bagwise.privacy.aggregate import LabelKind
from bagwise.privacy.calibrate import SINGLE_LABELS, ExactCalibration, ScoreNoise
from bagwise.privacy.laws import Unbiased
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.private_model import best_share, instance_error
from bagwise.privacy.queries import SingleLabels
from bagwise.requests.queries import METRIC_SHARES, ModelQuery, price_model
from bagwise.theory.exact import CAUSES, Risk, prior_risk

DRAWS = 3  # of theta and of the private model's noise, for bags that follow that model
LOSSES = ("bag", "instance")
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
    score_share : float or None
        Share of the budget for the scores.
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
    score_share: float | None = None
    noise: str = "auto"

    @property
    def strategy(self) -> str:
        """Name of the strategy."""
        return self.bagging.name

    @property
    def parameters(self) -> dict[str, Any]:
        """The strategy's parameters that are not at their defaults."""
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
        """Whether there are fewer than three bags for each coefficient."""
        return self.n_bags < BAGS_PER_COEFFICIENT * self.coefficients

    @property
    def intervals(self) -> bool:
        """Whether a fit has intervals to trust: enough bags, and a loss without a bias."""
        return self.loss == "bag" and not self.few_bags

    @property
    def could_have_intervals(self) -> bool:
        """Whether smaller bags of the same kind would have intervals to trust."""
        return self.loss == "bag" and not self.bagging.free_sizes

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
            "intervals": self.intervals,
            "rmse": self.rmse,
            **{f"predictions_{name}": value for name, value in risk.items()},
            **{f"if_{name.replace(' ', '_')}": e for name, e in self.scenarios.items()},
        }


def label_agnostic(
    problem: Problem,
    strategy: BaggingStrategy,
    bag_size: int,
    kinds: Sequence[LabelKind] = LABEL_KINDS,
) -> Iterator[Candidate]:
    """Yield every use of one bagging that looks at features only."""
    bagged = problem.bag(strategy, bag_size)
    for kind, loss in product(kinds, LOSSES):
        noise = problem.noise(kind, bagged)
        if noise is None:
            continue

        def risk(
            prior: Prior, kind: LabelKind = kind, loss: str = loss, sd: FloatArray = noise.sd
        ) -> Risk:
            return _risk(problem, bagged, prior, kind, loss, sd)

        risks = _in_scenarios(problem, risk)
        yield Candidate(
            strategy,
            bag_size,
            bagged.n_bags,
            problem.coefficients,
            risks,
            noise.delta,
            label_kind=kind,
            loss=loss,
        )


def at_epsilons(
    problem: Problem, candidate: Candidate, epsilons: Sequence[float]
) -> tuple[tuple[float, float], ...]:
    """Return the error of a label-agnostic candidate at other epsilons; its bags stay the same."""
    rule = problem.calibration
    if rule is None or candidate.scores != "none" or candidate.noise != "auto":
        return ()
    bagged, points = problem.bag(candidate.bagging, candidate.bag_size), []
    kind, loss = candidate.label_kind, candidate.loss
    for epsilon in epsilons:
        other = dataclasses.replace(problem, calibration=dataclasses.replace(rule, epsilon=epsilon))
        noise = other.noise(kind, bagged)
        if noise is not None:
            risk = _risk(problem, bagged, problem.prior, kind, loss, noise.sd)
            points.append((epsilon, float(np.sqrt(risk.total))))
    return tuple(points)


def by_model(
    problem: Problem,
    strategy: BaggingStrategy,
    bag_size: int,
    kinds: Sequence[LabelKind] = LABEL_KINDS,
) -> Iterator[Candidate]:
    """Yield bags that follow a private model, with the loss that is made for them, on means.

    Rows are sorted by its predictions, for instance loss, or measured by what these owe to each
    feature, for bag loss.
    """
    rule = problem.calibration
    if rule is None or problem.classes is not None or "mean" not in kinds:
        return
    bought = buy_model(problem, strategy, rule, bag_size)
    if bought is None:
        return
    metric = measures_by_scores(strategy)
    loss = "bag" if metric else "instance"
    drawn: dict[tuple[float, ...], list[tuple[Bagged, FloatArray]]] = {}

    def followed(prior: Prior) -> list[tuple[Bagged, FloatArray]]:
        # Bags do not depend on the misfit; a metric is about the same, whatever the signal is.
        believed = () if metric else (prior.signal_sd, prior.label_noise_sd)
        if believed not in drawn:
            drawn[believed] = [
                _follow(problem, strategy, prior, bought, bag_size, draw)
                for draw in range(1 if metric else DRAWS)
            ]
        return drawn[believed]

    def risk(prior: Prior) -> Risk:
        risks = []
        for bagged, slopes in followed(prior):
            noise = problem.noise("mean", bagged, (bought.event,))
            if noise is None:
                raise AssertionError("noise that is known for some bags is known for all of them")
            known = None if metric else slopes
            risks.append(_risk(problem, bagged, prior, "mean", loss, noise.sd, known))
        return Risk(
            **{name: float(np.mean([getattr(one, name) for one in risks])) for name in CAUSES}
        )

    noise = problem.noise("mean", followed(problem.prior)[0][0], (bought.event,))
    if noise is not None:
        yield Candidate(
            strategy,
            bag_size,
            max(1, problem.sample.n_rows // bag_size),
            problem.coefficients,
            _in_scenarios(problem, risk),
            noise.delta,
            loss=loss,
            scores="model",
            # A metric may share a model to centre on.
            score_share=None if metric else bought.share,
        )


def buy_model(
    problem: Problem, strategy: BaggingStrategy, rule: ExactCalibration, bag_size: int
) -> ModelQuery | None:
    """Return the model that a release would buy, of those with the noise that the promise allows.

    As in a release, rows are sorted by the one that leaves instance loss the least error, and
    measured by the one that is least off itself. None where no noise for the bags is known.
    """
    metric, n_rows = measures_by_scores(strategy), problem.sample.n_rows

    def buy(noise: ScoreNoise) -> ModelQuery:
        design = problem.design_for(noise)
        share = METRIC_SHARES[noise]
        if not metric:
            share = best_share(design, n_rows=n_rows, bag_size=bag_size)
        return price_model(rule, design, noise, share, unit_rows=problem.sample.largest)

    def error(offer: ModelQuery) -> float:
        if metric:
            return offer.error
        return instance_error(
            offer.design,
            n_rows=n_rows,
            bag_size=bag_size,
            model_sd=offer.event.number_sd,
            sum_sd=problem.means_after(rule, offer.event).number_sd,
        )

    try:
        return min(map(buy, rule.score_noises), key=error, default=None)
    except BudgetError:
        return None


def _follow(
    problem: Problem,
    strategy: BaggingStrategy,
    prior: Prior,
    bought: ModelQuery,
    bag_size: int,
    draw: int,
) -> tuple[Bagged, FloatArray]:
    """Draw theta and the private model's noise; return bags by it, and the slopes drawn."""
    rng = np.random.default_rng([SEED, bag_size, draw])
    rows, design = problem.white.rows, bought.design
    slopes = problem.root @ rng.standard_normal(int(rows.shape[1]))
    slopes *= prior.signal_sd / max(float(np.linalg.norm(slopes)), 1e-300)
    by_noise = bought.event.number_sd * rng.standard_normal(design.rank)
    noise = design.basis @ (design.decoder @ by_noise)
    scores = rows @ slopes + (problem.sample.X - design.center) / design.spread @ noise[1:]
    # The labels' own noise moves the model too, about as it moves least squares.
    by_labels = prior.label_noise_sd / np.sqrt(problem.sample.n_rows)
    scores += rows @ (by_labels * rng.standard_normal(rows.shape[1]))
    size = problem.sampled_size(strategy, bag_size)
    bags = assign_bags(
        problem.searching(strategy), problem.sample.X, scores, bag_size=size, rng=rng
    )
    return problem.grown(bags, strategy, bag_size), slopes


class Response(NamedTuple):
    """What is reported of labels: a line, and what varies around it.

    What is reported of a label y has the expected value r(y), which is y within the bounds and a
    bound beyond. Over labels that vary as the prior says, around the middle of the bounds, r is
    close to the line with slope ``b = cov(r, y) / var(y)``. A learner then finds b times the
    slopes, which costs ``(1 - b)^2`` of the signal's variance, however many rows there are;
    whatever else varies around the line is noise, which becomes less with more rows.
    """

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

        def risk(prior: Prior, channel: Mechanism = channel) -> Risk:
            label_sd = math.hypot(prior.signal_sd, prior.label_noise_sd)
            response = response_of(channel, label_sd)
            size = response.slope if response.slope > 0 else 1.0
            seen = dataclasses.replace(
                prior,
                signal_sd=size * prior.signal_sd,
                label_noise_sd=size * prior.label_noise_sd,
            )
            risk = _risk(problem, bagged, seen, "mean", "bag", response.noise_sd)
            bias = risk.bias + (1 - size) ** 2 * prior.signal_sd**2
            return dataclasses.replace(risk, bias=bias)

        risks = _in_scenarios(problem, risk)
        yield Candidate(
            strategy, 1, bagged.n_bags, problem.coefficients, risks, delta=0.0, noise=noise
        )


def direct_release(problem: Problem, rule: ExactCalibration) -> Risk:
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


def _in_scenarios(problem: Problem, risk: Callable[[Prior], Risk]) -> dict[str, Risk]:
    return {name: risk(prior) for name, prior in problem.prior.scenarios().items()}


def _risk(
    problem: Problem,
    bagged: Bagged,
    prior: Prior,
    kind: LabelKind,
    loss: str,
    noise_sd: FloatArray | float,
    slopes: FloatArray | None = None,
) -> Risk:
    """Return the exact error of predictions given the bags; of classes that of all together."""
    risk = prior_risk(
        bagged.moments,
        signal_sd=prior.signal_sd,
        label_noise_sd=prior.label_noise_sd,
        misfit=prior.misfit,
        label_kind=kind,
        loss=loss,
        noise_sd=noise_sd,
        repeats=bagged.repeats,
        slopes=slopes,
    )
    if problem.classes is None:
        return risk
    return Risk(**{name: problem.classes * getattr(risk, name) for name in CAUSES})

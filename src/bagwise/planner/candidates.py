"""What could be released: each choice with the error that a learner would have.

Labels are not an argument of anything here. Bags that need no scores are made from the features as
a release would make them, and their error is exact. Bags that follow a private model depend on that
model's noise and on theta: both are drawn from what is stated, a few times, and the exact error
given the bags is averaged. Single labels, each reported by chance, are candidates like others.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from bagwise.planner.prior import Prior
from bagwise.planner.problem import Bagged, Problem, title
from bagwise.planner.request import BAGS_PER_COEFFICIENT, LABEL_KINDS
from bagwise.planner.sample import SEED
from bagwise.privacy.aggregate import LabelKind
from bagwise.privacy.calibrate import SINGLE_LABELS, ExactCalibration, ScoreNoise
from bagwise.privacy.laws import Unbiased
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.private_model import best_share, instance_error
from bagwise.privacy.queries import SingleLabels
from bagwise.requests.queries import (
    METRIC_SHARES,
    ModelQuery,
    price_model,
    prospect_of_centring,
)
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
    scores, label_kind, loss : str
    bag_size : int
        Smallest number of rows in a bag.
    score_share : float or None
        Share of the budget for the scores.
    delta : float or None
        The delta that is needed: 0 where the least noise that keeps the promise needs none.
    n_bags : int
    coefficients : int
        How many a linear model has, the intercept included.
    predictions : Risk
        Expected mean square of the error of predictions, in squared units of the label; for classes
        the sum over all of them.
    slopes : float
        Expected squared error of the coefficients, in the features' own units.
    scenarios : dict of str to float
        Error of predictions if the prior is off.
    noise : str
        "auto", or how single labels are reported.
    """

    bagging: BaggingStrategy
    scores: str
    bag_size: int
    label_kind: LabelKind
    loss: str
    score_share: float | None
    delta: float | None
    n_bags: int
    coefficients: int
    predictions: Risk
    slopes: float
    scenarios: dict[str, float]
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

    @property
    def rmse(self) -> float:
        """Root of the expected mean square of the error of predictions."""
        return float(np.sqrt(self.predictions.total))


def _candidate(
    problem: Problem,
    strategy: BaggingStrategy,
    bag_size: int,
    n_bags: int,
    risks: dict[str, Risk],
    *,
    slopes: float,
    delta: float | None,
    label_kind: LabelKind = "mean",
    loss: str = "bag",
    scores: str = "none",
    score_share: float | None = None,
    noise: str = "auto",
) -> Candidate:
    """Return a candidate with the risk of predictions in every scenario."""
    return Candidate(
        bagging=strategy,
        scores=scores,
        bag_size=bag_size,
        label_kind=label_kind,
        loss=loss,
        score_share=score_share,
        delta=delta,
        n_bags=n_bags,
        coefficients=problem.coefficients,
        predictions=risks["as stated"],
        slopes=slopes,
        scenarios={name: risk.total for name, risk in risks.items()},
        noise=noise,
    )


def label_agnostic(
    problem: Problem,
    strategy: BaggingStrategy,
    bag_size: int,
    kinds: Sequence[LabelKind] = LABEL_KINDS,
) -> Iterator[Candidate]:
    """Yield every use of one bagging that looks at features only."""
    bagged = problem.bag(strategy, bag_size)
    for kind in kinds:
        noise = problem.noise(kind, bagged)
        if noise is None:
            continue
        for loss in LOSSES:
            risks = {
                name: _risk(problem, bagged, prior, kind, loss, noise.sd)
                for name, prior in problem.prior.scenarios().items()
            }
            metric = problem.slope_metric
            own_units = _risk(problem, bagged, problem.prior, kind, loss, noise.sd, metric)
            yield _candidate(
                problem,
                strategy,
                bag_size,
                bagged.n_bags,
                risks,
                slopes=own_units.total,
                delta=noise.delta,
                label_kind=kind,
                loss=loss,
            )


def raw_loss(problem: Problem, candidate: Candidate) -> float:
    """Return how many times the error of slopes would be that of a candidate on raw k-means bags.

    K-means on the columns as they are takes far columns for important ones.
    """
    bagged = problem.bag(find_strategy("kmeans", {"scale": "none"}), candidate.bag_size)
    kind, loss, metric = candidate.label_kind, candidate.loss, problem.slope_metric
    noise = problem.noise(kind, bagged)
    if noise is None or candidate.slopes == 0:
        return 1.0
    raw = _risk(problem, bagged, problem.prior, kind, loss, noise.sd, metric)
    return raw.total / candidate.slopes


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
    drawn: dict[tuple[float, float], list[_Followed]] = {}  # they do not depend on the misfit
    for prior in problem.prior.scenarios().values():
        believed = (prior.signal_sd, prior.label_noise_sd)
        if metric and drawn:  # a metric is about the same, however strong the signal is
            drawn[believed] = next(iter(drawn.values()))
        elif believed not in drawn:
            drawn[believed] = [
                _follow(problem, strategy, prior, bought, bag_size, draw)
                for draw in range(1 if metric else DRAWS)
            ]
    some = next(iter(drawn.values()))[0].bagged
    noise = problem.noise("mean", some, (bought.event,))
    if noise is None:
        return
    loss = "bag" if metric else "instance"
    by_scenario = {
        name: [
            _risk_by_model(problem, prior, bought, bags, loss)
            for bags in drawn[prior.signal_sd, prior.label_noise_sd]
        ]
        for name, prior in problem.prior.scenarios().items()
    }
    yield _candidate(
        problem,
        strategy,
        bag_size,
        max(1, problem.sample.n_rows // bag_size),
        {name: _mean(draws, 0) for name, draws in by_scenario.items()},
        slopes=_mean(by_scenario["as stated"], 1).total,
        delta=noise.delta,
        loss=loss,
        scores="model",
        score_share=None if metric else bought.share,  # a metric may share a model to centre on
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

    def sorted_error(offer: ModelQuery) -> float:
        return instance_error(
            offer.design,
            n_rows=n_rows,
            bag_size=bag_size,
            model_sd=offer.event.number_sd,
            sum_sd=problem.means_after(rule, offer.event).number_sd,
        )

    offers = [buy(noise) for noise in rule.score_noises]
    if not offers:
        return None
    if metric:
        return min(offers, key=lambda offer: offer.error)
    try:
        return min(offers, key=sorted_error)
    except BudgetError:
        return None


@dataclass(frozen=True)
class _Followed:
    """Bags of rows that follow a private model, and the slopes that it was a model of."""

    bagged: Bagged
    slopes: FloatArray


def _follow(
    problem: Problem,
    strategy: BaggingStrategy,
    prior: Prior,
    bought: ModelQuery,
    bag_size: int,
    draw: int,
) -> _Followed:
    """Draw theta and the private model's noise, and make bags by it."""
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
    return _Followed(problem.grown(bags, strategy, bag_size), slopes)


def _risk_by_model(
    problem: Problem, prior: Prior, bought: ModelQuery, made: _Followed, loss: str
) -> tuple[Risk, Risk]:
    """Return the exact error given the bags, of predictions and of slopes in their own units."""
    bagged = made.bagged
    found = problem.noise("mean", bagged, (bought.event,))
    if found is None:
        raise AssertionError("noise that is known for some bags is known for all of them")
    slopes = made.slopes if loss == "instance" else None
    predictions, own_units = (
        _risk(problem, bagged, prior, "mean", loss, found.sd, metric, slopes)
        for metric in (None, problem.slope_metric)
    )
    return predictions, own_units


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
        risks = {
            name: _risk_of_single(bagged, prior, channel)
            for name, prior in problem.prior.scenarios().items()
        }
        yield _candidate(
            problem,
            strategy,
            1,
            bagged.n_bags,
            risks,
            slopes=_risk_of_single(bagged, problem.prior, channel, problem.slope_metric).total,
            noise=noise,
            delta=0.0,
        )


def _risk_of_single(
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
    return dataclasses.replace(risk, bias=risk.bias + (1 - size) ** 2 * prior.signal_sd**2)


def direct_release(problem: Problem, rule: ExactCalibration) -> Risk:
    """Return the error of a linear model that is released directly, the yardstick.

    It has the noise of the kind that leaves it less error, as `release_model` has, and is shrunk as
    far as the noise suggests: with a signal of variance s in white columns and an error of variance
    r before shrinkage, the posterior mean is off by ``s r / (s + r)``.
    """
    # The weights of the private fit are nearly those of least squares: sigma^2 p / n.
    by_labels = (
        problem.prior.label_noise_sd**2
        * problem.design_for("gaussian").rank
        / problem.sample.n_rows
    )
    privacy = min(_privacy_of_model(problem, rule, noise) for noise in rule.score_noises)
    signal, unshrunk = problem.prior.signal_sd**2, by_labels + privacy
    kept = signal / (signal + unshrunk)
    return Risk(
        bias=(1 - kept) ** 2 * signal,
        choice=0.0,
        label_noise=kept**2 * by_labels,
        privacy=kept**2 * privacy,
    )


def centring(problem: Problem, rule: ExactCalibration) -> float:
    """Return what centring leaves of the noise's variance, if the signal is strong."""
    width = rule.bounds[1] - rule.bounds[0]
    return min(
        prospect_of_centring(
            _privacy_of_model(problem, rule, noise) / width**2,
            pure=noise == "laplace",
            rule=rule,
            n_rows=problem.sample.n_rows,
            unit_rows=problem.sample.largest,
        )
        for noise in rule.score_noises
    )


def _privacy_of_model(problem: Problem, rule: ExactCalibration, noise: ScoreNoise) -> float:
    """Return the privacy error of a linear model with this noise on its statistics."""
    rows = problem.sample.largest
    return price_model(rule, problem.design_for(noise), noise, 1.0, unit_rows=rows).error


def _risk(
    problem: Problem,
    bagged: Bagged,
    prior: Prior,
    kind: LabelKind,
    loss: str,
    noise: FloatArray,
    metric: FloatArray | None = None,
    slopes: FloatArray | None = None,
) -> Risk:
    risk = prior_risk(
        bagged.moments,
        signal_sd=prior.signal_sd,
        label_noise_sd=prior.label_noise_sd,
        misfit=prior.misfit,
        label_kind=kind,
        loss=loss,
        noise_sd=noise,
        repeats=bagged.repeats,
        metric=metric,
        slopes=slopes,
    )
    if problem.classes is None:
        return risk
    return Risk(**{name: problem.classes * getattr(risk, name) for name in CAUSES})


def _mean(draws: Sequence[tuple[Risk, Risk]], which: int) -> Risk:
    """Return the mean over the draws, cause by cause."""
    risks = [draw[which] for draw in draws]
    return Risk(**{name: float(np.mean([getattr(r, name) for r in risks])) for name in CAUSES})

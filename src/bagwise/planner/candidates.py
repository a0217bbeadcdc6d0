"""What could be released: each choice with the error that a learner would have.

Labels are not an argument of anything here. Bags that need no scores are made from the features as
a release would make them, and their error is exact. Bags sorted by a private model depend on that
model's noise and on theta: both are drawn from what is stated, a few times, and the exact error
given the bags is averaged.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging import (
    BaggingStrategy,
    Traits,
    assign_bags,
    find_strategy,
    settings_of,
    traits_of,
)
from bagwise.planner.prior import Prior
from bagwise.planner.problem import Bagged, Problem, title
from bagwise.planner.sample import SEED
from bagwise.planner.sizes import BAGS_PER_COEFFICIENT
from bagwise.privacy.aggregate import LabelKind
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.mechanisms import GaussianModel
from bagwise.privacy.private_model import best_share
from bagwise.theory.exact import CAUSES, Risk
from bagwise.theory.moments import prior_risk

DRAWS = 3  # of theta and of the private model's noise, for bags sorted by that model
LOSSES = ("bag", "instance")
LABEL_KINDS: tuple[LabelKind, ...] = ("mean", "pick")


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
    few_bags : bool
        Whether there are fewer than three bags for each coefficient.
    predictions : Risk
        Expected mean square of the error of predictions, in squared units of the label; for classes
        the sum over all of them.
    slopes : float
        Expected squared error of the coefficients, in the features' own units.
    scenarios : dict of str to float
        Error of predictions if the prior is off.
    """

    bagging: BaggingStrategy
    scores: str
    bag_size: int
    label_kind: LabelKind
    loss: str
    score_share: float | None
    delta: float | None
    n_bags: int
    few_bags: bool
    predictions: Risk
    slopes: float
    scenarios: dict[str, float]

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
        """The strategy and what is set of its parameters."""
        return title(self.bagging)

    @property
    def traits(self) -> Traits:
        """What the strategy says about itself."""
        return traits_of(self.bagging)

    @property
    def intervals(self) -> bool:
        """Whether a fit has intervals to trust: enough bags, and a loss without a bias."""
        return self.loss == "bag" and not self.few_bags

    @property
    def rmse(self) -> float:
        """Root of the expected mean square of the error of predictions."""
        return float(np.sqrt(self.predictions.total))


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
            yield Candidate(
                bagging=strategy,
                scores="none",
                bag_size=bag_size,
                label_kind=kind,
                loss=loss,
                score_share=None,
                delta=noise.delta,
                n_bags=bagged.n_bags,
                few_bags=_too_few(problem, bagged.n_bags),
                predictions=risks["as stated"],
                slopes=own_units.total,
                scenarios={name: risk.total for name, risk in risks.items()},
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
    if rule is None or candidate.scores != "none":
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


def sorted_by_model(
    problem: Problem,
    strategy: BaggingStrategy,
    bag_size: int,
    kinds: Sequence[LabelKind] = LABEL_KINDS,
) -> Iterator[Candidate]:
    """Yield bags of rows sorted by a private model's predictions, with instance loss on means."""
    rule = problem.calibration
    if rule is None or rule.delta == 0 or problem.classes is not None or "mean" not in kinds:
        return
    design, n_rows = problem.design, problem.sample.n_rows
    share = best_share(design, n_rows=n_rows, bag_size=bag_size)
    steps = design.sensitivity_steps * problem.sample.largest
    event = rule.model(share=share, sensitivity_steps=steps)
    drawn: dict[tuple[float, float], list[_Sorted]] = {}  # they do not depend on the misfit
    for prior in problem.prior.scenarios().values():
        believed = (prior.signal_sd, prior.label_noise_sd)
        if believed not in drawn:
            drawn[believed] = [
                _sort(problem, strategy, prior, event, bag_size, draw) for draw in range(DRAWS)
            ]
    by_scenario = {
        name: [
            _sorted_risk(problem, prior, event, bags)
            for bags in drawn[prior.signal_sd, prior.label_noise_sd]
        ]
        for name, prior in problem.prior.scenarios().items()
    }
    predictions = {name: _mean(draws, 0) for name, draws in by_scenario.items()}
    n_bags = max(1, n_rows // bag_size)
    yield Candidate(
        bagging=strategy,
        scores="model",
        bag_size=bag_size,
        label_kind="mean",
        loss="instance",
        score_share=share,
        delta=rule.delta,
        n_bags=n_bags,
        few_bags=_too_few(problem, n_bags),
        predictions=predictions["as stated"],
        slopes=_mean(by_scenario["as stated"], 1).total,
        scenarios={name: risk.total for name, risk in predictions.items()},
    )


@dataclass(frozen=True)
class _Sorted:
    """Bags of rows sorted by a private model, and the slopes that it was a model of."""

    bagged: Bagged
    slopes: FloatArray


def _sort(
    problem: Problem,
    strategy: BaggingStrategy,
    prior: Prior,
    event: GaussianModel,
    bag_size: int,
    draw: int,
) -> _Sorted:
    """Draw theta and the private model's noise, and sort."""
    rng = np.random.default_rng([SEED, bag_size, draw])
    rows, design = problem.white.rows, problem.design
    slopes = problem.root @ rng.standard_normal(int(rows.shape[1]))
    slopes *= prior.signal_sd / max(float(np.linalg.norm(slopes)), 1e-300)
    # The noise of the model, which falls with the number of rows that X stands for.
    scale = event.noise_scale / problem.copies
    noise = design.basis @ (design.decoder @ (scale * rng.standard_normal(design.rank)))
    scores = rows @ slopes + (problem.sample.X - design.center) / design.spread @ noise[1:]
    # The labels' own noise moves the model too, about as it moves least squares.
    by_labels = prior.label_noise_sd / np.sqrt(problem.sample.n_rows)
    scores += rows @ (by_labels * rng.standard_normal(rows.shape[1]))
    size = problem.sampled_size(strategy, bag_size)
    bags = assign_bags(strategy, problem.sample.X, scores, bag_size=size, rng=rng)
    return _Sorted(problem.grown(bags, strategy, bag_size), slopes)


def _sorted_risk(
    problem: Problem, prior: Prior, event: GaussianModel, made: _Sorted
) -> tuple[Risk, Risk]:
    """Return the exact error given the bags, of predictions and of slopes in their own units."""
    bagged, slopes = made.bagged, made.slopes
    found = problem.noise("mean", bagged, (event,))
    if found is None:
        nothing = Risk.of(bias=np.inf, choice=0.0, label_noise=0.0, privacy=0.0)
        return nothing, nothing
    predictions, own_units = (
        _risk(problem, bagged, prior, "mean", "instance", found.sd, metric, slopes)
        for metric in (None, problem.slope_metric)
    )
    return predictions, own_units


def direct_release(problem: Problem, rule: ExactCalibration) -> Risk:
    """Return the error of a linear model that is released directly, the yardstick."""
    design = problem.design
    steps = design.sensitivity_steps * problem.sample.largest
    event = rule.model(share=1.0, sensitivity_steps=steps)
    # The weights of the private fit are nearly those of least squares: sigma^2 p / n.
    return Risk.of(
        bias=0.0,
        choice=0.0,
        label_noise=problem.prior.label_noise_sd**2 * design.rank / problem.sample.n_rows,
        privacy=(event.noise_scale / problem.copies) ** 2 * design.privacy_trace,
    )


def _too_few(problem: Problem, n_bags: int) -> bool:
    return n_bags < BAGS_PER_COEFFICIENT * problem.coefficients


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
    return Risk.of(**{name: problem.classes * getattr(risk, name) for name in CAUSES})


def _mean(draws: Sequence[tuple[Risk, Risk]], which: int) -> Risk:
    """Return the mean over the draws, cause by cause."""
    risks = [draw[which] for draw in draws]
    return Risk.of(**{name: float(np.mean([getattr(r, name) for r in risks])) for name in CAUSES})

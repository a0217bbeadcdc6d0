"""What could be released: each choice with the error that a learner would have.

Labels are not an argument of anything here. Bags that need no scores are made from the features as
a release would make them, and their error is exact. Bags sorted by a private model depend on that
model's noise and on theta: both are drawn from what is stated, a few times, and the exact error
given the bags is averaged.
"""

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast, get_args

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.bagging import (
    STRATEGIES,
    BaggingStrategy,
    Traits,
    assign_bags,
    find_strategy,
    parameters_of,
    settings_of,
    spell_settings,
    traits_of,
)
from bagwise.errors import BudgetError, MissingExtraError
from bagwise.planner.prior import Prior
from bagwise.privacy.aggregate import LabelKind
from bagwise.privacy.calibrate import Calibration, ExactCalibration
from bagwise.privacy.mechanisms import GaussianModel, Mechanism
from bagwise.privacy.private_model import ModelDesign, best_share, design_model
from bagwise.release.verify import noise_per_bag
from bagwise.theory.exact import Risk, exact_risk
from bagwise.theory.moments import BagMoments, Whitening, prior_risk

DRAWS = 3  # of theta and of the private model's noise, for bags sorted by that model


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
        The delta that is needed: 0 where noise without one is the least.
    n_bags : int
    predictions : Risk
        Expected mean square of the error of predictions, in squared units of the label.
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
        return _title(self.bagging)

    @property
    def traits(self) -> Traits:
        """What the strategy says about itself."""
        return traits_of(self.bagging)

    @property
    def rmse(self) -> float:
        """Root of the expected mean square of the error of predictions."""
        return float(np.sqrt(self.predictions.total))


def _title(strategy: BaggingStrategy) -> str:
    return " ".join([strategy.name, *spell_settings(strategy)])


@dataclass(frozen=True)
class Problem:
    """The features of a plan, and what is asked for.

    Attributes
    ----------
    X : (n, d)
    copies : float
        Rows that each row of X stands for: above 1 where X is a sample.
    calibration : ExactCalibration or None
        None when not private.
    """

    X: FloatArray
    white: Whitening
    copies: float
    prior: Prior
    calibration: ExactCalibration | None
    seed: int
    effort: str = "default"
    _moments: dict[tuple[str, int], BagMoments] = field(default_factory=dict, repr=False)

    def bag(self, strategy: BaggingStrategy, bag_size: int) -> BagMoments:
        """Make the bags once, and keep what they keep of the rows."""
        key = (_title(strategy), bag_size)
        if key not in self._moments:
            rng = np.random.default_rng(self.seed)
            with _quietly():
                bags = assign_bags(
                    self._searching(strategy), self.X, None, bag_size=bag_size, rng=rng
                )
            self._moments[key] = BagMoments.of(self.white, bags)
        return self._moments[key]

    def _searching(self, strategy: BaggingStrategy) -> BaggingStrategy:
        """Return a strategy that searches as long as the plan may, unless it says how long."""
        if "effort" not in parameters_of(strategy) or "effort" in settings_of(strategy):
            return strategy
        return cast(BaggingStrategy, dataclasses.replace(cast(Any, strategy), effort=self.effort))

    @cached_property
    def design(self) -> ModelDesign:
        """How a private model of these features would weigh its rows."""
        return design_model(self.X, [str(j) for j in range(self.X.shape[1])])

    @property
    def slope_metric(self) -> FloatArray:
        """The metric of slopes in the features' own units."""
        return np.asarray(self.white.basis.T @ self.white.basis)


@contextmanager
def _quietly() -> Iterator[None]:
    """Hold back what a strategy has to say: most of those that are tried nobody will choose."""
    log = logging.getLogger("bagwise")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def label_agnostic(
    problem: Problem, strategy: BaggingStrategy, bag_size: int
) -> Iterator[Candidate]:
    """Yield every use of one bagging that looks at features only."""
    moments, repeats = bag_moments(problem, strategy, bag_size)
    for kind in get_args(LabelKind):
        rule = problem.calibration
        noise = bag_noise(rule, kind, moments.sizes)
        if noise is None:
            continue
        for loss in ("bag", "instance"):
            risks = {
                name: _repeated(_risk(moments, prior, kind, loss, noise), repeats)
                for name, prior in problem.prior.scenarios().items()
            }
            own_units = _risk(moments, problem.prior, kind, loss, noise, problem.slope_metric)
            yield Candidate(
                bagging=strategy,
                scores="none",
                bag_size=bag_size,
                label_kind=kind,
                loss=loss,
                score_share=None,
                delta=needed_delta(rule, kind, moments.sizes),
                n_bags=round(moments.sizes.size * repeats),
                predictions=risks["as stated"],
                slopes=_repeated(own_units, repeats).total,
                scenarios={name: risk.total for name, risk in risks.items()},
            )


def bag_moments(
    problem: Problem, strategy: BaggingStrategy, bag_size: int
) -> tuple[BagMoments, float]:
    """Return what the bags keep of the rows, and how often each of them would be there."""
    moments, copies = problem.bag(strategy, bag_size), problem.copies
    if not traits_of(strategy).free_sizes:
        return moments, copies
    # With more rows these bags grow, where those of other strategies become more.
    grown = BagMoments(
        round(moments.n_rows * copies),
        moments.sizes * copies,
        moments.sums * copies,
        moments.spread,
    )
    return grown, 1.0


def raw_loss(problem: Problem, candidate: Candidate) -> float:
    """Return how many times the error of slopes would be that of a candidate on raw k-means bags.

    K-means on the columns as they are takes far columns for important ones.
    """
    moments = problem.bag(find_strategy("kmeans", {"scale": "none"}), candidate.bag_size)
    kind, loss, metric = candidate.label_kind, candidate.loss, problem.slope_metric
    noise = bag_noise(problem.calibration, kind, moments.sizes)
    if noise is None or candidate.slopes == 0:
        return 1.0
    raw = _repeated(_risk(moments, problem.prior, kind, loss, noise, metric), problem.copies)
    return raw.total / candidate.slopes


def at_epsilons(
    problem: Problem, candidate: Candidate, epsilons: Sequence[float]
) -> tuple[tuple[float, float], ...]:
    """Return the error of a label-agnostic candidate at other epsilons; its bags stay the same."""
    rule = problem.calibration
    if rule is None or candidate.scores != "none" or candidate.delta is None:
        return ()
    moments, repeats = bag_moments(problem, candidate.bagging, candidate.bag_size)
    points = []
    for epsilon in epsilons:
        other = dataclasses.replace(rule, epsilon=epsilon)
        noise = bag_noise(other, candidate.label_kind, moments.sizes)
        if noise is not None:
            risk = _risk(moments, problem.prior, candidate.label_kind, candidate.loss, noise)
            points.append((epsilon, float(np.sqrt(_repeated(risk, repeats).total))))
    return tuple(points)


def bag_noise(
    rule: Calibration | None, kind: LabelKind, sizes: FloatArray, spent: tuple[Mechanism, ...] = ()
) -> FloatArray | None:
    """Return the noise that the accountant sets for each bag; None where it refuses."""
    if rule is None:
        return np.zeros(sizes.size)
    whole = np.rint(sizes).astype(np.int64)
    event = _bag_event(rule, kind, whole, spent)
    return None if event is None else np.asarray(noise_per_bag((event,), whole))


def needed_delta(rule: Calibration | None, kind: LabelKind, sizes: FloatArray) -> float | None:
    """Return the delta that the least noise needs: often none of the one that may be used."""
    if rule is None:
        return None
    event = _bag_event(rule, kind, np.rint(sizes).astype(np.int64), ())
    return rule.delta if event is None or event.pure_epsilon is None else 0.0


def _bag_event(
    rule: Calibration, kind: LabelKind, sizes: IntArray, spent: tuple[Mechanism, ...]
) -> Mechanism | None:
    try:
        return rule.bag_means(spent=spent) if kind == "mean" else rule.picks(sizes=sizes.tolist())
    except BudgetError:
        return None


def sorted_by_model(
    problem: Problem, strategy: BaggingStrategy, bag_size: int
) -> Iterator[Candidate]:
    """Yield bags of rows sorted by a private model's predictions, with instance loss on means."""
    rule = problem.calibration
    if rule is None or rule.delta == 0:
        return
    design, n_rows = problem.design, round(len(problem.X) * problem.copies)
    share = best_share(design, n_rows=n_rows, bag_size=bag_size)
    event = rule.model(share=share, sensitivity_steps=design.sensitivity_steps)
    priors = problem.prior.scenarios()
    risks = {
        name: _mean_risk(
            [_sorted_risk(problem, strategy, prior, event, bag_size, draw) for draw in range(DRAWS)]
        )
        for name, prior in priors.items()
    }
    metric = np.zeros((design.rank, design.rank))
    metric[:-1, :-1] = problem.slope_metric
    slopes = _sorted_risk(problem, strategy, problem.prior, event, bag_size, 0, metric)
    yield Candidate(
        bagging=strategy,
        scores="model",
        bag_size=bag_size,
        label_kind="mean",
        loss="instance",
        score_share=share,
        delta=rule.delta,
        n_bags=max(1, n_rows // bag_size),
        predictions=risks["as stated"],
        slopes=slopes.total,
        scenarios={name: risk.total for name, risk in risks.items()},
    )


def _sorted_risk(
    problem: Problem,
    strategy: BaggingStrategy,
    prior: Prior,
    event: GaussianModel,
    bag_size: int,
    draw: int,
    metric: FloatArray | None = None,
) -> Risk:
    """Draw theta and the private model's noise, sort, and return the exact error given the bags."""
    rng = np.random.default_rng([problem.seed, bag_size, draw])
    rows, design = problem.white.rows, problem.design
    theta = rng.standard_normal(rows.shape[1])
    theta *= prior.signal_sd / max(float(np.linalg.norm(theta)), 1e-300)
    # The noise of the model, which falls with the number of rows that X stands for.
    scale = event.noise_scale / problem.copies
    noise = design.basis @ (design.power(-0.25) @ (scale * rng.standard_normal(design.rank)))
    scores = rows @ theta + (problem.X - design.center) / design.spread @ noise[1:]
    # The labels' own noise moves the model too, about as it moves least squares.
    by_labels = prior.label_noise_sd / np.sqrt(len(rows) * problem.copies)
    scores += rows @ (by_labels * rng.standard_normal(rows.shape[1]))
    bags = assign_bags(strategy, problem.X, scores, bag_size=bag_size, rng=rng)
    noise_sd = bag_noise(problem.calibration, "mean", bags.sizes.astype(np.float64), (event,))
    if noise_sd is None:
        return Risk.of(bias=np.inf, choice=0.0, label_noise=0.0, privacy=0.0)
    risk = exact_risk(
        np.column_stack([rows, np.ones(len(rows))]),
        bags,
        theta=np.append(theta, 0.0),
        label_noise_sd=prior.label_noise_sd,
        label_kind="mean",
        loss="instance",
        noise_sd=noise_sd,
        error="predictions" if metric is None else metric,
    )
    return _repeated(risk, problem.copies)


def direct_release(problem: Problem, rule: ExactCalibration) -> Risk:
    """Return the error of a linear model that is released directly, the yardstick."""
    design = problem.design
    event = rule.model(share=1.0, sensitivity_steps=design.sensitivity_steps)
    # The weights of the private fit are nearly those of least squares: sigma^2 p / n.
    n_rows = len(problem.X) * problem.copies
    return Risk.of(
        bias=0.0,
        choice=0.0,
        label_noise=problem.prior.label_noise_sd**2 * design.rank / n_rows,
        privacy=(event.noise_scale / problem.copies) ** 2 * design.privacy_trace,
    )


def planned(*, scored: bool = True, free_sizes: bool = True) -> list[BaggingStrategy]:
    """Return the registered strategies that are tried unasked and have what they need here.

    `scored` says whether those that read scores belong to them, `free_sizes` whether those whose
    bags are as large as they like.
    """
    chosen = [find_strategy(name) for name, kind in STRATEGIES.items() if traits_of(kind).planned]
    return [
        strategy
        for strategy in chosen
        if (scored or not strategy.uses_scores)
        and (free_sizes or not traits_of(strategy).free_sizes)
        and _runs_here(strategy)
    ]


def _runs_here(strategy: BaggingStrategy) -> bool:
    """Try it: an optional part may be missing."""
    rows = np.arange(8.0)[:, None]
    try:
        assign_bags(strategy, rows, rows[:, 0], bag_size=2, rng=np.random.default_rng(0))
    except MissingExtraError:
        return False
    return True


def _risk(
    moments: BagMoments,
    prior: Prior,
    kind: LabelKind,
    loss: str,
    noise: FloatArray,
    metric: FloatArray | None = None,
) -> Risk:
    return prior_risk(
        moments,
        signal_sd=prior.signal_sd,
        label_noise_sd=prior.label_noise_sd,
        label_kind=kind,
        loss=loss,
        noise_sd=noise,
        metric=metric,
    )


def _repeated(risk: Risk, times: float) -> Risk:
    """Return the risk if every bag were there `times` over: variances fall, bias stays."""
    return Risk.of(
        bias=risk.bias,
        choice=risk.choice / times,
        label_noise=risk.label_noise / times,
        privacy=risk.privacy / times,
    )


def _mean_risk(risks: Sequence[Risk]) -> Risk:
    names = ("bias", "choice", "label_noise", "privacy")
    return Risk.of(**{name: float(np.mean([getattr(r, name) for r in risks])) for name in names})

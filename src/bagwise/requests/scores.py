"""Scores: what a strategy may sort rows by, or take a metric from, each with its price.

=============  ===========================================  ================================
name           what it is                                   what it costs
=============  ===========================================  ================================
none           nothing; the strategy looks at features      nothing
labels         the labels themselves                        allowed only NOT PRIVATE
noisy-labels   every label with noise of its own            a share of the budget
model          predictions of a private model of the        a share of the budget; the model
               labels' family                               is published with the bags
=============  ===========================================  ================================

A share of the budget is one of mu squared where the scores have Gaussian noise, and one of epsilon
where they have Laplace noise. What is left is for the bags.

A strategy that takes a metric from scores (`measures_by_scores`) has those of a model, which is
published: the metric follows from it and from the features, and anybody can compute it again.
"""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from threadpoolctl import threadpool_limits

from bagwise._types import FloatArray
from bagwise.bagging import BaggingStrategy, measures_by_scores
from bagwise.errors import (
    BudgetError,
    LeakWarning,
    NotConvergedWarning,
    RankWarning,
    StrategyError,
    check_name,
)
from bagwise.families import Family, find_family
from bagwise.glm.statistic import StatisticsFit, fit_statistics
from bagwise.privacy.calibrate import Calibration, ScoreNoise
from bagwise.privacy.grid import LABEL_STEPS, grid_step
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import noisy_labels
from bagwise.privacy.private_model import (
    Designs,
    LinearScores,
    ModelDesign,
    Norm,
    best_share,
    instance_error,
    release_statistics,
)
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds

ScoresKind = Literal["none", "labels", "noisy-labels", "model"]
GAUSSIAN = find_family("gaussian")

EVEN = 0.5
"""Share of the rows that weigh alike in a model that is released for its own sake. It costs 5 to 10
percent of noise on tables with rare levels, next to nothing elsewhere, and real labels follow no
model so closely that far-off weights would do them no harm."""


NORMS: dict[ScoreNoise, Norm] = {"laplace": "L1", "gaussian": "L2"}
"""In which the columns of a model with this noise have length one."""

METRIC_SHARES: dict[ScoreNoise, float] = {"laplace": 0.08, "gaussian": 0.02}
"""Share of the budget for a model that only says what matters: half as much did as well on large
tables, and less on small ones. Both leave the bags about a tenth more noise."""


@dataclass(frozen=True)
class Scores:
    """Values to sort by, and what was spent on them."""

    values: FloatArray | None
    events: tuple[Mechanism, ...] = ()
    model: LinearScores | None = None


@dataclass(frozen=True)
class ScoreBudget:
    """What scores may spend: a share of a calibration; "auto" is the optimum where it is known.

    `for_metric` says that they are a metric for the features, and that rows are not sorted by them.
    """

    calibration: Calibration
    share: float | Literal["auto"]
    bag_size: int
    unit_rows: int
    for_metric: bool = False


def resolve_scores(scores: str, *, strategy: BaggingStrategy, private: bool) -> ScoresKind:
    """Turn "auto" into what the strategy needs, and refuse scores that would leak."""
    if scores == "auto":
        paid: ScoresKind = "model" if private or measures_by_scores(strategy) else "labels"
        scores = paid if strategy.uses_scores else "none"
    kinds: tuple[ScoresKind, ...] = get_args(ScoresKind)
    check_name("scores", scores, ("auto", *kinds))
    kind = kinds[kinds.index(scores)]
    if kind == "none" and strategy.uses_scores:
        raise StrategyError(f"strategy {strategy.name!r} needs scores; scores='none' gives none.")
    if kind != "none" and not strategy.uses_scores:
        raise StrategyError(
            f"strategy {strategy.name!r} does not use scores; leave them at 'auto'."
        )
    if measures_by_scores(strategy):
        _check_metric(strategy, kind, private=private)
    if kind == "labels" and private:
        raise BudgetError(
            f"strategy {strategy.name!r} would sort rows by their labels, and bag membership is "
            "published: that is not differentially private, whatever noise the bag labels carry. "
            "Use scores='model' (--scores model), or a strategy that looks at features only."
        )
    if kind in ("noisy-labels", "model") and not private:
        raise BudgetError(f"scores={kind!r} are made with noise; give an epsilon for it.")
    return kind


def _check_metric(strategy: BaggingStrategy, kind: ScoresKind, *, private: bool) -> None:
    if kind != "model":
        raise StrategyError(
            f"strategy {strategy.name!r} takes what matters from a private model; leave scores at "
            "'auto' (--scores auto)."
        )
    if not private:
        raise StrategyError(
            "scale='model' is the metric of a private model, and there is none without an epsilon. "
            "Use scale='whiten' or 'std' (--set scale=whiten)."
        )


def price_scores(
    kind: ScoresKind, X: Any, names: Sequence[str], budget: ScoreBudget | None
) -> "PricedLabels | PricedModel | None":
    """Return the scores that a budget buys, before any label is looked at; None if they cost none.

    X is read in blocks of rows only. Of Gaussian and Laplace noise a model has the one that leaves
    instance loss the smaller error, with the noise that each leaves for the bags: what is compared
    is public. A model for a metric has the noise that leaves its coefficients the smaller error.
    """
    if kind in ("none", "labels") or budget is None:
        return None
    rule = budget.calibration
    if kind == "noisy-labels":
        share = 0.5 if budget.share == "auto" else budget.share
        return PricedLabels(rule.labels(share=share, square=budget.unit_rows))
    if budget.for_metric:
        return _cheapest(X, names, budget, error=lambda model: model.error)
    n_rows = X.shape[0]
    return _cheapest(X, names, budget, error=lambda model: _expected_error(model, n_rows, budget))


def compute_scores(
    kind: ScoresKind,
    labels: FloatArray,
    X: Any,
    priced: "PricedLabels | PricedModel | None",
    *,
    bounds: Bounds | None,
    source: NoiseSource,
    family: Family = GAUSSIAN,
) -> Scores:
    """Return the scores and what they cost; the family is that of a private model."""
    if kind == "none":
        return Scores(None)
    if kind == "labels" or priced is None or bounds is None:
        warnings.warn(
            "bags are formed by sorting the labels, so membership alone shows each row's label "
            "almost exactly. The release is NOT PRIVATE; use it only where the labels may be seen.",
            LeakWarning,
            stacklevel=2,
        )
        return Scores(labels)
    return priced.scores(labels, X, family=family, bounds=bounds, source=source)


@dataclass(frozen=True)
class PricedLabels:
    """A noisy copy of every label that could be released, and the noise that it gets."""

    event: Mechanism

    def within(self, bounds: Bounds) -> "PricedLabels":
        """Return the same copies, at the same price, of labels that are clipped to these bounds."""
        return PricedLabels(self.event.on_grid(grid_step(bounds)))

    def scores(
        self,
        labels: FloatArray,
        X: Any,  # noqa: ARG002
        *,
        family: Family,  # noqa: ARG002
        bounds: Bounds,
        source: NoiseSource,
    ) -> Scores:
        """Release them."""
        values = noisy_labels(labels, bounds=bounds, event=self.event, source=source)
        return Scores(values, (self.event,))


@dataclass(frozen=True)
class PricedModel:
    """A model that could be released: how its rows are weighed, and the noise that it gets."""

    design: ModelDesign
    event: Mechanism

    @property
    def error(self) -> float:
        """The privacy error of linear coefficients in white columns: what noise is compared by."""
        return self.design.privacy_trace * self.event.number_sd**2

    def within(self, bounds: Bounds) -> "PricedModel":
        """Return the same model, at the same price, of labels that are clipped to these bounds."""
        return dataclasses.replace(self, event=self.event.on_grid(grid_step(bounds)))

    def release(
        self,
        labels: FloatArray | None,
        X: Any,
        *,
        family: Family,
        bounds: Bounds,
        source: NoiseSource,
    ) -> StatisticsFit:
        """Release its statistics, and fit the model of a family to them.

        Labels are None where X is on many machines, and has its labels with it.
        """
        if self.design.dropped:
            warnings.warn(
                f"features {', '.join(self.design.dropped)} follow from the others; the private "
                "model spends nothing on them.",
                RankWarning,
                stacklevel=2,
            )
        design = self.design
        # After this line no label is looked at: the fit knows features and noisy statistics.
        with threadpool_limits(1):  # as when the design was made
            released = release_statistics(
                X, labels, design=design, bounds=bounds, event=self.event, source=source
            )
            fit = fit_statistics(X, released, design=design, family=family, bounds=bounds)
        if not fit.converged:
            warnings.warn(
                f"the private model of the family {family.name} did not converge, so it predicts "
                "the mean for every row. Choose another family, or more epsilon.",
                NotConvergedWarning,
                stacklevel=2,
            )
        return fit

    def linear(
        self,
        labels: FloatArray | None,
        X: Any,
        *,
        family: Family,
        bounds: Bounds,
        source: NoiseSource,
    ) -> LinearScores:
        """Release the model as what may be published with bags."""
        fit = self.release(labels, X, family=family, bounds=bounds, source=source)
        return LinearScores(fit.intercept, fit.coef, self.design.dropped, family.name, family.link)

    def scores(
        self,
        labels: FloatArray,
        X: Any,
        *,
        family: Family,
        bounds: Bounds,
        source: NoiseSource,
    ) -> Scores:
        """Release the model, and predict with it."""
        model = self.linear(labels, X, family=family, bounds=bounds, source=source)
        return Scores(model.predict(X), (self.event,), model)


def cheapest_model(X: Any, names: Sequence[str], budget: ScoreBudget) -> PricedModel:
    """Return the model with the noise that leaves linear coefficients the least error."""
    return _cheapest(X, names, budget, even=EVEN, error=lambda model: model.error)


def _cheapest(
    X: Any,
    names: Sequence[str],
    budget: ScoreBudget,
    *,
    error: Callable[[PricedModel], float],
    even: float = 0.0,
) -> PricedModel:
    """Return the model with the least error; of many rows, a sample tells which it is."""
    designs, n_rows = Designs(X, names, even=even), X.shape[0]
    sketched = {
        noise: price_design(designs.sketch(NORMS[noise]), noise, budget, n_rows=n_rows)
        for noise in budget.calibration.score_noises
    }
    noise, *others = sketched
    if others:
        noise = min(sketched, key=lambda each: error(sketched[each]))
    design = designs.finished(sketched[noise].design)
    return price_design(design, noise, budget, n_rows=n_rows)


def price_design(
    design: ModelDesign, noise: ScoreNoise, budget: ScoreBudget, *, n_rows: int
) -> PricedModel:
    """Return the model with this design and noise that the budget's share buys."""
    share = budget.share
    if share == "auto":
        share = METRIC_SHARES[noise]
        if not budget.for_metric:
            share = best_share(design, n_rows=n_rows, bag_size=budget.bag_size)
    steps = design.sensitivity_steps * budget.unit_rows
    return PricedModel(design, _event(noise, budget.calibration, share, steps))


def least_sd(noise: ScoreNoise, budget: ScoreBudget) -> float:
    """Return noise on the statistics of a model that no design has less of; of a given share."""
    if budget.share == "auto":
        raise AssertionError("the best share depends on a design")
    steps = LABEL_STEPS * budget.unit_rows
    return _event(noise, budget.calibration, budget.share, steps).number_sd


def _event(noise: ScoreNoise, rule: Calibration, share: float, steps: int) -> Mechanism:
    if noise == "laplace":
        return rule.laplace_model(share=share, sensitivity_steps=steps)
    return rule.model(share=share, sensitivity_steps=steps)


def _expected_error(model: PricedModel, n_rows: int, budget: ScoreBudget) -> float:
    rows = budget.unit_rows
    means = budget.calibration.bag_means(
        square=rows**2, rows=rows, numbers=rows, spent=(model.event,)
    )
    return instance_error(
        model.design,
        n_rows=n_rows,
        bag_size=budget.bag_size,
        model_sd=model.event.number_sd / means.grid_step,
        sum_sd=means.number_sd / means.grid_step,
    )


def expected_labels(model: LinearScores, X: Any, bounds: Bounds) -> FloatArray:
    """Return what a released model expects of each row, within the bounds."""
    mean = find_family(model.family, model.link).mean(model.predict(X))
    return np.asarray(np.clip(mean, *bounds))

"""Scores: what a strategy may sort rows by, each with its price.

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
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from bagwise._types import FloatArray
from bagwise.bagging import BaggingStrategy
from bagwise.errors import (
    BudgetError,
    LeakWarning,
    NotConvergedWarning,
    RankWarning,
    StrategyError,
    check_name,
)
from bagwise.families import Family, find_family
from bagwise.models.from_statistics import StatisticsFit, fit_statistics
from bagwise.privacy.calibrate import Calibration, ScoreNoise
from bagwise.privacy.mechanisms import GaussianModel, LaplaceModel, Mechanism
from bagwise.privacy.noise import noisy_labels
from bagwise.privacy.private_model import (
    LinearScores,
    ModelDesign,
    best_share,
    design_model,
    instance_error,
    release_statistics,
)
from bagwise.rng import NoiseSource

ScoresKind = Literal["none", "labels", "noisy-labels", "model"]
GAUSSIAN = find_family("gaussian")

EVEN = 0.5
"""Share of the rows that weigh alike in a model that is released for its own sake. It costs 5 to 10
percent of noise on tables with rare levels, next to nothing elsewhere, and real labels follow no
model so closely that far-off weights would do them no harm."""


@dataclass(frozen=True)
class Scores:
    """Values to sort by, and what was spent on them."""

    values: FloatArray | None
    events: tuple[Mechanism, ...] = ()
    model: LinearScores | None = None


@dataclass(frozen=True)
class ScoreBudget:
    """What scores may spend: a share of a calibration; "auto" is the optimum where it is known."""

    calibration: Calibration
    share: float | Literal["auto"]
    bag_size: int
    unit_rows: int


def resolve_scores(scores: str, *, strategy: BaggingStrategy, private: bool) -> ScoresKind:
    """Turn "auto" into what the strategy needs, and refuse scores that would leak."""
    if scores == "auto":
        paid: ScoresKind = "model" if private else "labels"
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
    if kind == "labels" and private:
        raise BudgetError(
            f"strategy {strategy.name!r} would sort rows by their labels, and bag membership is "
            "published: that is not differentially private, whatever noise the bag labels carry. "
            "Use scores='model' (--scores model), or a strategy that looks at features only."
        )
    if kind in ("noisy-labels", "model") and not private:
        raise BudgetError(f"scores={kind!r} are made with noise; give an epsilon for it.")
    return kind


def compute_scores(
    kind: ScoresKind,
    labels: FloatArray,
    X: Any,
    names: Sequence[str],
    *,
    budget: ScoreBudget | None,
    source: NoiseSource,
    family: Family = GAUSSIAN,
) -> Scores:
    """Return the scores and what they cost; the family is that of a private model."""
    if kind == "none":
        return Scores(None)
    if kind == "labels" or budget is None:
        _warn_of_leak()
        return Scores(labels)
    if kind == "noisy-labels":
        return _noisy_label_scores(labels, budget, source)
    return model_scores(labels, X, names, budget=budget, source=source, family=family)


def _noisy_label_scores(labels: FloatArray, budget: ScoreBudget, source: NoiseSource) -> Scores:
    share = 0.5 if budget.share == "auto" else budget.share
    event = budget.calibration.labels(share=share, square=budget.unit_rows)
    bounds = budget.calibration.bounds
    values = noisy_labels(labels, bounds=bounds, event=event, source=source)
    return Scores(values, (event,))


@dataclass(frozen=True)
class PricedModel:
    """A model that could be released: how its rows are weighed, and the noise that it gets."""

    design: ModelDesign
    event: GaussianModel | LaplaceModel

    @property
    def error(self) -> float:
        """The privacy error of linear coefficients in white columns: what noise is compared by."""
        return self.design.privacy_trace * self.event.number_sd**2

    def release(
        self,
        labels: FloatArray,
        X: Any,
        *,
        family: Family,
        budget: ScoreBudget,
        source: NoiseSource,
    ) -> StatisticsFit:
        """Release its statistics, and fit the model of a family to them."""
        if self.design.dropped:
            warnings.warn(
                f"features {', '.join(self.design.dropped)} follow from the others; the private "
                "model spends nothing on them.",
                RankWarning,
                stacklevel=2,
            )
        design, bounds = self.design, budget.calibration.bounds
        # After this line no label is looked at: the fit knows features and noisy statistics.
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


def model_scores(
    labels: FloatArray,
    X: Any,
    names: Sequence[str],
    *,
    budget: ScoreBudget,
    source: NoiseSource,
    family: Family,
) -> Scores:
    """Release a private model and predict with it; X is read in blocks of rows only.

    Of Gaussian and Laplace noise it has the one that leaves instance loss the smaller error, with
    the noise that each leaves for the bags: what is compared is public.
    """
    rule, n_rows = budget.calibration, X.shape[0]
    priced = [price_model(X, names, noise, budget) for noise in rule.score_noises]
    if len(priced) > 1:
        priced.sort(key=lambda model: _expected_error(model, n_rows, budget))
    chosen = priced[0]
    fit = chosen.release(labels, X, family=family, budget=budget, source=source)
    model = LinearScores(fit.intercept, fit.coef, chosen.design.dropped, family.name)
    return Scores(model.predict(X), (chosen.event,), model)


def cheapest_model(X: Any, names: Sequence[str], budget: ScoreBudget) -> PricedModel:
    """Return the model with the noise that leaves linear coefficients the least error."""
    rule = budget.calibration
    priced = [price_model(X, names, noise, budget, even=EVEN) for noise in rule.score_noises]
    return min(priced, key=lambda model: model.error)


def price_model(
    X: Any, names: Sequence[str], noise: ScoreNoise, budget: ScoreBudget, *, even: float = 0.0
) -> PricedModel:
    """Return the model with this noise that the budget's share buys."""
    design = design_model(X, names, norm="L1" if noise == "laplace" else "L2", even=even)
    share, rule = budget.share, budget.calibration
    if share == "auto":
        share = best_share(design, n_rows=X.shape[0], bag_size=budget.bag_size)
    steps = design.sensitivity_steps * budget.unit_rows
    if noise == "laplace":
        return PricedModel(design, rule.laplace_model(share=share, sensitivity_steps=steps))
    return PricedModel(design, rule.model(share=share, sensitivity_steps=steps))


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
        sum_sd=means.sum_sd / means.grid_step,
    )


def _warn_of_leak() -> None:
    warnings.warn(
        "bags are formed by sorting the labels, so membership alone shows each row's label almost "
        "exactly. The release is NOT PRIVATE; use it only where the labels may be seen.",
        LeakWarning,
        stacklevel=3,
    )

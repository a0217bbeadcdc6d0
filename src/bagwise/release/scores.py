"""Scores: what a strategy may sort rows by, each with its price.

=============  ===========================================  ================================
name           what it is                                   what it costs
=============  ===========================================  ================================
none           nothing; the strategy looks at features      nothing
labels         the labels themselves                        allowed only NOT PRIVATE
noisy-labels   every label with noise of its own            a share of the budget
model          predictions of a private linear model        a share of the budget; the model
                                                            is published with the bags
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
from bagwise.errors import BudgetError, LeakWarning, RankWarning, StrategyError, check_name
from bagwise.privacy.calibrate import Calibration, ScoreNoise
from bagwise.privacy.mechanisms import GaussianModel, LaplaceModel, Mechanism
from bagwise.privacy.noise import noisy_labels
from bagwise.privacy.private_model import (
    LinearScores,
    ModelDesign,
    best_share,
    design_model,
    instance_error,
    release_coefficients,
)
from bagwise.rng import NoiseSource

ScoresKind = Literal["none", "labels", "noisy-labels", "model"]


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
) -> Scores:
    """Return the scores and what they cost."""
    if kind == "none":
        return Scores(None)
    if kind == "labels" or budget is None:
        _warn_of_leak()
        return Scores(labels)
    if kind == "noisy-labels":
        return _noisy_label_scores(labels, budget, source)
    return model_scores(labels, X, names, budget=budget, source=source)


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

    def release(
        self, labels: FloatArray, X: Any, budget: ScoreBudget, source: NoiseSource
    ) -> Scores:
        """Release it, and predict with it."""
        if self.design.dropped:
            warnings.warn(
                f"features {', '.join(self.design.dropped)} follow from the others; the private "
                "model spends nothing on them.",
                RankWarning,
                stacklevel=2,
            )
        model = release_coefficients(
            X,
            labels,
            design=self.design,
            bounds=budget.calibration.bounds,
            event=self.event,
            source=source,
        )
        return Scores(model.predict(X), (self.event,), model)


def model_scores(
    labels: FloatArray,
    X: Any,
    names: Sequence[str],
    *,
    budget: ScoreBudget,
    source: NoiseSource,
) -> Scores:
    """Release a private linear model and predict with it; X is read in blocks of rows only.

    Of Gaussian and Laplace noise it has the one that leaves instance loss the smaller error, with
    the noise that each leaves for the bags: what is compared is public.
    """
    rule, n_rows = budget.calibration, X.shape[0]
    priced = [price_model(X, names, noise, budget) for noise in rule.score_noises]
    if len(priced) > 1:
        priced.sort(key=lambda model: _expected_error(model, n_rows, budget))
    return priced[0].release(labels, X, budget, source)


def price_model(
    X: Any, names: Sequence[str], noise: ScoreNoise, budget: ScoreBudget
) -> PricedModel:
    """Return the model with this noise that the budget's share buys."""
    design = design_model(X, names, norm="L1" if noise == "laplace" else "L2")
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

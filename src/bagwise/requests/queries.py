"""Private queries on the labels before bags get their labels, their budget, and their answers.

========  =========================================  =============================================
query     what it is                                 what it is for
========  =========================================  =============================================
bounds    both ends, from public candidates          nobody could state what a label can be
range     a private range within the bounds          noise grows with the range that labels have
scores    a private model, or a noisy copy of        a strategy sorts rows by them, or takes a
          every label                                metric from them
model     a private model of the labels              bag labels are centred on what it expects
limit     how far labels are from that model         noise is for that limit alone
========  =========================================  =============================================

What may be decided by what:

- *How privately* each query is asked, and the noise on the bags, is settled before the first draw
  (`settle_queries`), by rows, columns, units and the promise, which are public. The ratio of noise
  to sensitivity stays, whatever the answers are (`Mechanism.on_grid`).
- *What* is asked may depend on earlier answers. They are paid for, and adaptive composition covers
  it: the model is one of labels clipped to the private range, the limit is one for what the private
  model leaves, and bags may be planned with both in mind.
- Whether centring pays is decided by the private limit. Nothing here asks the labels for anything
  that is not among the queries that were settled.

A share of the budget is one of mu squared where an answer has Gaussian noise, and one of epsilon
where it has Laplace noise. What is left is for the bags.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging import BaggingStrategy, measures_by_scores
from bagwise.errors import (
    BoundsError,
    BudgetError,
    StrategyError,
    check_name,
)
from bagwise.privacy.calibrate import ExactCalibration, ScoreNoise
from bagwise.privacy.grid import LABEL_STEPS, grid_step
from bagwise.privacy.mechanisms import Mechanism, noisy_choice
from bagwise.privacy.private_model import (
    Designs,
    ModelDesign,
    Norm,
    best_share,
    error_factors,
)
from bagwise.privacy.private_range import (
    RANGE_PART,
    Lattice,
    limit_share,
    looks_for_range,
    most_share,
    range_epsilon,
    suffices_for_bounds,
    terms_of,
)
from bagwise.privacy.queries import BagMeans, Labels, Statistic

Tighten = Literal["auto", "range", "none"]
Centre = Literal["auto", "model", "none"]
ScoresKind = Literal["none", "labels", "noisy-labels", "model"]

FEWEST_HALVINGS = 1.5
"""Of the bounds that a part for the range must be worth. In fewer rows a range has all that queries
may cost: bounds that are far too wide cost more than a model brings."""

STRONG_NOISE = 1 / 64
"""Standard deviation of a label around a model that is worth centring on, in widths of the range:
an eighth of what the planner believes a label's to be."""

REACH = 2.8
"""Limit of what a model leaves, in its standard deviations, that is expected to be found."""

WORTHWHILE = 0.35
"""Variance of the noise after centring, beside that without, from which on it is tried: if the
signal is strong. If it is weak, a model that a few hundredths of epsilon have bought is lost."""

_GAUSSIAN_PART = 0.05  # of mu squared: about what as large a share of epsilon costs the bags

LABELS_SHARE = 0.5
"""Share of the budget for a noisy copy of every label."""

NORMS: dict[ScoreNoise, Norm] = {"laplace": "L1", "gaussian": "L2"}
"""In which the columns of a model with this noise have length one."""

METRIC_SHARES: dict[ScoreNoise, float] = {"laplace": 0.08, "gaussian": 0.02}
"""Share of the budget for a model that only says what matters: half as much did as well on large
tables, and less on small ones. Both leave the bags about a tenth more noise."""


# What is asked for


@dataclass(frozen=True)
class ScoresRequest:
    """A request for the scores by which a strategy sorts rows, or from which it takes a metric.

    Attributes
    ----------
    kind : {"none", "labels", "noisy-labels", "model"}
        The labels themselves are allowed only NOT PRIVATE. A model is published with the bags.
    share : float or None
        Of the budget; None is the optimum where it is known.
    bag_size : int
    metric : bool
        Whether scores say how far rows are apart, and not which come after each other.
    for_picks : bool
        Whether bags get picked labels.
    even : float
        Share of the rows that weigh alike in a model.
    """

    kind: ScoresKind = "none"
    share: float | None = None
    bag_size: int = 1
    metric: bool = False
    for_picks: bool = False
    even: float = 0.0


NO_SCORES = ScoresRequest()

OWN_MODEL = ScoresRequest("model", share=1.0, metric=True, even=0.5)
"""A model that is released for its own sake, with the whole budget. That half of the rows weigh
alike costs 5 to 10 percent of noise on tables with rare levels, next to nothing elsewhere, and real
labels follow no model so closely that far-off weights would do them no harm."""


def resolve_scores(scores: str, *, strategy: BaggingStrategy, private: bool) -> ScoresKind:
    """Resolve "auto" into what the strategy needs, and refuse scores that would leak labels."""
    metric = measures_by_scores(strategy)
    if scores == "auto":
        paid: ScoresKind = "model" if private or metric else "labels"
        scores = paid if strategy.uses_scores else "none"
    kinds: tuple[ScoresKind, ...] = get_args(ScoresKind)
    check_name("scores", scores, ("auto", *kinds))
    kind = kinds[kinds.index(scores)]
    if kind == "none" and strategy.uses_scores:
        raise StrategyError(f"strategy {strategy.name!r} needs scores; scores='none' gives none.")
    if kind != "none" and not strategy.uses_scores:
        raise StrategyError(f"strategy {strategy.name!r} does not use scores; use scores='auto'.")
    if metric and kind != "model":
        raise StrategyError(
            f"the metric of strategy {strategy.name!r} comes from a private model; use "
            "scores='auto' (--scores auto)."
        )
    if metric and not private:
        raise StrategyError(
            "scale='model' is the metric of a private model, which needs an epsilon. Use "
            "scale='whiten' or 'std' (--set scale=whiten)."
        )
    if kind == "labels" and private:
        raise BudgetError(
            f"strategy {strategy.name!r} would sort rows by their labels, and bag membership is "
            "published: this is not differentially private, however noisy the bag labels are. "
            "Use scores='model' (--scores model), or a strategy that uses only features."
        )
    if kind in ("noisy-labels", "model") and not private:
        raise BudgetError(f"scores={kind!r} are made with noise; give an epsilon for it.")
    return kind


# The queries, and their prices


@dataclass(frozen=True)
class ModelQuery:
    """A private model: how its rows are weighed, and its noise."""

    design: ModelDesign
    event: Mechanism

    @property
    def error(self) -> float:
        """The privacy error of linear coefficients in white columns, by which noise is compared."""
        return self.design.privacy_trace * self.event.number_sd**2


@dataclass(frozen=True)
class Queries:
    """All queries before the bags' own, and how privately each is asked; labels play no part in it.

    Attributes
    ----------
    bounds : Mechanism or None
        None: somebody has stated them.
    range : Mechanism or None
        None: the range is that of the bounds.
    labels : Mechanism or None
        For a noisy copy of every label, to sort rows by.
    model : ModelQuery or None
        To sort rows or to measure them by, to centre labels on, or for both.
    limit : Mechanism or None
        For what a model leaves. None: labels are not centred.
    """

    bounds: Mechanism | None = None
    range: Mechanism | None = None
    labels: Mechanism | None = None
    model: ModelQuery | None = None
    limit: Mechanism | None = None

    @property
    def searches(self) -> tuple[Mechanism, ...]:
        """The mechanisms that find bounds and a range, before anything else."""
        return tuple(one for one in (self.bounds, self.range) if one is not None)

    @property
    def spent(self) -> tuple[Mechanism, ...]:
        """The mechanisms that are paid for between a range and the bags."""
        model = None if self.model is None else self.model.event
        return tuple(one for one in (self.labels, model, self.limit) if one is not None)

    def within(self, rule: ExactCalibration | None) -> "Queries":
        """Return the same queries, at the same price, for labels clipped to the range of a rule."""
        if not self.searches or rule is None:
            return self
        step = grid_step(rule.bounds)
        labels = None if self.labels is None else self.labels.on_grid(step)
        model = self.model
        if model is not None:
            model = dataclasses.replace(model, event=model.event.on_grid(step))
        return dataclasses.replace(self, labels=labels, model=model)


def settle_queries(
    rule: ExactCalibration | None,
    X: Any,
    names: Sequence[str],
    *,
    unit_rows: int,
    tighten: Tighten,
    centre: Centre,
    scores: ScoresRequest = NO_SCORES,
    stated: bool = True,
) -> Queries:
    """Settle which of bounds, range, scores, model and limit are bought, and at what price.

    Every quantity that decides is public. X is only read in blocks of rows.

    Parameters
    ----------
    rule : ExactCalibration or None
        What is promised; None promises nothing.
    X, names
        The features as they are encoded, and their names.
    unit_rows : int
        Rows of the largest protected unit.
    tighten, centre : str
        "auto": if it is worthwhile.
    scores : ScoresRequest
    stated : bool
        Whether the bounds are: else they are the first that is asked for.
    """
    if rule is None:
        return Queries()
    n_rows = X.shape[0]
    bounds = None if stated else price_bounds(rule, n_rows=n_rows, unit_rows=unit_rows)
    rule = rule.after(bounds)

    # 1. A range has all that queries may cost, or a part of it where a model may follow.
    alone = price_range(rule, n_rows=n_rows, unit_rows=unit_rows, asked=tighten)
    ranged = alone
    if centre == "auto":
        ranged = price_range(
            rule, n_rows=n_rows, unit_rows=unit_rows, asked=tighten, part=RANGE_PART
        )
    if ranged is None and alone is not None:  # so small a part finds no range in so few rows
        ranged, centre = alone, "none"
    left = rule.after(ranged)

    # 2. A model and a limit, if they are asked for, or leave much less noise than without. A model
    # that rows are sorted by has its own best share of the budget, and serves for both. One that is
    # a metric takes what it is given, unless it is all that is asked for.
    modelled = scores.kind == "model"
    shared = modelled and scores.metric and scores.share is None
    model, limit = None, None
    if centre != "none":
        share = limit_share(left.left, n_rows=n_rows, unit_rows=unit_rows, asked=centre == "model")
        limit = noisy_choice("limit", share * left.left, unit_rows)
        if shared or not modelled:
            model = _model_to_centre_on(left, Designs(X, names), n_rows, unit_rows, centre)
            limit = None if model is None else limit
    if limit is None:  # the range gets what a model is not worth
        ranged = alone
        left = rule.after(ranged)

    # 3. Scores, with what a range leaves; a model that is good enough to centre on is for both.
    asked = Queries(model=model)
    if model is None or not modelled:
        scored = price_scores(left, X, names, scores, unit_rows=unit_rows)
        asked = dataclasses.replace(scored, model=scored.model or model)
    return dataclasses.replace(asked, bounds=bounds, range=ranged, limit=limit)


def price_bounds(rule: ExactCalibration, *, n_rows: int, unit_rows: int) -> Mechanism:
    """Return the query for bounds that nobody has stated; refuse it if there are too few rows.

    >>> price_bounds(ExactCalibration(1.0, 0.0, (0.0, 1.0)), n_rows=10_000, unit_rows=1).epsilon
    0.1
    """
    epsilon = range_epsilon(rule.left, None, n_rows=n_rows, unit_rows=unit_rows, part=None)
    if not suffices_for_bounds(n_rows, epsilon=epsilon, rows=unit_rows):
        raise BoundsError(
            f"{n_rows} rows are too few to find bounds privately at epsilon {rule.epsilon:g}. "
            "State the range of possible labels, bounds=(lo, hi) (--bounds LO HI), or use a "
            "larger epsilon."
        )
    return noisy_choice("bounds", epsilon, unit_rows)


def price_range(
    rule: ExactCalibration, *, n_rows: int, unit_rows: int, asked: Tighten, part: float = 1.0
) -> Mechanism | None:
    """Return the query for a range, if one is asked for or worthwhile.

    Unless it is asked for, it gets a `part` of what queries may cost at most.
    """
    if asked == "none":
        return None
    most = part if asked == "auto" else None
    bounds = None if rule.prior else rule.bounds
    epsilon = range_epsilon(rule.left, bounds, n_rows=n_rows, unit_rows=unit_rows, part=most)
    each = epsilon / looks_for_range(bounds)
    halvings = Lattice(n_rows, each, unit_rows, terms_of(bool(rule.prior))).depth
    if asked == "auto" and halvings < (1 if part == 1 else FEWEST_HALVINGS):
        return None
    return noisy_choice("range", epsilon, unit_rows)


def price_scores(
    rule: ExactCalibration, X: Any, names: Sequence[str], asked: ScoresRequest, *, unit_rows: int
) -> Queries:
    """Return the scores that the budget buys, if they cost any.

    A model gets the kind of noise, Gaussian or Laplace, with which instance loss has the smaller
    error, given the noise that each kind leaves for the bags. A model for a metric gets the kind
    with which its coefficients have the smaller error.
    """
    if asked.kind in ("none", "labels"):
        return Queries()
    if asked.for_picks and unit_rows > 1:
        # The bound for groups covers picks and scores at once, so both are set by row.
        rule, unit_rows = rule.per_row(unit_rows), 1
    if asked.kind == "noisy-labels":
        every = Labels(grid_step(rule.bounds), unit_rows)
        offers = [rule.part(every, noise, LABELS_SHARE) for noise in rule.score_noises]
        return Queries(labels=min(offers, key=lambda offer: offer.number_sd))
    # A model, with a design for each norm; of many rows, a sample tells which is the best.
    designs, n_rows, bag_size = Designs(X, names, even=asked.even), X.shape[0], asked.bag_size

    def priced(design: ModelDesign, noise: ScoreNoise) -> ModelQuery:
        if asked.share is not None:
            share = asked.share
        elif asked.metric:
            share = METRIC_SHARES[noise]
        else:
            share = best_share(design, n_rows=n_rows, bag_size=bag_size)
        return price_model(rule, design, noise, share, unit_rows=unit_rows)

    def error(model: ModelQuery) -> float:
        if asked.metric:
            return model.error
        query = BagMeans.of(rule.bounds, rows=unit_rows, square=unit_rows**2)
        means = rule.least(query, (model.event,))
        factors = error_factors(model.design, n_rows=n_rows, bag_size=bag_size)
        noises = model.event.number_sd, means.number_sd
        each = (a * (sd / means.grid_step) ** 2 for a, sd in zip(factors, noises, strict=True))
        return math.fsum(each)

    sketched = {noise: priced(designs.sketch(NORMS[noise]), noise) for noise in rule.score_noises}
    noise, *others = sketched
    if others:
        noise = min(sketched, key=lambda each: error(sketched[each]))
    return Queries(model=priced(designs.finished(sketched[noise].design), noise))


def price_model(
    rule: ExactCalibration, design: ModelDesign, noise: ScoreNoise, share: float, *, unit_rows: int
) -> ModelQuery:
    """Return the model with this design and noise that a share of the budget buys."""
    steps = design.sensitivity_steps * unit_rows
    return ModelQuery(design, _model_noise(rule, noise, share, steps))


def _model_noise(rule: ExactCalibration, noise: ScoreNoise, share: float, steps: int) -> Mechanism:
    return rule.part(Statistic(grid_step(rule.bounds), steps, NORMS[noise]), noise, share)


def _model_to_centre_on(
    rule: ExactCalibration, designs: Designs, n_rows: int, unit_rows: int, asked: Centre
) -> ModelQuery | None:
    """Return the model that leaves the bags the least noise, if the signal is strong.

    For each kind of noise it gets the best share. None if nobody asks for a model and the ratio of
    the variance of the noise to that without centring would be above the bar.

    A design takes long where there are many columns. None is made for a kind of noise that cannot
    be the best one, or that could not pay even with the best design that is conceivable.
    """
    bar, width = WORTHWHILE if asked == "auto" else math.inf, rule.bounds[1] - rule.bounds[0]
    by_share = partial(_by_share, rule=rule, n_rows=n_rows, unit_rows=unit_rows, asked=asked)

    def prospect(design: ModelDesign, noise: ScoreNoise) -> tuple[float, float]:
        whole = price_model(rule, design, noise, 1.0, unit_rows=unit_rows)
        shares, variance, lost = by_share(whole.error / width**2, pure=noise == "laplace")
        best = int(np.argmin(lost))
        return float(shares[best]), float(variance[best])

    # 1. What the best conceivable design would leave, by kind of noise.
    least = {}
    for noise in rule.score_noises:
        smallest = _model_noise(rule, noise, 1.0, LABEL_STEPS * unit_rows).number_sd
        error = designs.least_trace * (smallest / width) ** 2
        least[noise] = float(np.min(by_share(error, pure=noise == "laplace")[1]))

    # 2. What designs leave, from the most promising noise on, while the next could be better.
    best, chosen = bar, None
    for noise in sorted(least, key=lambda each: least[each]):
        if least[noise] > best:
            break
        sketch = designs.sketch(NORMS[noise])
        variance = prospect(sketch, noise)[1]
        if chosen is None or variance < best:
            best, chosen = variance, (noise, sketch)
    if chosen is None:
        return None

    # 3. The chosen one again, with what all rows say of its design.
    noise, design = chosen[0], designs.finished(chosen[1])
    share, variance = prospect(design, noise)
    if variance > bar:
        return None
    return price_model(rule, design, noise, share, unit_rows=unit_rows)


def _by_share(
    error: float, *, pure: bool, rule: ExactCalibration, n_rows: int, unit_rows: int, asked: Centre
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return shares of a model, the variance of the noise on bags that each leaves, and its loss.

    What is lost if the signal is weak, growth of the noise alone, counts in that half as much. What
    Gaussian noise leaves for the bags is taken from a line through what the accountant finds
    (it is within a hundredth between shares of 0.02 and 0.3); the noise itself is set by the
    accountant.
    """
    limit = limit_share(rule.left, n_rows=n_rows, unit_rows=unit_rows, asked=asked == "model")
    most = 0.5
    if asked == "auto":
        # A range that was asked for has no larger part in it than one that was not.
        ranged = math.fsum(event.epsilon for event in rule.prior if event.hides == "range")
        before = rule.left + ranged
        room = most_share(before) * before
        room = (room - min(ranged, RANGE_PART * room)) / rule.left
        most = (room - limit) * (1 if pure else _GAUSSIAN_PART)
    shares = np.geomspace(most / 25, most, 30)
    if pure:
        model, growth = error / shares**2, 1 / np.maximum(1 - shares - limit, 0.01)
    else:
        model, growth = error / shares, (1.05 + 2.6 * shares) / (1 - limit)
    narrowed = np.minimum(1.0, (2 * REACH) ** 2 * (STRONG_NOISE**2 + model))
    return shares, narrowed * growth**2, narrowed * growth**3

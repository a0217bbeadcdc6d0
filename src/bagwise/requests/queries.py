"""Private looks at the labels before any bag gets one: a range for them, and a model to centre on.

Noise scales with how far a label can move what is told. Bounds that nobody knows well are wide, and
most of the noise is then for labels that do not exist. Two looks repair that:

- **tighten**: a range within the bounds, which labels are clipped to;
- **centre**: a private model of the labels, and a limit for what it leaves of them. Bag labels are
  the means of its predictions, and of what it leaves, clipped to that limit, with noise for the
  limit alone. To add predictions back is post-processing.

What may be decided by what:

- *How privately* each look is taken, and the noise on the bags, is settled before the first look,
  by rows, columns, units and the promise, which are public: see `Schedule`. The ratio of noise to
  sensitivity stays, whatever the looks find (`Mechanism.on_grid`).
- *What* is looked at may depend on earlier looks. They are paid for, and adaptive composition
  covers it: the model is one of labels clipped to the private range, the limit is one for what the
  private model leaves, and bags may be planned with both in mind.
- Whether centring pays is decided by the private limit. Nothing here asks the labels for anything
  that is not in the schedule.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.families import Family
from bagwise.privacy.calibrate import ExactCalibration, ScoreNoise
from bagwise.privacy.mechanisms import Mechanism, noisy_choice
from bagwise.privacy.private_model import Designs, LinearScores
from bagwise.privacy.private_range import (
    NARROWING,
    RANGE_PART,
    Distance,
    count_beyond,
    depth,
    limit_of,
    limit_share,
    looks_for_range,
    most_share,
    range_epsilon,
    tightened,
)
from bagwise.privacy.promise import LARGEST_EPSILON
from bagwise.requests.scores import (
    NORMS,
    PricedLabels,
    PricedModel,
    ScoreBudget,
    expected_labels,
    least_sd,
    price_design,
)
from bagwise.rng import NoiseSource
from bagwise.rows.blocks import SpreadRows, over_blocks, over_labelled_blocks
from bagwise.rows.labels import Bounds
from bagwise.theory.beliefs import DEFAULT_MISFIT

Tighten = Literal["auto", "range", "none"]
Centre = Literal["auto", "model", "none"]

FEWEST_HALVINGS = 1.5
"""Of the bounds that a part for the range must be worth. In fewer rows a range has all that looks
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


@dataclass(frozen=True)
class Schedule:
    """Every look that will be taken, and how privately; labels have no part in it.

    Attributes
    ----------
    tighten : Mechanism or None
        For a range.
    scores : PricedLabels, PricedModel or None
        For scores that rows are sorted by.
    model : PricedModel or None
        To centre on; None where the model of the scores serves for both.
    limit : Mechanism or None
        For what a model leaves.
    """

    tighten: Mechanism | None = None
    scores: PricedLabels | PricedModel | None = None
    model: PricedModel | None = None
    limit: Mechanism | None = None

    @property
    def spent(self) -> tuple[Mechanism, ...]:
        """What is spent between a range and the bags."""
        priced = (look.event for look in (self.scores, self.model) if look is not None)
        return (*priced, *(() if self.limit is None else (self.limit,)))

    def within(self, bounds: Bounds) -> "Schedule":
        """Return the same looks, at the same price, at labels that are clipped to these bounds."""
        return dataclasses.replace(
            self,
            scores=None if self.scores is None else self.scores.within(bounds),
            model=None if self.model is None else self.model.within(bounds),
        )


@dataclass(frozen=True)
class Centring:
    """What labels are centred on.

    Attributes
    ----------
    model : LinearScores
        Paid for, and published.
    predictions : (n,) or None
        Expected labels of all rows, within the bounds; None where rows are on many machines.
    signal : float
        Variance of the predictions.
    bounds : (low, high)
        Those that were stated. A label that the private range would clip, and that the model
        expects, is told in full.
    error : float
        Expected square of the error of predictions by the model's noise; public.
    limit : float or None
        What the model leaves of a label is clipped to plus or minus that. None: it leaves so much
        that centring does not pay, and is not done.
    events : tuple of Mechanism
        What was spent on it, scores apart.
    """

    model: LinearScores
    predictions: FloatArray | None
    signal: float
    bounds: Bounds
    error: float
    limit: float | None
    events: tuple[Mechanism, ...]

    def take(self, rows: IntArray) -> "Centring":
        """Reorder rows."""
        if self.predictions is None:
            raise AssertionError("rows on many machines are in no order")
        return dataclasses.replace(self, predictions=self.predictions[rows])


@dataclass(frozen=True)
class Outlook:
    """What a plan of bags may know after private looks.

    Attributes
    ----------
    rule : ExactCalibration
        Laplace noise of the size that the bags will have; its bounds are as wide as what it hides.
    belief : (signal_sd, label_noise_sd, misfit) or None
        Of the labels, as far as a private model tells.
    """

    rule: ExactCalibration
    belief: tuple[float, float, float] | None = None


def look_ahead(rule: ExactCalibration, centring: Centring | None) -> Outlook:
    """Return what is known for a plan, all of it paid for."""
    spent = () if centring is None else centring.events
    means = rule.bag_means(spent=spent)
    width = rule.bounds[1] - rule.bounds[0]
    # Staircase noise of a large epsilon is so small that no Laplace noise of a sane one is.
    epsilon = min(LARGEST_EPSILON, math.sqrt(2) * width / means.number_sd)
    if centring is None or centring.limit is None:
        return Outlook(ExactCalibration(epsilon, 0.0, rule.bounds, noise="laplace"))
    limit, error = centring.limit, centring.error
    left, signal = (limit / REACH) ** 2, centring.signal
    # The model's own error is in both. And labels miss the model by no more than it leaves: by half
    # of that if the misfit is three times as large as believed.
    left, signal = max(left - error, left / 10), max(signal - error, signal / 10)
    misfit = min(DEFAULT_MISFIT, left / 6 / max(signal, 1e-300))
    return Outlook(
        ExactCalibration(epsilon, 0.0, (0.0, 2 * limit), noise="laplace"),
        (math.sqrt(signal), math.sqrt(left), misfit),
    )


def schedule_looks(
    rule: ExactCalibration,
    X: Any,
    names: Sequence[str],
    *,
    unit_rows: int,
    tighten: Tighten,
    centre: Centre,
    scored: bool = False,
) -> Schedule:
    """Return the looks for a range, a model and a limit, those that are asked for or worthwhile.

    Where nobody asks for a model, a range gets a part of what looks may cost, or all of it if a
    model is not worthwhile with the rest, or if so small a part finds no range in so few rows.
    """
    ranged = partial(schedule_range, rule, n_rows=X.shape[0], unit_rows=unit_rows, asked=tighten)
    alone = ranged()
    look = ranged(part=RANGE_PART) if centre == "auto" else alone
    if look is None and alone is not None:
        return Schedule(tighten=alone)
    left = rule if look is None else rule.within(rule.bounds, look)
    found = schedule_centring(left, X, names, unit_rows=unit_rows, asked=centre, scored=scored)
    return dataclasses.replace(found, tighten=alone if found.limit is None else look)


def schedule_range(
    rule: ExactCalibration, *, n_rows: int, unit_rows: int, asked: Tighten, part: float = 1.0
) -> Mechanism | None:
    """Return the look for a range, if one is asked for or worthwhile.

    It is a `part` of what looks may cost at most, unless it is asked for.
    """
    if asked == "none":
        return None
    epsilon = range_epsilon(
        rule.left,
        rule.bounds,
        n_rows=n_rows,
        unit_rows=unit_rows,
        part=part if asked == "auto" else None,
    )
    halvings = depth(n_rows, epsilon=epsilon / looks_for_range(rule.bounds), rows=unit_rows)
    if asked == "auto" and halvings < (1 if part == 1 else FEWEST_HALVINGS):
        return None
    return noisy_choice("range", epsilon, unit_rows)


def take_range(
    labels: FloatArray, rule: ExactCalibration, event: Mechanism, source: NoiseSource
) -> ExactCalibration:
    """Choose a range privately; return the rule for what is left, within that range."""
    found = tightened(
        labels, rule.bounds, epsilon=event.epsilon, rows=event.unit_rows, source=source
    )
    return rule.within(found, event)


def schedule_centring(
    rule: ExactCalibration,
    X: Any,
    names: Sequence[str],
    *,
    unit_rows: int,
    asked: Centre,
    scored: bool = False,
) -> Schedule:
    """Return the looks for a model and a limit, if they are asked for or worthwhile.

    For each kind of noise the model gets the share that leaves the bags the least noise, if the
    signal is strong. They are tried if that is much less than without. Where rows are sorted by a
    private model, `scored`, it serves for both.

    A design takes long where there are many columns. None is made for a kind of noise that cannot
    be the best one, or that could not pay even with the best design that is conceivable.
    """
    if asked == "none":
        return Schedule()
    n_rows = X.shape[0]
    share = limit_share(rule.left, n_rows=n_rows, unit_rows=unit_rows, asked=asked == "model")
    limit = noisy_choice("limit", share * rule.left, unit_rows)
    if scored:
        return Schedule(limit=limit)
    model = _worthwhile_model(rule, Designs(X, names), n_rows, unit_rows, asked)
    return Schedule() if model is None else Schedule(model=model, limit=limit)


def _worthwhile_model(
    rule: ExactCalibration, designs: Designs, n_rows: int, unit_rows: int, asked: Centre
) -> PricedModel | None:
    """Return the model that leaves the bags the least noise, if the signal is strong.

    None if nobody asks, and their variance, beside that without centring, would be above the bar.
    """
    bar = WORTHWHILE if asked == "auto" else math.inf
    whole, width = ScoreBudget(rule, 1.0, 1, unit_rows), rule.bounds[1] - rule.bounds[0]
    by_share = partial(_by_share, rule=rule, n_rows=n_rows, unit_rows=unit_rows, asked=asked)

    def prospect(model: PricedModel, noise: ScoreNoise) -> tuple[float, float]:
        return _best_share(*by_share(model.error / width**2, pure=noise == "laplace"))

    hopes = {}
    for noise in rule.score_noises:
        error = designs.least_trace * (least_sd(noise, whole) / width) ** 2
        _, narrowed, growth = by_share(error, pure=noise == "laplace")
        hopes[noise] = float(np.min(narrowed * growth**2))
    best, found = bar, None
    for noise in sorted(hopes, key=lambda each: hopes[each]):
        if hopes[noise] > best:
            break
        sketch = price_design(designs.sketch(NORMS[noise]), noise, whole, n_rows=n_rows)
        variance = prospect(sketch, noise)[1]
        if found is None or variance < best:
            best, found = variance, (noise, sketch.design)
    if found is None:
        return None
    noise, design = found[0], designs.finished(found[1])
    share, variance = prospect(price_design(design, noise, whole, n_rows=n_rows), noise)
    if variance > bar:
        return None
    return price_design(design, noise, ScoreBudget(rule, share, 1, unit_rows), n_rows=n_rows)


def take_centring(
    labels: FloatArray | None,
    X: Any,
    schedule: Schedule,
    rule: ExactCalibration,
    *,
    family: Family,
    bounds: Bounds,
    scored: LinearScores | None,
    source: NoiseSource,
) -> Centring | None:
    """Release a model, or take the one that rows are sorted by; find a limit for what it leaves.

    Parameters
    ----------
    labels : (n,) floats or None
        Secret. None where X is on many machines, and has its labels with it.
    rule : ExactCalibration
        Its bounds are the range that labels are clipped to for the model.
    bounds : (low, high)
        Those that were stated.
    """
    if schedule.limit is None:
        return None
    events: tuple[Mechanism, ...] = (schedule.limit,)
    model, error = scored, 0.0
    if model is None:
        if schedule.model is None:
            raise AssertionError("a model to centre on is scheduled where no scores bring one")
        priced = schedule.model
        model = priced.linear(labels, X, family=family, bounds=rule.bounds, source=source)
        events, error = (priced.event, schedule.limit), priced.error
    predictions, signal, left = _leftovers(labels, X, model, bounds)
    widest = (rule.bounds[1] - rule.bounds[0]) / 2
    limit = limit_of(
        left, widest, epsilon=schedule.limit.epsilon, rows=schedule.limit.unit_rows, source=source
    )
    pays = limit <= NARROWING * widest
    return Centring(model, predictions, signal, bounds, error, limit if pays else None, events)


def _leftovers(
    labels: FloatArray | None, X: Any, model: LinearScores, bounds: Bounds
) -> tuple[FloatArray | None, float, "FloatArray | SpreadLeftovers"]:
    """Return what a model expects, how much that varies, and the sizes of what it leaves."""
    if labels is None:
        spread = SpreadLeftovers(X, model, bounds)
        return None, spread.signal, spread
    predictions = expected_labels(model, X, bounds)
    left = np.abs(np.clip(labels, *bounds) - predictions)
    return predictions, float(np.var(predictions)), left


@dataclass(frozen=True)
class SpreadLeftovers:
    """What a model leaves of labels on many machines: it can be counted, and is secret."""

    X: SpreadRows
    model: LinearScores
    bounds: Bounds

    @property
    def size(self) -> int:
        """Number of labels."""
        return self.X.shape[0]

    @property
    def signal(self) -> float:
        """Variance of the model's predictions, from features alone."""
        work = partial(_moments, model=self.model, bounds=self.bounds)
        n, total, square = np.sum(list(over_blocks(self.X, work, np.add)), axis=0)
        # Sums of doubles depend on the order of the rows in their last digits, which go.
        return float(f"{max(0.0, square / n - (total / n) ** 2):.9e}")

    def count_beyond(self, distance: Distance, limits: FloatArray) -> IntArray:
        """Return how many are larger than each limit; limits fall."""
        work = partial(
            _count_left, model=self.model, bounds=self.bounds, distance=distance, limits=limits
        )
        return np.asarray(np.sum(list(over_labelled_blocks(self.X, None, work, np.add)), axis=0))


def _moments(X: FloatArray, *, model: LinearScores, bounds: Bounds) -> FloatArray:
    """Return rows, and sum and squares of what is expected of them, from the middle."""
    off = expected_labels(model, X, bounds) - (bounds[0] + bounds[1]) / 2
    return np.array([off.size, off.sum(), off @ off])


def _count_left(
    X: FloatArray,
    labels: FloatArray,
    *,
    model: LinearScores,
    bounds: Bounds,
    distance: Distance,
    limits: FloatArray,
) -> IntArray:
    left = np.abs(np.clip(labels, *bounds) - expected_labels(model, X, bounds))
    return count_beyond(left, distance, limits)


def prospect_of_centring(
    error: float, *, pure: bool, rule: ExactCalibration, n_rows: int, unit_rows: int
) -> tuple[float, float]:
    """Return the share of the budget for a model to centre on, and what it would bring.

    Parameters
    ----------
    error : float
        Privacy error of a linear model that the whole budget buys, in squares of the width.
    pure : bool
        Whether its noise needs no delta.

    Returns
    -------
    share, variance : float
        The share that leaves the bags the least noise, and the variance of that noise if the signal
        is strong, beside what it would be without centring.

    Notes
    -----
    What Gaussian noise leaves for the bags is taken from a line through what the accountant finds
    (it is within a hundredth between shares of 0.02 and 0.3); the noise itself is set by the
    accountant.
    """
    ranged = partial(schedule_range, rule, n_rows=n_rows, unit_rows=unit_rows, asked="auto")
    look = ranged(part=RANGE_PART)
    if look is None and ranged() is not None:  # as in `schedule_looks`
        return 0.0, 1.0
    left = rule if look is None else rule.within(rule.bounds, look)
    by_share = _by_share(
        error, pure=pure, rule=left, n_rows=n_rows, unit_rows=unit_rows, asked="auto"
    )
    return _best_share(*by_share)


def _best_share(
    shares: FloatArray, narrowed: FloatArray, growth: FloatArray
) -> tuple[float, float]:
    # What is lost if the signal is weak, growth alone, counts as well, half as much.
    best = int(np.argmin(narrowed * growth**3))
    return float(shares[best]), float(narrowed[best] * growth[best] ** 2)


def _by_share(
    error: float,
    *,
    pure: bool,
    rule: ExactCalibration,
    n_rows: int,
    unit_rows: int,
    asked: Centre,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return shares of a model; what each leaves of the variance, and how the scale grows by it."""
    limit = limit_share(rule.left, n_rows=n_rows, unit_rows=unit_rows, asked=asked == "model")
    most = 0.5
    if asked == "auto":
        most = (_room(rule) - limit) * (1 if pure else _GAUSSIAN_PART)
    shares = np.geomspace(most / 25, most, 30)
    if pure:
        model, growth = error / shares**2, 1 / np.maximum(1 - shares - limit, 0.01)
    else:
        model, growth = error / shares, (1.05 + 2.6 * shares) / (1 - limit)
    narrowed = np.minimum(1.0, (2 * REACH) ** 2 * (STRONG_NOISE**2 + model))
    return shares, narrowed, growth


def _room(rule: ExactCalibration) -> float:
    """Return the share that is left of that for a model and a limit.

    A range that was asked for has no larger part in it than one that was not.
    """
    ranged = math.fsum(event.epsilon for event in rule.prior if event.hides == "range")
    before = rule.left + ranged
    most = most_share(before) * before
    return (most - min(ranged, RANGE_PART * most)) / rule.left

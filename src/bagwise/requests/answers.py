"""The answers of private queries, all of them paid for; `queries` settles what is asked."""

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from bagwise._types import FloatArray, IntArray
from bagwise.errors import LeakWarning, NotConvergedWarning, RankWarning
from bagwise.families import Family, find_family
from bagwise.glm.statistic import (
    check_bounds_of,
    family_to_release,
    fit_statistics,
)
from bagwise.models.row_model import Estimates
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import noisy_labels
from bagwise.privacy.private_model import LinearScores, release_statistics
from bagwise.privacy.private_range import (
    NARROWING,
    Distance,
    count_beyond,
    find_bounds,
    limit_of,
    tightened,
)
from bagwise.requests.budget import Budget
from bagwise.requests.queries import ModelQuery, Queries, ScoresKind
from bagwise.rows.labels import Bounds
from bagwise.rows.whitening import over_blocks
from bagwise.show.stages import Stages


@dataclass(frozen=True)
class Answers:
    """The facts that private queries reveal about the labels before bags get theirs.

    Attributes
    ----------
    budget : Budget
        What the queries leave. Its bounds are the stated ones, or those that were found; those of
        its rule are the range.
    scores : (n,) or None
        What rows are sorted by, one for each.
    model : LinearScores or None
        Published. Rows are sorted by it, or labels are centred on it, or both.
    error : float
        Expected square of the error of its predictions by its noise; public.
    centred : bool
        Whether labels were to be centred on it.
    limit : float or None
        What the model leaves of a label is clipped to plus or minus that. None: it leaves so much
        that centring does not pay, and is not done. A label that the range would clip, and that the
        model expects, is told in full.
    predictions : (n,) or None
        Expected labels of all rows, within the bounds; None where labels are not centred, or rows
        are on many machines.
    signal : float
        Variance of the predictions.
    events : tuple of Mechanism
        What was spent, but for bounds and a range.
    """

    budget: Budget = field(default_factory=Budget)
    scores: FloatArray | None = None
    model: LinearScores | None = None
    error: float = 0.0
    centred: bool = False
    limit: float | None = None
    predictions: FloatArray | None = None
    signal: float = 0.0
    events: tuple[Mechanism, ...] = ()


def ask_range(queries: Queries, labels: Any, budget: Budget, stage: Stages) -> Budget:
    """Find bounds and a range, if they are asked for; return what is left of the budget.

    The bounds of the remaining budget are those that were found, or the stated ones; those of
    its rule are the range. Bounds found to be 0 and 1 are those of a yes-or-no label and are kept:
    a range was already paid for.
    """
    rule, bounds, source = budget.calibration, budget.bounds, budget.noise_source
    if rule is None:
        return budget
    if (query := queries.bounds) is not None and budget.find_within is not None:
        with stage("finding bounds"):
            bounds = find_bounds(labels, budget.find_within, event=query, source=source)
        rule = rule.within(bounds, query)
    if (query := queries.range) is not None:
        within, found = rule.bounds, bool(rule.prior)
        with stage("finding a range"):
            if not (found and within == (0.0, 1.0)):
                within = tightened(labels, within, event=query, source=source, found=found)
        rule = rule.within(within, query)
    return replace(budget, calibration=rule, bounds=bounds, find_within=None)


def ask_labels(
    kind: ScoresKind,
    queries: Queries,
    labels: FloatArray | None,
    X: Any,
    budget: Budget,
    stage: Stages,
    *,
    family: str = "auto",
) -> Answers:
    """Ask for scores, a model and a limit on its residuals, as far as these queries were settled.

    Labels are None where X is on many machines, and has its labels with it. For a model they are
    clipped to the range, the bounds of the rule; the family is the model's.
    """
    source, query, model, error = budget.noise_source, queries.model, None, 0.0
    # 1. The labels themselves, or a noisy copy of each.
    scores = labels if kind == "labels" else None
    if kind == "labels":
        warnings.warn(
            "bags are formed by sorting the labels, so membership alone shows each row's label "
            "almost exactly. The release is NOT PRIVATE; use it only where the labels may be "
            "seen.",
            LeakWarning,
            stacklevel=2,
        )
    if (event := queries.labels) is not None:
        if labels is None:
            raise AssertionError("scores of rows on many machines are those of a model")
        scores = noisy_labels(labels, bounds=budget.rule.bounds, event=event, source=source)
    # 2. A model, which rows may be sorted by.
    if query is not None:
        fitted, stated = family_to_release(family), budget.bounds
        if queries.limit is not None and stated is not None:
            check_bounds_of(fitted, stated)
        fit = ask_model(query, labels, X, budget, fitted)
        (coef, intercept), error = fit.split(classes=False), query.error
        model = LinearScores(intercept, coef, query.design.dropped, fitted.name, fitted.link)
        if kind == "model" and labels is not None:
            scores = model.predict(X)
    answers, stated = Answers(budget, scores, model, error, events=queries.spent), budget.bounds
    if queries.limit is None or model is None or stated is None:
        return answers
    # 3. A limit for what the model leaves; whether centring pays is decided by that private limit.
    with stage("centring the labels"):
        low, high = budget.rule.bounds
        left, widest = Leftovers(X, labels, model, stated), (high - low) / 2
        limit, expected = limit_of(left, widest, event=queries.limit, source=source), None
        pays = limit <= NARROWING * widest
        if pays and labels is not None:
            expected = expected_labels(model, X, stated)
        return replace(
            answers,
            centred=True,
            limit=limit if pays else None,
            predictions=expected,
            signal=left.signal,
        )


def ask_model(
    query: ModelQuery, labels: FloatArray | None, X: Any, budget: Budget, family: Family
) -> Estimates:
    """Release the statistics of a model, and fit the model of a family to them.

    Labels are None where X is on many machines, and has its labels with it.
    """
    design, bounds = query.design, budget.rule.bounds
    if design.dropped:
        warnings.warn(
            f"features {', '.join(design.dropped)} follow from the others; the private "
            "model spends nothing on them.",
            RankWarning,
            stacklevel=2,
        )
    # After this line no label is looked at: the fit knows features and noisy statistics.
    with threadpool_limits(1):  # as when the design was made
        released = release_statistics(
            X,
            labels,
            design=design,
            bounds=bounds,
            event=query.event,
            source=budget.noise_source,
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


def expected_labels(model: LinearScores, X: Any, bounds: Bounds) -> FloatArray:
    """Return what a released model expects of each row, within the bounds."""
    mean = find_family(model.family, model.link).mean(model.predict(X))
    return np.asarray(np.clip(mean, *bounds))


@dataclass(frozen=True)
class Leftovers:
    """The residuals of labels under a model, wherever they are: countable, but secret."""

    X: Any
    labels: FloatArray | None
    model: LinearScores
    bounds: Bounds

    @property
    def size(self) -> int:
        """Number of labels."""
        return int(self.X.shape[0])

    @property
    def signal(self) -> float:
        """Variance of the model's predictions, from features alone."""
        model, bounds = self.model, self.bounds  # what goes to where the rows are, and no more

        def moments(X: FloatArray) -> FloatArray:
            off = expected_labels(model, X, bounds) - (bounds[0] + bounds[1]) / 2
            return np.array([off.size, off.sum(), off @ off])

        n, total, square = np.sum(list(over_blocks(self.X, moments, np.add)), axis=0)
        # Sums of doubles depend on the order of the rows in their last digits, which go.
        return float(f"{max(0.0, square / n - (total / n) ** 2):.9e}")

    def count_beyond(self, distance: Distance, limits: FloatArray) -> IntArray:
        """Return how many residuals are larger than each limit; limits fall."""
        model, bounds = self.model, self.bounds

        def count(X: FloatArray, labels: FloatArray) -> IntArray:
            left = np.abs(np.clip(labels, *bounds) - expected_labels(model, X, bounds))
            return count_beyond(left, distance, limits)

        blocks = over_blocks(self.X, count, np.add, self.labels)
        return np.asarray(np.sum(list(blocks), axis=0))

"""What to choose, told before a single label is touched.

The expected error of a learner follows from the features, the bags and the noise that a budget
buys. So strategies, bag sizes, kinds of labels and losses can be ranked without labels; what cannot
be known from features is a stated prior.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray
from bagwise.bagging import BaggingStrategy, traits_of
from bagwise.data.columns import select_features
from bagwise.data.encode import DEFAULT_MAX_LEVELS
from bagwise.data.table import read_table
from bagwise.engines.local import read_rows
from bagwise.errors import StrategyError
from bagwise.planner.candidates import (
    Candidate,
    Problem,
    label_agnostic,
    sorted_by_model,
)
from bagwise.planner.prior import Prior
from bagwise.planner.ranking import Plan
from bagwise.planner.request import PlanRequest
from bagwise.release.request import Budget, Columns
from bagwise.show.stages import report_progress
from bagwise.theory.moments import Whitening

LARGEST = 200_000  # rows; of more, a sample is looked at
_SEED = 0  # same features, same plan


def plan(
    features: Any,
    *,
    bounds: Sequence[float] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    not_private: bool = False,
    family: str = "gaussian",
    bag_sizes: Sequence[int] | None = None,
    min_bag_size: int | None = None,
    prior: Any = None,
    strategies: Sequence[str | BaggingStrategy] | None = None,
    nulls: str = "indicator",
    max_levels: int = DEFAULT_MAX_LEVELS,
    n_rows: int | None = None,
    effort: str = "default",
    label: str = "LABEL",
    options: str = "",
) -> Plan:
    """Rank the ways to make a release of these features by the error they leave to a learner.

    There is no argument for labels, on purpose: a column called `label` is dropped unread.

    Parameters
    ----------
    features : path or frame or (n, d) array
        The feature columns. A frame or file may still hold the label, if `label` names it; an
        array must not.
    bounds : (lo, hi)
        Public range of a label. Required with epsilon.
    epsilon, delta, not_private
        As for `make_release`.
    family : str
        Distribution of a label. Other families than the Gaussian are planned to first order.
    bag_sizes : sequence of int, optional
        Sizes to consider; by default 10, 50, 200 and 500.
    min_bag_size : int, optional
        The smallest size that may be published.
    prior : Prior or (signal_sd, label_noise_sd), optional
        How much expected labels vary over the rows, and single labels around them. By default a
        label's standard deviation is an eighth of its range, half of its variance signal.
    strategies : sequence of str or BaggingStrategy, optional
        Which to consider, by name or as instances with parameters. By default all that say so
        (`planned`) and that look at features only; under privacy with a delta also those that sort,
        by a private model.
    n_rows : int, optional
        Rows of the table, where `features` are a sample of it.
    effort : {"fast", "default", "best"}
        How long strategies that search may search.
    label : str
        Name of the label, for the commands that the plan prints. A column of that name is no
        feature: it is dropped before anything is computed.
    options : str
        Options about columns, for the same commands.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(4000, 3))
    >>> found = plan(X, not_private=True, bag_sizes=[10], strategies=["random", "kmeans"])
    >>> found.best.strategy, found.best.label_kind, found.best.loss
    ('kmeans', 'mean', 'bag')
    >>> from bagwise.bagging.kmeans_bags import KMeansBags
    >>> plan(X, not_private=True, bag_sizes=[10], strategies=[KMeansBags(scale="std")]).command()
    'bagwise release TABLE --label LABEL --bag-size 10 --strategy kmeans --set scale=std
    --not-private -o OUT'
    """
    budget = Budget.of(epsilon, delta, bounds=bounds, not_private=not_private, what="plan")
    request = PlanRequest.of(
        budget, family=family, prior=prior, bag_sizes=bag_sizes, min_bag_size=min_bag_size,
        strategies=strategies, effort=effort,
    )  # fmt: skip
    columns = Columns.of(label, nulls=nulls, max_levels=max_levels)
    X = _read_features(features, columns)
    n_rows = max(len(X), n_rows or 0)
    budget.check_rows(n_rows)
    return dataclasses.replace(rank(X, request, n_rows=n_rows), label=label, options=options)


def rank(X: FloatArray, request: PlanRequest, *, n_rows: int) -> Plan:
    """Rank what is asked for by its error on features X, which may be a sample of the rows."""
    # In an order that the features alone decide: that of the table may be the labels' order.
    X = X[np.lexsort(X.T)] if X.shape[1] else X
    if len(X) > LARGEST:
        X = X[np.random.default_rng(_SEED).permutation(len(X))[:LARGEST]]
    copies, rule = n_rows / len(X), request.rule
    problem = Problem(X, Whitening.of(X), copies, request.prior, rule, _SEED, request.effort)
    found = sorted(_try_all(problem, request), key=lambda candidate: candidate.predictions.total)
    usable = tuple(c for c in found if np.isfinite(c.predictions.total))
    if not usable:
        raise StrategyError(
            "none of these choices determines all coefficients: there would be fewer bags than "
            "features. Allow smaller bags, or drop features."
        )
    return Plan(usable, problem, n_rows, request.budget.bounds, request.family.name)


def _try_all(problem: Problem, request: PlanRequest) -> Iterator[Candidate]:
    sizes = request.sizes_for(len(problem.X))
    tasks = [
        (strategy, size)
        for strategy in request.strategies
        for size in (sizes[:1] if traits_of(strategy).free_sizes else sizes)
    ]
    for done, (strategy, size) in enumerate(tasks):
        report_progress(f"{strategy.name} bags of {size}", done / len(tasks))
        way = sorted_by_model if strategy.uses_scores else label_agnostic
        yield from way(problem, strategy, size)


def _read_features(features: Any, columns: Columns) -> FloatArray:
    if isinstance(features, np.ndarray):
        X = np.asarray(features, dtype=np.float64)
        if X.ndim != 2 or not np.isfinite(X).all():
            raise StrategyError("features must be a matrix of finite numbers.")
        return X
    rows = read_rows(features)
    # A plan from the labels would tell about them; a label that is no column is only a name.
    names = select_features(rows, reserved=[columns.label])
    return columns.encoder_for(rows, names).transform(rows)


def features_of(source: Any, columns: Columns) -> pa.Table:
    """Return the feature columns of a labelled table; the label is dropped at once."""
    table = read_table(source, index_names=columns.named)
    return table.select(columns.features_in(table))


__all__ = ["Candidate", "Plan", "Prior", "features_of", "plan"]

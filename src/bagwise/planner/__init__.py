"""What to choose, told before a single label is touched.

The expected error of a learner follows from the features, the bags and the noise that a budget
buys. So strategies, bag sizes, kinds of labels and losses can be ranked without labels; what cannot
be known from features is a stated prior.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray
from bagwise.data.columns import find_column, select_features
from bagwise.data.encode import DEFAULT_MAX_LEVELS, Encoder
from bagwise.data.labels import Bounds, check_bounds
from bagwise.data.row_order import feature_order
from bagwise.data.table import read_table
from bagwise.errors import BagTooSmallError, BudgetError, StrategyError
from bagwise.families import find_family
from bagwise.planner.candidates import (
    FREE_SIZES,
    Candidate,
    Problem,
    available,
    label_agnostic,
    sorted_by_model,
)
from bagwise.planner.prior import Prior, read_prior
from bagwise.planner.ranking import Plan
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.promise import check_promise
from bagwise.rng import SecureNoise
from bagwise.show.stages import report_progress
from bagwise.theory.moments import Whitening

LARGEST = 200_000  # rows; of more, a sample is looked at
BAG_SIZES = (10, 50, 200, 500)
STRATEGIES_TO_TRY = ("random", "kmeans", "optimal", "aligned")
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
    strategies: Sequence[str] | None = None,
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
    strategies : sequence of str, optional
        Which to consider: by default all that look at features only, and under privacy also rows
        sorted by a private model.
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
    """
    fitted = find_family(family)
    if fitted.has_classes:
        raise StrategyError("classes are planned one at a time: family='bernoulli'.")
    limits = check_bounds(bounds)
    low, high = fitted.label_range
    if limits is not None and not low <= limits[0] < limits[1] <= high:
        raise StrategyError(f"labels of the family {family} do not have these bounds.")
    rule = _calibration(epsilon, delta, limits, not_private=not_private)
    X = _read_features(features, label=label, nulls=nulls, max_levels=max_levels)
    n_rows = max(len(X), n_rows or 0)
    if rule is not None:
        check_promise(rule.epsilon, rule.delta, n_rows=n_rows)
    # In an order that the features alone decide: that of the table may be the labels' order.
    X = X[np.lexsort(X.T)] if X.shape[1] else X
    if len(X) > LARGEST:
        X = X[np.random.default_rng(_SEED).permutation(len(X))[:LARGEST]]
    stated = read_prior(prior, limits, fitted)
    problem = Problem(X, Whitening.of(X), n_rows / len(X), stated, rule, _SEED, effort)
    sizes = _sizes(bag_sizes, min_bag_size, len(X))
    wanted = STRATEGIES_TO_TRY if strategies is None else tuple(strategies)
    found = sorted(
        _try_all(problem, available(wanted), sizes, model=strategies is None or "sorted" in wanted),
        key=lambda candidate: candidate.predictions.total,
    )
    usable = tuple(c for c in found if np.isfinite(c.predictions.total))
    if not usable:
        raise StrategyError(
            "none of these choices determines all coefficients: there would be fewer bags than "
            "features. Allow smaller bags, or drop features."
        )
    return Plan(
        candidates=usable,
        problem=problem,
        n_rows=n_rows,
        bounds=limits,
        family=fitted.name,
        label=label,
        options=options,
    )


def _try_all(
    problem: Problem, strategies: Sequence[str], sizes: Sequence[int], *, model: bool
) -> Iterator[Candidate]:
    tasks = [
        (name, size)
        for name in strategies
        for size in (sizes[:1] if name in FREE_SIZES else sizes)  # they are as large as they like
    ]
    scored = sizes if model and problem.calibration and problem.calibration.delta > 0 else ()
    steps = len(tasks) + len(scored)
    for done, (name, size) in enumerate(tasks):
        report_progress(f"{name} bags of {size}", done / steps)
        yield from label_agnostic(problem, name, size)
    if scored:
        for done, size in enumerate(scored):
            report_progress(f"bags of {size} by a private model", (len(tasks) + done) / steps)
            yield from sorted_by_model(problem, size)


def _calibration(
    epsilon: float | None, delta: float | None, bounds: Bounds | None, *, not_private: bool
) -> ExactCalibration | None:
    if not_private:
        if epsilon is not None or delta is not None:
            raise BudgetError("give epsilon and delta, or not_private, not both.")
        return None
    if epsilon is None or delta is None:
        raise BudgetError("give epsilon and delta, or say not_private=True (--not-private).")
    if bounds is None:
        raise BudgetError("a private plan needs the public bounds of a label (--bounds LO HI).")
    return ExactCalibration(float(epsilon), float(delta), bounds)


def _read_features(features: Any, *, label: str, nulls: str, max_levels: int) -> FloatArray:
    if isinstance(features, np.ndarray):
        X = np.asarray(features, dtype=np.float64)
        if X.ndim != 2 or not np.isfinite(X).all():
            raise StrategyError("features must be a matrix of finite numbers.")
        return X
    table = read_table(features)
    # A plan from the labels would tell about them; a label that is no column is only a name.
    names = select_features(table, reserved=[label])
    table = table.take(pa.array(feature_order(table, names, SecureNoise())))
    encoder = Encoder.for_table(table, names, max_levels=max_levels, nulls=nulls)
    return encoder.transform(table)


def features_of(
    source: Any,
    *,
    label: str | None,
    features: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    others: Sequence[str] = (),
) -> pa.Table:
    """Return the feature columns of a labelled table; the label is dropped at once."""
    named = [name for name in (label, *others, *(features or ())) if name is not None]
    table = read_table(source, index_names=named)
    for role, name in (("label", label), *(("named", other) for other in others)):
        if name is not None:
            find_column(table, name, role=role)
    reserved = [*([] if label is None else [label]), *others]
    return table.select(
        select_features(table, reserved=reserved, features=features, exclude=exclude)
    )


def _sizes(sizes: Sequence[int] | None, least: int | None, n_rows: int) -> list[int]:
    """Return the sizes to try: at least what is asked, and few enough for two bags."""
    chosen = sorted({int(size) for size in (sizes or BAG_SIZES)})
    if chosen[0] < 1 or (least is not None and least < 1):
        raise BagTooSmallError("bag sizes are whole numbers of at least 1.")
    if least is not None:
        chosen = sorted({max(size, int(least)) for size in chosen})
    usable = [size for size in chosen if 1 <= size <= n_rows // 2]
    if not usable:
        raise BagTooSmallError(
            f"{n_rows} rows do not fill two bags of {chosen[0]}. Name a smaller bag size."
        )
    return usable


__all__ = ["Candidate", "Plan", "Prior", "features_of", "plan"]

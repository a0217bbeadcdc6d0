"""Choose a release before any label is used.

The expected error of a learner follows from the features, the bags and the noise that the budget
requires. So strategies, bag sizes, kinds of labels and losses can be ranked without labels. What
the features cannot show is a stated prior, and choices are ranked by their regret if the prior is
wrong.
"""

import dataclasses
import functools
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise.errors import BudgetError, StrategyError
from bagwise.planner.belief import Prior
from bagwise.planner.candidates import Candidate
from bagwise.planner.problem import PlanProblem
from bagwise.planner.ranking import Plan
from bagwise.planner.sample import Population, Sample, sample_matrix, sample_rows
from bagwise.planner.search import rank
from bagwise.requests.budget import Budget
from bagwise.requests.columns import Columns
from bagwise.requests.records import Bagging, Reading, says_where
from bagwise.requests.verbs import ReleaseRequest
from bagwise.rows.columns import select_features
from bagwise.rows.table import read_rows, read_table

_EPSILONS = tuple(float(f"{epsilon:.3g}") for epsilon in np.geomspace(0.01, 20, 157))
"""What a plan for a given error tries: three digits each, in steps of about 5 %."""


@says_where
def plan(
    table: Any,
    *,
    label: str = "LABEL",
    bounds: Sequence[float] | None = None,
    classes: Sequence[str] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    error: float | None = None,
    not_private: bool = False,
    unit: str | None = None,
    bag_sizes: Sequence[int] | None = None,
    prior: Any = None,
    learner: str = "linear",
    single_labels: bool = False,
    n_rows: int | None = None,
    bagging: Bagging | None = None,
    reading: Reading | None = None,
    options: str = "",
) -> Plan:
    """Rank the possible releases of these features by the error that a learner should expect.

    There is no argument for labels, on purpose: a column called `label` is dropped unread.

    Parameters
    ----------
    table : path or frame or (n, d) array
        The feature columns. A frame or file may still hold the label, if `label` names it; an
        array must not.
    label : str
        Name of the label, also for the commands that the plan prints. A column of that name is no
        feature: it is dropped before anything is computed.
    bounds : (lo, hi)
        Public range of a label. Required with epsilon, unless it has classes.
    classes : list of str, optional
        For a label that is one of several classes: their public names. Errors are added up over
        the shares of all of them.
    epsilon, delta, not_private
        As for `make_release`.
    error : float, optional
        Instead of epsilon: the typical error of one prediction that will do. The plan is then that
        of the smallest epsilon, from 0.01 to 20 in steps of about 5 %, whose first choice has at
        most this error.
    bag_sizes : sequence of int, optional
        Sizes to consider; by default 10, 20, 50, 100, 200 and so on, as long as there are three
        bags for each coefficient.
    prior : Prior or (signal_sd, label_noise_sd) or (signal_sd, label_noise_sd, misfit), optional
        How much expected labels vary over the rows, single labels around them, and which share of
        the former's variance a linear model leaves. By default a label's standard deviation is an
        eighth of its range, half of its variance signal, and the misfit 0.05 of that.
    learner : {"linear", "flexible"}
        Who the bags are for. "flexible" is for boosted trees, networks and the like: there is one
        kind of bags for them, and sizes are ranked by what such a learner should lose.
    single_labels : bool
        Rank single labels beside bags: every row reported by an optimal unbiased randomizer. They
        need an epsilon, and a label that is a number.
    unit : str, optional
        A column that names people with several rows, whose labels are protected together. It is no
        feature.
    n_rows : int, optional
        Rows of the table, where `features` are a sample of it.
    bagging : Bagging, optional
        `min_bag_size`, `family` and `strategies` count. Families other than the Gaussian are
        planned to first order. By default all strategies are considered that say so (`planned`).
        Unless strategies are named, what leaves a fit without intervals comes after all others:
        fewer than three bags for each coefficient.
    reading : Reading, optional
        `nulls` and `max_levels` count.
    options : str
        Options about columns, for the same commands.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(4000, 3))
    >>> both = Bagging(strategies=["random", "kmeans"])
    >>> found = plan(X, not_private=True, bag_sizes=[10], bagging=both)
    >>> found.best.strategy, found.best.label_kind, found.best.loss
    ('kmeans', 'mean', 'bag')
    >>> from bagwise.bagging.kmeans_bags import KMeansBags
    >>> scaled = Bagging(strategies=[KMeansBags(scale="std")])
    >>> plan(X, not_private=True, bag_sizes=[10], bagging=scaled).command()
    'bagwise release TABLE --label LABEL --bag-size 10 --strategy kmeans --set scale=std
    --not-private -o OUT'
    """
    bagging, reading = bagging or Bagging(), reading or Reading()
    bagging.only("min_bag_size", "family", "strategies", what="a plan")
    reading.only("nulls", "max_levels", what="a plan")
    columns = Columns.of(label, classes=classes, unit=unit, reading=reading)

    def budget_of(epsilon: float | None) -> Budget:
        budget = Budget.of(
            epsilon, delta, bounds=bounds, unit=unit, classes=classes is not None,
            not_private=not_private, what="plan",
        )  # fmt: skip
        return budget.of_type(None, "plan")

    def plan_at(epsilon: float | None) -> Plan:
        request = ReleaseRequest.of(
            columns, budget_of(epsilon), bag_size="auto", learner=learner, bagging=bagging
        )
        return rank(
            PlanProblem.of(
                sample, request, prior=prior, bag_sizes=bag_sizes or (), single_labels=single_labels
            )
        )

    if error is not None:
        if epsilon is not None or not_private:
            raise BudgetError(
                "error (--error) asks for the smallest epsilon that serves; give neither epsilon "
                "nor not_private with it."
            )
        if not (np.isfinite(error) and error > 0):
            raise BudgetError(
                f"error must be a positive number, in units of the label, got {error}."
            )
        epsilon = _EPSILONS[-1]
    budget = budget_of(epsilon)
    sample = _sample(table, columns, budget, n_rows or 0)
    if error is None:
        budget.check_rows(sample.n_rows)
        found = plan_at(epsilon)
    else:
        found = _smallest_epsilon(error, functools.cache(plan_at))
        budget_of(found.epsilon).check_rows(sample.n_rows)
    return dataclasses.replace(found, label=label, options=options)


def _smallest_epsilon(error: float, plan_at: Callable[[float], Plan]) -> Plan:
    """Return the plan of the smallest epsilon of the grid whose first choice has at most the error.

    Bisection assumes that the error falls with epsilon. It does, except for small steps where
    the first choice changes, since choices are ranked by regret; the result is valid anyway.
    """
    found = plan_at(_EPSILONS[-1])
    if _error_of(found) > error:
        raise BudgetError(
            f"no epsilon up to {_EPSILONS[-1]:g} has a typical error of at most {error:g}: at "
            f"{_EPSILONS[-1]:g} it is {_error_of(found):.4g}, and a model of the true labels has "
            f"{_error_of(found, found.row_level):.4g}. These figures rest on a belief about the "
            f"labels, which prior= states in Python: {found.prior.text()}."
        )
    serves = bisect_left(_EPSILONS, True, key=lambda one: _error_of(plan_at(one)) <= error)
    return plan_at(_EPSILONS[serves])


def _error_of(found: Plan, excess: float | None = None) -> float:
    """Return the typical error of one prediction, by default of the plan's first choice."""
    error = found.accuracy(found.best.predictions.total if excess is None else excess).error
    if error is None:
        raise AssertionError("a plan's belief says how much single labels vary")
    return error


def _sample(features: Any, columns: Columns, budget: Budget, n_rows: int) -> Sample:
    if isinstance(features, np.ndarray):
        X = np.asarray(features, dtype=np.float64)
        if X.ndim != 2 or not np.isfinite(X).all():
            raise StrategyError("features must be a matrix of finite numbers.")
        if columns.unit is not None:
            raise StrategyError("an array names no units: give a frame or a file.")
        return sample_matrix(X, n_rows=max(len(X), n_rows))
    rows = read_rows(features)
    # A plan from the labels would tell about them; a label that is no column is only a name.
    reserved = [columns.label, *([] if columns.unit is None else [columns.unit])]
    names = select_features(rows, reserved=reserved)
    everyone = Population(
        columns.encoder_from(rows.summarise(names)),
        max(rows.num_rows, n_rows),
        budget.unit,
        budget.units_in(rows).largest,
    )
    return sample_rows(rows, everyone)


def features_of(source: Any, columns: Columns) -> pa.Table:
    """Return the features of a labelled table and its units; the label is dropped at once."""
    table = read_table(source, index_names=columns.named)
    units = [] if columns.unit is None else [columns.unit]
    return table.select([*columns.features_in(table), *units])


__all__ = ["Candidate", "Plan", "Prior", "features_of", "plan"]

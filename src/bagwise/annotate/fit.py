"""A generalised linear model of labelled rows; the labels determine how much slopes are shrunk.

A few hundred labels do not determine the slopes of a hundred columns. So slopes have a prior, with
a scale for each column of the table that its encoded columns share (a text column has one encoded
column for each category):

    b_j ~ N(0, tau^2 l_g),     1 / l_g ~ Gamma(nu / 2, rate nu / 2),     j encodes column g

in units of a level, or of two standard deviations of a number over all rows of the table (Gelman
2008). The slopes of important columns are hardly shrunk, those of unimportant ones strongly. The
scales maximise the likelihood of the labels, with slopes integrated out by Laplace's approximation,
by expectation maximisation (as in `theory.restricted`):

    l_g = (nu + sum_g E b_j^2 / tau^2) / (nu + p_g),     tau^2 = mean over j of E b_j^2 / l_g

For classes the slopes of all of them are drawn, so that none is special: b_j is what each has
beyond the first, and ``E b_j^2`` the quadratic form in the inverse of their covariance I + 11'.

References
----------
Dempster, Laird and Rubin (1977), JRSS B 39. Gelman (2008), Statistics in Medicine 27.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bagwise._types import AnyArray, FloatArray
from bagwise.errors import BagwiseError, BagwiseWarning, ProjectError
from bagwise.families import Family
from bagwise.glm.problem import BagProblem
from bagwise.glm.solver import Penalty, Solution, inverse_symmetric, solve
from bagwise.learn.bag_data import read_bags
from bagwise.learn.boosters import BaggedBooster, BaggedClassifier
from bagwise.learn.estimator import BaggedGLM
from bagwise.learn.fitting import Setting, problem_of
from bagwise.models.row_model import Estimates
from bagwise.rows.encode import Encoder
from bagwise.rows.labels import Bounds
from bagwise.theory.restricted import FREEDOM

FEWEST = 10
"""Labels that a fit needs at least."""

_TURNS = 300
_FEW_TURNS = 6  # for classes and more coefficients than labels: these can then be told apart
_AGREED = 0.01  # change of a size's logarithm from which on nothing changes for a reader
_TOLERANCE = 1e-5  # of a standard error: sizes move with the fit by more than that
_EXACT = 1e-10  # share of the labels' variance: labels that fit better than that fit exactly


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows that have a label, and what is known of their columns.

    Attributes
    ----------
    X : (m, d)
        The rows, encoded.
    y : (m,) or (m, classes)
        Their labels; of classes a one for each.
    deviations : (d,)
        Standard deviation of each column of X over all rows of the table.
    """

    X: FloatArray
    y: FloatArray
    family: Family
    encoder: Encoder
    deviations: FloatArray

    def take(self, which: AnyArray) -> "LabelledRows":
        """Select some of the rows."""
        return replace(self, X=self.X[which], y=self.y[which])


def check_enough(rows: LabelledRows) -> None:
    """Refuse to learn from too few labels."""
    if len(rows.y) < FEWEST:
        raise ProjectError(
            f"{len(rows.y)} labels are too few to learn from: there must be at least {FEWEST}. "
            "Fill in to_label.csv and import it (bagwise annotate import DIR FILE), or label rows "
            "on a page (bagwise annotate serve DIR)."
        )


def fit_rows(rows: LabelledRows) -> Estimates:
    """Fit labelled rows; intervals are those without shrinkage."""
    check_enough(rows)
    table, solution = fit_coefficients(rows)
    errors, unshrunk, freedom, note = _intervals(rows)
    return Estimates(
        table=table,
        dispersion=float(solution.problem.phi),
        converged=solution.converged and bool(np.isfinite(table).all()),
        standard_errors=errors,
        unshrunk=unshrunk,
        freedom=freedom,
        note=note,
    )


def bounds_of(rows: LabelledRows, fit: Estimates, stated: Bounds | None) -> Bounds | None:
    """Return the bounds to which predictions are clipped."""
    low, high = stated or rows.family.label_range
    highest = _highest(rows, fit.table)
    return (low, min(high, highest)) if low < highest < np.inf else stated


def predict_linearly(rows: LabelledRows) -> Callable[[FloatArray], FloatArray]:
    """Fit labelled rows, and return a function that predicts others."""
    table, _ = fit_coefficients(rows)
    highest = _highest(rows, table)
    return lambda X: np.minimum(_means(rows, table, X), highest)


def _highest(rows: LabelledRows, table: FloatArray) -> float:
    """Return what no prediction may exceed: under a logarithmic link the largest for these rows.

    One row far from them is easily predicted a hundred times too large. The largest label would
    limit that as well, but a model, which others may read, keeps no label.
    """
    return float(_means(rows, table, rows.X).max()) if rows.family.has_log_link else np.inf


def _means(rows: LabelledRows, table: FloatArray, X: FloatArray) -> FloatArray:
    """Return the expected labels of encoded rows, by coefficients with the intercepts last."""
    eta = X @ table[:, :-1].T + table[:, -1]
    return rows.family.mean(eta if rows.y.ndim > 1 else eta[:, 0])


def fit_trees(rows: LabelledRows) -> BaggedBooster | BaggedClassifier:
    """Boost trees on labelled rows, each a bag of its own."""
    check_enough(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BagwiseWarning)  # of rows that look like bags
        if rows.family.has_classes:
            return BaggedClassifier(random_state=0).fit(rows.X, rows.y)
        return BaggedBooster(family=rows.family.name, random_state=0).fit(rows.X, rows.y)


def predict_by_trees(rows: LabelledRows) -> Callable[[FloatArray], FloatArray]:
    """Boost trees on labelled rows, and return a function that predicts others."""
    trees = fit_trees(rows)
    return trees.predict_proba if isinstance(trees, BaggedClassifier) else trees.predict


def fit_coefficients(rows: LabelledRows) -> tuple[FloatArray, Solution[BagProblem]]:
    """Return the coefficients, (outputs, d + 1) with the intercepts last, and the solution."""
    # A column that is the same in all labelled rows keeps the slope 0 of its prior, and does not
    # change sizes: to carry it along would only make the search longer.
    tell = np.ptp(rows.X, axis=0) > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BagwiseWarning)  # of rows that look like bags
        data = read_bags(rows.X[:, tell], rows.y)
    setting = Setting(data, rows.family, "mean", "known-noise", fit_intercept=True, ridge=0.0)
    problem = problem_of(setting, "aggregate")
    solution = _shrunk(problem, rows.encoder, rows.deviations, tell)
    table = np.zeros((problem.outputs, len(tell) + 1))
    table[:, np.append(tell, True)] = (problem.to_own_units() @ solution.beta).reshape(
        problem.outputs, -1
    )
    return table, solution


def _shrunk(
    problem: BagProblem, encoder: Encoder, deviations: FloatArray, tell: AnyArray
) -> Solution[BagProblem]:
    """Fit with the sizes of slopes that make the labels most likely; of columns that `tell`."""
    outputs, width = problem.outputs, problem.design.width
    among = np.linalg.inv(np.eye(outputs) + (outputs > 1))
    inputs = np.repeat(np.arange(len(encoder.columns)), [len(c.outputs) for c in encoder.columns])
    inputs = np.unique(inputs[tell], return_inverse=True)[1]
    slopes = outputs * np.bincount(inputs)
    # Columns of 0 and 1 have the unit 1: levels, and marks of missing numbers.
    are_marks = np.array([n != c.name for c in encoder.columns for n in c.outputs])
    units = np.where(are_marks, 1.0, 2 * deviations)[tell] / problem.design.scale

    beta = problem.constant_start()
    phi = _dispersion(problem, beta, used=1.0) or 1.0  # labels that are all the same have none
    least = _EXACT * phi
    problem = problem.with_dispersion(phi)
    # At first a slope may be as large as one label can tell.
    started = problem.reweighted(beta)
    precision = started.equations(beta).information[-1, -1] * started.total / started.n_units
    size, ratio = 1 / precision, np.ones(len(slopes))
    # Classes that are told apart say nothing of sizes, which would grow turn after turn.
    are_classes = problem.family.label_range == (0.0, 1.0)
    undetermined = are_classes and outputs * (len(tell) + 1) > problem.n_units
    for _ in range(_FEW_TURNS if undetermined else _TURNS):
        # 1. Slopes, given their sizes.
        each = np.append(units**2 / (size * ratio[inputs]), 0.0)
        prior = Penalty(np.kron(among, np.diag(each)))
        solution = solve(problem, beta, penalty=prior, tolerance=_TOLERANCE)
        beta = solution.beta
        # 2. What is expected of their squares, and how many of them the labels decide.
        covariance, _ = inverse_symmetric(solution.information * solution.problem.total)
        between = np.einsum("iaja->ija", covariance.reshape(outputs, width, outputs, width))
        coefficients = beta.reshape(outputs, width)
        squares = np.einsum(
            "ij,ija->a", among, between + coefficients[:, None] * coefficients[None, :]
        )
        of_input = np.bincount(inputs, weights=squares[:-1] * units**2)
        used = beta.size - float(np.sum(prior.form * covariance))
        # 3. Dispersion and sizes, given the slopes.
        phi = max(_dispersion(solution.problem, beta, used=used), least)
        problem = problem.with_dispersion(phi)
        last = size * ratio
        ratio = (FREEDOM + of_input / size) / (FREEDOM + slopes)
        size = float(np.sum(of_input / ratio)) / max(1, slopes.sum())
        if not tell.any() or np.abs(np.log(size * ratio / last)).max() < _AGREED:
            break
    return solution


def _dispersion(problem: BagProblem, beta: FloatArray, *, used: float) -> float:
    """Return Pearson's estimate of phi; of 0 and 1, and of classes, it is 1.

    What a model of counts misses makes them vary more than they do by themselves, never less.
    """
    if problem.family.label_range == (0.0, 1.0):
        return 1.0
    mean, variance, _ = problem.gathered("moments", beta)
    pearson = float(np.sum((problem.labels - mean) ** 2 / variance))
    phi = pearson / max(1.0, problem.n_units - used)
    return max(phi, 1.0) if problem.family.knows_dispersion else phi


def _intervals(
    rows: LabelledRows,
) -> tuple[FloatArray | None, FloatArray | None, float, str]:
    """Return standard errors, the coefficients that they belong to, their freedom, and a note.

    They are those of the fit without shrinkage, which cover each coefficient whatever it is.
    Coefficients that these labels do not determine, such as that of a level that no labelled row
    has, have none.
    """
    none = "No intervals: without shrinkage, these labels do not determine the coefficients."
    outputs = rows.y.shape[1] - 1 if rows.y.ndim > 1 else 1
    if rows.family.has_classes and outputs * (rows.X.shape[1] + 1) > len(rows.y):
        return None, None, np.inf, none  # to find that out would take minutes
    estimator = BaggedGLM(family=rows.family, ridge=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BagwiseWarning)
        try:
            estimator.fit(rows.X, rows.y)
        except BagwiseError:
            return None, None, np.inf, none
    covariance = estimator.covariance_
    if covariance is None or not estimator.converged_:
        return None, None, np.inf, none
    errors = np.sqrt(np.diag(covariance))
    if not np.isfinite(errors).any():
        return None, None, np.inf, none
    note = (
        "Coefficients are shrunk towards 0 as far as the labels suggest. Standard errors, p values "
        f"and intervals are those without shrinkage, from {len(rows.y)} labels."
    )
    return errors, estimator.estimates_.table.ravel(), float(estimator.freedom_), note

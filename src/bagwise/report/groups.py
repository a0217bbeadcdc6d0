"""The error of a model in each group of a public column.

From the release alone, which is public, or with the custodian's table of labels, which is not. In a
release, a group is seen through the bags that its rows are in: the labels of bags are regressed on
the shares of the groups in them. Where every bag holds every group alike, as random bags do, that
says little, and the standard errors say so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray, IntArray
from bagwise.errors import ColumnError
from bagwise.models.row_model import RowModel
from bagwise.release.release import Release
from bagwise.rows.columns import as_text, find_column
from bagwise.rows.labels import label_vector
from bagwise.rows.table import read_table

MOST_GROUPS = 50


@dataclass(frozen=True)
class GroupError:
    """The error of a model in one group.

    Attributes
    ----------
    group : str
    rows : int
    bias : float or None
        Mean prediction less mean label; None if the bags do not determine it.
    bias_se : float or None
        Its standard error, by the noise and spread of bag labels; None for exact figures.
    rmse : float or None
        Of single predictions; only known with labels.
    """

    group: str
    rows: int
    bias: float | None
    bias_se: float | None
    rmse: float | None


@dataclass(frozen=True)
class GroupErrors:
    """The errors in all groups of one column."""

    column: str
    from_labels: bool
    groups: tuple[GroupError, ...]

    def cells(self) -> list[tuple[str, ...]]:
        """Return it as rows of cells, with a heading."""
        rows = [
            (
                one.group,
                str(one.rows),
                *("" if v is None else f"{v:.4g}" for v in (one.bias, one.bias_se, one.rmse)),
            )
            for one in self.groups
        ]
        return [(self.column, "rows", "bias", "std. error", "rmse"), *rows]


def errors_by_group(
    release: Release, model: RowModel, column: str, *, labels: Any = None
) -> GroupErrors:
    """Return how far `model` is off in each group of a public column.

    Parameters
    ----------
    release : Release
        Of a label that is a number.
    model : RowModel
    column : str
        A feature of the release with few levels.
    labels : path or frame, optional
        A table with features and labels: exact figures, which no certificate covers.

    Examples
    --------
    >>> from bagwise import fit_release, make_release
    >>> rng = np.random.default_rng(0)
    >>> city = rng.choice(["Bonn", "Pune"], size=400)
    >>> table = pa.table({"city": city.tolist(), "y": (city == "Pune") + rng.normal(size=400)})
    >>> release = make_release(table, label="y", bag_size=10, strategy="random", not_private=True)
    >>> errors = errors_by_group(release, fit_release(release), "city", labels=table)
    >>> [(one.group, one.bias_se) for one in errors.groups]
    [('Bonn', None), ('Pune', None)]
    """
    if release.classes is not None:
        raise ColumnError("errors by group are for labels that are numbers.")
    if column not in release.encoder.inputs:
        raise ColumnError(
            f"{column!r} is not a feature of the release; features are "
            f"{', '.join(release.encoder.inputs)}."
        )
    table = release.instances if labels is None else read_table(labels)
    names, codes = _groups(table, column)
    counts = np.bincount(codes, minlength=len(names))
    known: Sequence[tuple[float | None, float | None, float | None]]
    if labels is None:
        predicted = model.predict_rows(release.instances)
        biases = zip(*_bias_from_bags(release, codes, len(names), predicted), strict=True)
        nothing = (None, None, None)
        known = [(float(b), float(se), None) if np.isfinite(se) else nothing for b, se in biases]
    else:
        off = model.predict(table) - label_vector(table, model.label)
        means, squares = (np.bincount(codes, weights) / counts for weights in (off, off**2))
        known = [(float(b), None, float(s)) for b, s in zip(means, np.sqrt(squares), strict=True)]
    groups = zip(names, counts.tolist(), known, strict=True)
    errors = tuple(GroupError(name, count, *figures) for name, count, figures in groups)
    return GroupErrors(column, labels is not None, errors)


def _groups(table: pa.Table, column: str) -> tuple[Sequence[str], IntArray]:
    text = as_text(find_column(table, column, role="group"), name=column)
    names, codes = np.unique(
        np.array([value if value is not None else "(missing)" for value in text.to_pylist()]),
        return_inverse=True,
    )
    if names.size > MOST_GROUPS:
        raise ColumnError(
            f"{column!r} has {names.size} groups; at most {MOST_GROUPS} are compared. Choose a "
            "column with fewer values."
        )
    return names.tolist(), codes.astype(np.int64)


def _bias_from_bags(
    release: Release, codes: IntArray, count: int, predicted: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Regress mean prediction less label of each bag on the shares of the groups in it.

    Weighted least squares; the sandwich of its residuals allows for bags whose errors differ.
    Infinite where bags do not tell a group from the others.
    """
    bags, kept = release.bags, release.bags.in_bag
    shares = np.zeros((bags.n_bags, count))
    np.add.at(shares, (bags.index[kept], codes[kept]), 1.0)
    shares /= bags.sizes[:, None]
    left = bags.mean(predicted) - release.labels
    root = np.sqrt(bags.sizes.astype(np.float64))[:, None]
    A, b = shares * root, left * root[:, 0]
    inverse = np.linalg.pinv(A.T @ A, rcond=1e-10, hermitian=True)
    bias = inverse @ (A.T @ b)
    seen = np.abs(inverse @ (A.T @ A) - np.eye(count)).max(axis=1) < 1e-6
    freedom = max(bags.n_bags - count, 0)
    if freedom == 0:
        return bias, np.full(count, np.inf)
    meat = A * (b - A @ bias)[:, None]
    covariance = inverse @ (meat.T @ meat) @ inverse * bags.n_bags / freedom
    return bias, np.where(seen, np.sqrt(np.diag(covariance)), np.inf)

"""Rows, bags and bag labels, checked once for every estimator that learns from bags.

A release gives every row the label of its bag. If these labels are fitted or scored as labels of
rows, slopes shrink towards zero and good models look bad, with nothing in the numbers to show it.
So labels that repeat as those of bags do, but come without bags, get a warning.

People keep bags in tables: `from_frame` reads rows with a column of bag ids, `from_group_means` one
row per group; `with_rows` adds a few rows with labels of their own.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.errors import (
    BagsError,
    BagwiseError,
    BiasWarning,
    ColumnError,
    LabelError,
    shielded,
)
from bagwise.glm.data import BagData
from bagwise.rows.columns import (
    as_float,
    find_column,
    is_numeric,
    select_features,
    without_dictionary,
)
from bagwise.rows.encode import Encoder
from bagwise.rows.labels import label_vector
from bagwise.rows.table import read_table
from bagwise.rows.whitening import Moments

_FEWEST = 10  # different labels; fewer are classes, or say nothing
_REPEATED = 0.9  # share of rows whose label occurs again; a split may cut a bag down to one row
_ALIKE = 3.0  # most that bags differ in size, between the tenth and the ninetieth percentile
_CALLER = 3  # the line that called fit or a score
_REPEATS = (
    "labels repeat as those of bags do, and no bags were given: every row counts as a bag "
    "of its own, which pulls slopes towards zero and scores good models badly. Pass "
    "bags= (for a release, **release.fit_params(); in scikit-learn's cross_val_score, "
    "params={'bags': bags} with metadata routing enabled). If they are labels of single "
    "rows, bags=range(n) says so."
)


def read_bags(
    X: FloatArray,
    y: AnyArray,
    *,
    bags: Any = None,
    noise_sd: Any = None,
    sample_weight: FloatArray | None = None,
    weights_differ: bool = False,
    offset: FloatArray | None = None,
    counts: Any = None,
) -> BagData:
    """Group validated X and y, one label per row, into bags; name any bag that contradicts itself.

    Parameters
    ----------
    bags : Bags or (n,) ids, optional
        Without it each row is a bag of its own; labels that look otherwise get a warning.
    noise_sd : float or (n,) floats, optional
    sample_weight : (n,) floats, optional
        Constant inside a bag unless `weights_differ`.
    counts : (n,) floats, optional
        How many rows each row stands for.

    Examples
    --------
    >>> data = read_bags(np.eye(3), np.array([1.0, 1.0, 5.0]), bags=["a", "a", "b"], noise_sd=0.5)
    >>> data.labels, data.noise_sd
    (array([1., 5.]), array([0.5, 0.5]))
    """
    if bags is None:
        if look_like_bag_labels(y):
            warnings.warn(_REPEATS, BiasWarning, stacklevel=_CALLER)
        bags = Bags.singletons(len(y))
    partition = bags if isinstance(bags, Bags) else Bags.from_labels(bags)
    if partition.n_rows != len(y):
        raise BagsError(f"bags has {partition.n_rows} entries for {len(y)} rows.")
    if not partition.in_bag.all():
        raise BagsError("some rows are in no bag. Drop them first, as Release.training_data does.")
    weight = np.ones(partition.n_bags)
    if sample_weight is not None:
        if not weights_differ:
            one_per_bag(sample_weight, partition, "sample_weight")
        weight = partition.mean(sample_weight)
    axes = None
    if counts is not None:
        counts = _read_counts(counts, partition)
        share = partition.repeat(weight) * counts
        share = share / share.sum()
        off = X - share @ X
        axes = Moments(1, share @ X, (off.T * share) @ off).axes
    return BagData(
        X,
        partition,
        one_per_bag(y, partition, "y"),
        _noise_per_bag(noise_sd, partition),
        weight,
        sample_weight if weights_differ else None,
        offset,
        counts,
        axes,
    )


def _read_counts(counts: Any, bags: Bags) -> FloatArray:
    """Return how many rows each row stands for, or refuse."""
    counts = np.asarray(counts, dtype=np.float64)
    if counts.shape != (bags.n_rows,):
        raise BagsError(f"counts must be one for each row, got shape {counts.shape}.")
    if not (np.isfinite(counts).all() and (counts >= 0).all()):
        raise BagsError("counts must be finite and not negative.")
    if not (bags.sum(counts) > 0).all():
        raise BagsError("some bag counts no row at all. Drop it first.")
    return np.asarray(counts)


def one_per_bag(values: AnyArray, bags: Bags, what: str) -> FloatArray:
    """Return the one value that all rows of a bag carry, or name a bag whose rows differ."""
    per_bag = np.empty((bags.n_bags, *values.shape[1:]))
    per_bag[bags.index] = values
    wrong = (per_bag[bags.index] != values).reshape(len(values), -1).any(axis=1)
    if wrong.any():
        bag = int(bags.index[np.argmax(wrong)])
        raise BagsError(
            f"{what} differs inside bag {bag} (bags counted in order of appearance). "
            "Give every row of a bag the value of its bag."
        )
    return per_bag


def _noise_per_bag(noise_sd: Any, bags: Bags) -> FloatArray:
    if noise_sd is None:
        return np.zeros(bags.n_bags)
    noise = np.asarray(noise_sd, dtype=np.float64)
    if noise.ndim == 0:
        noise = np.full(bags.n_rows, float(noise))
    if noise.shape != (bags.n_rows,):
        raise BagsError(f"noise_sd must be one number or one per row, got shape {noise.shape}.")
    if not (np.isfinite(noise).all() and (noise >= 0).all()):
        raise BagsError("noise_sd must be finite and not negative.")
    return one_per_bag(noise, bags, "noise_sd")


def look_like_bag_labels(labels: AnyArray) -> bool:
    """Return whether labels repeat in blocks, or equally often without being whole numbers.

    Labels of rows repeat too, where they are counts, classes or rounded. But then some values are
    common and others rare, and rows with the same one do not stand together, unless the table is
    sorted by it.

    Examples
    --------
    >>> means = np.random.default_rng(0).normal(size=20)
    >>> look_like_bag_labels(np.repeat(means, 5)), look_like_bag_labels(np.tile(means, 5))
    (True, True)
    >>> look_like_bag_labels(means), look_like_bag_labels(np.arange(20).repeat(5))
    (False, False)
    """
    values, which, counts = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
    which = np.ravel(which)
    if counts.size < _FEWEST or counts[which].size == counts.size:
        return False
    if np.mean(counts[which] > 1) < _REPEATED:
        return False
    starts = np.flatnonzero(np.diff(which)) + 1
    first_of_run = which[np.concatenate([[0], starts])]
    in_order = bool((np.diff(first_of_run) > 0).all() or (np.diff(first_of_run) < 0).all())
    if first_of_run.size == counts.size and not in_order:
        return True
    few, many = np.quantile(counts, [0.1, 0.9])
    return bool(many <= _ALIKE * few) and not bool((values == np.round(values)).all())


@dataclass(frozen=True, eq=False)
class BaggedData:
    """Hold rows, bags and bag labels, checked, one entry per row.

    Parameters
    ----------
    X : (n, d) floats
    y : (n,) or (n, classes) floats
        The label of each row's bag.
    bags : (n,) ids or Bags
        Kept as numbers, counted in order of appearance.
    noise_sd : float or (n,) floats, optional
        Known standard deviation of the noise on the bag labels.
    sample_weight : (n,) floats, optional
    feature_names : sequence of str, optional
        Names of the columns of X.
    encoder : Encoder, optional
        The recipe that made X of a table; ``encoder.transform`` makes it of new rows.

    Examples
    --------
    >>> from bagwise import BaggedGLM
    >>> data = BaggedData(X=[[0], [2], [4], [6]], y=[3, 3, 11, 11], bags=["a", "a", "b", "b"])
    >>> data
    BaggedData(4 rows of 1 features in 2 bags)
    >>> BaggedGLM().fit(data.X, data.y, **data.fit_params()).coef_.round(6)
    array([2.])
    """

    X: FloatArray
    y: FloatArray
    bags: IntArray
    noise_sd: FloatArray | None = None
    sample_weight: FloatArray | None = None
    feature_names: Sequence[str] | None = None
    encoder: Encoder | None = None

    def __post_init__(self) -> None:
        X = _matrix(self.X, "X")
        y = finite_floats(self.y, "y", error=LabelError)
        if y.ndim not in (1, 2) or len(y) != len(X):
            raise LabelError(f"y must have one entry per row ({len(X)}), got shape {y.shape}.")
        weight = None if self.sample_weight is None else read_weights(self.sample_weight, len(X))
        data = read_bags(X, y, bags=self.bags, noise_sd=self.noise_sd)
        names = None if self.feature_names is None else tuple(self.feature_names)
        if names is not None and len(names) != X.shape[1]:
            raise ColumnError(f"X has {X.shape[1]} columns, but {len(names)} feature names.")
        noise = None if self.noise_sd is None else data.bags.repeat(data.noise_sd)
        checked = [("X", X), ("y", y), ("bags", data.bags.index), ("noise_sd", noise)]
        for name, value in (*checked, ("sample_weight", weight), ("feature_names", names)):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        n, d = self.X.shape
        return f"BaggedData({n} rows of {d} features in {self.bags.max() + 1} bags)"

    def fit_params(self) -> dict[str, AnyArray]:
        """Return what ``fit(X, y, ...)`` needs besides X and y.

        >>> sorted(BaggedData(X=[[0], [1]], y=[5, 5], bags=[7, 7], noise_sd=0.1).fit_params())
        ['bags', 'noise_sd']
        """
        optional = {"noise_sd": self.noise_sd, "sample_weight": self.sample_weight}
        given = {name: values for name, values in optional.items() if values is not None}
        return {"bags": self.bags, **given}


def from_frame(
    frame: Any,
    *,
    bag: str,
    label: str,
    features: str | Sequence[str] | None = None,
    noise_sd: str | float | None = None,
    exclude: str | Sequence[str] = (),
) -> BaggedData:
    """Read a table of rows in which every row carries the id and the label of its bag.

    Parameters
    ----------
    frame : path, or a pandas, polars or pyarrow frame
    bag, label : str
        Columns with the id of each row's bag, of any type, and with the bag's label.
    features, exclude : str or list of str
        Columns to use, or to leave out; by default all others are used. Text becomes one column
        per level, and missing values are marked, as in a release.
    noise_sd : str or float, optional
        Known standard deviation of the noise on the labels: a column of the table, or one number.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({
    ...     "ward": ["n", "n", "s"], "age": [30, 50, 40], "sex": ["f", "m", "f"],
    ...     "rate": [0.2, 0.2, 0.1],
    ... })
    >>> data = from_frame(table, bag="ward", label="rate", exclude="age")
    >>> data.bags, data.feature_names, data.X.tolist()
    (array([0, 0, 1]), ('sex=m',), [[0.0], [1.0], [0.0]])
    """
    table = read_table(frame, index_names=[bag])
    ids = without_dictionary(find_column(table, bag, role="bag"))
    missing = pc.sum(pc.is_null(ids, nan_is_null=True)).as_py()
    if missing:
        raise BagsError(f"bag {bag!r} is missing in {missing} row(s). Drop those rows.")
    codes = shielded(
        lambda: pc.dictionary_encode(ids).combine_chunks(),
        ColumnError(f"bag {bag!r} of type {ids.type} cannot hold ids."),
    )
    index = np.asarray(codes.indices.to_numpy(), dtype=np.int64)
    return _of_table(table, index, label, noise_sd, [bag], features=features, exclude=exclude)


def from_group_means(
    frame: Any,
    *,
    label: str,
    size: str,
    features: str | Sequence[str] | None = None,
    noise_sd: str | float | None = None,
    exclude: str | Sequence[str] = (),
) -> BaggedData:
    """Read a table with one row per group: mean features, mean label and number of rows.

    The rows themselves are gone, so only ``loss="aggregate"`` can use it: every group becomes a
    bag of one row, its centroid, that counts as often as the group has rows (column `size`). The
    other parameters are those of `from_frame`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"age": [30.5, 51.0], "rate": [0.2, 0.4], "people": [120, 80]})
    >>> data = from_group_means(table, label="rate", size="people")
    >>> data.fit_params()
    {'bags': array([0, 1]), 'sample_weight': array([120., 80.])}
    """
    table = read_table(frame)
    sizes = _numbers(table, size, role="size")
    wrong = ~((sizes > 0) & (sizes == np.floor(sizes)) & np.isfinite(sizes))
    if wrong.any():
        raise BagsError(
            f"size {size!r} must be a positive whole number, the rows of a group; it is not in "
            f"{int(wrong.sum())} row(s), the first being row {int(np.argmax(wrong)) + 1} "
            "(counting from 1)."
        )
    return _of_table(
        table, np.arange(table.num_rows), label, noise_sd, [size],
        features=features, exclude=exclude, weights=sizes,
    )  # fmt: skip


def with_rows(data: BaggedData, X_rows: Any, y_rows: Any, *, noise_sd: Any = 0.0) -> BaggedData:
    """Add rows with labels of their own, each as a bag of one row that weighs 1.

    Parameters
    ----------
    X_rows : (k, d) floats
        With the columns of ``data.X``; ``data.encoder.transform`` makes them of a table.
    y_rows : (k,) or (k, classes) floats
    noise_sd : float or (k,) floats
        Known standard deviation of the noise on these labels.

    Examples
    --------
    >>> bagged = BaggedData([[1.0], [2.0], [5.0]], [0.5, 0.5, 3.0], ["a", "a", "b"])
    >>> data = with_rows(bagged, [[4.0]], [2.0], noise_sd=0.1)
    >>> data.bags, data.noise_sd
    (array([0, 0, 1, 2]), array([0. , 0. , 0. , 0.1]))
    """
    rows = _matrix(X_rows, "X_rows")
    labels = finite_floats(y_rows, "y_rows", error=LabelError)
    if rows.shape[1] != data.X.shape[1]:
        raise BagsError(f"X_rows has {rows.shape[1]} columns, the bags have {data.X.shape[1]}.")
    if labels.shape != (len(rows), *data.y.shape[1:]):
        raise LabelError(
            f"y_rows must have shape {(len(rows), *data.y.shape[1:])}, got {labels.shape}."
        )
    # As bags of their own first, so that a message counts the new rows from their start.
    own = BaggedData(rows, labels, np.arange(len(rows)), noise_sd)
    noise = np.zeros(len(data.X)) if data.noise_sd is None else data.noise_sd
    weight = data.sample_weight
    return replace(
        data,
        X=np.concatenate([data.X, rows]),
        y=np.concatenate([data.y, labels]),
        bags=np.concatenate([data.bags, data.bags.max() + 1 + own.bags]),
        noise_sd=np.concatenate([noise, np.asarray(own.noise_sd)]),
        sample_weight=None if weight is None else np.concatenate([weight, np.ones(len(rows))]),
    )


def finite_floats(values: Any, what: str, *, error: type[BagwiseError] = BagsError) -> FloatArray:
    """Return an array of finite float64, or report where it is not, without quoting a value.

    >>> finite_floats([1, "seven"], "y")
    Traceback (most recent call last):
    bagwise.errors.BagsError: y must be an array of numbers.
    """
    array = shielded(
        lambda: np.asarray(values, dtype=np.float64),
        error(f"{what} must be an array of numbers."),
    )
    # A sum is finite if all entries are, unless it overflows; to look at each takes a copy.
    if np.isfinite(array.sum()):
        return array
    bad = np.argwhere(~np.isfinite(array))
    if bad.size:
        rows = np.unique(bad[:, 0])
        raise error(
            f"{what} has NaN or infinite values in {rows.size} row(s), the first being row "
            f"{rows[0] + 1} (counting from 1). Drop or repair those rows."
        )
    return array


def read_weights(sample_weight: Any, n_rows: int) -> FloatArray:
    """Return one weight per row: finite, not negative, not all zero."""
    weight = finite_floats(sample_weight, "sample_weight")
    if weight.shape != (n_rows,):
        raise BagsError(f"sample_weight must be one per row ({n_rows}), got shape {weight.shape}.")
    if not ((weight >= 0).all() and weight.any()):
        raise BagsError("sample_weight must not be negative anywhere, nor zero everywhere.")
    return weight


def _matrix(values: Any, what: str) -> FloatArray:
    array = finite_floats(values, what, error=ColumnError)
    if array.size == 0:
        raise BagsError(f"{what} is empty: it has no rows or no columns.")
    if array.ndim != 2:
        raise BagsError(f"{what} must have two dimensions, rows and columns, got {array.ndim}.")
    return array


def _of_table(
    table: pa.Table,
    bags: IntArray,
    label: str,
    noise_sd: str | float | None,
    used: Sequence[str],
    *,
    features: str | Sequence[str] | None,
    exclude: str | Sequence[str],
    weights: FloatArray | None = None,
) -> BaggedData:
    """Encode the feature columns: those requested, or all that have no other use.

    A column that looks like an id is a feature only by name, unless rows are groups and have
    `weights`: there a mean or a count may well differ in every row, without being an id.
    """
    labels, noise = label_vector(table, label), None
    if isinstance(noise_sd, str):
        noise = _numbers(table, noise_sd, role="noise_sd")
    elif noise_sd is not None:
        noise = np.full(table.num_rows, float(noise_sd))
    asked, left_out = (
        [names] if isinstance(names, str) else None if names is None else list(names)
        for names in (features, exclude)
    )
    reserved = [name for name in (*used, label, noise_sd) if isinstance(name, str)]
    names = select_features(table, reserved=reserved, features=asked, exclude=left_out or [])
    encoder = Encoder.for_table(table, names, named=names if weights is not None else asked or ())
    return BaggedData(
        encoder.transform(table),
        labels,
        bags,
        noise,
        weights,
        feature_names=encoder.feature_names,
        encoder=encoder,
    )


def _numbers(table: pa.Table, name: str, *, role: str) -> FloatArray:
    column = find_column(table, name, role=role)
    if not is_numeric(column.type):
        raise ColumnError(f"{role} {name!r} is of type {column.type}, not a number.")
    return as_float(column)

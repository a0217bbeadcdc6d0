"""Rows, bags and bag labels, checked once for every estimator that learns from bags.

A release gives every row the label of its bag. Fitted or scored as if they were labels of rows,
they pull slopes towards zero and make good models look bad, and nothing in the numbers says so: so
labels that repeat as those of bags do, and came without bags, get a warning.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from bagwise._types import AnyArray, FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError, BiasWarning
from bagwise.glm.parts import BagParts
from bagwise.glm.problem import Members
from bagwise.rows.whitening import Axes, Moments

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


@dataclass(frozen=True)
class BagData:
    """What every loss is computed from.

    Attributes
    ----------
    X : (n, d)
    bags : Bags over the n rows
    labels : (m,) or (m, classes)
    noise_sd : (m,)
        Known standard deviation of the privacy noise on each bag's label; 0 where there is none.
    weight : (m,)
        Sample weight of each bag: the mean of its rows' weights.
    row_weight : (n,) or None
        Sample weights of single rows, where they may differ inside a bag.
    offset : (n,) or None
        What is known of each row's linear predictor.
    counts : (n,) or None
        How many rows each row stands for; None where that is one.
    axes : Axes or None
        The directions in which rows differ, where X is not all of them.
    parts : BagParts or None
        The rows, where they are on many machines and X has none.
    """

    X: FloatArray
    bags: Bags
    labels: FloatArray
    noise_sd: FloatArray
    weight: FloatArray
    row_weight: FloatArray | None = None
    offset: FloatArray | None = None
    counts: FloatArray | None = None
    axes: Axes | None = None
    parts: BagParts | None = None

    @property
    def sizes(self) -> FloatArray:
        """How many rows each bag stands for."""
        if self.counts is None:
            return self.bags.sizes.astype(np.float64)
        return np.asarray(self.bags.sum(self.counts))

    @property
    def row_weights(self) -> FloatArray:
        """How much each row counts: its bag's weight, times the rows that it stands for."""
        weight = np.asarray(self.bags.repeat(self.weight), dtype=np.float64)
        return weight if self.counts is None else weight * self.counts

    def means(self, values: FloatArray) -> FloatArray:
        """Return the mean of values, (n, …), in each bag."""
        return self.bags.mean(values) if self.counts is None else self.members.mean(values)

    @property
    def members(self) -> Members:
        """The map from rows to the means of bags."""
        return Members.of(self.bags, self.counts)


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
    """Bring validated X and y, one label per row, into bags; say which bag contradicts itself.

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
    """Return the one value that all rows of a bag carry, or say which bag disagrees."""
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
    """Tell whether labels repeat in blocks, or about equally often without being whole numbers.

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

"""Rows, bags and bag labels, checked once for every estimator that learns from bags."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bagwise._types import AnyArray, FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError
from bagwise.glm.parts import BagParts
from bagwise.learn.repeats import warn_of_repeats
from bagwise.rows.whitening import Axes


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
    axes : Axes or None
        The directions in which rows differ, where X is not all of them.
    spread : BagParts or None
        The rows, where they are on many machines and X has none.
    """

    X: FloatArray
    bags: Bags
    labels: FloatArray
    noise_sd: FloatArray
    weight: FloatArray
    row_weight: FloatArray | None = None
    offset: FloatArray | None = None
    axes: Axes | None = None
    spread: BagParts | None = None


def read_bags(
    X: FloatArray,
    y: AnyArray,
    *,
    bags: Any = None,
    noise_sd: Any = None,
    sample_weight: FloatArray | None = None,
    weights_differ: bool = False,
    offset: FloatArray | None = None,
) -> BagData:
    """Bring validated X and y, one label per row, into bags; say which bag contradicts itself.

    Parameters
    ----------
    bags : Bags or (n,) ids, optional
        Without it each row is a bag of its own; labels that look otherwise get a warning.
    noise_sd : float or (n,) floats, optional
    sample_weight : (n,) floats, optional
        Constant inside a bag unless `weights_differ`.

    Examples
    --------
    >>> data = read_bags(np.eye(3), np.array([1.0, 1.0, 5.0]), bags=["a", "a", "b"], noise_sd=0.5)
    >>> data.labels, data.noise_sd
    (array([1., 5.]), array([0.5, 0.5]))
    """
    if bags is None:
        warn_of_repeats(y)
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
    return BagData(
        X,
        partition,
        one_per_bag(y, partition, "y"),
        _noise_per_bag(noise_sd, partition),
        weight,
        sample_weight if weights_differ else None,
        offset,
    )


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

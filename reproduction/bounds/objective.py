"""The k-means objective of bags, in the forms in which the paper meets it."""

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError
from bagwise.theory.exact import rows_in_bags
from reproduction.bounds.bound import as_vector


def spread(values: FloatArray, bags: Bags) -> float:
    """Return the k-means objective: the squared distances of values to the mean of their bag.

    For rows, (n, d), it is the sum over the columns, and over those of any orthonormal basis.

    References
    ----------
    Lemma 13 (l1) and Lemma 18. Status: both hold; the basis has to be orthonormal.

    Examples
    --------
    >>> spread(np.array([1.0, 3.0, 5.0, 5.0]), Bags(np.array([0, 0, 1, 1])))
    2.0
    """
    variance = bags.variance(np.asarray(values, dtype=np.float64))
    return float(np.sum(bags.sizes @ variance))


def pick_distance(values: FloatArray, bags: Bags) -> float:
    """Return the expected squared distance of values to those picked in their bags: twice spread.

    References
    ----------
    Prop 7 (event-MIR-k-means) with Lemmas 8 and 9. Status: holds.

    Examples
    --------
    >>> pick_distance(np.array([1.0, 3.0]), Bags(np.array([0, 0])))
    4.0
    """
    return 2 * spread(values, bags)


def pick_variance(values: FloatArray, bags: Bags) -> float:
    """Return the variances of a picked value, added up over bags.

    References
    ----------
    Lemma 17. Status: holds.

    Examples
    --------
    >>> pick_variance(np.array([1.0, 3.0, 5.0, 5.0]), Bags(np.array([0, 0, 1, 1])))
    1.0
    """
    return float(np.sum(bags.variance(np.asarray(values, dtype=np.float64))))


def noisy_spread(values: FloatArray, bags: Bags, *, noise_sd: float) -> float:
    """Return the expected spread of values plus noise, in bags that do not depend on the noise.

    References
    ----------
    Lemma 14 (noisyclustering). Status: holds under this condition; `sorted_spread_bound` else, E7.

    Examples
    --------
    >>> noisy_spread(np.array([1.0, 3.0, 5.0, 5.0]), Bags(np.array([0, 0, 1, 1])), noise_sd=2.0)
    10.0
    """
    rows = int(bags.in_bag.sum())
    return spread(values, bags) + (rows - bags.n_bags) * noise_sd**2


def centroid_scatter(X: FloatArray, bags: Bags, *, direction: FloatArray) -> float:
    """Return ``sum_l (z'c_l)^2`` from what is lost: ``(|Xz|^2 - spread(Xz)) / k``.

    References
    ----------
    Lemma 19, which prints ``1/k^2``. Status: corrected, E5. For bags of one size k.

    Examples
    --------
    >>> X, bags = np.array([[1.0], [3.0], [-2.0], [-2.0]]), Bags(np.array([0, 0, 1, 1]))
    >>> centroid_scatter(X, bags, direction=np.array([1.0]))
    8.0
    """
    X, bags = rows_in_bags(X, bags)
    if np.ptp(bags.sizes) > 0:
        raise BagsError("this identity is about bags of one size.")
    projected = X @ as_vector(direction, X.shape[1])
    return (float(projected @ projected) - spread(projected, bags)) / int(bags.sizes[0])

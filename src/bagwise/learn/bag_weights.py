"""Weights of bags for models that can only be fitted with weights.

The label of a bag varies around the bag's expected label by

    omega = variance(mean) * s^2 / size + noise_sd^2

for a mean of `size` labels (size 1 for a pick): the variance of one row's label, s^2, is unknown
and the same for all rows but for what the family says of the mean; the privacy noise is published.
Bags count by 1/omega.

s^2 has to come from how far labels lie from predictions. A flexible model comes close to whatever
it was fitted to, so each half of the bags is predicted by a model that was fitted to the other
half. That costs about one more fit, and happens only if the weights depend on s^2 or on the means.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from bagwise._types import AnyArray, FloatArray
from bagwise.families import find_family
from bagwise.glm.data import BagData
from bagwise.glm.weights import Trust, estimate_dispersion
from bagwise.privacy.noise import LabelKind

# Fit to the bags in the mask, (m,), with weights, (m,) or for classes (m, classes); return the
# predicted mean of every bag, of the same shape.
PredictBags = Callable[[AnyArray, FloatArray], FloatArray]

_FEWEST_BAGS = 10  # from fewer than five bags in a half no model can be learnt
_LEAST_CHANCE = 0.02  # of a class: bags that seem certain must not be all that counts
_LEAST_VARIANCE = 0.01  # of that at the mean label
_LEAST_SHARE = 1e-6  # an exact label among noisy ones counts much, yet not alone


def bag_weights(
    data: BagData,
    *,
    label_kind: LabelKind,
    predict_bags: PredictBags,
    variance: Callable[[FloatArray], FloatArray] | None = None,
) -> FloatArray:
    """Return the weight of each bag, (m,): its sample weight over the variance of its label.

    Parameters
    ----------
    data : BagData
    label_kind : {"mean", "pick"}
    predict_bags : callable
        Called with a mask of the bags to learn from and with weights, both (m,); returns the
        predicted mean of every bag, (m,).
    variance : callable, optional
        Variance of a row's label by its mean, up to a factor, for families where it is not
        constant.

    Returns
    -------
    (m,) floats
        They add up to what the sizes alone would give, so that a penalty keeps its meaning.

    Examples
    --------
    >>> from bagwise.learn.bag_data import read_bags
    >>> data = read_bags(np.zeros((3, 1)), np.zeros(3), bags=[0, 0, 1])
    >>> bag_weights(data, label_kind="mean", predict_bags=lambda bags, weight: np.zeros(2))
    array([2., 1.])
    """
    sizes = data.bags.sizes.astype(np.float64)
    trust = Trust("known-noise", label_kind).over(sizes, data.noise_sd, data.weight)
    by_size: FloatArray = np.where(data.weight > 0, trust.counts, 0.0)
    same_for_all = np.ptp(data.noise_sd) == 0 and np.ptp(trust.counts) == 0
    if variance is None and (same_for_all or not data.noise_sd.any()):
        return by_size
    spread = variance or np.ones_like

    def weights_at(means: FloatArray) -> FloatArray:
        """Return 1/omega of each bag; 0 for one that is not to count."""
        parts = trust.variances(spread(means), np.zeros(1))
        # The bags were held out, so that no parameters were fitted to them.
        off, used, row_variance = data.labels - means, trust.base > 0, 1.0
        if trust.noise_sd.any():
            row_variance = estimate_dispersion(off[used], parts.of(used), n_parameters=0)
        omega = trust.omega(parts, row_variance, known=False)
        omega = np.maximum(omega, _LEAST_SHARE * omega[trust.base > 0].max())
        return np.where(trust.base > 0, 1 / omega, 0.0)

    # What the labels' own mean leaves over, for a start: too much, but in the right order.
    weight = weights_at(np.full(sizes.size, np.average(data.labels, weights=by_size)))
    if np.count_nonzero(by_size) >= _FEWEST_BAGS:
        weight = weights_at(_held_out_means(predict_bags, weight))
    return np.asarray(weight * (by_size.sum() / weight.sum()))


def class_weights(data: BagData, *, label_kind: LabelKind, predict_bags: PredictBags) -> FloatArray:
    """Return the weight of every share of every bag, (m, classes): one over its variance.

    The inverse covariance of multinomial shares is diagonal with entries 1 / chance, up to what
    shares that add up to 1 cannot show; the noise is published. Chances are those that each half of
    the bags predicts for the other.
    """
    sizes = data.bags.sizes if label_kind == "mean" else np.ones(data.bags.n_bags)
    even = np.outer(np.maximum(data.weight, 0.0) * sizes, np.ones(data.labels.shape[1]))
    used, shares = even[:, 0] > 0, np.full_like(even, 1 / even.shape[1])
    if np.count_nonzero(used) >= _FEWEST_BAGS:
        shares = _held_out_means(predict_bags, even)
    variance = np.maximum(shares, _LEAST_CHANCE) / np.maximum(even, 1e-300)
    weight = np.where(even > 0, 1 / (variance + data.noise_sd[:, None] ** 2), 0.0)
    return np.asarray(weight / weight[used].mean())


def working_variance(family: str, data: BagData) -> Callable[[FloatArray], FloatArray] | None:
    """Return how a row's variance depends on the mean, or None if it does not."""
    if family == "gaussian":
        return None
    kind = find_family(family)
    inside = np.vectorize(kind.interior, otypes=[np.float64])

    def at(means: Any) -> FloatArray:
        return kind.variance(kind.predictor(inside(means)))

    # Bags that seem certain must not be all that counts.
    least = _LEAST_VARIANCE * at(data.labels.mean())
    return lambda means: np.maximum(at(means), least)


def _held_out_means(predict_bags: PredictBags, weight: FloatArray) -> FloatArray:
    """Predict the mean of each bag by a model of the half to which the bag does not belong."""
    counts = np.asarray(weight.reshape(len(weight), -1).any(axis=1))
    order = np.random.default_rng(0).permutation(len(weight))
    order = order[np.argsort(~counts[order], kind="stable")]  # some that count in either half
    in_first = np.zeros(len(weight), dtype=bool)
    in_first[order[::2]] = True
    by_second = predict_bags(~in_first, weight)
    by_first = predict_bags(in_first, weight)
    return np.asarray(np.where(in_first, by_second.T, by_first.T).T)

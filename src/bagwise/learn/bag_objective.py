"""The bag loss as a gradient boosting objective for LightGBM, XGBoost and similar libraries.

Rows i of bag b have scores s_i, so many as there are classes, and means mu_i by the link. With k
rows in the bag, label y and weight w the loss of the bag is

    w / 2 * (mean of mu_i - y)^2

as in `BagMeanLoss`, which says why it is not the likelihood: labels with noise may lie outside the
range of the link. Its gradient by s_i is ``w / k * r * slope_i``, r being the residual of the bag.

A library takes one number per row for the curvature, and there is none: rows of a bag move
together. Where slopes are positive, Cauchy and Schwarz give for any moves d_i

    (sum_i slope_i d_i / k)^2  <=  (sum_i slope_i / k) * (sum_i slope_i d_i^2 / k)

so that ``hessian_i = w / k * slope_i * (mean slope of the bag)`` never takes the loss for flatter
than it is, and is exact if the rows of a bag move alike, as they do in compact bags. What the
diagonal of the Gauss-Newton matrix says instead, ``w / k^2 * slope_i^2``, is k times too small for
those moves: steps go too far by that much.

For classes the slopes of all shares by all scores are added up in the same way, regardless of
their signs.

References
----------
Böhning and Lindsay (1988), Ann. Inst. Statist. Math. 40, on curvature that bounds from above.
"""

from typing import Any

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError, check_name
from bagwise.models.trees import LINKS, SOFTMAX, means_of

_LEAST_SLOPE = 1e-6  # rows whose means are as good as certain may still move


class BagObjective:
    """Bag loss, its gradient and a curvature for scores of rows.

    Call it with scores, and it returns gradient and hessian: so LightGBM takes it as `objective`
    or as `fobj`, and XGBoost as `obj`.

    Parameters
    ----------
    bags : Bags or (n,) ids
    labels : (m,) floats, or (m, classes) for the softmax link
        Of the bags, in the order of `Bags`.
    weight : (m,) or (m, classes) floats, optional
        One over the variance of each label; by default the size of each bag. They are rescaled so
        that a bag has a curvature of about one at the start: a limit such as LightGBM's
        `min_sum_hessian_in_leaf` then counts bags.
    link : {"identity", "log", "logit", "softmax"}
    start : (n,) or (n, classes) floats, optional
        Scores to which those of the trees are added.

    Attributes
    ----------
    bag_means : (m,) or (m, classes)
        What the scores of the last call mean for each bag.

    Examples
    --------
    >>> objective = BagObjective([0, 0, 1], labels=[2.0, 8.0], weight=[1.0, 1.0])
    >>> gradient, hessian = objective(np.array([1.0, 3.0, 5.0]))
    >>> gradient, hessian
    (array([ 0.,  0., -3.]), array([0.5, 0.5, 1. ]))
    >>> objective.loss(np.array([1.0, 3.0, 5.0]))
    4.5
    """

    def __init__(
        self,
        bags: Any,
        labels: Any,
        *,
        weight: Any = None,
        link: str = "identity",
        start: FloatArray | None = None,
    ) -> None:
        check_name("link", link, (*LINKS, SOFTMAX))
        self.link = link
        self.bags = bags if isinstance(bags, Bags) else Bags.from_labels(bags)
        self.labels = np.asarray(labels, dtype=np.float64)
        outputs = self.labels.shape[1:]
        if self.labels.shape[:1] != (self.bags.n_bags,) or (len(outputs) == 1) != (link == SOFTMAX):
            raise BagsError(
                f"labels must be one number per bag ({self.bags.n_bags}), or for the softmax link "
                f"one row of shares, got shape {self.labels.shape}."
            )
        given = np.zeros((self.bags.n_rows, *outputs)) if start is None else start
        self.start = np.asfortranarray(given)  # as LightGBM keeps scores: class by class
        self._share: FloatArray = 1 / self.bags.sizes.astype(np.float64)
        given = self.bags.sizes if weight is None else np.asarray(weight, dtype=np.float64)
        if given.ndim < self.labels.ndim:
            given = given[:, None]
        self.bag_means = np.zeros_like(self.labels)
        self.weight: FloatArray = np.broadcast_to(given, self.labels.shape).astype(np.float64)
        _, curvature = self(np.zeros_like(self.start))
        counted = np.any(self.weight.reshape(self.bags.n_bags, -1) > 0, axis=1).sum()
        total = float(np.sum(curvature)) / max(1, counted * int(np.prod(outputs)))
        self.weight = self.weight / total if total > 0 else self.weight

    def __call__(self, scores: FloatArray, data: Any = None) -> tuple[FloatArray, FloatArray]:
        """Return gradient and hessian, both of the shape of `scores`."""
        del data  # what the library trains on; all that is needed of it is here
        means = means_of(scores + self.start, self.link)
        self.bag_means = self.means(means)
        share = self._share if self.labels.ndim == 1 else self._share[:, None]
        pull = self.weight * (self.bag_means - self.labels) * share
        if self.link == SOFTMAX:
            return self._of_classes(means.T, pull.T)
        if self.link == "identity":  # a slope of 1 everywhere: nothing more to add up
            return pull[self.bags.index], (self.weight * self._share)[self.bags.index]
        slope = np.maximum(LINKS[self.link].slope(means), _LEAST_SLOPE)
        curve = self.weight * self._share * self.means(slope)
        return pull[self.bags.index] * slope, curve[self.bags.index] * slope

    def loss(self, scores: FloatArray) -> float:
        """Return the sum over bags of half the weighted squared error."""
        off = self.means(means_of(scores + self.start, self.link)) - self.labels
        return float(np.sum(self.weight * off**2)) / 2

    def means(self, values: FloatArray) -> FloatArray:
        """Average values, (n,) or (n, classes), in each bag."""
        index, m = self.bags.index, self.bags.n_bags
        if values.ndim == 1:
            return np.asarray(np.bincount(index, values, m) * self._share)
        return np.array([np.bincount(index, column, m) * self._share for column in values.T]).T

    def _of_classes(self, chances: FloatArray, pull: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return gradient and hessian by every score, which moves the shares of all classes.

        Classes come first here, (classes, n): few long rows are quicker to add up than many short.
        """
        by_row = pull[:, self.bags.index]
        gradient = chances * (by_row - np.sum(by_row * chances, axis=0))
        spread = chances * (1 - chances)
        # All scores move at once: slopes of a share by all of them add up to twice that by its own.
        curve = 2 * self.weight.T * self._share * self.means(spread.T).T
        by_row = curve[:, self.bags.index]
        pairs = by_row * chances
        hessian = chances * (np.sum(pairs, axis=0) - pairs) + by_row * spread
        return gradient.T, np.maximum(hessian, _LEAST_SLOPE**2).T

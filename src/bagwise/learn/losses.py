"""The losses of the paper, each as the weighted least-squares problem that it is for linear models.

===========  ============================================================  =====================
loss         compares                                                      problem
===========  ============================================================  =====================
instance     every row's prediction with its bag's label                   all rows, weight 1
bag          the mean prediction of a bag with its label                   centroids, bag weights
aggregate    the prediction at a bag's centroid with its label             the same, for a linear
                                                                           model
===========  ============================================================  =====================
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bagwise._types import FloatArray
from bagwise.bags import Bags


@dataclass(frozen=True)
class BagData:
    """What every loss is computed from.

    Attributes
    ----------
    X : (n, d)
    bags : Bags over the n rows
    labels : (m,)
    row_weight : (n,) or None
        Sample weights; constant inside a bag unless the loss is "instance".
    """

    X: FloatArray
    bags: Bags
    labels: FloatArray
    row_weight: FloatArray | None


@dataclass(frozen=True)
class LeastSquares:
    """Minimise ``sum_i weight_i (target_i - design_i theta)^2``.

    ``is_bag`` says that a row of the design is a bag, so that weights by bag variance apply.
    """

    design: FloatArray
    target: FloatArray
    weight: FloatArray
    is_bag: bool


def instance_problem(data: BagData) -> LeastSquares:
    """Give every row its bag's label (Def. 1; estimator F1 of the theory page)."""
    weight = np.ones(data.bags.n_rows) if data.row_weight is None else data.row_weight
    return LeastSquares(data.X, data.bags.repeat(data.labels), weight, is_bag=False)


def centroid_problem(data: BagData) -> LeastSquares:
    """Compare each bag's label with its centroid's prediction (Defs. 2 and 3; F2).

    For a linear model the mean prediction is the prediction at the mean, so that bag and aggregate
    loss coincide. Bags start with equal weight; `estimator` turns that into known-noise weights.
    """
    weight = (
        np.ones(data.bags.n_bags) if data.row_weight is None else data.bags.mean(data.row_weight)
    )
    return LeastSquares(data.bags.mean(data.X), data.labels, weight, is_bag=True)


LOSSES: dict[str, Callable[[BagData], LeastSquares]] = {
    "instance": instance_problem,
    "bag": centroid_problem,
    "aggregate": centroid_problem,
}

"""Bags of rows with one aggregate label each: make them, learn from them, know what they reveal.

>>> import numpy as np
>>> import pyarrow as pa
>>> import bagwise as bw
>>> rng = np.random.default_rng(0)
>>> x = rng.normal(size=2000)
>>> table = pa.table({"x": x, "y": 1 + 2 * x + rng.normal(size=2000)})
>>> release = bw.make_release(table, label="y", bag_size=10, strategy="random", not_private=True)
>>> X, y, bag_ids = release.training_data()
>>> model = bw.BaggedGLM(loss="bag").fit(X, y, bags=bag_ids)
>>> bool(abs(model.coef_[0] - 2) < 0.4)
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bagwise._version import __version__

if TYPE_CHECKING:
    from bagwise.api import find_bounds, make_bags, make_release, release_model
    from bagwise.bagging import STRATEGIES
    from bagwise.bagging.aligned_bags import AlignedBags
    from bagwise.bagging.bags import Bags
    from bagwise.bagging.kmeans_bags import KMeansBags
    from bagwise.bagging.optimal_bags import OptimalBags
    from bagwise.bagging.quality import BagQuality
    from bagwise.bagging.random_bags import RandomBags
    from bagwise.bagging.sorted_bags import SortedBags
    from bagwise.bagging.super_bags import SuperBags
    from bagwise.cluster.estimator import SizeConstrainedKMeans
    from bagwise.data.encode import Encoder
    from bagwise.errors import BagwiseError, BagwiseWarning
    from bagwise.evaluate.openly import evaluate_release, evaluate_rows
    from bagwise.evaluate.privately import PrivateScores, evaluate_rows_privately
    from bagwise.families import FAMILIES
    from bagwise.learn import BaggedGLM, fit_release
    from bagwise.learn.convert import (
        BaggedData,
        from_bag_list,
        from_frame,
        from_group_means,
        from_proportions,
        with_rows,
    )
    from bagwise.learn.meta import BaggedRegressor
    from bagwise.learn.model_selection import (
        BagKFold,
        BagShuffleSplit,
        bag_deviance,
        bag_mean_squared_error,
        bag_r2_score,
        bag_scorer,
    )
    from bagwise.learn.network.loss import BagMeanLoss
    from bagwise.learn.network.regressor import BaggedNetwork
    from bagwise.models.coefficients import Coefficients
    from bagwise.models.row_model import RowModel
    from bagwise.planner import Plan, Prior, plan
    from bagwise.privacy import Certificate
    from bagwise.release.release import Release

# Names are fetched from their home on first use: the command line's help should not wait for
# scikit-learn and Arrow.
_HOMES = {
    "api": ["find_bounds", "make_bags", "make_release", "release_model"],
    "bagging": ["STRATEGIES"],
    "bagging.aligned_bags": ["AlignedBags"],
    "bagging.kmeans_bags": ["KMeansBags"],
    "bagging.optimal_bags": ["OptimalBags"],
    "bagging.random_bags": ["RandomBags"],
    "bagging.sorted_bags": ["SortedBags"],
    "bagging.super_bags": ["SuperBags"],
    "bagging.bags": ["Bags"],
    "bagging.quality": ["BagQuality"],
    "cluster.estimator": ["SizeConstrainedKMeans"],
    "data.encode": ["Encoder"],
    "errors": ["BagwiseError", "BagwiseWarning"],
    "evaluate.openly": ["evaluate_release", "evaluate_rows"],
    "evaluate.privately": ["PrivateScores", "evaluate_rows_privately"],
    "families": ["FAMILIES"],
    "learn": ["BaggedGLM", "fit_release"],
    "learn.convert": [
        "BaggedData",
        "from_bag_list",
        "from_frame",
        "from_group_means",
        "from_proportions",
        "with_rows",
    ],
    "learn.meta": ["BaggedRegressor"],
    "learn.model_selection": [
        "BagKFold",
        "BagShuffleSplit",
        "bag_deviance",
        "bag_mean_squared_error",
        "bag_r2_score",
        "bag_scorer",
    ],
    "learn.network.loss": ["BagMeanLoss"],
    "learn.network.regressor": ["BaggedNetwork"],
    "models.coefficients": ["Coefficients"],
    "models.row_model": ["RowModel"],
    "planner": ["Plan", "Prior", "plan"],
    "privacy": ["Certificate"],
    "release.release": ["Release"],
    "release.verify": ["Verification"],
    "verifier": ["verify"],
}
_HOME_OF = {name: f"bagwise.{home}" for home, names in _HOMES.items() for name in names}

__all__ = [
    "FAMILIES",
    "STRATEGIES",
    "AlignedBags",
    "BagKFold",
    "BagMeanLoss",
    "BagQuality",
    "BagShuffleSplit",
    "BaggedData",
    "BaggedGLM",
    "BaggedNetwork",
    "BaggedRegressor",
    "Bags",
    "BagwiseError",
    "BagwiseWarning",
    "Certificate",
    "Coefficients",
    "Encoder",
    "KMeansBags",
    "OptimalBags",
    "Plan",
    "Prior",
    "PrivateScores",
    "RandomBags",
    "Release",
    "RowModel",
    "SizeConstrainedKMeans",
    "SortedBags",
    "SuperBags",
    "Verification",
    "__version__",
    "bag_deviance",
    "bag_mean_squared_error",
    "bag_r2_score",
    "bag_scorer",
    "evaluate_release",
    "evaluate_rows",
    "evaluate_rows_privately",
    "find_bounds",
    "fit_release",
    "from_bag_list",
    "from_frame",
    "from_group_means",
    "from_proportions",
    "make_bags",
    "make_release",
    "plan",
    "release_model",
    "verify",
    "with_rows",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'bagwise' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

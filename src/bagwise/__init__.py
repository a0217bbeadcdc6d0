"""Make bags of rows with one aggregate label each, learn from them, and protect their labels.

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
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from bagwise._version import __version__ as __version__

if TYPE_CHECKING:
    from bagwise.annotate import AnnotationProject as AnnotationProject
    from bagwise.api import make_bags as make_bags
    from bagwise.api import make_release as make_release
    from bagwise.api import release_model as release_model
    from bagwise.auditor import audit as audit
    from bagwise.bagging.bags import Bags as Bags
    from bagwise.bagging.strategies import *  # noqa: F403 (each of them, and the registry)
    from bagwise.cluster.estimator import SizeConstrainedKMeans as SizeConstrainedKMeans
    from bagwise.errors import BagwiseError as BagwiseError
    from bagwise.errors import BagwiseWarning as BagwiseWarning
    from bagwise.learn import BaggedGLM as BaggedGLM
    from bagwise.learn.bag_mean_loss import BagMeanLoss as BagMeanLoss
    from bagwise.learn.boosters import BaggedBooster as BaggedBooster
    from bagwise.learn.boosters import BaggedClassifier as BaggedClassifier
    from bagwise.learn.meta import BaggedRegressor as BaggedRegressor
    from bagwise.learn.model_selection import BagKFold as BagKFold
    from bagwise.learner import evaluate as evaluate
    from bagwise.learner import fit as fit
    from bagwise.learner import load_release as load_release
    from bagwise.ledger import Ledger as Ledger
    from bagwise.models import load_model as load_model
    from bagwise.models.row_model import RowModel as RowModel
    from bagwise.planner import Plan as Plan
    from bagwise.planner import Prior as Prior
    from bagwise.planner import plan as plan
    from bagwise.privacy import Certificate as Certificate
    from bagwise.release.release import Release as Release
    from bagwise.requests.records import Bagging as Bagging
    from bagwise.requests.records import Engine as Engine
    from bagwise.requests.records import Privacy as Privacy
    from bagwise.requests.records import Reading as Reading
    from bagwise.verifier import verify as verify

# Names are fetched from their home on first use: the command line's help should not wait for
# scikit-learn and Arrow. `__all__` is made on first use too, since it holds every strategy.
_EVERYDAY = {
    "annotate": "AnnotationProject",
    "api": "make_bags make_release release_model",
    "auditor": "audit",
    "bagging.bags": "Bags",
    "cluster.estimator": "SizeConstrainedKMeans",
    "errors": "BagwiseError BagwiseWarning",
    "learn": "BaggedGLM",
    "learn.bag_mean_loss": "BagMeanLoss",
    "learn.boosters": "BaggedBooster BaggedClassifier",
    "learn.meta": "BaggedRegressor",
    "learn.model_selection": "BagKFold",
    "learner": "evaluate fit load_release",
    "ledger": "Ledger",
    "models": "load_model",
    "models.row_model": "RowModel",
    "planner": "Plan Prior plan",
    "privacy": "Certificate",
    "release.release": "Release",
    "requests.records": "Bagging Engine Privacy Reading",
    "verifier": "verify",
}
"""What `dir` shows and `import *` brings, beside the strategies: one name for each job."""

_OTHERS = {
    "auditor": "infer_labels",
    "bagging.strategies": "STRATEGIES",
    "families": "FAMILIES",
    "learn": "fit_release",
    "learn.bag_objective": "BagObjective",
    "learn.bag_data": "BaggedData from_frame from_group_means with_rows",
    "learn.frames": "fit_estimator",
    "learn.model_selection": "bag_deviance bag_mean_squared_error bag_r2_score bag_scorer",
    "learn.on_spark": "fit_on_spark",
    "learn.tables": "LabelTable",
    "models.model": "predict_on_spark",
    "models.trees": "TreeModel",
    "rows.encode": "Encoder",
    "rows.sources": "Csv Query",
    "scoring.openly": "evaluate_release evaluate_rows",
    "scoring.privately": "PrivateScores evaluate_rows_privately",
}
"""There for those who know them; they are documented with their part of the package."""

_HOME_OF = {
    name: f"bagwise.{home}"
    for homes in (_EVERYDAY, _OTHERS)
    for home, names in homes.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    if name == "__all__":
        # A subclass of a class of PyTorch is there with PyTorch only.
        missing = set() if find_spec("torch") else {"BagMeanLoss"}
        everyday = {one for names in _EVERYDAY.values() for one in names.split()}
        return sorted({"__version__", *everyday, *_strategies()} - missing)
    # Modules and what Python itself asks for are lower case, and not worth an import.
    if name[:1].isupper() and name in _strategies():
        return _strategies()[name]
    raise AttributeError(f"module 'bagwise' has no attribute {name!r}")


def _strategies() -> dict[str, Any]:
    """Return the classes of the registry, which alone decides which strategies exist."""
    registry = import_module("bagwise.bagging.strategies").STRATEGIES
    return {kind.__name__: kind for kind in registry.values()}


def __dir__() -> list[str]:
    return [*__getattr__("__all__"), "__doc__", "__file__", "__name__", "__path__", "__spec__"]

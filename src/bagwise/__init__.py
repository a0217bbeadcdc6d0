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
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from bagwise._version import __version__ as __version__

if TYPE_CHECKING:
    from bagwise.annotate import AnnotationProject as AnnotationProject
    from bagwise.api import make_bags as make_bags
    from bagwise.api import make_release as make_release
    from bagwise.api import release_model as release_model
    from bagwise.audit import AuditReport as AuditReport
    from bagwise.audit import audit_file as audit_file
    from bagwise.audit import infer_labels as infer_labels
    from bagwise.bagging.bags import Bags as Bags
    from bagwise.bagging.quality import BagQuality as BagQuality
    from bagwise.bagging.strategies import *  # noqa: F403 (each of them, and the registry)
    from bagwise.cluster.estimator import SizeConstrainedKMeans as SizeConstrainedKMeans
    from bagwise.errors import BagwiseError as BagwiseError
    from bagwise.errors import BagwiseWarning as BagwiseWarning
    from bagwise.families import FAMILIES as FAMILIES
    from bagwise.learn import BaggedGLM as BaggedGLM
    from bagwise.learn import fit_release as fit_release
    from bagwise.learn.bag_mean_loss import BagMeanLoss as BagMeanLoss
    from bagwise.learn.boost.estimators import BaggedBooster as BaggedBooster
    from bagwise.learn.boost.estimators import BaggedClassifier as BaggedClassifier
    from bagwise.learn.boost.objective import BagObjective as BagObjective
    from bagwise.learn.convert import BaggedData as BaggedData
    from bagwise.learn.convert import from_frame as from_frame
    from bagwise.learn.convert import from_group_means as from_group_means
    from bagwise.learn.convert import with_rows as with_rows
    from bagwise.learn.frames import FrameModel as FrameModel
    from bagwise.learn.frames import fit_estimator as fit_estimator
    from bagwise.learn.meta import BaggedRegressor as BaggedRegressor
    from bagwise.learn.model_selection import BagKFold as BagKFold
    from bagwise.learn.model_selection import bag_deviance as bag_deviance
    from bagwise.learn.model_selection import bag_mean_squared_error as bag_mean_squared_error
    from bagwise.learn.model_selection import bag_r2_score as bag_r2_score
    from bagwise.learn.model_selection import bag_scorer as bag_scorer
    from bagwise.learn.on_spark import fit_on_spark as fit_on_spark
    from bagwise.learn.tables import LabelTable as LabelTable
    from bagwise.learn.tables import TablesModel as TablesModel
    from bagwise.learn.tables import fit_tables as fit_tables
    from bagwise.learner import evaluate as evaluate
    from bagwise.learner import fit as fit
    from bagwise.learner import load_release as load_release
    from bagwise.ledger import Ledger as Ledger
    from bagwise.models import load_model as load_model
    from bagwise.models.coefficients import Coefficients as Coefficients
    from bagwise.models.model import predict_on_spark as predict_on_spark
    from bagwise.models.row_model import RowModel as RowModel
    from bagwise.models.trees import TreeModel as TreeModel
    from bagwise.planner import Plan as Plan
    from bagwise.planner import Prior as Prior
    from bagwise.planner import plan as plan
    from bagwise.privacy import Certificate as Certificate
    from bagwise.release.parts_table import PartsRelease as PartsRelease
    from bagwise.release.release import Release as Release
    from bagwise.release.verify import Verification as Verification
    from bagwise.requests.records import Bagging as Bagging
    from bagwise.requests.records import Engine as Engine
    from bagwise.requests.records import Privacy as Privacy
    from bagwise.requests.records import Reading as Reading
    from bagwise.rows.encode import Encoder as Encoder
    from bagwise.rows.sources import Csv as Csv
    from bagwise.rows.sources import Query as Query
    from bagwise.scoring.openly import evaluate_release as evaluate_release
    from bagwise.scoring.openly import evaluate_rows as evaluate_rows
    from bagwise.scoring.privately import PrivateScores as PrivateScores
    from bagwise.scoring.privately import evaluate_rows_privately as evaluate_rows_privately
    from bagwise.verifier import verify as verify

# Names are fetched from their home on first use: the command line's help should not wait for
# scikit-learn and Arrow. `__all__` is made on first use too, since it holds every strategy.
_HOMES = {
    "annotate": ["AnnotationProject"],
    "audit": ["AuditReport", "audit_file", "infer_labels"],
    "api": ["make_bags", "make_release", "release_model"],
    "bagging.strategies": ["STRATEGIES"],
    "bagging.bags": ["Bags"],
    "bagging.quality": ["BagQuality"],
    "cluster.estimator": ["SizeConstrainedKMeans"],
    "rows.encode": ["Encoder"],
    "rows.sources": ["Csv", "Query"],
    "errors": ["BagwiseError", "BagwiseWarning"],
    "scoring.openly": ["evaluate_release", "evaluate_rows"],
    "scoring.privately": ["PrivateScores", "evaluate_rows_privately"],
    "families": ["FAMILIES"],
    "learn": ["BaggedGLM", "fit_release"],
    "learn.bag_mean_loss": ["BagMeanLoss"],
    "learn.boost.estimators": ["BaggedBooster", "BaggedClassifier"],
    "learn.boost.objective": ["BagObjective"],
    "learn.convert": [
        "BaggedData",
        "from_frame",
        "from_group_means",
        "with_rows",
    ],
    "learn.frames": ["FrameModel", "fit_estimator"],
    "learn.meta": ["BaggedRegressor"],
    "learn.model_selection": [
        "BagKFold",
        "bag_deviance",
        "bag_mean_squared_error",
        "bag_r2_score",
        "bag_scorer",
    ],
    "learn.on_spark": ["fit_on_spark"],
    "learn.tables": ["LabelTable", "TablesModel", "fit_tables"],
    "learner": ["evaluate", "fit", "load_release"],
    "ledger": ["Ledger"],
    "models.coefficients": ["Coefficients"],
    "models": ["load_model"],
    "models.model": ["predict_on_spark"],
    "models.row_model": ["RowModel"],
    "models.trees": ["TreeModel"],
    "planner": ["Plan", "Prior", "plan"],
    "privacy": ["Certificate"],
    "release.release": ["Release"],
    "release.parts_table": ["PartsRelease"],
    "release.verify": ["Verification"],
    "requests.records": ["Bagging", "Engine", "Privacy", "Reading"],
    "verifier": ["verify"],
}
_HOME_OF = {name: f"bagwise.{home}" for home, names in _HOMES.items() for name in names}


_EVERYDAY = """
    make_release release_model make_bags plan verify fit evaluate audit_file load_release load_model
    Release Certificate Ledger Plan Prior Bags RowModel BaggedGLM BaggedBooster BaggedClassifier
    BaggedRegressor BagKFold BagMeanLoss SizeConstrainedKMeans AnnotationProject BagwiseError
    BagwiseWarning Bagging Privacy Reading Engine
"""
"""What `dir` shows and `import *` brings, beside the strategies: one name for each job. The others
are there for those who know them, and are documented with their part of the package."""


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    if name == "__all__":
        return sorted({"__version__", *_EVERYDAY.split(), *_strategies()} - _without_their_extra())
    # Modules and what Python itself asks for are lower case, and not worth an import.
    if name[:1].isupper() and name in _strategies():
        return _strategies()[name]
    raise AttributeError(f"module 'bagwise' has no attribute {name!r}")


def _without_their_extra() -> set[str]:
    """Return what `from bagwise import *` cannot bring: a subclass of a class that is not there."""
    return set() if find_spec("torch") else {"BagMeanLoss"}


def _strategies() -> dict[str, Any]:
    """Return the classes of the registry, which decides alone which there are."""
    registry = import_module("bagwise.bagging.strategies").STRATEGIES
    return {kind.__name__: kind for kind in registry.values()}


def __dir__() -> list[str]:
    return [*__getattr__("__all__"), "__doc__", "__file__", "__name__", "__path__", "__spec__"]

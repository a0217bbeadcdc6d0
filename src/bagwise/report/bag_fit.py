"""How well a model fits the bags of a release, without showing any bag's own label.

Bags are put into groups of at least ten with like predictions, and differences are counted. What a
page shows are means over groups and numbers of bags, however large or small the bags are and
whether or not their labels have noise.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray, IntArray
from bagwise.errors import ReleaseError
from bagwise.models.row_model import RowModel
from bagwise.models.tree_model import TreeModel
from bagwise.release.release import Release
from bagwise.show.charts import Rows, nice_edges

SMALLEST_GROUP = 10
_GROUPS = 12
_NORMAL = 1.96  # standard errors that hold a mean in 95 of 100 cases


@dataclass(frozen=True)
class BagFit:
    """How bag labels compare with the mean predictions of their rows.

    Attributes
    ----------
    n_bags : int
    groups : list of dict
        ``predicted``, ``observed``, ``low``, ``high`` and ``bags`` of groups of like predictions;
        the interval holds the mean label of such bags with probability 0.95. Empty where there are
        too few bags.
    edges, counts
        Numbers of bags by label less prediction; the first and the last count what lies beyond.
    """

    n_bags: int
    groups: Rows
    edges: FloatArray
    counts: IntArray


def fit_of_bags(model: RowModel | TreeModel, release: Release) -> BagFit:
    """Compare a model with the bags of a release, for a label that is one number."""
    if model.classes is not None:
        raise ReleaseError("a model of classes has no single figure to compare with bags.")
    if missing := set(model.encoder.inputs) - set(release.features.column_names):
        raise ReleaseError(f"the release lacks the model's feature(s) {sorted(missing)}.")
    kept = release.bags.in_bag
    rows = np.zeros(kept.size)
    rows[kept] = model.predict_rows(release.instances.filter(pa.array(kept)))
    predicted = release.bags.mean(rows)
    observed = release.labels_of(model.target)
    off = observed - predicted
    # The ends gather what is rare: a bar for one bag would show how far that one is off.
    low, high = np.quantile(off, [0.02, 0.98])
    edges = nice_edges(np.array([low, high]))
    counts, _ = np.histogram(np.clip(off, edges[0], edges[-1]), bins=edges)
    return BagFit(predicted.size, _grouped(predicted, observed), edges, counts)


def _grouped(predicted: FloatArray, observed: FloatArray) -> Rows:
    number = min(_GROUPS, predicted.size // SMALLEST_GROUP)
    if number < 2:
        return []
    groups = np.array_split(np.argsort(predicted, kind="stable"), number)
    found: Rows = []
    for group in groups:
        mean = float(observed[group].mean())
        reach = _NORMAL * float(observed[group].std(ddof=1)) / np.sqrt(group.size)
        found.append(
            {
                "predicted": float(predicted[group].mean()),
                "observed": mean,
                "low": mean - reach,
                "high": mean + reach,
                "bags": int(group.size),
            }
        )
    return found

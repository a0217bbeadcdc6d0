"""One value per bag: the mean of its labels, or the label of one row picked at random."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.errors import check_name
from bagwise.rng import NoiseSource

LabelKind = Literal["mean", "pick"]


def mean_labels(labels: FloatArray, bags: Bags, _source: NoiseSource) -> FloatArray:
    """Average the labels of each bag (learning from label proportions)."""
    return bags.mean(labels)


def pick_labels(labels: FloatArray, bags: Bags, source: NoiseSource) -> FloatArray:
    """Take the label of one row of each bag (multiple-instance regression)."""
    return labels[pick_rows(bags, source)]


def pick_rows(bags: Bags, source: NoiseSource) -> IntArray:
    """Draw one row of each bag, uniformly and in secret.

    It is drawn by its index: drawing by value would favour nobody only while labels are distinct,
    and a known index undoes the protection of the bag.
    """
    by_bag = np.argsort(bags.index, kind="stable")[(~bags.in_bag).sum() :]
    first = np.cumsum(bags.sizes) - bags.sizes
    return np.asarray(by_bag[first + source.index_below(bags.sizes)])


AGGREGATES: dict[str, Callable[[FloatArray, Bags, NoiseSource], FloatArray]] = {
    "mean": mean_labels,
    "pick": pick_labels,
}


def check_label_kind(label_kind: str) -> LabelKind:
    """Return the kind of bag label, or list the known ones."""
    check_name("label_kind", label_kind, AGGREGATES)
    return "mean" if label_kind == "mean" else "pick"

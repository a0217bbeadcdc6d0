"""One value per bag: the mean of its labels, or the label of one row picked at random."""

from typing import Literal, get_args

import numpy as np

from bagwise._types import IntArray
from bagwise.bagging.bags import Bags
from bagwise.errors import check_name
from bagwise.rng import NoiseSource

LabelKind = Literal["mean", "pick"]


def pick_rows(bags: Bags, source: NoiseSource) -> IntArray:
    """Draw one row of each bag, uniformly and in secret (multiple-instance regression).

    It is drawn by its index: drawing by value would favour nobody only while labels are distinct,
    and a known index undoes the protection of the bag.
    """
    by_bag = np.argsort(bags.index, kind="stable")[(~bags.in_bag).sum() :]
    first = np.cumsum(bags.sizes) - bags.sizes
    return np.asarray(by_bag[first + source.index_below(bags.sizes)])


def check_label_kind(label_kind: str) -> LabelKind:
    """Return the kind of bag label, or list the known ones."""
    check_name("label_kind", label_kind, get_args(LabelKind))
    return "mean" if label_kind == "mean" else "pick"

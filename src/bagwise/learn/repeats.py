"""Labels that repeat as those of bags do, and came without bags.

A release gives every row the label of its bag. Fitted or scored as if they were labels of rows,
they pull slopes towards zero and make good models look bad, and nothing in the numbers says so.
"""

import warnings

import numpy as np

from bagwise._types import AnyArray
from bagwise.errors import BiasWarning

_FEWEST = 10  # different labels; fewer are classes, or say nothing
_REPEATED = 0.9  # share of rows whose label occurs again; a split may cut a bag down to one row
_ALIKE = 3.0  # most that bags differ in size, between the tenth and the ninetieth percentile
_CALLER = 4  # the line that called fit or a score


def warn_of_repeats(labels: AnyArray) -> None:
    """Warn if labels, (n,) or (n, outputs), without bags look like those of bags."""
    if look_like_bag_labels(labels):
        warnings.warn(
            "labels repeat as those of bags do, and no bags were given: every row counts as a bag "
            "of its own, which pulls slopes towards zero and scores good models badly. Pass "
            "bags= (for a release, **release.fit_params(); in scikit-learn's cross_val_score, "
            "params={'bags': bags} with metadata routing enabled). If they are labels of single "
            "rows, bags=range(n) says so.",
            BiasWarning,
            stacklevel=_CALLER,
        )


def look_like_bag_labels(labels: AnyArray) -> bool:
    """Tell whether labels repeat in blocks, or about equally often without being whole numbers.

    Labels of rows repeat too, where they are counts, classes or rounded. But then some values are
    common and others rare, and rows with the same one do not stand together, unless the table is
    sorted by it.

    Examples
    --------
    >>> means = np.random.default_rng(0).normal(size=20)
    >>> look_like_bag_labels(np.repeat(means, 5)), look_like_bag_labels(np.tile(means, 5))
    (True, True)
    >>> look_like_bag_labels(means), look_like_bag_labels(np.arange(20).repeat(5))
    (False, False)
    """
    values, which, counts = _distinct(labels)
    if counts.size < _FEWEST or counts[which].size == counts.size:
        return False
    if np.mean(counts[which] > 1) < _REPEATED:
        return False
    starts = np.flatnonzero(np.diff(which)) + 1
    first_of_run = which[np.concatenate([[0], starts])]
    in_order = bool((np.diff(first_of_run) > 0).all() or (np.diff(first_of_run) < 0).all())
    if first_of_run.size == counts.size and not in_order:
        return True
    few, many = np.quantile(counts, [0.1, 0.9])
    return bool(many <= _ALIKE * few) and not bool((values == np.round(values)).all())


def _distinct(labels: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Return the different labels, which of them each row has, and how many rows each has."""
    values, which, counts = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
    return values, np.ravel(which), counts

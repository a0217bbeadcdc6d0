"""Why rows may be placed only by scores that are themselves private (erratum E12)."""

import numpy as np
import pytest

import bagwise as bw
from bagwise.bagging.sorted_bags import SortedBags


def test_private_centres_do_not_make_membership_private():
    """Give the attacker only who shares a bag with whom; the centres are as private as can be.

    Labels 0..59 form bags of ten around fixed, public centres: perfectly private centres. One label
    changes from the lowest to the highest value, and its row changes bags with certainty.
    """
    labels = np.arange(60.0)
    centres = np.arange(4.5, 60, 10.0)

    def members_of_row_zero(values):
        nearest = np.abs(values[:, None] - centres).argmin(axis=1)
        return frozenset(np.flatnonzero(nearest == nearest[0]))

    changed = labels.copy()
    changed[0] = 59.0
    before, after = members_of_row_zero(labels), members_of_row_zero(changed)
    assert before & after == {0}  # disjoint but for the row itself: epsilon is infinite


def test_sorting_the_labels_shows_the_change_with_certainty():
    X, labels = np.zeros((60, 1)), np.arange(60.0)
    changed = labels.copy()
    changed[0] = 60.0

    def companions(values):
        bags = SortedBags(cut="equal").assign(X, values, bag_size=10, rng=np.random.default_rng(0))
        return frozenset(np.flatnonzero(bags.index == bags.index[0])) - {0}

    assert not companions(labels) & companions(changed)


@pytest.mark.parametrize("scores", ["model", "noisy-labels"])
def test_private_scores_place_a_changed_row_alike(scores, table):
    """The bag of a row hardly depends on its own label when scores are private."""
    y = np.array(table["y"])
    together = np.zeros((2, 60))
    runs = 80
    for which, value in enumerate((y.min(), y.max())):
        labels = y.copy()
        labels[0] = value
        changed = table.set_column(2, "y", [labels]).append_column("key", [list(range(60))])
        for _ in range(runs):
            release = bw.make_release(
                changed,
                label="y",
                bag_size=10,
                strategy="sorted",
                bagging=bw.Bagging(scores=scores),
                id="key",
                epsilon=0.5,
                delta=1e-5,
                bounds=(-5, 12),
            )
            keys = release.instances["key"].to_numpy()
            index = release.bags.index
            together[which, keys[index == index[keys == 0]]] += 1
    rates = together[:, 1:] / runs
    # Six standard errors of a difference of two rates; sorted labels would give 1.
    assert np.abs(rates[0] - rates[1]).max() < 6 * np.sqrt(2 * 0.25 / runs) + 0.2

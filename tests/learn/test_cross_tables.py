"""Ecological inference: totals of places that leave one answer, bounds by hand, and intervals."""

import numpy as np
import pytest

from bagwise.errors import BagsError
from bagwise.learn.cross_tables import cross_table


def draw(seed, *, places=100, differ=0.4):
    rng = np.random.default_rng(seed)
    mix = rng.dirichlet([1.5, 1.5], places)
    groups = np.array([rng.multinomial(rng.integers(80, 2000), share) for share in mix])
    odds = rng.normal(size=(2, 1)) + differ * rng.normal(size=(places, 2, 1))
    chosen = rng.binomial(groups, 1 / (1 + np.exp(-odds[:, :, 0])))
    outcomes = np.column_stack([chosen.sum(axis=1), (groups - chosen).sum(axis=1)])
    return groups, outcomes, chosen.sum(axis=0) / groups.sum(axis=0)


def test_places_of_one_group_leave_no_doubt():
    """30 of 40 people of one group, 5 of 50 of the other; a third place has both groups."""
    groups, outcomes = [[40, 0], [0, 50], [10, 90]], [[30, 10], [5, 45], [10, 90]]
    found = cross_table(groups, outcomes)
    assert found.least[:, 0] == pytest.approx([30 / 50, 5 / 140])
    assert found.most[:, 0] == pytest.approx([40 / 50, 15 / 140])
    for end in (found.estimate, found.low, found.high):
        assert np.all((found.least <= end) & (end <= found.most))


def test_intervals_hold_what_people_did():
    """Places differ by far more than chance; 24 intervals that should hold 23 hold 20 or more."""
    held = []
    for seed in range(12):
        groups, outcomes, truth = draw(seed, places=60)
        found = cross_table(groups, outcomes)
        assert found.estimate.sum(axis=1) == pytest.approx(1)
        held.append((found.low[:, 0] <= truth) & (truth <= found.high[:, 0]))
    assert np.mean(held) > 0.8


def test_totals_of_other_people_are_refused():
    with pytest.raises(BagsError, match="same people"):
        cross_table([[40, 10]], [[30, 10]])
    with pytest.raises(BagsError, match="same people"):
        cross_table([[40, -10]], [[20, 10]])

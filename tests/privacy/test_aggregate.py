import numpy as np
import pytest

from bagwise.bagging.bags import Bags
from bagwise.errors import StrategyError
from bagwise.privacy.noise import check_label_kind, pick_rows
from bagwise.rng import SecureNoise
from tests import stats

BAGS = Bags(np.array([1, 0, 1, -1, 0, 1]))
LABELS = np.array([1.0, 2.0, 3.0, 99.0, 4.0, 5.0])


def test_pick_draws_each_row_of_its_bag_alike():
    drawn = np.array([LABELS[pick_rows(BAGS, SecureNoise())] for _ in range(9000)])
    for column, members in ((0, [2.0, 4.0]), (1, [1.0, 3.0, 5.0])):
        values, counts = np.unique(drawn[:, column], return_counts=True)
        assert values.tolist() == members
        assert stats.is_uniform(counts)


def test_pick_goes_by_row_and_not_by_value():
    labels = np.array([0.0, 0.0, 0.0, 1.0])
    bags = Bags(np.zeros(4, dtype=int))
    drawn = np.array([labels[pick_rows(bags, SecureNoise())][0] for _ in range(8000)])
    assert stats.mean_is(drawn, 1 / 4)
    assert not stats.mean_is(drawn, 1 / 2)


def test_unknown_kind():
    with pytest.raises(StrategyError, match="known are mean, pick"):
        check_label_kind("median")

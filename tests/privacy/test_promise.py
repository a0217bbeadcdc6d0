import warnings

import numpy as np
import pytest

from bagwise.bagging.bags import Bags
from bagwise.errors import BudgetError, StrongPromiseWarning, WeakPromiseWarning
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.noise import noisy_bag_labels
from bagwise.privacy.promise import (
    LOST_MEAN,
    check_promise,
    noise_on_mean,
    warn_of_strong_promise,
)
from bagwise.rng import SimulatedNoise
from tests import stats
from tests.privacy.events import bag_means


def test_noise_on_the_mean_is_that_of_one_bag_with_all_rows():
    n, epsilon, bounds = 50, 0.2, (0.0, 4.0)
    bags, labels = Bags(np.zeros(n, dtype=np.int64)), np.ones(n)
    event = bag_means(ExactCalibration(epsilon, 0.0, bounds))
    source = SimulatedNoise(0)
    drawn = [
        noisy_bag_labels(labels, bags, bounds=bounds, event=event, source=source)[0] - 1
        for _ in range(4000)
    ]
    expected = noise_on_mean(epsilon, n) * (bounds[1] - bounds[0])
    assert stats.mean_is(np.square(drawn), expected**2)
    assert not stats.mean_is(np.square(drawn), (1.15 * expected) ** 2)


def test_promises_that_leave_nothing_of_so_few_rows_are_warned_of():
    rows = 1000
    least = noise_on_mean(1.0, rows) / LOST_MEAN
    with pytest.warns(StrongPromiseWarning, match="1000 rows .* Epsilon of 0.14 leaves"):
        warn_of_strong_promise(0.99 * least, n_rows=rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_strong_promise(1.01 * least, n_rows=rows)
        warn_of_strong_promise(0.1, n_rows=100 * rows)
        check_promise(10.0, 0.0, n_rows=rows)


def test_tables_too_small_for_any_promise_are_told_so():
    with pytest.warns(StrongPromiseWarning, match="take more of them"):
        warn_of_strong_promise(1.0, n_rows=5)


def test_a_weak_promise_says_what_a_usual_one_would_cost():
    with pytest.warns(WeakPromiseWarning, match=r"with 20000 rows it leaves .* 7e-05 widths"):
        check_promise(12.0, 0.0, n_rows=20_000)
    with pytest.raises(BudgetError, match="promises nothing"):
        check_promise(51.0, 0.0, n_rows=20_000)

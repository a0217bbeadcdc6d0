"""Scores agree with those of scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics

from benchmarks import _real_scores as scores


def test_scores_agree_with_scikit_learn():
    rng = np.random.default_rng(1)
    means = rng.uniform(0.5, 5, size=200)
    counts = rng.poisson(means).astype(float)
    marks = (rng.random(200) < 0.4).astype(float)
    chances = rng.uniform(0.1, 0.9, size=200)
    assert scores.score("poisson", counts, means)["loss"] == pytest.approx(
        metrics.mean_poisson_deviance(counts, means)
    )
    assert scores.score("bernoulli", marks, chances)["loss"] == pytest.approx(
        metrics.log_loss(marks, chances)
    )
    assert scores.score("gaussian", counts, means)["rmse"] == pytest.approx(
        metrics.root_mean_squared_error(counts, means)
    )


def test_share_kept_is_one_at_the_floor_and_negative_beyond_the_ceiling():
    assert scores.kept(2.0, floor=2.0, ceiling=10.0) == 1
    assert scores.kept(10.0, floor=2.0, ceiling=10.0) == 0
    assert scores.kept(18.0, floor=2.0, ceiling=10.0) == -1

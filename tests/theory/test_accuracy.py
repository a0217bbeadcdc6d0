"""The typical error of one prediction, and what is kept of what true labels would give."""

import numpy as np
import pytest

from bagwise.theory.accuracy import Accuracy


def test_what_is_kept_is_a_ratio_of_explained_variances():
    """By simulation: labels, a model of all of them, and one that is further off."""
    rng = np.random.default_rng(0)
    expected = 2.0 * rng.normal(size=200_000)
    labels = expected + rng.normal(size=expected.size)
    with_labels = expected + 0.1 * rng.normal(size=expected.size)
    predicted = expected + 0.8 * rng.normal(size=expected.size)

    def error(prediction):
        return np.mean((labels - prediction) ** 2)

    kept = (np.var(labels) - error(predicted)) / (np.var(labels) - error(with_labels))
    forecast = Accuracy.of(0.64, with_labels=0.01, signal=4.0, noise=1.0)
    assert forecast.kept == pytest.approx(kept, abs=0.02)
    assert forecast.error == pytest.approx(np.sqrt(error(predicted)), rel=0.02)
    assert forecast.with_labels == pytest.approx(np.sqrt(error(with_labels)), rel=0.02)


def test_it_is_said_in_words():
    assert str(Accuracy.of(0.21, with_labels=0.0, signal=1.0, noise=1.0)) == (
        "keeps about 79 % of what true labels would give. The typical error of one prediction is "
        "1.1, of which bags and privacy add 0.1"
    )
    assert str(Accuracy.of(9.0, with_labels=0.0, signal=1.0)).startswith("keeps about 0 %")
    assert str(Accuracy.of(0.001, with_labels=0.0, signal=1.0)).startswith("keeps over 99 %")

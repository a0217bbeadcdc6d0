import re
import warnings

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import cross_val_score

from bagwise import BaggedGLM, make_bags
from bagwise.errors import BiasWarning
from bagwise.learn.bag_data import look_like_bag_labels
from bagwise.learn.model_selection import BagKFold, bag_r2_score


@pytest.fixture
def bagged():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    bags = make_bags(X, bag_size=10, strategy="random", seed=0)
    labels = X @ [1.0, -1.0, 0.5] + 0.3 * rng.normal(size=2000)
    return X, bags.repeat(bags.mean(labels)), bags


def test_a_fit_to_bag_labels_without_bags_is_warned_of_and_names_them(bagged):
    X, y, bags = bagged
    with pytest.warns(BiasWarning, match=re.escape("Pass bags=")) as said:
        BaggedGLM().fit(X, y)
    assert said[0].filename == __file__
    BaggedGLM().fit(X, y, bags=bags)
    BaggedGLM().fit(X, y, bags=range(len(y)))  # who says so is believed


def test_the_warning_holds_no_label(bagged):
    X, _, bags = bagged
    secret = 987_654.5 + np.arange(bags.n_bags)
    with pytest.warns(BiasWarning) as said:
        BaggedGLM().fit(X, bags.repeat(secret))
    assert "98" not in str(said[0].message)


def test_cross_validation_without_bags_is_warned_of(bagged):
    X, y, bags = bagged
    with pytest.warns(BiasWarning, match="cross_val_score"):
        wrong = cross_val_score(BaggedGLM(), X, y, cv=3)
    with sklearn.config_context(enable_metadata_routing=True):
        right = cross_val_score(
            BaggedGLM(), X, y, cv=BagKFold(3, random_state=0), params={"bags": bags.index}
        )
    assert wrong.mean() < 0.5
    assert right.mean() > 0.8


def test_a_score_without_bags_is_warned_of(bagged):
    X, y, bags = bagged
    predicted = BaggedGLM().fit(X, y, bags=bags).predict(X)
    with pytest.warns(BiasWarning, match="bags="):
        bag_r2_score(y, predicted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bag_r2_score(y, predicted, bags=bags)


def _rows():
    """Labels of rows, none of which may be taken for those of bags."""
    rng = np.random.default_rng(1)
    bell = rng.normal(20, 5, size=5000)
    return {
        "all different": bell,
        "counts": rng.poisson(30, size=5000),
        "classes": rng.integers(0, 2, size=5000),
        "shares of classes": np.eye(3)[rng.integers(0, 3, size=5000)],
        "rounded": np.round(bell, 1),
        "rounded and sorted": np.sort(np.round(bell, 1)),
        "whole numbers, equally often": rng.permutation(np.arange(50).repeat(20)),
        "a tenth repeated": np.concatenate([bell[:4500], bell[:250].repeat(2)]),
        "few rows": np.array([1.5, 1.5, 2.5, 2.5]),
        "one row": np.array([1.5]),
    }


@pytest.mark.parametrize("name", _rows())
def test_labels_of_rows_are_not_taken_for_those_of_bags(name):
    assert not look_like_bag_labels(_rows()[name])


def _bags():
    rng = np.random.default_rng(2)
    means, sizes = rng.normal(size=60), rng.integers(20, 40, size=60)
    blocks = np.repeat(means, sizes)
    counts = rng.permutation(60).repeat(sizes)  # picked from counts, say
    shares = rng.dirichlet([1, 1, 1], size=60).repeat(sizes, axis=0)
    return {
        "blocks": blocks,
        "scattered": rng.permutation(blocks),
        "blocks of whole numbers": counts,
        "shares of classes": rng.permutation(shares),
        "cut by a split": rng.permutation(blocks)[: blocks.size // 2],
    }


@pytest.mark.parametrize("name", _bags())
def test_labels_of_bags_are_recognised(name):
    assert look_like_bag_labels(_bags()[name])

"""Wherever a name is chosen, a wrong one is refused with a guess and with those that are known."""

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.bagging import find_strategy
from bagwise.errors import BagwiseError
from bagwise.requests.records import Bagging
from tools.settings import filed

X = np.random.default_rng(0).normal(size=(60, 2))
TABLE = pa.table({"a": X[:, 0], "b": X[:, 1], "y": X.sum(axis=1)})


def release(**options):
    given = {"bag_size": 5, "strategy": "random", "not_private": True, **options}
    return bw.make_release(TABLE, **filed(label="y", **given))


def plan(**options):
    return bw.plan(X, **filed(not_private=True, bag_sizes=[5], **options))


def fit(**options):
    return bw.BaggedGLM(**options).fit(X, X[:, 0], bags=np.arange(60) // 2)


CASES = {
    "strategy": (lambda: release(strategy="kmens"), "kmeans", "random"),
    "strategy of a plan": (
        lambda: plan(bagging=Bagging(strategies=["random", "kmean"])),
        "kmeans",
        "random",
    ),
    "parameter": (
        lambda: find_strategy("super", {"ordr": "random"}),
        "order",
        "half",
    ),
    "value of a parameter": (lambda: bw.KMeansBags(effort="fats"), "fast", "best"),
    "scores": (lambda: release(strategy="sorted", scores="modl"), "model", "noisy-labels"),
    "label kind": (lambda: release(label_kind="means"), "mean", "pick"),
    "nulls": (lambda: release(nulls="indicators"), "indicator", "error"),
    "feature": (lambda: release(features=["aa"]), "a", "a"),
    "family": (lambda: fit(family="gausian"), "gaussian", "bernoulli"),
    "loss": (lambda: fit(loss="instances"), "instance", "mixture"),
    "weights": (lambda: fit(weights="equals"), "equal", "known-noise"),
    "covariance": (lambda: fit(covariance="robots"), "robust", "model"),
    "metric": (lambda: bw.bag_scorer("devianc"), "deviance", "mse"),
    "family of a scorer": (lambda: bw.bag_scorer("deviance", family="poison"), "poisson", "gamma"),
}


@pytest.mark.parametrize(("choose", "meant", "known"), CASES.values(), ids=CASES)
def test_a_wrong_name_is_answered_with_the_right_one(choose, meant, known):
    with pytest.raises(BagwiseError) as caught:
        choose()
    message = str(caught.value)
    assert f"Did you mean '{meant}'?" in message
    assert known in message


def test_names_that_are_near_nothing_get_the_list_only():
    with pytest.raises(BagwiseError, match="known are random") as caught:
        release(strategy="xyz")
    assert "Did you mean" not in str(caught.value)


def test_what_is_no_name_at_all_is_refused_alike():
    for kind in (["mean"], None, 3):
        with pytest.raises(BagwiseError, match="unknown label_kind"):
            release(label_kind=kind)

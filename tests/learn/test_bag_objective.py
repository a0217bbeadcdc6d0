"""The bag loss as an objective: gradient and curvature against the loss itself."""

import lightgbm
import numpy as np
import pytest
import xgboost

import bagwise as bw
from bagwise.errors import BagsError, StrategyError
from bagwise.learn.bag_objective import BagObjective
from bagwise.models.trees import LINKS, means_of

ALL = [*LINKS, "softmax"]


def small(link, *, seed=0, n=12, classes=3):
    """Rows in bags of one to four, with labels that noise has moved."""
    rng = np.random.default_rng(seed)
    bags = np.repeat([0, 1, 2, 3, 4], [4, 1, 2, 3, 2])
    rng.shuffle(bags)
    shape = (classes,) if link == "softmax" else ()
    m = 5
    objective = BagObjective(
        bags,
        rng.normal(0.4, 0.3, size=(m, *shape)),
        weight=rng.uniform(0.5, 2.0, size=(m, *shape)),
        link=link,
        start=rng.normal(size=(n, *shape)),
    )
    return objective, rng.normal(size=(n, *shape))


def brute_loss(objective, scores):
    """Return the loss by a loop over bags."""
    means = means_of(scores + objective.start, objective.link)
    index = objective.bags.index
    return sum(
        np.sum(objective.weight[b] * (means[index == b].mean(axis=0) - objective.labels[b]) ** 2)
        / 2
        for b in range(objective.bags.n_bags)
    )


@pytest.mark.parametrize("link", ALL)
def test_loss_is_that_of_every_bag_by_itself(link):
    objective, scores = small(link)
    assert objective.loss(scores) == pytest.approx(brute_loss(objective, scores), rel=1e-12)


def finite_differences(objective, scores, step=1e-6):
    found = np.empty_like(scores)
    for place in np.ndindex(scores.shape):
        moved = np.zeros_like(scores)
        moved[place] = step
        up, down = objective.loss(scores + moved), objective.loss(scores - moved)
        found[place] = (up - down) / (2 * step)
    return found


@pytest.mark.parametrize("link", ALL)
def test_gradient_is_the_derivative_of_the_loss(link):
    objective, scores = small(link)
    gradient, _ = objective(scores)
    assert gradient == pytest.approx(finite_differences(objective, scores), abs=1e-7)
    assert gradient * 1.001 != pytest.approx(finite_differences(objective, scores), abs=1e-7)


def gauss_newton(objective, scores, step=1e-5):
    """Return the matrix of second derivatives of a loss whose means are taken to be linear."""
    flat = scores.ravel()
    jacobian = []
    for place in range(flat.size):
        moved = np.zeros(flat.size)
        moved[place] = step
        up, down = (
            objective.means(means_of((flat + way).reshape(scores.shape) + objective.start,
                                     objective.link))
            for way in (moved, -moved)
        )  # fmt: skip
        jacobian.append(((up - down) / (2 * step)).ravel())
    rows = np.array(jacobian)
    return rows @ (objective.weight.ravel()[:, None] * rows.T)


@pytest.mark.parametrize("link", ALL)
@pytest.mark.parametrize("seed", range(5))
def test_curvature_is_never_taken_for_less_than_it_is(link, seed):
    """The diagonal minus the Gauss-Newton matrix has no negative direction."""
    objective, scores = small(link, seed=seed)
    _, hessian = objective(scores)
    difference = np.diag(hessian.ravel()) - gauss_newton(objective, scores)
    assert np.linalg.eigvalsh(difference).min() > -1e-8
    # And one that is a little smaller would not do, where it is tight.
    if link != "softmax":
        less = np.diag(0.99 * hessian.ravel()) - gauss_newton(objective, scores)
        assert np.linalg.eigvalsh(less).min() < -1e-6


@pytest.mark.parametrize("link", list(LINKS))
def test_curvature_is_exact_for_bags_that_move_as_a_whole(link):
    objective, scores = small(link)
    _, hessian = objective(scores)
    truth = gauss_newton(objective, scores)
    for bag in range(5):
        here = (objective.bags.index == bag).astype(float)
        assert hessian @ here == pytest.approx(here @ truth @ here, rel=1e-5)


@pytest.mark.parametrize("link", ALL)
def test_a_bag_has_a_curvature_of_about_one_at_the_start(link):
    """So that limits of a library count bags, whatever the unit of the labels."""
    shape = (3,) if link == "softmax" else ()
    for unit in (1e-6, 1.0, 1e6):
        objective = BagObjective(
            np.repeat(np.arange(30), 4), np.zeros((30, *shape)), weight=np.full(30, unit), link=link
        )
        _, hessian = objective(np.zeros((120, *shape)))
        assert 0.9 < hessian.sum() / 30 / np.prod(shape) < 3.1


def test_bags_without_weight_pull_at_nothing():
    weight = np.array([1.0, 0.0])
    objective = BagObjective([0, 0, 1], [2.0, 8.0], weight=weight)
    gradient, hessian = objective(np.zeros(3))
    assert gradient[2] == hessian[2] == 0.0


def test_refuses_labels_of_another_shape():
    with pytest.raises(BagsError, match="one number per bag"):
        BagObjective([0, 0, 1], [1.0, 2.0, 3.0])
    with pytest.raises(BagsError, match="one number per bag"):
        BagObjective([0, 0, 1], [1.0, 2.0], link="softmax")
    with pytest.raises(StrategyError, match="link"):
        BagObjective([0, 0, 1], [1.0, 2.0], link="probit")


def vee(n=1200, size=6, *, seed=0):
    """A label that no line explains, in bags of neighbours."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-3, 3, size=(n, 1)), axis=0)
    bags = bw.Bags(np.arange(n) // size)
    return X, bags, np.abs(X[:, 0])


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("link", ALL)
def test_libraries_learn_rows_from_bags(library, link):
    X, bags, v = vee()
    chance = np.clip(v / 3, 0.02, 0.98)
    truth = {"identity": v, "log": v + 0.5, "logit": chance,
             "softmax": np.column_stack([chance / 2, chance / 2, 1 - chance])}[link]  # fmt: skip
    objective = BagObjective(bags, bags.mean(truth), link=link)
    outputs = 3 if link == "softmax" else 1
    if library == "lightgbm":
        booster = lightgbm.train(
            {"objective": objective, "num_class": outputs, "verbose": -1, "num_threads": 1,
             "min_sum_hessian_in_leaf": 1.0},
            lightgbm.Dataset(X, label=np.zeros(len(X))),
            num_boost_round=150,
        )  # fmt: skip
        scores = booster.predict(X, raw_score=True)
    else:
        booster = xgboost.train(
            {"nthread": 1, "base_score": 0.0, "num_class": outputs if outputs > 1 else 0,
             "disable_default_eval_metric": True, "max_depth": 4},
            xgboost.DMatrix(X, label=np.zeros(len(X))),
            num_boost_round=100,
            obj=objective,
        )  # fmt: skip
        scores = booster.predict(xgboost.DMatrix(X), output_margin=True)
    off = means_of(scores, link) - truth
    assert np.mean(off**2) < 0.01 * np.mean((truth - truth.mean(axis=0)) ** 2)

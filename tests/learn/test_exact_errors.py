"""The estimators have exactly the expected error that theory gives them.

An estimator is linear in the bag labels: theta_hat = T b. Its expected squared error is therefore
|T mu - theta|^2 + sum_l |T_l|^2 Var(b_l), with mu the expected bag labels. That the closed forms
F1-F3 are right is tested by simulation in `tests/theory/test_exact.py`.
"""

import numpy as np
import pytest

import bagwise as bw
from bagwise.bagging.bags import Bags
from bagwise.theory.exact import exact_risk

# Plain instance loss is tested for the bias that it warns of.
pytestmark = pytest.mark.filterwarnings("ignore::bagwise.errors.BiasWarning")

SIGMA, NOISE = 0.5, 0.3


def setting():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((240, 4))
    theta = rng.standard_normal(4)
    permutation = rng.permutation(240)
    by_chance = np.empty(240, dtype=int)
    by_chance[permutation] = np.arange(240) // 6
    ranked = np.empty(240, dtype=int)
    ranked[np.argsort(X @ theta, kind="stable")] = np.arange(240) // 6
    merged = np.maximum(ranked - 1, 0)  # the first two sorted bags become one of twelve rows
    return X, theta, {"random": Bags(by_chance), "sorted": Bags(ranked), "unequal": Bags(merged)}


# Each estimator with the loss by whose name theory knows it.
ESTIMATORS = {
    "instance": ({"loss": "instance"}, "instance"),
    "debiased": ({"loss": "instance", "debias": True}, "debiased"),
    "centroid": ({"loss": "aggregate", "weights": "equal"}, "aggregate"),
}
PUBLISHED = {  # T1 of the theory page
    ("random", "instance", "mean"): 5.2038122995,
    ("random", "centroid", "mean"): 0.0944638099,
    ("sorted", "instance", "mean"): 0.0059223916,
    ("sorted", "centroid", "mean"): 0.0599955991,
}


def label_variance(X, theta, bags, kind):
    if kind == "mean":
        return SIGMA**2 / bags.sizes + NOISE**2
    return bags.variance(X @ theta) + SIGMA**2 + NOISE**2


@pytest.mark.parametrize("kind", ["mean", "pick"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", ["random", "sorted", "unequal"])
def test_the_estimator_s_own_matrix_has_the_exact_error(name, estimator, kind):
    X, theta, all_bags = setting()
    bags, (parameters, loss) = all_bags[name], ESTIMATORS[estimator]
    model = bw.BaggedGLM(**parameters, label_kind=kind, fit_intercept=False)
    units = np.eye(bags.n_bags)
    T = np.column_stack([model.fit(X, b[bags.index], bags=bags).coef_ for b in units])
    bias = np.sum((T @ bags.mean(X @ theta) - theta) ** 2)
    variance = np.sum(T**2, axis=0) @ label_variance(X, theta, bags, kind)
    known = {"theta": theta, "label_noise_sd": SIGMA, "noise_sd": NOISE, "label_kind": kind}
    exact = exact_risk(X, bags, loss=loss, **known).total
    assert bias + variance == pytest.approx(exact, rel=1e-8)
    if (name, estimator, kind) in PUBLISHED:
        assert exact == pytest.approx(PUBLISHED[name, estimator, kind], rel=1e-8)

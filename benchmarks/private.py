"""The error that a learner sees under label privacy, at the paper's setting.

50,000 x 32 standard Gaussian features, coefficients N(0, I), label noise 0.5, bounds +-4 sqrt(33),
epsilon 1, delta 1e-5. Each draw has its own data and real secure noise. The yardsticks in the same
run are knowing nothing (all coefficients zero) and least squares on the true labels.
"""

import warnings

import numpy as np

import bagwise as bw
from benchmarks._results import keep
from reproduction.problems import isotropic_problem, public_bounds
from tools.settings import filed

EPSILON, DELTA, D = 1.0, 1e-5, 32
BOUNDS = public_bounds(D)

SORTED = {"strategy": "sorted", "scores": "model"}
NOISY = {"strategy": "sorted", "scores": "noisy-labels"}
PURE = {"delta": 0.0, "noise": "auto"}
# Draws, options of the release, and the loss of the fit.
WAYS = {
    "release_model": (60, None, None),
    "model scores, bags of 500, instance loss": (60, {**SORTED, "bag_size": 500}, "instance"),
    "model scores, bags of 50, instance loss": (15, {**SORTED, "bag_size": 50}, "instance"),
    "model scores, picks from 500, instance loss": (
        15, {**SORTED, "bag_size": 500, "label_kind": "pick"}, "instance"
    ),
    "noisy labels, bags of 50, instance loss": (15, {**NOISY, "bag_size": 50}, "instance"),
    "noisy labels, bags of 10, instance loss": (15, {**NOISY, "bag_size": 10}, "instance"),
    "k-means, bags of 500, bag loss, delta = 0": (
        15, {"strategy": "kmeans", "bag_size": 500, **PURE}, "bag"
    ),
    "random, bags of 50, bag loss": (15, {"strategy": "random", "bag_size": 50}, "bag"),
    "random, bags of 10, bag loss": (15, {"strategy": "random", "bag_size": 10}, "bag"),
    "random, bags of 50, bag loss, delta = 0": (
        15, {"strategy": "random", "bag_size": 50, **PURE}, "bag"
    ),
}  # fmt: skip


def error(problem, table, options, loss):
    privacy = {"label": "y", "bounds": BOUNDS, "epsilon": EPSILON, "delta": DELTA}
    if options is None:
        return problem.error(bw.release_model(table, **privacy).coef)
    # What is not said to have no delta has Gaussian noise.
    release = bw.make_release(table, **filed(**{**privacy, "noise": "gaussian", **options}))
    release.verify()
    return problem.error(bw.fit_release(release, loss=loss).coef)


def main():
    warnings.simplefilter("ignore", bw.BagwiseWarning)
    errors = {name: [] for name in WAYS}
    zero, exact = [], []
    for draw in range(max(draws for draws, _, _ in WAYS.values())):
        problem = isotropic_problem(d=D, seed=1000 + draw)
        table = problem.to_table()
        zero.append(problem.error(np.zeros(D)))
        exact.append(problem.error(bw.BaggedGLM().fit(problem.X, problem.labels).coef_))
        for name, (draws, options, loss) in WAYS.items():
            if draw < draws:
                errors[name].append(error(problem, table, options, loss))
    rows = [
        {
            "way": name,
            "draws": len(values),
            "mean_error": float(np.mean(values)),
            "standard_error": float(np.std(values, ddof=1) / np.sqrt(len(values))),
        }
        for name, values in {**errors, "all zero": zero, "true labels": exact}.items()
    ]
    keep("private", rows)


if __name__ == "__main__":
    main()

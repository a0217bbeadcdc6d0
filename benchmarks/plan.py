"""Whether the planner is right: predicted against measured errors of real releases.

For each problem (isotropic, independent and dependent features; low and high label noise; without
and with misfit; epsilon 0.3, 1, 3 and none) the planner ranks its candidates, and each is then
carried out: real releases with secure noise, fitted by the real learner, coefficients and what is
not linear drawn from the stated prior each time. Then how long a plan takes, in processor seconds,
beside one k-means bagging of the whole table with default effort, so that machines compare.

python -m benchmarks.plan [--runs N] [--rows N] [--quick]
"""

import argparse
import itertools
import math
import time
import warnings

import numpy as np
import pyarrow as pa
from scipy import stats

import bagwise as bw
from bagwise.planner.ranking import name_of
from bagwise.requests.records import filed
from bagwise.theory.beliefs import draw_misfit
from benchmarks._results import keep

D, SIGNAL, BOUNDS, DELTA = 5, 1.0, (-8.0, 8.0), 1e-5
SIZES = (10, 50, 200)


def covariance(kind, rng):
    if kind == "isotropic":
        return np.eye(D)
    if kind == "independent":
        return np.diag(rng.uniform(0.1, 10, size=D))
    M = rng.normal(size=(D, D))
    return M.T @ M


def release_of(candidate, table, epsilon):
    options = {"bag_size": candidate.bag_size, "strategy": candidate.strategy}
    if epsilon is None:
        options["not_private"] = True
    else:
        options |= {"epsilon": epsilon, "delta": candidate.delta, "bounds": BOUNDS}
    return bw.make_release(table, **filed(label="y", label_kind=candidate.label_kind, **options))


def measured(candidate, X, root, noise, misfit, epsilon, runs, rng):
    """Squared errors of predictions over real releases, labels drawn from the prior."""
    functions = draw_misfit(X @ root, rng)
    errors = []
    for _ in range(runs):
        expected = X @ (root @ rng.standard_normal(D)) * SIGNAL / math.sqrt(D)
        left = SIGNAL * math.sqrt(misfit) * functions[:, rng.integers(functions.shape[1])]
        y = expected + left + noise * rng.standard_normal(len(X))
        table = pa.table({**{f"x{j}": X[:, j] for j in range(D)}, "y": y})
        release = release_of(candidate, table, epsilon)
        model = bw.fit_release(release, loss=candidate.loss)
        errors.append(float(np.mean((model.predict_encoded(X) - expected) ** 2)))
    return np.array(errors)


def judge(kind, noise, misfit, epsilon, arguments):
    seed = [ord(kind[0]), int(10 * noise), int(100 * misfit), int(10 * (epsilon or 0))]
    rng = np.random.default_rng(seed)
    C = covariance(kind, rng)
    X = rng.standard_normal((arguments.rows, D)) @ np.linalg.cholesky(C).T
    X -= X.mean(axis=0)
    # The prior is isotropic where features are white.
    values, vectors = np.linalg.eigh(X.T @ X / len(X))
    root = vectors / np.sqrt(values) @ vectors.T
    privacy = (
        {"not_private": True}
        if epsilon is None
        else {"epsilon": epsilon, "delta": DELTA, "bounds": BOUNDS}
    )
    plan = bw.plan(X, **filed(prior=(SIGNAL, noise, misfit), bag_sizes=SIZES, **privacy))
    rows = []
    for rank, candidate in enumerate(plan.candidates[: arguments.most]):
        errors = measured(candidate, X, root, noise, misfit, epsilon, arguments.runs, rng)
        error = errors.std(ddof=1) / math.sqrt(errors.size)
        reach = stats.t.isf(0.0005, errors.size - 1) * error
        rows.append(
            {
                "features": kind,
                "label noise": noise,
                "misfit": misfit,
                "epsilon": epsilon,
                "rank": rank + 1,
                "choice": name_of(candidate),
                "predicted": candidate.predictions.total,
                "measured": float(errors.mean()),
                "se": float(error),
                "inside": bool(abs(errors.mean() - candidate.predictions.total) <= reach),
            }
        )
    best = min(rows, key=lambda row: row["measured"])
    first = rows[0]
    excess = first["measured"] / best["measured"] - 1
    # How far two measured means of the same size may be apart by chance, at three deviations.
    chance = 3 * math.hypot(first["se"], best["se"]) / best["measured"]
    for row in rows:
        row["first within a tenth of the best"] = bool(excess <= 0.1 + chance)
    inside = sum(row["inside"] for row in rows)
    print(
        f"{kind}, noise {noise}, misfit {misfit}, epsilon {epsilon}: {first['choice']}; "
        f"{excess:.1%} above the best measured (chance {chance:.1%}); "
        f"{inside} of {len(rows)} inside",
        flush=True,
    )
    return rows


def timed(n, d):
    """Processor seconds of a plan, and of one bagging of the whole table."""
    X = np.random.default_rng(0).normal(size=(n, d))
    started = time.process_time()
    found = bw.plan(X, bounds=(-20.0, 20.0), epsilon=1.0, delta=1e-9)
    planned = time.process_time() - started
    started = time.process_time()
    bw.make_bags(X, bag_size=50, strategy="kmeans", seed=0)
    bagged = time.process_time() - started
    return {
        "rows": n,
        "features": d,
        "choice": name_of(found.best),
        "seconds": planned,
        "times one bagging": planned / bagged,
    }


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=40)
    arguments.add_argument("--rows", type=int, default=4000)
    arguments.add_argument("--most", type=int, default=6, help="candidates to carry out")
    arguments.add_argument("--quick", action="store_true", help="one problem of each kind")
    asked = arguments.parse_args()
    warnings.simplefilter("ignore", bw.BagwiseWarning)
    kinds, noises, misfits, epsilons = (
        ("isotropic", "independent", "dependent"),
        (0.3, 2.0),
        (0.0, 0.3),
        (0.3, 1.0, 3.0, None),
    )
    problems = list(itertools.product(kinds, noises, misfits, epsilons))
    sizes = [(20_000, 9), (50_000, 32), (1_000_000, 16)]
    if asked.quick:
        problems = [("isotropic", 0.3, 0.3, 1.0), ("dependent", 2.0, 0.0, None)]
        sizes = sizes[:1]
    timed(300, 2)  # the kernels are compiled before
    rows = [row for problem in problems for row in judge(*problem, asked)]
    keep("plan", [*rows, *(timed(*size) for size in sizes)])


if __name__ == "__main__":
    main()

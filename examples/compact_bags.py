"""How much accuracy bags of similar rows keep if columns have very different variances.

Run it with ``python examples/compact_bags.py``. It writes nothing. The first run on
a machine compiles for some seconds.
"""

import numpy as np

import bagwise as bw

ROWS, BAG_SIZE, REPEATS = 5_000, 10, 200
SPREAD = np.array([5.0, 3.0, 2.0, 1.0, 0.5, 0.2])  # the last column is the hardest to learn


def make_features(seed: int) -> np.ndarray:
    """Draw rows with a different variance along each of several rotated axes."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(np.eye(SPREAD.size) + 0.2 * rng.normal(size=(SPREAD.size, SPREAD.size)))
    return rng.normal(size=(ROWS, SPREAD.size)) * SPREAD @ turn


def squared_error(X: np.ndarray, bags: bw.Bags, theta: np.ndarray) -> float:
    """Fit to bag means of fresh labels many times; return the mean squared error of the slopes."""
    errors = []
    for repeat in range(REPEATS):
        y = X @ theta + np.random.default_rng(repeat).normal(size=ROWS)
        means = bags.mean(y[:, None])[:, 0]
        model = bw.BaggedGLM(loss="bag").fit(X, means[bags.index], bags=bags.index)
        errors.append(np.sum((model.coef_ - theta) ** 2))
    return float(np.mean(errors))


def main() -> None:
    """Make bags in three ways, and compare the error that theory predicts with the measured one."""
    X = make_features(seed=1)
    theta = np.random.default_rng(2).normal(size=SPREAD.size)
    by_rows = squared_error(X, bw.make_bags(X, bag_size=1), theta)  # bags of one row

    print(f"{ROWS} rows, {SPREAD.size} features, bags of {BAG_SIZE}; errors against row labels")
    print(f"{'':10}{'spread lost':>14}{'least kept':>14}{'expected':>14}{'measured':>14}")
    for strategy in ("random", "kmeans", "optimal"):
        bags = bw.make_bags(X, bag_size=BAG_SIZE, strategy=strategy, seed=0)
        found = bags.quality(X)  # from the features; no labels so far
        measured = squared_error(X, bags, theta) / by_rows
        print(
            f"{strategy:10}{found.sse_ratio:14.3f}{found.least_kept:14.3f}"
            f"{found.error_ratio:14.3f}{measured:14.3f}"
        )
    # `optimal` gives up variance in directions with plenty of it, to keep more in the others.


if __name__ == "__main__":
    main()

"""Boosted trees and nearest neighbours that learn a curve from bags.

Run it with ``python examples/any_regressor.py``. It writes nothing.
"""

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor

import bagwise as bw
from bagwise.learn.meta import BaggedRegressor

ROWS, BAG_SIZE = 2_000, 10


def curve(X: np.ndarray) -> np.ndarray:
    """Return the expected label of each row, a function that no line can fit."""
    return np.sin(2 * X[:, 0]) + X[:, 1] ** 2


def main() -> None:
    """Put similar rows into bags, learn from their mean labels, and compare."""
    rng = np.random.default_rng(0)
    X, unseen = rng.uniform(-2, 2, size=(2, ROWS, 2))
    y = curve(X) + rng.normal(scale=0.3, size=ROWS)

    bags = bw.make_bags(X, bag_size=BAG_SIZE, strategy="kmeans", seed=0)
    labels = bags.repeat(bags.mean(y))  # the only labels that a learner sees

    models = {
        "a line": BaggedRegressor(LinearRegression()),
        "nearest neighbours": BaggedRegressor(KNeighborsRegressor(3)),
        "boosted trees, centroids": BaggedRegressor(GradientBoostingRegressor()),
        "boosted trees, rows": BaggedRegressor(GradientBoostingRegressor(), "instance"),
    }

    print(f"{ROWS} rows in {len(bags)} bags; mean squared errors on new rows, learnt from")
    print(f"{'':26}{'bag labels':>12}{'row labels':>12}")
    for name, model in models.items():
        errors = []
        for target, how in ((labels, {"bags": bags}), (y, {})):
            model.fit(X, target, **how)
            errors.append(np.mean((model.predict(unseen) - curve(unseen)) ** 2))
        print(f"{name:26}{errors[0]:12.3f}{errors[1]:12.3f}")


if __name__ == "__main__":
    main()

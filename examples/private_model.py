"""Three private linear models of the same table at the same epsilon.

Run it with ``python examples/private_model.py``. It writes nothing.
"""

import numpy as np
import pyarrow as pa

import bagwise as bw

EPSILON, DELTA = 1.0, 1e-6
ROWS, FEATURES = 50_000, 16
BOUNDS = (-20.0, 20.0)  # public; labels outside, if any, are clipped


def make_table(seed: int) -> tuple[pa.Table, np.ndarray]:
    """Draw features, coefficients and labels; return the table and the true coefficients."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((ROWS, FEATURES))
    theta = rng.standard_normal(FEATURES)
    y = X @ theta + 0.5 * rng.standard_normal(ROWS)
    return pa.table({**{f"x{j}": X[:, j] for j in range(FEATURES)}, "y": y}), theta


def main() -> None:
    """Make releases, fit models, and compare them with the true coefficients."""
    table, theta = make_table(seed=1)
    privacy = {"label": "y", "bounds": BOUNDS, "epsilon": EPSILON, "delta": DELTA}

    # No bags: the whole budget goes into the coefficients.
    direct = bw.release_model(table, **privacy)

    # Large bags of rows sorted by a private model, which is part of the release. "auto" loss is
    # instance loss here, because rows were sorted.
    by_model = bw.make_release(table, bag_size=500, strategy="sorted", **privacy)
    from_sorted = bw.fit(by_model)

    # Random bags. "auto" loss is bag loss here.
    by_chance = bw.make_release(table, bag_size=50, strategy="random", **privacy)
    from_random = bw.fit(by_chance)

    # For comparison: a model of the row labels, which is not private.
    exact = bw.make_release(table, label="y", bag_size=1, not_private=True)
    unprotected = bw.fit(exact)

    print(f"{ROWS} rows, {FEATURES} features, epsilon {EPSILON:g}, delta {DELTA:g}")
    print("squared error of the coefficients, and the guarantee:")
    for name, model, promise in (
        ("release_model, no bags", direct, direct.certificate),
        ("sorted by a private model, instance loss", from_sorted, by_model.certificate),
        ("random bags, bag loss", from_random, by_chance.certificate),
        ("row labels", unprotected, exact.certificate),
    ):
        print(f"  {name:42} {np.sum((model.coef - theta) ** 2):9.5f}  {promise.headline}")
    print(f"  {'all coefficients zero':42} {np.sum(theta**2):9.5f}")


if __name__ == "__main__":
    main()

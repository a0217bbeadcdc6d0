"""Three ways to a private linear model, at the same epsilon, on the same table.

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
    """Release, fit and compare with the truth."""
    table, theta = make_table(seed=1)
    privacy = {"label": "y", "bounds": BOUNDS, "epsilon": EPSILON, "delta": DELTA}

    # No bags: the whole budget goes into the coefficients.
    direct = bw.release_model(table, **privacy)

    # Rows sorted by a private model, which is part of the release, in large bags. "auto" loss is
    # instance loss here, because rows were sorted.
    by_model = bw.make_release(table, bag_size=500, strategy="sorted", **privacy)
    from_sorted = bw.fit(by_model)

    # Rows put together at random. "auto" loss is bag loss here.
    by_chance = bw.make_release(table, bag_size=50, strategy="random", **privacy)
    from_random = bw.fit(by_chance)

    # For comparison: what the row labels themselves would give. This is not private.
    exact = bw.make_release(table, label="y", bag_size=1, not_private=True)
    unprotected = bw.fit(exact)

    print(f"{ROWS} rows, {FEATURES} features, epsilon {EPSILON:g}, delta {DELTA:g}")
    print("squared error of the coefficients, and what was promised:")
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

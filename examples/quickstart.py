"""From a table of rents to a row-level model, with and without noise.

Run it with ``python examples/quickstart.py``. It writes only to a temporary directory.
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import bagwise as bw

BOUNDS = (0, 3000)  # known without looking at the rents, for example from the form used


def make_rents(n: int, seed: int) -> pa.Table:
    """Draw flats with a known formula for the rent, a text column and some missing values."""
    rng = np.random.default_rng(seed)
    area = rng.uniform(20, 140, n)
    district = rng.choice(["north", "south", "harbour"], n, p=[0.5, 0.3, 0.2])
    furnished = rng.random(n) < 0.3
    rent = 200 + 12 * area + 250 * (district == "harbour") + 180 * furnished
    rent = rent + rng.normal(0, 120, n)
    unknown = rng.random(n) < 0.05
    return pa.table(
        {
            "area": area,
            "district": pa.array(district.tolist(), mask=unknown),  # 5 % missing
            "furnished": furnished,
            "rent": rent,
        }
    )


def report(title: str, release: bw.Release, holdout: pa.Table) -> None:
    """Fit a model to a release and print how good it is."""
    model = bw.fit(release)  # bag loss, which suits random bags
    on_rows = bw.evaluate(model, holdout)
    on_bags = bw.evaluate(model, release)
    print(f"\n{title}: {release}")
    for name, value in model.coefficients().items():
        print(f"  {name:20} {value:9.2f}")
    print(f"  error on {on_rows.n_rows} held-out rows: {on_rows.rmse:.1f} (r2 {on_rows.r2:.3f})")
    # The learner has no row labels. Bag labels give a rough idea: the variance of their privacy
    # noise is known and subtracted. If the noise hides everything, the result is None.
    clean = on_bags.rmse_without_noise
    shown = "hidden by the noise" if clean is None else f"{clean:.1f} without the noise"
    print(f"  error on {on_bags.n_bags} bag means: {on_bags.rmse:.1f}, {shown}")


def main() -> None:
    """Make both releases, save and check the private one, fit and compare."""
    rents, holdout = make_rents(100_000, seed=1), make_rents(5_000, seed=2)

    # With an epsilon, every bag mean gets noise, and a certificate states the guarantee.
    private = bw.make_release(
        rents, label="rent", bounds=BOUNDS, bag_size=100, epsilon=1.0, delta=1e-6
    )

    # Without an epsilon, means are exact. Large bags alone protect nobody, hence `not_private`.
    exact = bw.make_release(rents, label="rent", bag_size=100, not_private=True)

    # A release is a directory that anyone who receives it can check.
    with tempfile.TemporaryDirectory() as folder:
        path = private.save(Path(folder) / "release")
        print("files:", ", ".join(sorted(file.name for file in path.iterdir())))
        received = bw.Release.load(path)
        found = received.verify()  # raises if anything is wrong
        print("\n".join(f"ok: {check}" for check in found.checks))
        print(received.certificate.text())

    print("\nTrue rents: 200 + 12 area + 250 in the harbour + 180 furnished, with noise of 120")
    report("Private", received, holdout)
    report("Not private", exact, holdout)


if __name__ == "__main__":
    main()

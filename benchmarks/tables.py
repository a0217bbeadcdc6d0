"""Tables of label sums: Adult from all single columns and all pairs, without a row label.

Run with ``python -m benchmarks.tables --data DIR``; DIR holds `train.parquet` and `test.parquet`
with UCI's split of census income, label `income` 0/1. Numbers are in ten public bins: values that a
tenth of the rows share have one of their own, the others are quantiles. Explained entropy is
``1 - log loss / entropy of the mean`` on test rows. A row is in 105 tables, so that its label moves
the sums by 105 (L1) or sqrt(105) (L2); noise is drawn here, and no certificate is made of it.
Beside it are bags of the same promise by the shortest command.
"""

import argparse
import itertools
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

import bagwise as bw
from bagwise.privacy.curves import gaussian_mu

LABEL, DELTA = "income", 1e-6


def cut_points(values: np.ndarray, bins: int = 10) -> np.ndarray:
    """Return cuts between bins of about the same number of rows; ties have a bin of their own."""
    levels, counts = np.unique(values, return_counts=True)
    heavy = levels[counts >= len(values) / bins]
    rest, left = values[~np.isin(values, heavy)], max(1, bins - len(heavy))
    quantiles = np.quantile(rest, np.arange(1, left) / left, method="inverted_cdf")
    below = [levels[np.searchsorted(levels, level) - 1] for level in heavy if level > levels[0]]
    return np.unique(np.concatenate([quantiles, heavy, below]))


def tables_of(train: pd.DataFrame, order: int, noise=None, noise_sd: float = 0.0) -> list:
    """Return tables of label sums for all sets of up to `order` columns."""
    columns = [name for name in train.columns if name != LABEL]
    cuts = {n: cut_points(train[n].to_numpy()) for n in columns if train[n].dtype.kind in "if"}
    binned = train.assign(**{n: np.searchsorted(c, train[n]) for n, c in cuts.items()})
    tables = []
    for size in range(1, order + 1):
        for names in itertools.combinations(columns, size):
            cells = binned.groupby(list(names))[LABEL].agg(sum="sum").reset_index()
            if noise is not None:
                cells["sum"] = cells["sum"] + noise(len(cells))
            own = {name: cuts[name] for name in names if name in cuts}
            tables.append(bw.LabelTable(cells, names, own, noise_sd))
    return tables


def explained(y: np.ndarray, chance: np.ndarray) -> float:
    """Return the share of the entropy of test labels that chances explain."""
    chance = np.clip(chance, 1e-6, 1 - 1e-6)
    mean = y.mean()
    entropy = -(mean * np.log(mean) + (1 - mean) * np.log(1 - mean))
    return 1 + np.mean(y * np.log(chance) + (1 - y) * np.log(1 - chance)) / entropy


def main() -> None:
    """Print explained entropy without noise, and with it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=1)
    options = parser.parse_args()
    train, test = (pd.read_parquet(options.data / f"{n}.parquet") for n in ("train", "test"))
    y, rows = test[LABEL].to_numpy(), train.drop(columns=LABEL)

    def score(tables: list) -> float:
        started = time.process_time()
        model = bw.fit(rows, tables=tables)
        seconds = time.process_time() - started
        result = explained(y, model.predict(test))
        print(f"  {model.coef.size} cells, {seconds:.0f} s: {result:.4f}", flush=True)
        return result

    print("no noise, single columns")
    score(tables_of(train, 1))
    print("no noise, single columns and pairs")
    full = tables_of(train, 2)
    score(full)
    number = len(full)
    for epsilon in (0.5, 1.0, 4.0):
        scale = number / epsilon
        sigma = np.sqrt(number) / gaussian_mu(epsilon, DELTA)
        for name, sd in (("laplace", np.sqrt(2) * scale), ("gaussian", sigma)):
            for seed in range(options.draws):
                rng = np.random.default_rng(seed)
                draw = {
                    "laplace": lambda n, rng=rng, b=scale: rng.laplace(scale=b, size=n),
                    "gaussian": lambda n, rng=rng, s=sigma: rng.normal(scale=s, size=n),
                }[name]
                print(f"epsilon {epsilon:g}, {name}, noise sd {sd:.1f}")
                score(tables_of(train, 2, draw, float(sd)))
        promise = {"epsilon": epsilon, "label": LABEL, "bounds": (0, 1)}
        release = bw.make_release(pa.Table.from_pandas(train, preserve_index=False), **promise)
        model = bw.fit_release(release, family="bernoulli")
        chance = model.predict(pa.Table.from_pandas(test, preserve_index=False))
        print(f"epsilon {epsilon:g}, bags by the shortest command: {explained(y, chance):.4f}")


if __name__ == "__main__":
    main()

"""Few large bags without noise: Adult in 5 or 10 bags, beside printed results.

Run with ``python -m benchmarks.few_bags --data DIR``. DIR holds `adult.parquet` (columns in -1..1
and `y`), `bags/NAME.parquet` (column `bag`) and `published.csv` of the benchmark of LLP variants
(Franco and others, "Evaluating LLP Methods", data sets CC0). Every assignment is split three times
as printed: ``ShuffleSplit(test_size=0.25)``; the shares are those of the training rows.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import accuracy_score, f1_score, log_loss, roc_auc_score
from sklearn.model_selection import ShuffleSplit

import bagwise as bw

SEEDS = (189395, 962432364, 832061813)


def measure(X: np.ndarray, y: np.ndarray, bags: np.ndarray, seed: int) -> dict[str, float]:
    """Fit the training rows of one split, and score the others."""
    split = ShuffleSplit(n_splits=1, test_size=0.25, random_state=seed).split(X)
    train, test = next(split)
    ids = np.unique(bags[train], return_inverse=True)[1]
    shares = np.bincount(ids, y[train]) / np.bincount(ids)
    started = time.process_time()
    model = bw.BaggedGLM("bernoulli").fit(X[train], shares[ids], bags=ids)
    seconds = time.process_time() - started
    chance = model.predict_proba(X[test])[:, 1]
    return {
        "f1": f1_score(y[test], model.predict_class(X[test])),
        "accuracy": accuracy_score(y[test], chance > 0.5),
        "auc": roc_auc_score(y[test], chance),
        "log_loss": log_loss(y[test], chance),
        "seconds": seconds,
    }


def main() -> None:
    """Print the scores of each assignment, of each kind, and of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=len(SEEDS))
    options = parser.parse_args()
    table = pd.read_parquet(options.data / "adult.parquet")
    y = table.pop("y").to_numpy().astype(int)
    X = table.to_numpy(dtype=float)
    printed = pd.read_csv(options.data / "published.csv")
    best = printed.groupby("dataset").f1_test.max()
    rows = []
    for path in sorted((options.data / "bags").glob("*.parquet")):
        bags = pd.read_parquet(path).bag.to_numpy()
        for seed in SEEDS[: options.splits]:
            scores = measure(X, y, bags, seed)
            kind = path.stem.split("-")[1]
            rows.append(
                {"set": path.stem, "kind": kind, **scores, "best_printed_f1": best[path.stem]}
            )
    scores = pd.DataFrame(rows)
    by_set = scores.groupby("set").mean(numeric_only=True)
    print(by_set.round(3).to_string())
    print(scores.groupby("kind").mean(numeric_only=True).round(3).to_string())
    print(scores.mean(numeric_only=True).round(4).to_string())
    better = int((by_set.f1 > by_set.best_printed_f1).sum())
    print(
        f"above the best of all printed pairs in {better} of {len(by_set)} sets; "
        f"slowest fit {scores.seconds.max():.1f} s of processor time"
    )
    pairs = printed.groupby(["model", "split_method"])[["f1_test", "accuracy_test"]].mean()
    print(pairs.sort_values("f1_test").tail(3).round(4).to_string())


if __name__ == "__main__":
    main()

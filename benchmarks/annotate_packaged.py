"""300 labels by `annotate` beside scikit-learn's defaults on 300 random rows, on four tables.

Tables of numbers, counts, two and several classes that come with scikit-learn and statsmodels. Each
draw holds out a quarter of the rows, 5,000 at most. Losses are squared error, Poisson deviance and
log loss, on held-out rows; seconds are those of the fit.

python -m benchmarks.annotate_packaged [--draws 10]
"""

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import statsmodels.api as sm
from sklearn import datasets, metrics
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor

from bagwise import AnnotationProject

LABELS, ROWS, HELD_OUT = 300, 10_000, 5_000
PEERS = {"gaussian": LinearRegression, "poisson": PoissonRegressor}


def tables():
    """Yield name, frame, label and family."""
    yield "diabetes", datasets.load_diabetes(as_frame=True).frame, "target", "gaussian"
    yield "randhie", sm.datasets.randhie.load_pandas().data, "mdvis", "poisson"
    fair = sm.datasets.fair.load_pandas().data
    yield "fair", fair.assign(affairs=(fair.affairs > 0) * 1.0), "affairs", "bernoulli"
    digits = datasets.load_digits(as_frame=True).frame
    yield "digits", digits.assign(target=digits.target.map("d{}".format)), "target", "multinomial"


def loss(family, y, predicted, classes):
    if family == "gaussian":
        return metrics.mean_squared_error(y, predicted)
    if family == "poisson":
        return metrics.mean_poisson_deviance(y, np.maximum(predicted, 1e-12))
    return metrics.log_loss(y, predicted, labels=classes)


def measure(frame, label, family, draw):
    """Return the loss of annotate, that of scikit-learn, and the seconds of the fit."""
    order = np.random.default_rng(draw).permutation(len(frame))
    cut = min(len(frame) // 4, HELD_OUT)
    test, pool = (frame.iloc[rows] for rows in (order[:cut], order[cut:][:ROWS]))
    X, y, others = pool.drop(columns=label), pool[label].to_numpy(), test.drop(columns=label)
    classes = sorted(set(frame[label])) if family in ("bernoulli", "multinomial") else None
    options = {"classes": classes} if family == "multinomial" else {"family": family}
    keyed = pa.Table.from_pandas(X.assign(key=np.arange(len(X))), preserve_index=False)
    with tempfile.TemporaryDirectory() as place:
        project = AnnotationProject.start(
            keyed, Path(place) / "p", label=label, budget=LABELS, id="key", seed=draw,
            features=list(X), **options,
        )  # fmt: skip
        asked = project.to_label()["key"]
        rows = [int(key) for key in asked.to_pylist()]
        project.import_labels(pa.table({"key": asked, label: y[rows]}))
        start = time.perf_counter()
        model = project.fit()
        seconds = time.perf_counter() - start
    ours = model.predict(pa.Table.from_pandas(others, preserve_index=False))
    peer = PEERS.get(family, LogisticRegression)().fit(X[:LABELS], y[:LABELS])
    theirs = peer.predict(others) if family in PEERS else peer.predict_proba(others)
    truth = test[label].to_numpy()
    return loss(family, truth, ours, classes), loss(family, truth, theirs, classes), seconds


def main():
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--draws", type=int, default=10)
    draws = arguments.parse_args().draws
    warnings.simplefilter("ignore")  # of a peer that has not converged
    for name, frame, label, family in tables():
        found = np.array([measure(frame, label, family, draw) for draw in range(draws)])
        gap = found[:, 0] - found[:, 1]
        error = gap.std(ddof=1) / np.sqrt(draws)
        print(f"{name}: annotate {found[:, 0].mean():.4g}, scikit-learn {found[:, 1].mean():.4g}, "
              f"difference {gap.mean():.3g} ± {error:.2g}, longest fit {found[:, 2].max():.1f} s",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

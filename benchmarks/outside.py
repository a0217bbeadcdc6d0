"""bagwise beside figures that others have printed, and beside peers that are run in the same job.

The tables are public and not part of bagwise: they are read from the places that are given.

python -m benchmarks.outside --data DIRECTORY [--insurance FILE] [--quick] [--output DIRECTORY]

DIRECTORY has housing.csv, communities.data and bank/x_train.csv to y_test.csv; FILE is
ausprivauto0405.rda. Whatever is not there is left out. It prints what it finds, and writes
results.json.
"""

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import lightgbm
import numpy as np
import statsmodels.api as sm
from sklearn.metrics import roc_auc_score

import bagwise as bw
from bagwise._types import FloatArray
from bagwise.requests.records import filed
from bagwise.rng import SecureNoise
from bagwise.rows.columns import exposure_vector
from benchmarks import _outside_tables as tables
from benchmarks import _real_llp as llp
from benchmarks._rr_on_bins import randomise_labels

MEASURED = Path("build/outside")
EPSILONS = {"housing": (0.05, 0.5, 1.0, 2.0, 4.0), "crime": (0.5, 1.0, 2.0, 4.0, 8.0)}
CLAIM_EPSILONS = (0.5, 1.0, 4.0)
BAG_SIZES = (8, 32, 128, 512)
BANK_EPSILONS = (1.0, 4.0)
DRAWS = 5
LLP_CLASSIFIERS = ("EM, logistic", "DLLP")

Predict = Callable[[], FloatArray]


class Way(NamedTuple):
    """One way to learn on one draw of a table."""

    name: str
    who: str  # "bagwise", "peer" or "row labels"
    epsilon: float | None
    predict: Predict
    bag_size: int | None = None


def main() -> None:
    """Measure, and write what was measured."""
    asked = _arguments()
    draws = 2 if asked.quick else DRAWS
    found = {}
    jobs: list[tuple[str, Callable[[int], tables.Outside], Any, int]] = []
    if asked.data is not None:
        jobs += [
            ("housing", lambda s: tables.housing(asked.data, s), regression_ways, draws),
            ("crime", lambda s: tables.crime(asked.data, s), regression_ways, draws),
            ("bank", lambda s: tables.bank(asked.data, s), bank_ways, 2),
        ]
    if asked.insurance is not None:
        jobs.append(("insurance", lambda s: tables.insurance(asked.insurance, s), claim_ways, 2))
    for name, load, ways, times in jobs:
        if asked.only in (None, name):
            found[name] = _measure(name, load, ways, times)
    folder = asked.output or MEASURED
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "results.json"
    before = json.loads(kept.read_text())["tables"] if kept.exists() else {}
    content = {
        "python": platform.python_version(),
        "packages": {p: version(p) for p in ("bagwise", "numpy", "scikit-learn", "lightgbm")},
        "tables": before | found,
    }
    kept.write_text(json.dumps(content, indent=2) + "\n")
    for name, table in found.items():
        for row in table["rows"]:
            print(name, row)


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, help="directory with the tables")
    arguments.add_argument("--insurance", type=Path, help="ausprivauto0405.rda")
    arguments.add_argument("--only", help="one table; others stay as kept")
    arguments.add_argument("--quick", action="store_true", help="two draws")
    arguments.add_argument("--output", type=Path, help=f"instead of {MEASURED}")
    return arguments.parse_args()


def _measure(name: str, load: Any, ways: Any, draws: int) -> dict[str, Any]:
    rows: dict[tuple[Any, ...], list[float]] = {}
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small epsilons are here to be warned of
        for seed in range(draws):
            table = load(seed)
            for way in ways(table, seed):
                key = (way.name, way.who, way.epsilon, way.bag_size)
                score = score_of(table, way.predict())
                rows.setdefault(key, []).append(score)
                print(name, seed, *key, f"{score:.4f}", flush=True)
    return {
        "measure": table.measure,
        "rows_to_learn_from": table.train.num_rows,
        "rows_held_out": table.test.num_rows,
        "columns": len(table.features),
        "seconds": round(time.perf_counter() - start),
        "rows": [
            {
                "way": key[0],
                "who": key[1],
                "epsilon": key[2],
                "bag_size": key[3],
                "mean": float(np.mean(scores)),
                "se": float(np.std(scores, ddof=1) / np.sqrt(len(scores)))
                if len(scores) > 1
                else None,
                "draws": len(scores),
            }
            for key, scores in rows.items()
        ],
    }


def score_of(table: tables.Outside, predicted: FloatArray) -> float:
    """Return the mean squared error, the AUC, or the share of the deviance of a constant rate."""
    labels = table.labels(table.test)
    if table.measure == "mse":
        return float(np.mean((predicted - labels) ** 2))
    if table.measure == "auc":
        return float(roc_auc_score(labels, predicted))
    exposure = exposure_vector(table.test, str(table.exposure))
    train = (
        table.labels(table.train).sum() / exposure_vector(table.train, str(table.exposure)).sum()
    )
    return _deviance(labels, predicted) / _deviance(labels, train * exposure)


def _deviance(labels: FloatArray, mean: FloatArray) -> float:
    mean = np.maximum(mean, 1e-9)
    ratio = np.where(labels > 0, labels / mean, 1.0)
    return float(2 * np.sum(labels * np.log(ratio) - labels + mean))


def _boosted(**options: Any) -> Any:
    return lightgbm.LGBMRegressor(num_threads=1, verbose=-1, **options)


def _encoded(table: tables.Outside) -> tuple[FloatArray, FloatArray]:
    encoder = bw.Encoder.for_table(table.train, table.features, named=table.features)
    return encoder.transform(table.train), encoder.transform(table.test)


def _release(table: tables.Outside, epsilon: float | None, **options: Any) -> bw.Release:
    if epsilon is None:
        promise: dict[str, Any] = {"not_private": True}
    else:
        promise = {"epsilon": epsilon, "bounds": table.bounds}
    return bw.make_release(
        table.train,
        **filed(
            label=table.label, features=table.features, family=table.family, **promise, **options
        ),
    )


def _linear(release: bw.Release, table: tables.Outside, **options: Any) -> FloatArray:
    return bw.fit_release(release, **options).predict(table.test)


def _boosted_on_bags(release: bw.Release, X_test: FloatArray) -> FloatArray:
    X, y, _ = release.training_data()
    params = release.fit_params()
    small = release.bags.n_bags < 400
    model = bw.BaggedRegressor(_boosted(), loss="instance" if small else "aggregate")
    predicted: FloatArray = model.fit(X, y, **params).predict(X_test)
    return predicted


def regression_ways(table: tables.Outside, seed: int) -> Iterator[Way]:
    """Yield ways to learn a number under label privacy."""
    del seed
    X, X_test = _encoded(table)
    y, bounds = table.labels(table.train), table.bounds
    yield Way("mean of the labels", "row labels", None, lambda: np.full(len(X_test), y.mean()))
    yield Way("linear", "row labels", None,
              lambda: bw.BaggedGLM().fit(X, y, bags=range(len(y))).predict(X_test))  # fmt: skip
    yield Way("LightGBM", "row labels", None, lambda: _boosted().fit(X, y).predict(X_test))
    for epsilon in EPSILONS[table.name]:
        bags = _release(table, epsilon)
        yield Way("bags, linear", "bagwise", epsilon, lambda r=bags: _linear(r, table))
        yield Way("bags, LightGBM", "bagwise", epsilon,
                  lambda r=bags: _boosted_on_bags(r, X_test))  # fmt: skip
        for_trees = _release(table, epsilon, learner="flexible")
        yield Way("flexible, LightGBM", "bagwise", epsilon,
                  lambda r=for_trees: _boosted_on_bags(r, X_test))  # fmt: skip
        yield Way("private model", "bagwise", epsilon, lambda e=epsilon: bw.release_model(
            table.train, label=table.label, features=table.features, bounds=bounds, epsilon=e,
        ).predict(table.test))  # fmt: skip
        single = _release(table, epsilon, noise="unbiased", tighten="none")
        yield Way(
            "unbiased randomizer, linear", "peer", epsilon, lambda r=single: _linear(r, table)
        )
        yield Way("unbiased randomizer, LightGBM", "peer", epsilon, lambda r=single: (
            _boosted().fit(*r.training_data()[:2]).predict(X_test)
        ))  # fmt: skip
        values = np.linspace(*bounds, 101)
        binned = randomise_labels(
            np.clip(y, *bounds), values=values, epsilon=epsilon, source=SecureNoise()
        ).labels
        yield Way("RR on bins, LightGBM", "peer", epsilon,
                  lambda b=binned: _boosted().fit(X, b).predict(X_test))  # fmt: skip
        noisy = np.clip(y, *bounds) + np.random.default_rng().laplace(
            scale=(bounds[1] - bounds[0]) / epsilon, size=y.size
        )
        yield Way("Laplace noise on labels, LightGBM", "peer", epsilon,
                  lambda b=noisy: _boosted().fit(X, b).predict(X_test))  # fmt: skip


def bank_ways(table: tables.Outside, seed: int) -> Iterator[Way]:
    """Yield ways to learn a chance from bags of answers, of random rows as LLP-BP has them."""
    X, X_test = _encoded(table)
    y = table.labels(table.train)
    rows = bw.BaggedGLM("bernoulli")
    yield Way("logistic", "row labels", None,
              lambda: rows.fit(X, y, bags=range(len(y))).predict(X_test))  # fmt: skip
    yield Way("LightGBM", "row labels", None, lambda: (
        lightgbm.LGBMClassifier(num_threads=1, verbose=-1).fit(X, y).predict_proba(X_test)[:, 1]
    ))  # fmt: skip
    yield from planned_bank_ways(table)
    for size in BAG_SIZES:
        for strategy in ("random", "kmeans"):
            made = _release(table, None, bag_size=size, strategy=strategy, seed=seed)
            yield Way(f"{strategy} bags, logistic", "bagwise", None,
                      lambda r=made: _linear(r, table, family="bernoulli"), size)  # fmt: skip
            yield Way(f"{strategy} bags, LightGBM", "bagwise", None,
                      lambda r=made: _boosted_on_bags(r, X_test), size)  # fmt: skip
            for epsilon in BANK_EPSILONS:
                hidden = _release(table, epsilon, bag_size=size, strategy=strategy, seed=seed)
                yield Way(f"{strategy} bags, logistic", "bagwise", epsilon,
                          lambda r=hidden: _linear(r, table, family="bernoulli"), size)  # fmt: skip
        if llp.is_installed() and seed == 0:
            yield from _llp_peers(X, y, X_test, size)


def planned_bank_ways(table: tables.Outside) -> Iterator[Way]:
    """Yield bags as the planner chooses them."""
    for epsilon in BANK_EPSILONS:
        made = _release(table, epsilon)
        yield Way("bags as planned, logistic", "bagwise", epsilon,
                  lambda r=made: _linear(r, table, family="bernoulli"))  # fmt: skip


def _llp_peers(X: FloatArray, y: FloatArray, X_test: FloatArray, size: int) -> Iterator[Way]:
    bags = bw.make_bags(X, bag_size=size, strategy="random", seed=0)
    shares = bags.mean(y)
    for name in LLP_CLASSIFIERS:
        scores, _ = llp.run(
            name, X.astype(np.float32), bags.index, shares, X_test.astype(np.float32)
        )
        if scores is not None:
            yield Way(f"llp-learn, {name}", "peer", None, lambda s=scores: s, size)


def claim_ways(table: tables.Outside, seed: int) -> Iterator[Way]:
    """Yield ways to learn a rate of claims."""
    del seed
    X, X_test = _encoded(table)
    y, exposure = table.labels(table.train), str(table.exposure)
    years, years_test = (exposure_vector(part, exposure) for part in (table.train, table.test))
    peer = sm.GLM(y, sm.add_constant(X), family=sm.families.Poisson(), exposure=years)
    yield Way("statsmodels, exposure", "row labels", None, lambda: np.asarray(
        peer.fit().predict(sm.add_constant(X_test, has_constant="add"), exposure=years_test)
    ))  # fmt: skip
    plain = sm.GLM(y, sm.add_constant(X), family=sm.families.Poisson())
    yield Way("statsmodels, exposure left out", "row labels", None, lambda: np.asarray(
        plain.fit().predict(sm.add_constant(X_test, has_constant="add"))
    ))  # fmt: skip
    for epsilon in (None, *CLAIM_EPSILONS):
        size = {"bag_size": 20, "strategy": "kmeans"} if epsilon is None else {}
        made = _release(table, epsilon, exposure=exposure, **size)
        yield Way("bags, exposure", "bagwise", epsilon, lambda r=made: _linear(r, table))
        left_out = _release(table, epsilon, **size)
        yield Way("bags, exposure left out", "bagwise", epsilon,
                  lambda r=left_out: _linear(r, table, family="poisson"))  # fmt: skip
        if epsilon is not None:
            single = _release(table, epsilon, noise="unbiased", tighten="none", exposure=exposure)
            yield Way("unbiased randomizer, exposure", "peer", epsilon,
                      lambda r=single: _linear(r, table))  # fmt: skip


if __name__ == "__main__":
    main()

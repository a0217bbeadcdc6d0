"""Write the golden files: one of each kind of file in the newest version of its format.

    python -m tests.golden.make

They are made once for each version of a format, and then stay: `tests/golden/test_golden.py` checks
that every later version of bagwise reads them and reads the same. A version that is there already
is left as it is. Whoever raises the version of a format runs this once and commits what is new;
CONTRIBUTING.md has the whole recipe.

The tables come from a seed. The noise does not: it comes from the operating system, since a
certificate of anything else says NOT PRIVATE. So another run writes other labels, and what a reader
must find is kept beside the files, in `expected.json`.
"""

import json
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bagwise as bw
from bagwise.errors import BagwiseWarning
from bagwise.rng import SimulatedNoise
from tools.settings import filed

HERE = Path(__file__).parent
EXPECTED = "expected.json"
PREDICTED = "rows-to-predict.json"

ROWS = 180
LARGE = 2000
"""Rows of the table for which the planner has something to say."""

CLASSES = ["yes", "no", "?"]
NUMERIC = {"label": "y", "bounds": (0, 10), "id": "key"}
PRIVATE = {"epsilon": 2.0, "delta": 1e-5}
GAUSSIAN = {**PRIVATE, "noise": "gaussian"}
PURE = {"epsilon": 2.0}
FOUND = {"label": "y", "bounds": "auto", "bag_size": 50, **PURE}

ROWS_TO_PREDICT: dict[str, list[Any]] = {
    "x": [0.0, -1.25, 2.5, None, 40.0],
    "count": [0, 3, 7, 1, -2],
    "city": ["Bonn", "Pune", None, "Œ", "nowhere"],
    "old": [True, False, True, None, False],
}
"""Rows with gaps and with a city that no table has."""


def make_table(rows: int = ROWS) -> pa.Table:
    """Return numbers, whole numbers, text and truth values, with gaps, and a label."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=rows)
    city = rng.choice(["Bonn", "Pune", "Œ"], size=rows, p=[0.5, 0.3, 0.2])
    count = rng.poisson(2.0, size=rows)
    y = np.clip(4 + x + 0.5 * count + (city == "Pune") + rng.normal(size=rows), 0, 10)
    return pa.table(
        {
            "key": np.arange(rows),
            "x": pa.array(x, mask=rng.random(rows) < 0.05),
            "count": count,
            "city": pa.array(city.tolist()),
            "old": pa.array(rng.random(rows) < 0.4, mask=rng.random(rows) < 0.05),
            "person": np.arange(rows) // 3,
            "y": y,
        }
    )


def with_exposure(table: pa.Table) -> pa.Table:
    """Return the table with a column that labels are counted over."""
    return table.append_column("years", pa.array(1.0 + np.arange(len(table)) % 4))


def make_classes(table: pa.Table) -> pa.Table:
    """Return the table with three classes for a label."""
    y = table["y"].to_numpy()
    classes = pa.array(np.select([y > 6, y > 4], CLASSES[:2], CLASSES[2]).tolist())
    return table.set_column(table.column_names.index("y"), "y", classes)


def make_releases(directory: Path) -> dict[str, Any]:
    """Write one release of each kind."""
    table, large = make_table().drop_columns(["person"]), make_table(LARGE)
    people, classes = make_table(), make_classes(make_table()).drop_columns(["person", "key"])
    few = table.slice(0, 40).select(["count", "y"])
    random = {**NUMERIC, "bag_size": 9, "strategy": "random"}
    named = {"label": "y", "classes": CLASSES, "bag_size": 12, "strategy": "random"}
    requests: dict[str, tuple[pa.Table, dict[str, Any]]] = {
        "means": (table, {**random, **GAUSSIAN, "seed": 7}),
        "laplace": (table, {**random, "epsilon": 0.5, "delta": 0.0}),
        "staircase": (table, {**random, "epsilon": 2.0, "delta": 0.0}),
        "picks": (table, {**random, **GAUSSIAN, "label_kind": "pick"}),
        "laplace-picks": (table, {**random, **PRIVATE, "label_kind": "pick"}),
        "classes": (classes, {**named, **PRIVATE}),
        # The planner's figure leaves out classes, and the manifest says so.
        "class-picks": (
            classes,
            {**named, "strategy": "auto", "epsilon": 2.0, "delta": 0.0, "label_kind": "pick"},
        ),
        "by-model": (table, {**random, **GAUSSIAN, "strategy": "sorted", "scores": "model"}),
        "by-noisy-labels": (
            table,
            {**random, **GAUSSIAN, "strategy": "sorted", "scores": "noisy-labels"},
        ),
        "by-pure-model": (table, {**random, **PURE, "strategy": "sorted", "scores": "model"}),
        "by-pure-labels": (
            table,
            {**random, **PURE, "strategy": "sorted", "scores": "noisy-labels"},
        ),
        "by-metric": (
            few,
            {
                "label": "y",
                "bounds": (0, 10),
                **PURE,
                "learner": "flexible",
                "strategy": bw.KMeansBags(scale="model"),
            },
        ),
        "tightened-and-centred": (
            table,
            {**random, **PURE, "bounds": (-500, 500), "tighten": "range", "centre": "model"},
        ),
        "open": (table, {"label": "y", "id": "key", "bag_size": 9, "not_private": True}),
        "open-by-labels": (
            table,
            {"label": "y", "id": "key", "bag_size": 9, "strategy": "sorted", "not_private": True},
        ),
        "single-labels": (few, {"label": "y", "bounds": (0, 10), **PURE, "noise": "unbiased"}),
        "missing-labels": (
            few.set_column(
                1, "y", pa.array(few["y"].to_numpy(), mask=np.arange(len(few)) % 9 == 4)
            ),
            {**PURE, "label": "y", "bounds": (0, 10), "bag_size": 9, "drop_missing_labels": True},
        ),
        "given": (
            with_exposure(table),
            {**NUMERIC, **PURE, "bag_size": 9, "by": "city", "within": "old", "exposure": "years"},
        ),
        "super-half": (
            table,
            {**random, **PRIVATE, "strategy": bw.SuperBags(half=True)},
        ),
        "units": (people, {**random, **PRIVATE, "unit": "person", "keep_order": True}),
        "found-bounds": (large.select(["count", "y"]), {**FOUND, "strategy": "random"}),
        # Few columns: the rows are there for the planner, and only make the files larger.
        "planned": (
            large.select(["count", "y"]),
            {"label": "y", "bounds": (0, 10), "bag_size": "auto", **PRIVATE},
        ),
        "simulated": (
            table,
            {**random, **PRIVATE, "noise_source": SimulatedNoise(3), "not_private": True},
        ),
    }
    for name, (rows, request) in requests.items():
        bw.make_release(rows, **filed(**request)).save(directory / name, simulated_noise=True)
    return {name: _read_release(directory / name) for name in requests}


def _open_releases(bag_size: int) -> tuple[pa.Table, dict[str, Any], bw.Release, bw.Release]:
    """Return a table, how it is released, and releases of its label and of classes."""
    table = make_table().drop_columns(["person", "key"])
    asked = {"label": "y", "bag_size": bag_size, "strategy": "random", "not_private": True}
    classes = bw.make_release(make_classes(table), **filed(**asked, classes=CLASSES))
    return table, asked, bw.make_release(table, **filed(**asked)), classes


def _write_models(directory: Path, models: dict[str, Any], **how: bool) -> dict[str, Any]:
    """Write models, and rows that they predict; return what is read of them."""
    for name, model in models.items():
        model.save(directory / f"{name}.json", **how)
    (directory / PREDICTED).write_text(json.dumps(ROWS_TO_PREDICT) + "\n")
    return {f"{name}.json": _read_model(directory / f"{name}.json") for name in models}


def make_models(directory: Path) -> dict[str, Any]:
    """Write one model of each kind."""
    table, asked, release, shares = _open_releases(9)
    rates = bw.make_release(with_exposure(table), **filed(**asked, exposure="years"))
    models = {
        "fitted": bw.fit_release(release),
        "log-link": bw.fit_release(release, family="poisson"),
        "rate": bw.fit_release(rates, family="poisson"),
        "one-class": bw.fit_release(shares, target="yes"),
        "multinomial": bw.fit_release(shares),
        "released": bw.release_model(table, label="y", bounds=(0, 10), **PRIVATE),
    }
    return _write_models(directory, models, force=True)  # one of them is separated


def make_trees(directory: Path) -> dict[str, Any]:
    """Write boosted trees for numbers and for classes, with each link, and few of them."""
    _, _, release, shares = _open_releases(6)
    few = {"max_rounds": 3, "leaves": 3, "random_state": 0, "n_jobs": 1}
    models = {
        "numbers": bw.fit_estimator(release, bw.BaggedBooster(**few)),
        "log-link": bw.fit_estimator(release, bw.BaggedBooster("poisson", **few)),
        "one-class": bw.fit_estimator(shares, bw.BaggedBooster("bernoulli", **few), target="yes"),
        "classes": bw.fit_estimator(shares, bw.BaggedClassifier(**few)),
    }
    return _write_models(directory, models)


def make_tables(directory: Path) -> dict[str, Any]:
    """Write models of label sums by text and by bins of a number, for each family."""
    table = make_table().select(["x", "city", "y"]).to_pandas()
    rows, label = table[["x", "city"]], (table.y > 5).astype(float)
    binned = rows.assign(x=np.searchsorted([-0.5, 0.5], rows.x), y=label)
    tables = [
        bw.LabelTable(cells.y.agg(["sum"]).reset_index(), names, {"x": [-0.5, 0.5]})
        for names in (["city"], ["x", "city"])
        for cells in [binned.groupby(names)]
    ]
    families = ("bernoulli", "poisson")
    models = {name: bw.fit(rows, tables=tables, family=name, label="y") for name in families}
    return _write_models(directory, models)


def make_evaluations(directory: Path) -> dict[str, Any]:
    """Write a private evaluation by each loss."""
    train = make_table(LARGE).drop_columns(["person", "key"])
    model = bw.release_model(train, label="y", bounds=(0, 10), **PRIVATE)
    for loss, bounds in (("squared", (0, 10)), ("absolute", "auto")):
        scores = bw.evaluate_rows_privately(model, train, bounds=bounds, epsilon=4.0, loss=loss)
        scores.save(directory / f"{loss}.json")
    return {path.name: _read_evaluation(path) for path in sorted(directory.iterdir())}


def make_projects(directory: Path) -> dict[str, Any]:
    """Write an annotation project with two rounds, some labels, and one that was taken back."""
    table = make_table().drop_columns(["person"])
    numbers = bw.AnnotationProject.start(
        table, directory / "numbers", label="y", budget=20, design="random", bounds=(0, 10),
        exclude=["key"], show=["x", "city"], seed=7,
    )  # fmt: skip
    for place, task in enumerate(numbers.store.tasks()[:15]):
        numbers.answer(task.id, place / 2)
    numbers.store.take_back(source="python")
    numbers.next_round(budget=6)
    return {"numbers": _read_project(directory / "numbers")}


def read(kind: str, path: Path) -> dict[str, Any]:
    """Return what this version of bagwise finds in a golden file, as plain values."""
    return READERS[kind](path)


def _read_release(path: Path) -> dict[str, Any]:
    release = bw.Release.load(path)
    X, _, bags = release.training_data()
    return {
        **_promise(path),
        "labels": release.labels.tolist(),
        "noise_sd": release.noise_sd.tolist(),
        "bags": release.bags.index.tolist(),
        "label_kind": release.label_kind,
        "strategy": release.provenance.strategy,
        "features": release.encoder.feature_names,
        "first_rows": X[:3].tolist(),
        "bags_of_first_rows": bags[:3].tolist(),
    }


def _read_model(path: Path) -> dict[str, Any]:
    model = bw.load_model(path)
    rows = pa.table(json.loads((path.parent / PREDICTED).read_text()))
    rated = {} if getattr(model, "exposure", None) is None else {"rate": True}
    of_trees = isinstance(model, bw.TreeModel)
    return {
        **_promise(path),
        "predictions": model.predict(rows, **rated).tolist(),
        **({"n_trees": model.n_trees} if of_trees else {"coefficients": model.coefficients()}),
        "classes": None if model.classes is None else list(model.classes),
    }


def _read_evaluation(path: Path) -> dict[str, Any]:
    scores = bw.PrivateScores.load(path)
    return {
        **_promise(path),
        "n_rows": scores.n_rows,
        "mean_loss": scores.mean_loss,
        "interval": list(scores.interval),
    }


def _read_project(path: Path) -> dict[str, Any]:
    # In a copy: to read it, SQLite writes beside it.
    with tempfile.TemporaryDirectory() as place:
        project = bw.AnnotationProject(shutil.copytree(path, Path(place) / "copy"))
        rows = project.labelled_rows()
        return {
            "labels": project.labels().to_pydict(),
            "open": project.to_label().to_pydict(),
            "status": [[one.design, *counts] for one, *counts in project.status().rounds],
            "labelled_rows": rows.X.tolist(),
            "labels_of_rows": rows.y.tolist(),
            "kind": project.kind.describe(),
            "first_rows": project.encoded[:3].tolist(),
        }


def _promise(path: Path) -> dict[str, Any]:
    """Verify a file; return what it promises, and the digest that people compare."""
    verification, _ = bw.verify(path)
    return {
        "headline": verification.headline,
        "epsilon": verification.epsilon,
        "delta": verification.delta,
        "digest": verification.digest,
    }


MAKERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "release": make_releases,
    "model": make_models,
    "trees": make_trees,
    "tables": make_tables,
    "evaluation": make_evaluations,
    "annotation": make_projects,
}
READERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "release": _read_release,
    "model": _read_model,
    "trees": _read_model,
    "tables": _read_model,
    "evaluation": _read_evaluation,
    "annotation": _read_project,
}


def schemas_in(directory: Path) -> list[str]:
    """Return the formats, with their versions, of all files below a directory."""
    found: set[str] = set()
    for path in directory.rglob("*.json"):
        content = json.loads(path.read_text())
        if isinstance(content, list):  # tasks for labelling tools, whose format is theirs
            continue
        for part in (content, content.get("certificate")):
            if isinstance(part, dict) and isinstance(part.get("schema"), str):
                found.add(part["schema"])
    return sorted(found)


def main() -> int:
    """Make what is not there yet; return 1 if there was nothing to make."""
    made = 0
    for kind, make in MAKERS.items():
        # The files themselves say which version they have, so they are made before one can look.
        with tempfile.TemporaryDirectory(dir=HERE, prefix=".") as draft:
            directory = Path(draft) / kind
            directory.mkdir()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", BagwiseWarning)
                expected = make(directory)
            (version,) = (
                schema.partition("/")[2]
                for schema in schemas_in(directory)
                if schema.startswith(f"bagwise-{kind}/")
            )
            target = HERE / f"{kind}-{version}"
            if target.exists():
                _tell(f"{target.name} is there already and stays as it is.")
                continue
            lines = (f"{json.dumps(name)}: {json.dumps(found)}" for name, found in expected.items())
            (directory / EXPECTED).write_text("{\n" + ",\n".join(lines) + "\n}\n")
            directory.rename(target)
        _tell(f"{target.name}: {len(expected)} made, {', '.join(schemas_in(target))}.")
        made += 1
    return 0 if made else 1


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())

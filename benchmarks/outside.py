"""bagwise beside figures that others have printed, and beside peers that are run in the same job.

The tables are public and not part of bagwise: they are read from the places that are given.

python -m benchmarks.outside --data DIRECTORY [--insurance FILE] [--only NAME ...] [--quick]

DIRECTORY has housing.csv, communities.data and bank/x_train.csv to y_test.csv; FILE is
ausprivauto0405.rda. It prints what it measures, with a table in Markdown, and keeps it in
benchmarks/results/outside.json.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import lightgbm
import numpy as np
import pandas as pd
import pyarrow as pa
import statsmodels.api as sm
from sklearn.metrics import roc_auc_score

import bagwise as bw
from bagwise._types import FloatArray
from bagwise.rng import SecureNoise
from bagwise.rows.columns import exposure_vector
from benchmarks._real_scores import poisson_deviance
from benchmarks._real_tables import RealTable
from benchmarks._results import in_markdown, keep, read_rows, timed
from benchmarks._rr_on_bins import randomise_labels
from benchmarks.twenty_tables import by_additive_model, by_conditioned_descent
from tools.settings import filed

EPSILONS = {
    "housing": (0.05, 0.5, 1.0, 2.0, 4.0),
    "crime": (0.5, 1.0, 2.0, 4.0, 8.0),
    "bank": (1.0, 4.0),
    "insurance": (0.5, 1.0, 4.0),
}
BAG_SIZES = (8, 32, 128, 512)
DRAWS = {"housing": 5, "crime": 5, "bank": 2, "insurance": 2}


@dataclass(frozen=True)
class Outside(RealTable):
    """One draw of a table, with how predictions are scored and what counts are counted over."""

    exposure: str | None = None

    @property
    def features(self) -> list[str]:
        """Names of the columns that a model may use."""
        return [n for n in self.train.column_names if n not in (self.label, self.exposure)]

    def years(self, part: pa.Table) -> FloatArray:
        """Return the exposure of each row."""
        return exposure_vector(part, str(self.exposure))

    def score(self, predicted: FloatArray) -> float:
        """Return the mean squared error, the AUC, or the share of a constant rate's deviance."""
        if self.family == "gaussian":
            return float(np.mean((predicted - self.held_out) ** 2))
        if self.family == "bernoulli":
            return float(roc_auc_score(self.held_out, predicted))
        rate = self.labels.sum() / self.years(self.train).sum()
        deviances = [
            poisson_deviance(self.held_out, np.maximum(mean, 1e-9))
            for mean in (predicted, rate * self.years(self.test))
        ]
        return deviances[0] / deviances[1]


class Way(NamedTuple):
    """One way to learn on one draw of a table."""

    name: str
    who: str  # "bagwise", "peer" or "row labels"
    epsilon: float | None
    predict: Callable[[], FloatArray | None]
    bag_size: int | None = None


# Tables


def _table(name: str, parts: list[pd.DataFrame], label: str, **about: Any) -> Outside:
    train, test = (
        pa.Table.from_pandas(part.reset_index(drop=True), preserve_index=False) for part in parts
    )
    return Outside(name=name, train=train, test=test, label=label, **about)


def _split(frame: pd.DataFrame, seed: int) -> list[pd.DataFrame]:
    """Hold out a fifth of the rows, as the printed figures do."""
    order = np.random.default_rng(seed).permutation(len(frame))
    return [frame.iloc[order[len(frame) // 5 :]], frame.iloc[order[: len(frame) // 5]]]


def housing(folder: Path, seed: int) -> Outside:
    """Prices in blocks of California, in 100,000 dollars, with the columns of scikit-learn."""
    raw = pd.read_csv(folder / "housing.csv")
    rooms = raw["total_bedrooms"].fillna(raw["total_bedrooms"].median())
    frame = pd.DataFrame(
        {
            "income": raw["median_income"],
            "age": raw["housing_median_age"],
            "rooms": raw["total_rooms"] / raw["households"],
            "bedrooms": rooms / raw["households"],
            "population": raw["population"],
            "occupancy": raw["population"] / raw["households"],
            "latitude": raw["latitude"],
            "longitude": raw["longitude"],
            "price": raw["median_house_value"] / 1e5,
        }
    )
    return _table("housing", _split(frame, seed), "price", bounds=(0.0, 5.0), family="gaussian")


def crime(folder: Path, seed: int) -> Outside:
    """Violent crimes in communities, without the columns that the printed figures leave out."""
    raw = pd.read_csv(folder / "communities.data", na_values="?")
    gone = ["state", "county", "community", "communityname", "fold", "racepctblack"]
    frame = raw.drop(columns=[name for name in gone if name in raw])
    if "OtherPerCap" in frame:
        frame["OtherPerCap"] = frame["OtherPerCap"].fillna(frame["OtherPerCap"].mean())
    parts = _split(frame.dropna(axis=1).astype(float), seed)
    return _table("crime", parts, "ViolentCrimesPerPop", bounds=(0.0, 1.0), family="gaussian")


def bank(folder: Path, seed: int) -> Outside:
    """Answers to a bank's calls, in the split that comes with LLP-BP; the seed changes nothing."""
    del seed
    parts = []
    for name in ("train", "test"):
        X, y = (pd.read_csv(folder / "bank" / f"{kind}_{name}.csv") for kind in ("x", "y"))
        X.columns = [f"x{i}" for i in range(X.shape[1])]
        parts.append(X.assign(y=y.to_numpy()[:, 0].astype(float)))
    return _table("bank", parts, "y", bounds=(0.0, 1.0), family="bernoulli")


def insurance(file: Path, seed: int) -> Outside:
    """Claims of Australian car policies over years of exposure (`ausprivauto0405`)."""
    if file.suffix == ".rda":
        import pyreadr  # only for this file, so in no group: pip install pyreadr

        raw = next(iter(pyreadr.read_r(str(file)).values()))
    else:
        raw = pd.read_parquet(file)
    frame = raw.drop(columns=["ClaimOcc", "ClaimAmount"]).astype(
        dict.fromkeys(("VehAge", "VehBody", "Gender", "DrivAge"), str)
    )
    about = {"bounds": (0.0, 4.0), "family": "poisson", "exposure": "Exposure"}
    return _table("insurance", _split(frame, seed), "ClaimNb", **about)


# Ways


def _boosted() -> Any:
    return lightgbm.LGBMRegressor(num_threads=1, verbose=-1)


def _release(table: Outside, epsilon: float | None, **options: Any) -> bw.Release:
    promise: dict[str, Any] = {"epsilon": epsilon, "bounds": table.bounds}
    if epsilon is None:
        promise = {"not_private": True}
    options = {"family": table.family, **promise, **options}
    settings = filed(label=table.label, features=table.features, **options)
    return bw.make_release(table.train, **settings)


def _fitted(release: bw.Release, table: Outside, **options: Any) -> FloatArray:
    return np.asarray(bw.fit(release, **options).predict(table.test))


def _boosted_on_bags(release: bw.Release, table: Outside) -> FloatArray:
    X, y, _ = release.training_data()
    loss = "instance" if release.bags.n_bags < 400 else "aggregate"
    model = bw.BaggedRegressor(_boosted(), loss=loss).fit(X, y, **release.fit_params())
    return np.asarray(model.predict(table.encoded[1]))


def planned_ways(table: Outside, epsilon: float) -> Iterator[Way]:
    """Yield releases as `make_release` makes them unasked, and the peers without bags."""
    bags = _release(table, epsilon)
    yield Way("bags, linear", "bagwise", epsilon, lambda: _fitted(bags, table))
    yield Way(
        "bags, BaggedBooster", "bagwise", epsilon, lambda: _fitted(bags, table, model="boosted")
    )
    trees = _release(table, epsilon, learner="flexible")
    yield Way(
        "flexible, BaggedBooster", "bagwise", epsilon,
        lambda: _fitted(trees, table, model="boosted"),
    )  # fmt: skip
    yield Way(
        "Cond-DP, delta 1e-6", "peer", epsilon, lambda: by_conditioned_descent(table, epsilon)
    )
    yield Way("DP-EBM, delta 1e-6", "peer", epsilon, lambda: by_additive_model(table, epsilon))


def regression_ways(table: Outside, seed: int) -> Iterator[Way]:
    """Yield ways to learn a number under label privacy."""
    del seed
    (X, X_test), y, bounds = table.encoded, table.labels, table.bounds
    yield Way("mean of the labels", "row labels", None, lambda: np.full(len(X_test), y.mean()))
    rows = bw.BaggedGLM()
    yield Way("linear", "row labels", None, lambda: rows.fit(X, y).predict(X_test))
    yield Way("LightGBM", "row labels", None, lambda: _boosted().fit(X, y).predict(X_test))
    for epsilon in EPSILONS[table.name]:
        yield from planned_ways(table, epsilon)
        trees = _release(table, epsilon, learner="flexible")
        yield Way(
            "flexible, LightGBM", "bagwise", epsilon, lambda r=trees: _boosted_on_bags(r, table)
        )
        model = bw.release_model(
            table.train, label=table.label, features=table.features, bounds=bounds, epsilon=epsilon
        )
        yield Way("private model", "bagwise", epsilon, lambda m=model: m.predict(table.test))
        single = _release(table, epsilon, noise="unbiased", tighten="none")
        yield Way(
            "unbiased randomizer, linear", "peer", epsilon, lambda r=single: _fitted(r, table)
        )
        noise = SecureNoise()
        binned = randomise_labels(table.clipped, values=table.values, epsilon=epsilon, source=noise)
        laplace = np.random.default_rng().laplace(
            scale=(bounds[1] - bounds[0]) / epsilon, size=y.size
        )
        for name, told, labels in (
            ("unbiased randomizer", *single.training_data()[:2]),
            ("RR on bins", X, binned.labels),
            ("Laplace noise on labels", X, table.clipped + laplace),
        ):
            yield Way(
                f"{name}, LightGBM", "peer", epsilon,
                lambda t=told, b=labels: _boosted().fit(t, b).predict(X_test),
            )  # fmt: skip


def bank_ways(table: Outside, seed: int) -> Iterator[Way]:
    """Yield ways to learn a chance from bags of answers, of random rows as LLP-BP has them."""
    (X, X_test), y = table.encoded, table.labels
    rows, trees = bw.BaggedGLM("bernoulli"), lightgbm.LGBMClassifier(num_threads=1, verbose=-1)
    yield Way("logistic", "row labels", None, lambda: rows.fit(X, y).predict(X_test))
    yield Way("LightGBM", "row labels", None, lambda: trees.fit(X, y).predict_proba(X_test)[:, 1])
    for epsilon in EPSILONS[table.name]:
        yield from planned_ways(table, epsilon)
    for size in BAG_SIZES:
        for strategy in ("random", "kmeans"):
            options = {"bag_size": size, "strategy": strategy, "seed": seed}
            for epsilon in (None, *EPSILONS[table.name]):
                made = _release(table, epsilon, **options)
                yield Way(
                    f"{strategy} bags, linear", "bagwise", epsilon,
                    lambda r=made: _fitted(r, table, family="bernoulli"), size,
                )  # fmt: skip
            plain = _release(table, None, **options)
            yield Way(
                f"{strategy} bags, LightGBM", "bagwise", None,
                lambda r=plain: _boosted_on_bags(r, table), size,
            )  # fmt: skip


def claim_ways(table: Outside, seed: int) -> Iterator[Way]:
    """Yield ways to learn a rate of claims."""
    del seed
    X, X_test = (sm.add_constant(part, has_constant="add") for part in table.encoded)
    years, years_test = table.years(table.train), table.years(table.test)
    for name, over, over_test in (
        ("statsmodels, exposure", years, years_test),
        ("statsmodels, exposure left out", None, None),
    ):
        peer = sm.GLM(table.labels, X, family=sm.families.Poisson(), exposure=over)
        yield Way(
            name, "row labels", None,
            lambda m=peer, o=over_test: np.asarray(m.fit().predict(X_test, exposure=o)),
        )  # fmt: skip
    for epsilon in (None, *EPSILONS[table.name]):
        size = {"bag_size": 20, "strategy": "kmeans"} if epsilon is None else {}
        made = _release(table, epsilon, exposure=table.exposure, **size)
        yield Way("bags, exposure", "bagwise", epsilon, lambda r=made: _fitted(r, table))
        left_out = _release(table, epsilon, **size)
        yield Way(
            "bags, exposure left out", "bagwise", epsilon,
            lambda r=left_out: _fitted(r, table, family="poisson"),
        )  # fmt: skip
        if epsilon is not None:
            single = _release(
                table, epsilon, noise="unbiased", tighten="none", exposure=table.exposure
            )
            yield Way(
                "unbiased randomizer, exposure", "peer", epsilon, lambda r=single: _fitted(r, table)
            )


TABLES: dict[
    str, tuple[Callable[[Path, int], Outside], Callable[[Outside, int], Iterator[Way]]]
] = {
    "housing": (housing, regression_ways),
    "crime": (crime, regression_ways),
    "bank": (bank, bank_ways),
    "insurance": (insurance, claim_ways),
}


# Measuring


def measure(name: str, place: Path, draws: int) -> list[dict[str, Any]]:
    """Return the mean score of every way on one table, with its standard error."""
    load, ways = TABLES[name]
    scores: dict[tuple[Any, ...], list[float]] = {}
    for seed in range(draws):
        table = load(place, seed)
        for way in ways(table, seed):
            key = (way.name, way.who, way.epsilon, way.bag_size)
            seconds, predicted = timed(way.predict)
            scores.setdefault(key, []).append(table.score(np.asarray(predicted)))
            print(name, seed, *key, scores[key][-1], f"{seconds:.1f} s", flush=True)
    facts = {"learnt": table.labels.size, "held out": table.held_out.size}
    return [
        {
            "table": name,
            **facts,
            "way": key[0],
            "by": key[1],
            "epsilon": key[2],
            "bag_size": key[3],
            "mean": float(np.mean(found)),
            "error": float(np.std(found, ddof=1) / len(found) ** 0.5) if len(found) > 1 else 0.0,
            "draws": len(found),
        }
        for key, found in scores.items()
    ]


def page(rows: list[dict[str, Any]]) -> str:
    """Return a table with a line for each way, and a column for each bag size, or each epsilon."""
    sized = any(row["bag_size"] for row in rows)
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        promise = "not private" if row["epsilon"] is None else f"epsilon {row['epsilon']:g}"
        size = f"bags of {row['bag_size']}" if row["bag_size"] else "single rows, or as planned"
        digits = 4 if row["mean"] < 0.1 else 3
        way = f"{row['way']}, {promise}" if sized and row["by"] != "row labels" else row["way"]
        line = cells.setdefault((way, row["by"]), {})
        line[size if sized else promise] = f"{row['mean']:.{digits}f} ± {row['error']:.{digits}f}"
    heads = list(dict.fromkeys(head for line in cells.values() for head in line))
    lines = [[*key, *(line.get(head, "") for head in heads)] for key, line in cells.items()]
    return "\n".join(in_markdown(["way", "by", *heads], lines))


def main() -> None:
    """Measure, keep what was measured, and print it for the page."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, help="directory with the tables")
    arguments.add_argument("--insurance", type=Path, help="ausprivauto0405.rda")
    arguments.add_argument("--only", nargs="+", choices=list(TABLES), default=list(TABLES))
    arguments.add_argument("--quick", action="store_true", help="two draws")
    asked = arguments.parse_args()
    warnings.simplefilter("ignore")  # small epsilons are here to be warned of
    for name in asked.only:
        place = asked.insurance if name == "insurance" else asked.data
        if place is not None:
            rows = measure(name, place, 2 if asked.quick else DRAWS[name])
            others = [row for row in read_rows("outside") if row["table"] != name]
            packages = ("scikit-learn", "lightgbm", "interpret-core")
            keep("outside", [*others, *rows], packages, show=False)
            print(f"\n## {name}\n\n{page(rows)}", flush=True)


if __name__ == "__main__":
    main()

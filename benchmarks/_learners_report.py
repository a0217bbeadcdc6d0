"""The page of `benchmarks.learners`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

PUBLISHED = Path("docs/results/learners")
GLM, CENTROIDS, REPEATED, BOOSTED = (
    "BaggedGLM", "LightGBM on centroids", "LightGBM on repeated labels", "bag loss, blended",
)  # fmt: skip
LEARNERS = (GLM, CENTROIDS, REPEATED, BOOSTED)
FEATURES, MODEL = "features", "private model"

HEAD = """# Which learner for which bags

Written by `python -m benchmarks.learners`; do not edit. Each number is the share of what boosted
trees on true row labels explain (LightGBM, rounds by folds) that a learner keeps if it sees bag
labels only, on held-out rows, in percent: squared error for numbers, log loss for classes. Bags are
kmeans bags with the settings of `make_release`, delta 1e-6: rows are compared by whitened features,
or by the metric of a private model (`scale="model"`), which is paid for from the same epsilon.
**{boosted}** is `BaggedBooster` or `BaggedClassifier`; the others are `fit_release` and
`BaggedRegressor(LGBMRegressor())` with `loss="aggregate"` and `loss="instance"`. Tables with more
than 10,000 rows are cut down to so many, drawn at random. Where bags and noise were drawn several
times, the mean is given with its standard error. Shares above 100 are chance, or rows that are
easier with smoother models. Cells that are missing were not measured yet: the command goes on where
it was interrupted.
"""


def write(folder: Path) -> None:
    """Write the page from what was kept."""
    content = json.loads((folder / "results.json").read_text())
    lines = [HEAD.format(boosted=BOOSTED)]
    lines += ["## Bags for boosted trees", "", *_by_metric(content["tables"]), ""]
    for name, table in content["tables"].items():
        lines += [f"## {name}", "", _about(table), "", *_grid(table), ""]
        if table["classes"]:
            lines += [*_classes(table), ""]
    lines += ["## What a fit costs", "", *_timing(content["tables"]), ""]
    lines += ["## Which curvature", "", *_hessians(content["tables"]), ""]
    packages = ", ".join(f"{name} {found}" for name, found in content["packages"].items())
    lines.append(f"Python {content['python']}; {packages}.")
    (folder / "README.md").write_text("\n".join(lines) + "\n")


def _about(table: dict[str, Any]) -> str:
    return (
        f"{table['about']} {table['source']}. {table['rows_to_learn_from']:,} rows to learn from, "
        f"{table['columns_of_X']} columns, {table['rows_held_out']:,} held out."
    )


def _grid(table: dict[str, Any]) -> Iterator[str]:
    learners = [name for name in LEARNERS if any(row["learner"] == name for row in table["rows"])]
    yield f"| bags of | epsilon | rows compared by | {' | '.join(learners)} |"
    yield "|---" * (3 + len(learners)) + "|"
    for size, epsilon, by in _cells(table):
        found = {"size": size, "epsilon": epsilon, "by": by}
        shown = [_mean(table, "kept", 100, learner=name, **found) for name in learners]
        yield f"| {size} | {epsilon or 'none'} | {by} | {' | '.join(shown)} |"


def _by_metric(tables: dict[str, Any]) -> Iterator[str]:
    """Yield what `BaggedBooster` keeps of all tables with numbers at epsilon 1, side by side."""
    yield (
        "Epsilon 1, `BaggedBooster`: what it keeps where rows are compared by whitened features, "
        "and by the metric of a private model."
    )
    yield ""
    sizes = (20, 50, 200)
    yield (
        "| table | "
        + " | ".join(f"{by}, {size}" for size in sizes for by in (FEATURES, MODEL))
        + " |"
    )
    yield "|---" * (1 + 2 * len(sizes)) + "|"
    for name, table in tables.items():
        if table["classes"]:
            continue
        shown = [
            _mean(table, "kept", 100, learner=BOOSTED, size=size, epsilon=1.0, by=by)
            for size in sizes
            for by in (FEATURES, MODEL)
        ]
        yield f"| {name} | {' | '.join(shown)} |"


def _classes(table: dict[str, Any]) -> Iterator[str]:
    learners = [name for name in LEARNERS if any(row["learner"] == name for row in table["rows"])]
    best, mean = table["row_labels"], table["mean_label"]
    yield (
        f"Log loss and area under the curve; row labels reach {best['loss']:.3f} and "
        f"{best['auc']:.3f}, the shares of all rows {mean['loss']:.3f}:"
    )
    yield ""
    yield f"| bags of | epsilon | {' | '.join(learners)} |"
    yield "|---" * (2 + len(learners)) + "|"
    for size, epsilon, _ in _cells(table):
        found = {"size": size, "epsilon": epsilon}
        shown = [
            f"{_mean(table, 'loss', 1, learner=name, **found)}, "
            f"{_mean(table, 'auc', 1, learner=name, **found)}"
            for name in learners
        ]
        yield f"| {size} | {epsilon or 'none'} | {' | '.join(shown)} |"


def _cells(table: dict[str, Any]) -> list[tuple[int, float | None, str]]:
    """Return what was measured, by size, epsilon and metric; without an epsilon comes last."""
    found = {(row["size"], row["epsilon"], row["by"]) for row in table["rows"]}
    return sorted(found, key=lambda cell: (cell[0], cell[1] or np.inf, cell[2]))


def _mean(table: dict[str, Any], what: str, unit: float, **of: Any) -> str:
    values = [
        unit * row[what]
        for row in table["rows"]
        if all(row[name] == value for name, value in of.items())
    ]
    if not values:
        return "not yet"
    digits = 1 if unit == 100 else 3
    text = f"{np.mean(values):.{digits}f}"
    if len(values) == 1:
        return text
    return f"{text} ± {np.std(values, ddof=1) / len(values) ** 0.5:.{digits}f}"


def _timing(tables: dict[str, Any]) -> Iterator[str]:
    yield (
        "Processor seconds of 150 trees of 8 leaves on one core, on row labels with LightGBM's own "
        "objective and on labels of bags of 50; and of a whole `BaggedBooster`, which tries four "
        "ways on five folds each, at bags of 50 without privacy."
    )
    yield ""
    yield "| table | row labels | bag labels | ratio | whole |"
    yield "|---|---|---|---|---|"
    for name, table in tables.items():
        if table["timing"]:
            rows, bags = (found["seconds"] for found in table["timing"])
            whole = _mean(table, "seconds", 1, learner=BOOSTED, size=50, epsilon=None)
            yield f"| {name} | {rows:.2f} | {bags:.2f} | {bags / rows:.2f} | {whole} |"


def _hessians(tables: dict[str, Any]) -> Iterator[str]:
    yield (
        "Bags of 50 without noise. *bound* is what `BagObjective` takes for the curvature of a "
        "row, *diagonal* the diagonal of the Gauss-Newton matrix, 50 times less. What is left of "
        "the loss on bags, and the error on held-out rows, after 10, 30 and 100 rounds:"
    )
    yield ""
    yield "| table | hessian | loss left, % | held-out rmse |"
    yield "|---|---|---|---|"
    for name, table in tables.items():
        for hessian in dict.fromkeys(found["hessian"] for found in table["hessians"]):
            found = [row for row in table["hessians"] if row["hessian"] == hessian]
            left = " / ".join(f"{100 * row['bag_loss_left']:.3g}" for row in found)
            error = " / ".join(f"{row['held_out_rmse']:.4g}" for row in found)
            yield f"| {name} | {hessian} | {left} | {error} |"

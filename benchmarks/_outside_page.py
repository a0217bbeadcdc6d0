"""The page of docs/results/outside, from what was measured."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks._outside_published import PUBLISHED

_ABOUT = {
    "housing": (
        "California housing",
        "Mean squared error of the price in 100,000 dollars, on a held-out fifth of the rows. "
        "Bounds 0 to 5. Pace and Barry (1997), 20,640 rows; the eight columns of scikit-learn.",
    ),
    "crime": (
        "Communities and crime",
        "Mean squared error of violent crimes per head, scaled to 0 to 1, on a held-out fifth. "
        "UCI, 1,994 rows; columns with gaps are left out, as in the printed figures.",
    ),
    "bank": (
        "Bank marketing, the split of LLP-BP",
        "Area under the ROC curve on the test rows of the split that comes with LLP-BP (Havaldar "
        "et al., ICLR 2024, arXiv 2310.08056; github.com/google-deepmind/llp_bp, CC-BY). Their own "
        "figures for it are not in what we could read, so none stands here, and their code, which "
        "needs TensorFlow, was not run. llp-learn had 60 seconds for each fit, on one "
        "draw; what is missing took longer. Larger is better.",
    ),
    "insurance": (
        "Car insurance, claims over years",
        "Poisson deviance on a held-out fifth, as a share of that of one constant rate: below 1 a "
        "model is worth something. `ausprivauto0405` of CASdatasets (De Jong and Heller 2008), "
        "67,856 policies; we know of no printed figure for it under label privacy.",
    ),
}

_HEAD = """# Outside numbers: bagwise beside what others have printed

Public tables that other work on label privacy or on label proportions has printed figures for, and
peers that were run in the same job. Epsilon is pure label privacy (delta 0) everywhere; ± is one
standard error over draws of the split and of all noise. The tables are not part of bagwise:

```sh
pip install --group bench pyreadr
pip install --no-deps --target DIR llp-learn    # leave it out to skip it
OMP_NUM_THREADS=1 PYTHONPATH=DIR python -m benchmarks.outside --data TABLES --insurance FILE.rda
```

{versions}
[results.json](results.json) has every figure.

How to read it. *bagwise* rows are releases as `make_release` makes them unasked (planned bags,
private range and all), a linear model by `fit_release`, LightGBM by `BaggedRegressor` (fitted to
centroids, or to rows where there are fewer than 400 bags), and the model that `release_model`
releases directly. *Peers* report every single label: the optimal unbiased randomizer (Badanidiyuru
et al. 2023; `noise="unbiased"`), randomised response on bins with a private prior (Ghazi et al.
2023), and Laplace noise. Printed figures come from other models, splits and machines, so a small
difference to them means nothing.

Three things to see. Where labels are very noisy, bags leave far less error than any way to report
single labels, to linear models and to boosted trees. Where epsilon is large, a flexible model does
better with single labels: the planner chooses bags for a linear model, and those are too large for
trees. And a mean over rows that hold outliers says little of a linear model: among the houses one
block has 1,243 people in a household, and where it is held out it alone makes the error of the
private model several times as large.
"""


def write(content: Mapping[str, Any]) -> str:
    """Return the page."""
    packages = ", ".join(f"{name} {number}" for name, number in content["packages"].items())
    versions = f"Python {content['python']}, {packages}."
    parts = [_HEAD.format(versions=versions)]
    for name, found in content["tables"].items():
        title, about = _ABOUT[name]
        parts.append(f"## {title}\n\n{textwrap.fill(about, 100)}\n")
        rows = found["rows_to_learn_from"], found["rows_held_out"], found["columns"]
        parts.append("{} rows to learn from, {} held out, {} columns.\n".format(*rows))
        by_size = name == "bank"
        parts.append("\n".join(_by_size(found["rows"]) if by_size else _by_epsilon(found["rows"])))
        if not by_size:
            parts.append("\n".join(_best(found["rows"])))
        parts.append("\n".join(_printed(name)))
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def _best(rows: Any) -> Iterator[str]:
    """Say who has the least error at each epsilon; of two that are as good, both stand above."""
    yield "Least error:\n"
    for epsilon in sorted({row["epsilon"] for row in rows} - {None}):
        here = [row for row in rows if row["epsilon"] == epsilon]
        firsts = [
            min((row for row in here if row["who"] == who), key=lambda row: row["mean"])
            for who in ("bagwise", "peer")
        ]
        words = " against ".join(f"{one['way']} {_figure(one)}" for one in firsts)
        yield f"- epsilon {epsilon:g}: {words}"
    yield ""


def _figure(row: Mapping[str, Any]) -> str:
    small = row["mean"] < 0.1
    text = f"{row['mean']:.4f}" if small else f"{row['mean']:.3f}"
    if row["se"] is None:
        return text
    return f"{text} ± {row['se']:.4f}" if small else f"{text} ± {row['se']:.3f}"


def _grid(rows: Any, column: str, columns: list[Any], words: list[str]) -> Iterator[str]:
    ways = list(dict.fromkeys((row["way"], row["who"], *_other(row, column)) for row in rows))
    yield "| way | by | " + " | ".join(words) + " |"
    yield "|---|---|" + "---|" * len(words)
    for way in ways:
        cells = []
        for value in columns:
            here = [
                row
                for row in rows
                if (row["way"], row["who"], *_other(row, column)) == way and row[column] == value
            ]
            cells.append(_figure(here[0]) if here else "")
        extra = f", epsilon {way[2]:g}" if column == "bag_size" and way[2] is not None else ""
        yield f"| {way[0]}{extra} | {way[1]} | " + " | ".join(cells) + " |"
    yield ""


def _other(row: Mapping[str, Any], column: str) -> tuple[Any, ...]:
    return (row["epsilon"],) if column == "bag_size" else ()


def _by_epsilon(rows: Any) -> Iterator[str]:
    epsilons = sorted({row["epsilon"] for row in rows} - {None})
    words = ["not private", *(f"epsilon {value:g}" for value in epsilons)]
    yield from _grid(rows, "epsilon", [None, *epsilons], words)


def _by_size(rows: Any) -> Iterator[str]:
    sizes = sorted({row["bag_size"] for row in rows} - {None})
    words = ["single rows, or as planned", *(f"bags of {size}" for size in sizes)]
    yield from _grid(rows, "bag_size", [None, *sizes], words)


def _printed(name: str) -> Iterator[str]:
    found = [one for one in PUBLISHED if one.table == name]
    if not found:
        return
    yield "Printed by others:\n"
    yield "| method | figure | epsilon | where | remark |"
    yield "|---|---|---|---|---|"
    for one in found:
        yield f"| {one.method} | {one.figure} | {one.epsilon} | {one.source} | {one.remark} |"
    yield ""

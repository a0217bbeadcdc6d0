"""A model as a page, a table and a card: what it learned, and how it fits the bags it came from.

No bag's own label is shown: bags are put into groups of at least ten with like predictions, and
differences are counted. What a page has are means over groups and numbers of bags, however large
the bags are and whether or not their labels have noise.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise._printable import figure, printable
from bagwise._types import FloatArray, IntArray
from bagwise._version import __version__
from bagwise.errors import ReleaseError
from bagwise.models.cells import UNCERTIFIED
from bagwise.models.coefficients import INTERCEPT, Coefficients
from bagwise.models.row_model import RowModel
from bagwise.models.trees import TreeModel
from bagwise.privacy.certificate import NOT_PRIVATE
from bagwise.release.release import Release
from bagwise.report.pages import odds_of
from bagwise.scoring.openly import evaluate_release
from bagwise.show import charts
from bagwise.show.page import Grid, Page

Model = RowModel | TreeModel

SMALLEST_GROUP = 10
_GROUPS = 12
_NORMAL = 1.96  # standard errors that hold a mean in 95 of 100 cases
_DRAWN = 40  # coefficients that one chart can hold
_LISTED = 1000


@dataclass(frozen=True)
class ModelTable:
    """A fitted model described by a title, cells with a heading, a remark, and plain values."""

    title: str
    cells: Sequence[Sequence[str]]
    note: str
    values: dict[str, Any]


def table_of(model: Model) -> ModelTable:
    """Return a description of what a model has learned, for a terminal."""
    if isinstance(model, RowModel):
        summary = model.summary()
        return ModelTable(summary.title, summary.cells(), summary.note, summary.to_json())
    asked = dict(sorted(model.importance().items(), key=lambda one: -one[1]))
    return ModelTable(
        title=f"{model.label}: {model.family}, {model.n_trees} boosted trees",
        cells=[("column", "asked about"), *((n, f"{100 * s:.3g} %") for n, s in asked.items())],
        note="How often trees ask about a column says little about how much it matters.",
        values={"trees": model.n_trees, "asked_about": asked},
    )


def model_page(model: Model, *, path: Path, release: Release | None = None) -> Page:
    """Return the page of a model, with its fit to the bags of `release` where one is given."""
    predicted = model.label if model.target is None else f"{model.label} = {model.target}"
    learned = table_of(model)
    values = {
        "model": model,
        "made": model.trained_on,
        "path": path,
        "odds": None if model.certificate is None else odds_of(model.certificate),
        "unknown": model.promise == UNCERTIFIED,
        "private": model.promise != NOT_PRIVATE,
        "trees": isinstance(model, TreeModel),
        "note": learned.note,
        "cells": learned.cells,
        "table": Grid(
            learned.cells[: _LISTED + 1], folded=f"All {len(learned.cells) - 1} coefficients"
        ),
        "smallest_group": SMALLEST_GROUP,
        **(
            _coefficients(model.summary())
            if isinstance(model, RowModel)
            else _trees(model, learned)
        ),
        **dict.fromkeys(("scores", "calibrated", "residuals")),
        **({} if release is None or model.classes is not None else _fit(model, release)),
    }
    lead = f"It predicts {predicted} of single rows from {len(model.encoder.inputs)} columns."
    return Page("model.html", f"A model of {predicted}", lead, values)


def _coefficients(summary: Coefficients) -> dict[str, Any]:
    """Draw the slopes that one chart can hold: the strongest, in the order of the columns."""
    slopes = np.array([not name.endswith(INTERCEPT) for name in summary.names])
    sure = summary.estimate if summary.standard_error is None else summary.statistic
    strength = np.where(slopes, np.nan_to_num(np.abs(sure), posinf=np.inf), -1.0)
    order = np.sort(np.argsort(-strength, kind="stable")[: min(_DRAWN, int(slopes.sum()))])
    shown = dataclasses.replace(
        summary,
        names=tuple(summary.names[i] for i in order),
        estimate=summary.estimate[order],
        standard_error=None if summary.standard_error is None else summary.standard_error[order],
        unshrunk=None if summary.unshrunk is None else summary.unshrunk[order],
        title="",
    )
    with np.errstate(invalid="ignore"):
        ends = shown.interval if shown.standard_error is not None else np.zeros((order.size, 2))
        away = (ends[:, 0] > 0) | (ends[:, 1] < 0)
    return {
        "shown": shown,
        "away": [name for name, far in zip(shown.names, away, strict=True) if far],
        "hidden": int(slopes.sum()) - order.size,
        "learned": shown.plot() if order.size else None,
    }


def _trees(model: TreeModel, learned: ModelTable) -> dict[str, Any]:
    """Draw the columns that trees ask about, and list the fits that are blended."""
    asked: dict[str, float] = learned.values["asked_about"]
    first, title = dict(list(asked.items())[:_DRAWN]), "share of the questions of all trees"
    rows = [
        (
            "linear" if np.any(member.coef) else "constant",
            str(sum(map(len, member.trees))),
            f"{member.weight:.2f}",
        )
        for member in model.members
    ]
    return {
        "asked": asked,
        "most": next(iter(asked.items())),
        "learned": charts.bars(first, title=title, percent=True),
        "table": Grid([("start", "trees", "weight"), *rows], folded="The fits that are blended"),
    }


@dataclass(frozen=True)
class BagFit:
    """A comparison of bag labels with the mean predictions of their rows."""

    n_bags: int
    # ``predicted``, ``observed``, ``low``, ``high`` and ``bags`` of groups of like predictions; the
    # interval holds the mean label of such bags with probability 0.95. Few bags have no groups.
    groups: charts.Rows
    # Numbers of bags by label less prediction; the first and the last count what lies beyond.
    edges: FloatArray
    counts: IntArray


def fit_of_bags(model: Model, release: Release) -> BagFit:
    """Compare a model with the bags of a release, for a label that is one number."""
    if missing := set(model.encoder.inputs) - set(release.features.column_names):
        raise ReleaseError(f"the release lacks the model's feature(s) {sorted(missing)}.")
    kept = release.bags.in_bag
    rows = np.zeros(kept.size)
    rows[kept] = model.predict_rows(release.instances.filter(pa.array(kept)))
    predicted = release.bags.mean(rows)
    observed = release.labels_of(model.target)
    off = observed - predicted
    # The ends gather what is rare: a bar for one bag would show how far that one is off.
    edges = charts.nice_edges(np.quantile(off, [0.02, 0.98]))
    counts, _ = np.histogram(np.clip(off, edges[0], edges[-1]), bins=edges)
    groups: charts.Rows = []
    number = min(_GROUPS, predicted.size // SMALLEST_GROUP)
    for group in np.array_split(np.argsort(predicted, kind="stable"), number) if number > 1 else []:
        mean = float(observed[group].mean())
        reach = _NORMAL * float(observed[group].std(ddof=1)) / np.sqrt(group.size)
        groups.append(
            {
                "predicted": float(predicted[group].mean()),
                "observed": mean,
                "low": mean - reach,
                "high": mean + reach,
                "bags": int(group.size),
            }
        )
    return BagFit(predicted.size, groups, edges, counts)


def _fit(model: Model, release: Release) -> dict[str, Any]:
    """Return the part of the page that compares a model with the bags of a release."""
    scores, fit = evaluate_release(model, release), fit_of_bags(model, release)
    title = "bag label minus mean prediction"
    return {
        "scores": scores,
        "explained": _share(scores.r2_without_noise),
        "fit": fit,
        "within": sum(row["low"] <= row["predicted"] <= row["high"] for row in fit.groups),
        "calibrated": fit.groups and charts.calibration(fit.groups, title=model.label),
        "groups": [
            (
                str(row["bags"]),
                f"{row['predicted']:.4g}",
                f"{row['observed']:.4g}",
                f"{row['low']:.4g} to {row['high']:.4g}",
            )
            for row in fit.groups
        ],
        "residuals": fit.n_bags >= 2 * SMALLEST_GROUP
        and charts.histogram(fit.edges, fit.counts, title=title),
    }


def _share(value: float | None) -> str:
    """Return a share in per cent; only one that is whole is said to be 100 %.

    >>> _share(0.1234), _share(0.99987), _share(1.0)
    ('12.3 %', 'more than 99.9 %', '100 %')
    """
    if value is None:
        return "hidden by the noise"
    return "more than 99.9 %" if 0.9995 <= value < 1 else f"{100 * value:.3g} %"


_CARD = """\
---
library_name: bagwise
pipeline_tag: {task}
tags:
- tabular
- label-differential-privacy
- learning-from-label-proportions
---

# A model of {label}

{kind}, to predict {label} of single rows.{error}

## How to use it

```python
import bagwise as bw

model = bw.load_model("{file}")
model.predict(table)
```

It needs the columns {inputs}.

## Training data

{rows}

## Privacy

{privacy}

Features were public when the model was made; the promise is about labels only.

## Limits

{limits}

Made with bagwise {version}.
"""

_PRIVACY = {
    NOT_PRIVATE: "The labels were not protected: NOT PRIVATE.",
    UNCERTIFIED: f"There is {UNCERTIFIED}.",
}


def model_card(model: Model, *, file: str) -> str:
    """Return the card of a model that is stored in a file of this name."""
    made = model.trained_on
    is_class = model.classes is not None or model.target is not None or model.family == "bernoulli"
    kind = "A generalised linear model" if isinstance(model, RowModel) else "Boosted trees"
    error = ""
    if model.family == "gaussian" and made.row_variance is not None:
        error = (
            f" The typical error of one prediction is about {figure(math.sqrt(made.row_variance))}."
        )
    bags = "" if made.n_bags is None else f" in {made.n_bags} bags, each with one label"
    limits = ["It has never seen the label of a single row." if made.n_bags else ""]
    if model.bounds is not None:
        limits.append(f"Predictions are clipped to {model.bounds[0]:g} and {model.bounds[1]:g}.")
    if isinstance(model, RowModel):
        limits.append(model.note)
    return _CARD.format(
        task="tabular-classification" if is_class else "tabular-regression",
        label=_code(model.label if model.target is None else f"{model.label} = {model.target}"),
        kind=f"{kind} ({model.family})",
        error=error,
        file=_plain(file),
        inputs=", ".join(map(_code, model.encoder.inputs)),
        rows=f"{made.n_rows} rows{bags}.",
        privacy=_PRIVACY.get(model.promise, f"The labels are protected by {model.promise}."),
        limits=" ".join(filter(None, limits)),
        version=__version__,
    )


def _plain(text: str) -> str:
    """Return a name without characters that could end its surroundings."""
    return printable(text).replace("`", "'").replace('"', "'").replace("\\", "/")


def _code(name: str) -> str:
    return f"`{_plain(name)}`"

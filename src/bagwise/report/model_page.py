"""A model as a page and as a table: what it learned, and how it fits the bags it came from.

No bag's own label is shown: bags are put into groups of at least ten with like predictions, and
differences are counted. What a page has are means over groups and numbers of bags, however large
the bags are and whether or not their labels have noise.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray, IntArray
from bagwise.errors import ReleaseError
from bagwise.models.coefficients import INTERCEPT, Coefficients
from bagwise.models.row_model import RowModel
from bagwise.models.trees import TreeModel
from bagwise.privacy.certificate import NOT_PRIVATE
from bagwise.release.release import Release
from bagwise.report.pages import odds_of
from bagwise.scoring.openly import evaluate_release
from bagwise.show import charts
from bagwise.show.page import Figure, Grid, Page

Model = RowModel | TreeModel

SMALLEST_GROUP = 10
_GROUPS = 12
_NORMAL = 1.96  # standard errors that hold a mean in 95 of 100 cases
_DRAWN = 40  # coefficients that one chart can hold
_LISTED = 1000


@dataclass(frozen=True)
class ModelTable:
    """What a model has learned: a title, cells with a heading, a remark, and plain values."""

    title: str
    cells: Sequence[Sequence[str]]
    note: str
    values: dict[str, Any]


def table_of(model: Model) -> ModelTable:
    """Return what a model has learned, for a terminal."""
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
    shown: tuple[Figure | None, Grid]
    if isinstance(model, RowModel):
        folded = f"All {len(learned.cells) - 1} coefficients"
        shown = _coefficients(model.summary()), Grid(learned.cells[: _LISTED + 1], folded=folded)
    else:
        shown = _importance(model, learned), _blend(model)
    values = {
        "model": model,
        "made": model.trained_on,
        "path": path,
        "odds": None if model.certificate is None else odds_of(model.certificate),
        "private": model.trained_on.privacy not in (None, NOT_PRIVATE),
        "trees": isinstance(model, TreeModel),
        "note": learned.note,
        "learned": shown[0],
        "table": shown[1],
        "smallest_group": SMALLEST_GROUP,
        **dict.fromkeys(("scores", "explained", "calibrated", "residuals")),
        **({} if release is None or model.classes is not None else _fit(model, release)),
    }
    lead = f"It predicts {predicted} of single rows from {len(model.encoder.inputs)} columns."
    return Page("model.html", f"A model of {predicted}", lead, values)


def _coefficients(summary: Coefficients) -> Figure | None:
    """Draw the slopes that one chart can hold: the strongest, in the order of the columns."""
    slopes = np.array([not name.endswith(INTERCEPT) for name in summary.names])
    if not slopes.any():
        return None
    known = summary.standard_error is not None
    sure = summary.statistic if known else summary.estimate
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
    caption = [
        f"The dot is the estimate, the line its {100 * summary.level:g} % interval."
        if known
        else "The dot is the estimate.",
        "It says how much the prediction changes, on the scale of the model, if one column grows "
        "by one unit and all others stay the same.",
    ]
    if summary.unshrunk is not None:
        caption.append(
            "Estimates are shrunk towards zero as far as the noise suggests, and intervals are "
            "not, so a dot may lie outside its line."
        )
    if hidden := int(slopes.sum()) - order.size:
        caption.append(f"The table below has {hidden} weaker ones as well.")
    return Figure(
        shown.plot(),
        alt=f"Dots and lines: the coefficients of {len(shown.names)} columns. {_in_words(shown)}",
        caption=" ".join(caption),
    )


def _in_words(shown: Coefficients) -> str:
    if shown.standard_error is None:
        return "There are no intervals."
    with np.errstate(invalid="ignore"):
        away = (shown.interval[:, 0] > 0) | (shown.interval[:, 1] < 0)
    names = [name for name, far in zip(shown.names, away, strict=True) if far]
    if not names:
        return "Every interval holds zero."
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"Intervals without zero: {', '.join(names[:5])}{more}."


def _importance(model: TreeModel, learned: ModelTable) -> Figure:
    asked: dict[str, float] = learned.values["asked_about"]
    first, share = next(iter(asked.items()))
    shown = dict(list(asked.items())[:_DRAWN])
    return Figure(
        charts.bars(shown, title="share of the questions of all trees", percent=True),
        alt=f"Bars: how often {model.n_trees} trees ask about each of {len(asked)} columns; most "
        f"often about {first}, in {share:.0%} of their questions.",
        caption="How often trees ask about a column. That says where trees look, and little about "
        "how much a column matters: many small steps need many questions.",
        numbers=Grid(learned.cells, folded="The numbers of these bars"),
    )


def _blend(model: TreeModel) -> Grid:
    rows = [
        (
            "linear" if np.any(member.coef) else "constant",
            str(sum(map(len, member.trees))),
            f"{member.weight:.2f}",
        )
        for member in model.members
    ]
    return Grid([("start", "trees", "weight"), *rows], folded="The fits that are blended")


@dataclass(frozen=True)
class BagFit:
    """How bag labels compare with the mean predictions of their rows.

    Attributes
    ----------
    n_bags : int
    groups : list of dict
        ``predicted``, ``observed``, ``low``, ``high`` and ``bags`` of groups of like predictions;
        the interval holds the mean label of such bags with probability 0.95. Empty where there are
        too few bags.
    edges, counts
        Numbers of bags by label less prediction; the first and the last count what lies beyond.
    """

    n_bags: int
    groups: charts.Rows
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
    """Return what the page shows of a model beside the bags of a release."""
    scores, fit = evaluate_release(model, release), fit_of_bags(model, release)
    share = scores.r2_without_noise
    residuals = Figure(
        charts.histogram(fit.edges, fit.counts, title="bag label minus mean prediction"),
        alt=f"Bars: {fit.n_bags} bags by how far their label is from the mean prediction, most "
        f"between {fit.edges[0]:.3g} and {fit.edges[-1]:.3g}.",
        caption="Residuals: how far bag labels are from the mean predictions, privacy noise "
        "included. The outermost bars also count the bags that are further out.",
    )
    return {
        "scores": scores,
        "explained": "hidden by the noise" if share is None else _share(share),
        "calibrated": _calibrated(fit, model.label) if fit.groups else None,
        "residuals": residuals if fit.n_bags >= 2 * SMALLEST_GROUP else None,
    }


def _share(value: float) -> str:
    """Return a share in per cent; only one that is whole is said to be 100 %.

    >>> _share(0.1234), _share(0.99987), _share(1.0)
    ('12.3 %', 'more than 99.9 %', '100 %')
    """
    return "more than 99.9 %" if 0.9995 <= value < 1 else f"{100 * value:.3g} %"


def _calibrated(fit: BagFit, label: str) -> Figure:
    within = sum(row["low"] <= row["predicted"] <= row["high"] for row in fit.groups)
    cells = [
        (
            str(row["bags"]),
            f"{row['predicted']:.4g}",
            f"{row['observed']:.4g}",
            f"{row['low']:.4g} to {row['high']:.4g}",
        )
        for row in fit.groups
    ]
    heading = ("bags", "predicted", "in the bags", "95 % interval")
    return Figure(
        charts.calibration(fit.groups, title=label),
        alt=f"Dots along a diagonal: {len(fit.groups)} groups of bags by their predictions; in "
        f"{within} of them the prediction lies within the interval of the mean label.",
        caption="Calibration: each dot is a group of bags with similar predictions. On the dashed "
        "line predictions are right on average. The lines through the dots are 95 % intervals, "
        "which include the privacy noise.",
        numbers=Grid([heading, *cells], folded="The numbers of these dots"),
    )

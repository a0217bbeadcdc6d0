"""A model as a page: what it learned, how it fits the bags it came from, and how to use it.

What a model has learned looks different for each kind of model. `learned` draws it by the model's
type: another kind registers its own sections there (``learned.register``).
"""

import dataclasses
from functools import singledispatch
from pathlib import Path

import numpy as np

from bagwise.models.coefficients import INTERCEPT, Coefficients
from bagwise.models.row_model import RowModel
from bagwise.models.tree_model import TreeModel
from bagwise.privacy.certificate import NOT_PRIVATE
from bagwise.release.release import Release
from bagwise.report.bag_fit import SMALLEST_GROUP, BagFit, fit_of_bags
from bagwise.report.promise import promise_of
from bagwise.scoring.openly import evaluate_release
from bagwise.show import charts
from bagwise.show.page import (
    Block,
    Facts,
    Figure,
    Grid,
    Notice,
    Page,
    Prose,
    Section,
    Step,
    Steps,
)

Model = RowModel | TreeModel

_DRAWN = 40  # coefficients that one chart can hold
_LISTED = 1000


def model_page(model: Model, *, path: Path, release: Release | None = None) -> Page:
    """Return the page of a model, with its fit to the bags of `release` where one is given."""
    predicted = model.label if model.target is None else f"{model.label} = {model.target}"
    sections = [
        *learned(model),
        Section("Fit to the bags", _fit(model, release)),
        Section("Where it comes from", [_origin(model)]),
        Section("What to do with it", [_next_steps(path)]),
    ]
    return Page(
        title=f"A model of {predicted}",
        lead=f"It predicts {predicted} of single rows from {len(model.encoder.inputs)} columns.",
        label="bagwise model",
        top=[_privacy(model), *_warnings(model)],
        sections=sections,
    )


@singledispatch
def learned(model: object) -> list[Section]:
    """Return what a model has learned; one function for each kind of model."""
    raise NotImplementedError(f"no page is known for {type(model).__name__}")


@learned.register
def _coefficients(model: RowModel) -> list[Section]:
    found = model.summary()
    slopes = np.array([not name.endswith(INTERCEPT) for name in found.names])
    blocks: list[Block] = [Prose(found.note)]
    if slopes.any():
        shown, hidden = _strongest(found, slopes)
        how = (
            "The dot is the estimate"
            if found.standard_error is None
            else f"The dot is the estimate, the line its {100 * found.level:g} % interval"
        )
        unshrunk = (
            ""
            if found.unshrunk is None
            else " Estimates are shrunk towards zero as far as the noise suggests, and intervals "
            "are not, so a dot may lie outside its line."
        )
        rest = f" The table below has {hidden} weaker ones as well." if hidden else ""
        blocks.append(
            Figure(
                shown.plot(),
                alt=f"Dots and lines: the coefficients of {len(shown.names)} columns. "
                + _in_words(shown),
                caption=f"{how}. It says how much the prediction changes, on the scale of the "
                "model, if one column grows by one unit and all others stay the same."
                f"{unshrunk}{rest}",
            )
        )
    cells = found.cells()
    blocks.append(Grid(cells[: _LISTED + 1], folded=f"All {len(cells) - 1} coefficients"))
    return [Section("What it learned", blocks)]


@learned.register
def _trees(model: TreeModel) -> list[Section]:
    asked = dict(sorted(model.importance().items(), key=lambda one: -one[1]))
    shown = dict(list(asked.items())[:_DRAWN])
    first, share = next(iter(asked.items()))
    blend = [("start", "trees", "weight")]
    blend += [
        (
            "linear" if np.any(member.coef) else "constant",
            str(sum(map(len, member.trees))),
            f"{member.weight:.2f}",
        )
        for member in model.members
    ]
    return [
        Section(
            "What it learned",
            [
                Facts(
                    [
                        ("trees", f"{model.n_trees:,}"),
                        ("fits that are blended", str(len(model.members))),
                    ]
                ),
                Figure(
                    charts.bars(shown, title="share of the questions of all trees", percent=True),
                    alt=f"Bars: how often trees ask about each of {len(asked)} columns; most often "
                    f"about {first}, in {share:.0%} of their questions.",
                    caption="How often trees ask about a column. That says where trees look, and "
                    "little about how much a column matters: many small steps need many questions.",
                    numbers=Grid(
                        [("column", "share"), *((n, f"{100 * s:.3g} %") for n, s in asked.items())],
                        folded="The numbers of these bars",
                    ),
                ),
                Grid(blend, folded="The fits that are blended"),
            ],
        )
    ]


def _strongest(
    found: Coefficients, slopes: "np.ndarray[tuple[int], np.dtype[np.bool_]]"
) -> tuple[Coefficients, int]:
    """Return the slopes that can be drawn in one chart, and the number of the others."""
    sure = found.statistic if found.standard_error is not None else found.estimate
    strength = np.where(slopes, np.nan_to_num(np.abs(sure), posinf=np.inf), -1.0)
    order = np.sort(np.argsort(-strength, kind="stable")[: min(_DRAWN, int(slopes.sum()))])
    kept = dataclasses.replace(
        found,
        names=tuple(found.names[i] for i in order),
        estimate=found.estimate[order],
        standard_error=None if found.standard_error is None else found.standard_error[order],
        unshrunk=None if found.unshrunk is None else found.unshrunk[order],
        title="",
    )
    return kept, int(slopes.sum()) - order.size


def _in_words(found: Coefficients) -> str:
    if found.standard_error is None:
        return "There are no intervals."
    with np.errstate(invalid="ignore"):
        away = (found.interval[:, 0] > 0) | (found.interval[:, 1] < 0)
    names = [name for name, far in zip(found.names, away, strict=True) if far]
    if not names:
        return "Every interval holds zero."
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"Intervals without zero: {', '.join(names[:5])}{more}."


def _fit(model: Model, release: Release | None) -> list[Block]:
    if release is None:
        return [
            Prose(
                "A model file holds no bags. With the release the page shows how the model fits "
                "it, and how its predictions are calibrated:"
            ),
            Steps([Step("bagwise report MODEL --release DIR -o model.html")]),
        ]
    if model.classes is not None:
        return [Prose("For a model of classes the fit to bags is not drawn.")]
    scores, fit = evaluate_release(model, release), fit_of_bags(model, release)
    hidden = "hidden by the noise"
    facts = [
        ("bags", f"{scores.n_bags:,}"),
        ("error on published bag labels", f"{scores.rmse:.3g}"),
        ("privacy noise of a bag label", f"{scores.mean_noise_sd:.3g}"),
        (
            "error without that noise",
            hidden if scores.rmse_without_noise is None else f"{scores.rmse_without_noise:.3g}",
        ),
        (
            "share of the variance explained",
            hidden if scores.r2_without_noise is None else _share(scores.r2_without_noise),
        ),
    ]
    return [Facts(facts), *_calibrated(fit, model.label), *_left_over(fit)]


def _share(value: float) -> str:
    """Return a share in per cent; only one that is whole is said to be 100 %.

    >>> _share(0.1234), _share(0.99987), _share(1.0)
    ('12.3 %', 'more than 99.9 %', '100 %')
    """
    return "more than 99.9 %" if 0.9995 <= value < 1 else f"{100 * value:.3g} %"


def _calibrated(fit: BagFit, label: str) -> list[Block]:
    if not fit.groups:
        return [
            Prose(
                f"There are {fit.n_bags} bags: too few for groups of at least {SMALLEST_GROUP}, "
                "and single bags are not shown."
            )
        ]
    within = sum(row["low"] <= row["predicted"] <= row["high"] for row in fit.groups)
    rows = [("bags", "predicted", "in the bags", "95 % interval")]
    rows += [
        (
            str(row["bags"]),
            f"{row['predicted']:.4g}",
            f"{row['observed']:.4g}",
            f"{row['low']:.4g} to {row['high']:.4g}",
        )
        for row in fit.groups
    ]
    return [
        Figure(
            charts.calibration(fit.groups, title=label),
            alt=f"Dots along a diagonal: {len(fit.groups)} groups of bags by their predictions; in "
            f"{within} of them the prediction lies within the interval of the mean label.",
            caption="Calibration: each dot is a group of bags with similar predictions. On the "
            "dashed line predictions are right on average. The lines through the dots are 95 % "
            "intervals, which include the privacy noise.",
            numbers=Grid(rows, folded="The numbers of these dots"),
        )
    ]


def _left_over(fit: BagFit) -> list[Block]:
    if fit.n_bags < 2 * SMALLEST_GROUP:
        return []
    return [
        Figure(
            charts.histogram(fit.edges, fit.counts, title="bag label minus mean prediction"),
            alt=f"Bars: {fit.n_bags} bags by how far their label is from the mean prediction, "
            f"most between {fit.edges[0]:.3g} and {fit.edges[-1]:.3g}.",
            caption="Residuals: how far bag labels are from the mean predictions, privacy noise "
            "included. The outermost bars also count the bags that are further out.",
        )
    ]


def _privacy(model: Model) -> Block:
    if model.certificate is not None:
        return promise_of(model.certificate)
    headline = model.trained_on.privacy
    if headline is None or headline == NOT_PRIVATE:
        return Notice(
            "NOT PRIVATE: the model was fitted to labels without noise, and nothing is promised "
            "about them.",
            tone="bad",
        )
    return Notice(
        f"Fitted to a release that is {headline}. The model was computed from what was already "
        "published, so it tells no more about labels than the release, and spends nothing more."
        + (
            " It also used labelled rows of the learner, which nothing protects."
            if model.trained_on.n_labelled_rows
            else ""
        ),
        tone="warn" if model.trained_on.n_labelled_rows else "good",
    )


def _warnings(model: Model) -> list[Block]:
    if model.trained_on.converged:
        return []
    return [Notice("The fit did not converge. Do not rely on these figures.", tone="bad")]


def _origin(model: Model) -> Block:
    made = model.trained_on
    facts = {
        "family": model.family,
        "link": model.link,
        "loss": model.loss,
        "predictions within": "" if model.bounds is None else "{:g} to {:g}".format(*model.bounds),
        "rows": f"{made.n_rows:,}",
        "bags": "" if made.n_bags is None else f"{made.n_bags:,}",
        "labelled rows of the learner": f"{made.n_labelled_rows:,}" if made.n_labelled_rows else "",
        "bags made by": made.strategy or "",
        "bag labels": made.label_kind or "",
        "digest": model.digest[:16],
    }
    return Facts([(name, value) for name, value in facts.items() if value])


def _next_steps(path: Path) -> Steps:
    return Steps(
        [
            Step(f"bagwise predict {path} TABLE -o predictions.parquet", "Predict other rows."),
            Step(f"bagwise evaluate {path} DIR", "Score it on the bags of a release."),
            Step(f"bagwise verify {path}", "Check that nobody changed the file."),
        ]
    )

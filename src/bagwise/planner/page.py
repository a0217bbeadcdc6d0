"""A plan as one HTML page that needs no network: the ranking, the frontier, and the commands."""

from typing import Any

import numpy as np

from bagwise.planner.ranking import Plan, name_of
from bagwise.show import charts
from bagwise.show.page import (
    Facts,
    Figure,
    Grid,
    Headline,
    Page,
    Points,
    Section,
    Step,
    Steps,
    render,
)

_COMMANDS = 3
LOST = "% lost"  # of what true labels would give
_LEAST_LOST = 0.01  # an axis of logarithms has no zero
# What decides comes first: a phone shows three or four columns.
_ORDER = (
    "",
    "strategy",
    "size",
    "error",
    "keeps",
    "lost to",
    "bags",
    "label",
    "loss",
    "noise",
)


def make_page(plan: Plan) -> str:
    """Return the page."""
    promise = (
        "not private" if plan.epsilon is None else f"epsilon {plan.epsilon:g}, delta {plan.delta:g}"
    )
    table = plan.cells()
    places = [table[0].index(name) for name in _ORDER]
    best = enumerate(plan.candidates[:_COMMANDS])
    sections = [
        Section("The best choices", [Grid([tuple(row[p] for p in places) for row in table])]),
        Section("Commands", [Steps([Step(plan.command(i), name_of(c)) for i, c in best])]),
        *_frontier(plan),
        *_sizes(plan),
        Section("What this rests on", [Points(plan.remarks())]),
    ]
    page = Page(
        title="What to release",
        lead=f"{plan.n_rows:,} rows, {promise}, {plan.family} labels. No label was looked at.",
        label="bagwise plan",
        top=[
            Headline(
                plan.accuracy(plan.best.predictions.total).share,
                f"of what true labels would give is kept with {name_of(plan.best)}",
                f"A model {plan.accuracy(plan.best.predictions.total)}, if {plan.prior.text()}.",
            )
        ],
        sections=sections,
    )
    return render(page)


def plan_chart(plan: Plan) -> charts.Chart:
    """Draw what the best choices lose against epsilon; against bag size if that is not known."""
    if plan.frontier:
        return charts.lines(_by_epsilon(plan), x="epsilon", y=LOST, series="choice")
    return charts.lines(_by_size(plan), x="bag size", y=LOST, series="choice")


def _frontier(plan: Plan) -> list[Section]:
    if not plan.frontier:
        return []
    rows = _by_epsilon(plan)
    figure = Figure(
        charts.lines(rows, x="epsilon", y=LOST, series="choice"),
        alt="Lines: what each choice loses falls as epsilon rises. " + _ends(rows, "epsilon"),
        caption="Share of what true labels would give that is lost, choice by choice. Both axes "
        "are logarithmic.",
        numbers=_numbers(rows, "epsilon"),
    )
    return [Section("What is lost, by epsilon", [figure])]


def _sizes(plan: Plan) -> list[Section]:
    rows = _by_size(plan)
    sizes = {row["bag size"] for row in rows}
    if len(sizes) < 2:
        return [Section("Bag size", [Facts([("rows in a bag", str(min(sizes)))])])]
    figure = Figure(
        charts.lines(rows, x="bag size", y=LOST, series="choice"),
        alt="Lines: what each strategy loses by bag size. " + _ends(rows, "bag size"),
        caption="The least that each strategy loses at each bag size. Both axes are logarithmic.",
        numbers=_numbers(rows, "bag size"),
    )
    return [Section("What is lost, by bag size", [figure])]


def _by_epsilon(plan: Plan) -> list[dict[str, Any]]:
    return [
        {"choice": choice, "epsilon": epsilon, LOST: _lost(plan, error)}
        for choice, points in plan.frontier.items()
        for epsilon, error in points
    ]


def _by_size(plan: Plan) -> list[dict[str, Any]]:
    """Return the least that each strategy loses at each bag size."""
    best: dict[tuple[str, int], float] = {}
    for candidate in plan.candidates:
        key = (candidate.title, candidate.bag_size)
        best[key] = min(best.get(key, np.inf), candidate.rmse)
    return [
        {"choice": strategy, "bag size": size, LOST: _lost(plan, error)}
        for (strategy, size), error in best.items()
    ]


def _lost(plan: Plan, error: float) -> float:
    return max(100 * (1 - plan.accuracy(error**2).kept), _LEAST_LOST)


def _ends(rows: list[dict[str, Any]], x: str) -> str:
    best = min(rows, key=lambda row: float(row[LOST]))
    return f"The smallest is {best[LOST]:.3g}, by {best['choice']} at {x} {best[x]:g}."


def _numbers(rows: list[dict[str, Any]], x: str) -> Grid:
    cells = [(str(row["choice"]), f"{row[x]:g}", f"{row[LOST]:.3g}") for row in rows]
    return Grid([("choice", x, LOST), *cells], folded="The numbers of these lines")

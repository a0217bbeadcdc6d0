"""A plan as a self-contained HTML page: the ranking, the frontier, and the commands."""

from typing import Any

import numpy as np

from bagwise.planner.ranking import HEADING, Plan, name_of
from bagwise.show import charts
from bagwise.show.page import Figure, Grid, Page, render

_COMMANDS = 3
LOST = "% lost"  # of what true labels would give
_LEAST_LOST = 0.01  # an axis of logarithms has no zero
# What decides comes first: a phone shows three or four columns.
_ORDER = ("", "strategy", "size", "error", "keeps", "lost to", "bags", "label", "loss", "noise")


def make_page(plan: Plan) -> str:
    """Return the page."""
    promise = (
        "not private" if plan.epsilon is None else f"epsilon {plan.epsilon:g}, delta {plan.delta:g}"
    )
    table, accuracy = plan.cells(), plan.accuracy(plan.best.predictions.total)
    places = [HEADING.index(name) for name in _ORDER]
    by_epsilon, by_size = _by_epsilon(plan), _by_size(plan)
    sizes = {row["bag size"] for row in by_size}
    values = {
        "share": accuracy.share,
        "best": name_of(plan.best),
        "accuracy": str(accuracy),
        "belief": plan.prior.text(),
        "choices": Grid([tuple(row[place] for place in places) for row in table]),
        "commands": [
            (plan.command(i), name_of(one)) for i, one in enumerate(plan.candidates[:_COMMANDS])
        ],
        "by_epsilon": _figure(by_epsilon, "epsilon") if by_epsilon else None,
        "by_size": _figure(by_size, "bag size") if len(sizes) > 1 else None,
        "bag_size": min(sizes),
        "remarks": plan.remarks(),
    }
    lead = f"{plan.n_rows:,} rows, {promise}, {plan.family} labels. No label was looked at."
    return render(Page("plan.html", "What to release", lead, values))


def plan_chart(plan: Plan) -> charts.Chart:
    """Draw what the best choices lose against epsilon; against bag size if that is not known."""
    if plan.frontier:
        return charts.lines(_by_epsilon(plan), x="epsilon", y=LOST, series="choice")
    return charts.lines(_by_size(plan), x="bag size", y=LOST, series="choice")


def _figure(rows: list[dict[str, Any]], x: str) -> Figure:
    best = min(rows, key=lambda row: float(row[LOST]))
    cells = [(str(row["choice"]), f"{row[x]:g}", f"{row[LOST]:.3g}") for row in rows]
    return Figure(
        charts.lines(rows, x=x, y=LOST, series="choice"),
        alt=f"Lines: what each choice loses by {x}. The smallest is {best[LOST]:.3g}, by "
        f"{best['choice']} at {x} {best[x]:g}.",
        caption="Share of what true labels would give that is lost, choice by choice. Both axes "
        "are logarithmic.",
        numbers=Grid([("choice", x, LOST), *cells], folded="The numbers of these lines"),
    )


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

"""A plan as one HTML page that needs no network: the ranking, the frontier, and the commands."""

from typing import Any

import numpy as np

from bagwise.errors import MissingExtraError
from bagwise.planner.ranking import Plan, name_of
from bagwise.show import html
from bagwise.show.html import escape

_COMMANDS = 5


def make_page(plan: Plan) -> str:
    """Return the page."""
    promise = (
        "not private" if plan.epsilon is None else f"epsilon {plan.epsilon:g}, delta {plan.delta:g}"
    )
    commands = "".join(
        f"<li>{escape(name_of(plan.candidates[rank]))}<br><code>{escape(plan.command(rank))}</code>"
        "</li>"
        for rank in range(min(_COMMANDS, len(plan.candidates)))
    )
    remarks = "".join(f"<li>{escape(remark)}</li>" for remark in plan.remarks())
    charts = "".join(_charts(plan))
    return html.page(
        "bagwise plan",
        "<h1>What to release</h1>"
        f"<p>{plan.n_rows} rows, {escape(promise)}, {escape(plan.family)} labels. Errors are those "
        "of predictions, root mean square, in units of the label.</p>"
        f"{html.grid('The best choices', plan.cells())}<ul>{remarks}</ul>{charts}"
        f"<h2>Commands</h2><ol>{commands}</ol>",
    )


def _charts(plan: Plan) -> list[str]:
    try:
        import altair as alt
    except ImportError:
        raise MissingExtraError("a plan as a page", "plot") from None
    by_size = _by_size(plan)
    charts = [_chart(alt, by_size, "bag size", "error against bag size")] if by_size else []
    if plan.frontier:
        rows = [
            {"choice": choice, "epsilon": epsilon, "off by": error}
            for choice, points in plan.frontier.items()
            for epsilon, error in points
        ]
        charts.insert(0, _chart(alt, rows, "epsilon", "error against epsilon"))
    return [
        chart.to_html(inline=True, fullhtml=False, output_div=f"c{i}")
        for i, chart in enumerate(charts)
    ]


def _by_size(plan: Plan) -> list[dict[str, Any]]:
    """Return the best error of each strategy at each bag size."""
    best: dict[tuple[str, int], float] = {}
    for candidate in plan.candidates:
        key = (candidate.title, candidate.bag_size)
        best[key] = min(best.get(key, np.inf), candidate.rmse)
    return [
        {"choice": strategy, "bag size": size, "off by": error}
        for (strategy, size), error in best.items()
    ]


def _chart(alt: Any, rows: list[dict[str, Any]], x: str, title: str) -> Any:
    return (
        alt.Chart(alt.InlineData(rows), title=title, width=520, height=280)
        .mark_line(point=True)
        .encode(
            x=alt.X(f"{x}:Q", scale=alt.Scale(type="log")),
            y=alt.Y("off by:Q", scale=alt.Scale(type="log")),
            color=alt.Color(
                "choice:N", legend=alt.Legend(orient="bottom", columns=1, labelLimit=500)
            ),
            tooltip=["choice:N", f"{x}:Q", "off by:Q"],
        )
    )

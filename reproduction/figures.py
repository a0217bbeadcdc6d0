"""Results as plots, for those who would rather look."""

from collections.abc import Iterable
from typing import Any

from bagwise.errors import MissingExtraError
from reproduction.cells import APPENDIX, Cell, printed_values
from reproduction.measured import Measured, Result
from reproduction.reproduce import (
    CURVE_EPSILONS,
    CURVE_ROWS,
    CURVE_SIZES,
    PAPER_ROWS,
    Scale,
)
from reproduction.tables import NAMES

Chart = Any  # Altair's methods say no more
Rows = list[dict[str, Any]]

_CURVE_STRATEGIES = ("random", "kmeans", "sorted")


def check_plots() -> None:
    """Raise if plots cannot be made; cheap, so that callers can ask before they start."""
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError:
        raise MissingExtraError("the figures of a report", "plot") from None


def make_figures(results: Iterable[Result], scale: Scale) -> dict[str, str | None]:
    """Return the figures by title, as SVG; None where there are no results for one."""
    results = list(results)
    measured = Measured(results, rows=scale.rows)
    charts = {
        "Printed values against the minimiser's error and the protocol's": _against_printed(
            measured
        ),
        "Error against the size of bags": _against_size(measured),
        "Error against the number of bags of 10": _against_count(results, scale),
        "Error against epsilon, instance loss on private picks from bags of 10": _against_epsilon(
            measured
        ),
        "Share of the protocol's error that is left of the first weights": _along_start(measured),
    }
    return {title: None if chart is None else _svg(chart) for title, chart in charts.items()}


def _against_printed(measured: Measured) -> Chart | None:
    import altair as alt

    rows = [
        {
            "way": f"{way} against printed",
            "printed": printed.mean,
            "found": measured.mean(printed.cell, name),
            "loss": printed.cell.loss,
            "bags": NAMES[printed.cell.strategy],
        }
        for printed in printed_values()
        if printed.table in APPENDIX and printed.cell in measured
        for name, way in (("exact", "minimiser"), ("protocol", "protocol"))
    ]
    if not rows:
        return None
    scale = alt.Scale(type="log", nice=False, padding=8)
    points = (
        alt.Chart()
        .mark_point(filled=True, size=45, opacity=0.75)
        .encode(
            x=alt.X("printed:Q", scale=scale, axis=alt.Axis(values=[0.01, 0.02, 0.03, 0.05, 0.07])),
            y=alt.Y("found:Q", scale=scale, title="found"),
            color=alt.Color("loss:N"),
            shape=alt.Shape("bags:N"),
        )
    )
    ends = [{"printed": end, "found": end} for end in (0.007, 0.07)]
    line = (
        alt.Chart(alt.InlineData(ends)).mark_line(color="grey").encode(x="printed:Q", y="found:Q")
    )
    return (
        alt.layer(points, line, data=alt.InlineData(rows))
        .properties(width=270, height=270)
        .facet(column=alt.Column("way:N", title=None))
        .resolve_scale(y="independent")
    )


def _against_size(measured: Measured) -> Chart | None:
    rows = [
        {**row, "bag size": cell.bag_size}
        for loss in ("bag", "aggregate", "instance")
        for size in CURVE_SIZES
        for strategy in _CURVE_STRATEGIES
        if (cell := Cell(loss, "iso", size, 0.5, strategy)) in measured
        for row in _rows(measured, cell)
    ]
    return _curves(rows, "bag size", list(CURVE_SIZES)) if _varies(rows, "bag size") else None


def _against_count(results: list[Result], scale: Scale) -> Chart | None:
    rows: Rows = []
    for papers in CURVE_ROWS:
        count = papers * scale.rows // PAPER_ROWS
        measured = Measured(results, rows=count)
        cells = [
            Cell(loss, "iso", 10, 0.5, strategy)
            for loss in ("bag", "instance")
            for strategy in _CURVE_STRATEGIES
        ]
        rows += [
            {**row, "number of bags": count // 10}
            for cell in cells
            if cell in measured
            for row in _rows(measured, cell)
        ]
    ticks = [rows * scale.rows // PAPER_ROWS // 10 for rows in CURVE_ROWS]
    return _curves(rows, "number of bags", ticks) if _varies(rows, "number of bags") else None


def _rows(measured: Measured, cell: Cell) -> Rows:
    values = {name: measured.mean(cell, name) for name in ("exact", "expected", "protocol")}
    return [{"loss": f"{cell.loss} loss", "bags": NAMES[cell.strategy], **values}]


def _varies(rows: Rows, name: str) -> bool:
    return len({row[name] for row in rows}) > 1


def _curves(rows: Rows, x: str, ticks: list[int]) -> Chart:
    """Return two rows of plots: minimisers on the curves of theory, and the protocol."""
    import altair as alt

    scale = alt.Scale(type="log", nice=False, padding=10)
    horizontal = alt.X(f"{x}:Q", scale=scale, axis=alt.Axis(values=ticks))
    base = alt.Chart().encode(x=horizontal, color=alt.Color("bags:N"))

    def vertical(name: str, title: str) -> Chart:
        return alt.Y(f"{name}:Q", scale=alt.Scale(type="log"), title=title)

    def across(*layers: Chart) -> Chart:
        return (
            alt.layer(*layers, data=alt.InlineData(rows))
            .properties(width=165, height=190)
            .facet(column=alt.Column("loss:N", title=None))
            .resolve_scale(y="independent")
        )

    both = "minimiser (dots), theory (lines)"
    return alt.vconcat(
        across(
            base.mark_line().encode(y=vertical("expected", both)),
            base.mark_point(filled=True, size=45).encode(y=vertical("exact", both)),
        ),
        across(base.mark_line(point=True).encode(y=vertical("protocol", "protocol"))),
    )


def _against_epsilon(measured: Measured) -> Chart | None:
    import altair as alt

    ways = {
        "printed_noise": "printed noise",
        "correct_noise": "enough noise",
        "model": "enough noise, bags by a private model",
    }
    rows = [
        {
            "epsilon": epsilon,
            "error": measured.mean(cell, name),
            "bags": NAMES[strategy] if name != "model" else "sorted by a private model",
            "way": way,
        }
        for epsilon in CURVE_EPSILONS
        for strategy in ("kmeans", "sorted")
        if (cell := Cell("instance", "iso", 10, 0.5, strategy, epsilon)) in measured
        for name, way in ways.items()
        if not (name == "model" and strategy == "kmeans")  # they are the same bags
    ]
    if not _varies(rows, "epsilon"):
        return None
    base = alt.Chart(alt.InlineData(rows), width=420, height=300).encode(
        x=alt.X(
            "epsilon:Q",
            scale=alt.Scale(type="log", nice=False, padding=10),
            axis=alt.Axis(values=list(CURVE_EPSILONS)),
            title="stated epsilon",
        ),
        y=alt.Y("error:Q", scale=alt.Scale(type="log"), title="squared error of minimiser"),
        color=alt.Color("bags:N"),
    )
    legend = alt.Legend(labelLimit=400, symbolType="stroke", symbolStrokeColor="black")
    return base.mark_line().encode(
        strokeDash=alt.StrokeDash("way:N", sort=list(ways.values()), legend=legend)
    ) + base.mark_point(filled=True, size=40)


def _along_start(measured: Measured) -> Chart | None:
    import altair as alt

    rows = [
        {
            "loss": f"{cell.loss} loss",
            "bags": NAMES[cell.strategy],
            "share": measured.mean(cell, "along_start"),
            "bag size": f"bags of {cell.bag_size}",
            "data": cell.data,
        }
        for table in APPENDIX
        for cell in (printed.cell for printed in printed_values() if printed.table == table)
        if cell in measured
    ]
    if not rows:
        return None
    chart = (
        alt.Chart()
        .mark_point(filled=True, size=50, opacity=0.7)
        .encode(
            x=alt.X("share:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%")),
            y=alt.Y("bags:N", title=None),
            color=alt.Color("bag size:N"),
            shape=alt.Shape("data:N"),
        )
        .properties(width=165, height=140)
    )
    return chart.facet(column=alt.Column("loss:N", title=None), data=alt.InlineData(rows))


def _svg(chart: Any) -> str:
    import vl_convert

    drawn = chart.to_dict()
    # Legends below, so that a figure fits the page, and room for letters that are wider elsewhere.
    legend = {"orient": "bottom", "columnPadding": 30}
    drawn["config"] = {**drawn.get("config", {}), "legend": legend}
    drawn["padding"] = {"left": 15, "right": 10, "top": 5, "bottom": 5}
    return str(vl_convert.vegalite_to_svg(drawn))

"""The charts of pages and notebooks, from plain numbers: one function for each question.

They do not set colours or font sizes: pages use their own style (`drawing`), and notebooks the
style of Altair.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.show.drawing import altair, colour, safe_name

Rows = list[dict[str, Any]]

Chart = Any
"""A chart of Altair, which is an extra: it may not be there to name its types."""

_BINS = 24
_BAR = 42  # pixels for each bar of a list and its name
_MOST_BARS = 40  # that can be told apart side by side


def privacy_curve(
    points: Sequence[tuple[float, float]], *, promised: tuple[float, float] | None = None
) -> Chart:
    """Draw delta against epsilon, with the pair that was promised."""
    alt = altair("a plot of a certificate")
    if promised is not None:  # what lies far beyond is of no use to anybody
        points = [p for p in points if p[0] <= max(3 * promised[0], points[1][0])]
    # Where delta falls by many powers of ten, lengths cannot show them.
    positive = [delta for _, delta in points if delta > 0]
    falls = bool(positive) and min(positive) < 1e-3 * max(positive)
    shown = [(e, d) for e, d in points if d > 1e-16] if falls else list(points)
    rows: Rows = [{"epsilon": epsilon, "delta": delta} for epsilon, delta in shown]
    y = alt.Y(
        "delta:Q",
        title="delta",
        scale=alt.Scale(type="log") if falls else alt.Scale(),
        axis=alt.Axis(format=".0e", tickCount=6) if falls else alt.Axis(tickCount=5),
    )
    base = alt.Chart(alt.InlineData(rows), height=240).encode(
        x=alt.X("epsilon:Q", title="epsilon"), y=y, tooltip=["epsilon:Q", "delta:Q"]
    )
    layers = [base.mark_line(), base.mark_point(filled=True)]
    if promised is not None and promised[0] <= max(epsilon for epsilon, _ in points):
        marked: Rows = [{"epsilon": promised[0], "text": f"promised: {promised[0]:.3g}"}]
        here = alt.Chart(alt.InlineData(marked)).encode(x="epsilon:Q")
        layers.append(here.mark_rule(strokeDash=[5, 4]))
        layers.append(
            here.mark_text(align="left", dx=6, dy=4, baseline="top").encode(
                y=alt.value(0), text="text:N"
            )
        )
    return alt.LayerChart(layer=layers)


def bag_sizes(sizes: IntArray) -> Chart:
    """Draw how many bags have how many rows."""
    alt = altair("a plot of bags")
    values, counts = np.unique(np.asarray(sizes), return_counts=True)
    if values.size > _MOST_BARS:
        number, edges = np.histogram(sizes, bins=_BINS)
        return histogram(edges, number, title="rows in a bag")
    pairs = zip(values.tolist(), counts.tolist(), strict=True)
    rows: Rows = [{"rows": value, "bags": number} for value, number in pairs]
    axis = alt.Axis(labelAngle=0, labelOverlap=True)
    return _bags_by(alt.X("rows:O", title="rows in a bag", axis=axis), rows, ["rows:Q"])


def kept_shares(kept: FloatArray) -> Chart:
    """Draw the share of variance that bag means keep in each principal direction."""
    alt = altair("a plot of what bags keep")
    rows: Rows = [{"direction": i + 1, "kept": float(share)} for i, share in enumerate(kept)]
    few = len(rows) <= _MOST_BARS
    chart = alt.Chart(alt.InlineData(rows), height=200)
    return (chart.mark_bar() if few else chart.mark_line()).encode(
        x=alt.X(
            f"direction:{'O' if few else 'Q'}",
            title="direction, the widest spread first",
            axis=alt.Axis(labelAngle=0, labelOverlap=True),
        ),
        y=alt.Y(
            "kept:Q",
            title="share kept",
            scale=alt.Scale(domain=[0, 1]),
            axis=alt.Axis(format=".0%", tickCount=5),
        ),
        tooltip=["direction:Q", alt.Tooltip("kept:Q", format=".1%")],
    )


def bars(
    values: Mapping[str, float], *, title: str, percent: bool = False, largest: float | None = None
) -> Chart:
    """Draw one bar for each name, below the name; in the order given."""
    alt = altair("a plot")
    form = ".0%" if percent else ".3~g"
    rows: Rows = []
    for name, value in values.items():
        shown = f"{value:.0%}" if percent else f"{value:.3g}"
        rows.append(
            {"name": safe_name(name), "value": value, "text": f"{safe_name(name)}: {shown}"}
        )
    top = largest or max(values.values(), default=0.0) * 1.05 or 1.0
    # Beside its bar a long name would leave no room for the bar on a phone.
    base = alt.Chart(alt.InlineData(rows), height=_BAR * max(len(rows), 1)).encode(
        y=alt.Y("name:N", sort=None, title=None, axis=None)
    )
    drawn = base.mark_bar(size=12, yOffset=8).encode(
        x=alt.X(
            "value:Q",
            title=safe_name(title),
            scale=alt.Scale(domain=[0, top], nice=False),
            axis=alt.Axis(format=form, tickCount=5, grid=False),
        )
    )
    names = base.mark_text(align="left", baseline="bottom").encode(
        text="text:N", x=alt.value(0), color=alt.value(colour("ink"))
    )
    return alt.LayerChart(layer=[drawn, names])


def lines(rows: Rows, *, x: str, y: str, series: str) -> Chart:
    """Draw one line for each series, both axes by powers of ten."""
    alt = altair("a plot")
    for row in rows:
        row[series] = safe_name(str(row[series]))
    ticks = sorted({row[x] for row in rows})
    return (
        alt.Chart(alt.InlineData(rows), height=300)
        .mark_line(point=True)
        .encode(
            x=alt.X(
                f"{x}:Q",
                scale=alt.Scale(type="log", nice=False, padding=12),
                axis=alt.Axis(values=ticks, format="~g", labelOverlap=True, labelFlush=False),
            ),
            y=alt.Y(
                f"{y}:Q",
                scale=alt.Scale(type="log", nice=False, padding=8),
                axis=alt.Axis(values=_round_numbers([row[y] for row in rows]), format="~g"),
            ),
            color=alt.Color(f"{series}:N", sort=None, title=None),
            tooltip=[f"{series}:N", f"{x}:Q", f"{y}:Q"],
        )
    )


def spending(spent: Sequence[tuple[str, float]], *, budget: float, begun: str) -> Chart:
    """Draw what was spent after each charge as steps, below the budget.

    Charges are at their times where they lie days apart, and at their numbers otherwise.
    """
    alt = altair("a plot of a ledger")
    by_day = len({time[:10] for time, _ in spent}) > 1
    course = [(begun, 0.0), *spent]
    rows: Rows = [
        {"when": time if by_day else i, "spent": total} for i, (time, total) in enumerate(course)
    ]
    if not by_day:  # the last step needs some width
        rows.append({"when": len(spent) + 0.5, "spent": spent[-1][1]})
    x = alt.X(
        f"when:{'T' if by_day else 'Q'}",
        title=None if by_day else "charges",
        axis=alt.Axis(labelOverlap=True) if by_day else alt.Axis(tickMinStep=1, format="d"),
        scale=alt.Scale() if by_day else alt.Scale(domain=[0, len(spent) + 0.5], nice=False),
    )
    y = alt.Y("spent:Q", title="epsilon spent", scale=alt.Scale(domain=[0, budget * 1.08]))
    base = alt.Chart(alt.InlineData(rows), height=240).encode(x=x, y=y)
    limit = alt.Chart(alt.InlineData([{"spent": budget, "text": f"budget: {budget:.3g}"}]))
    return alt.LayerChart(
        layer=[
            base.mark_area(interpolate="step-after", opacity=0.18),
            base.mark_line(interpolate="step-after"),
            limit.mark_rule(strokeDash=[5, 4]).encode(y="spent:Q"),
            limit.mark_text(align="left", dx=4, dy=12).encode(
                y="spent:Q", x=alt.value(0), text="text:N"
            ),
        ]
    )


def intervals(rows: Rows, *, title: str, spread: str | None) -> Chart:
    """Draw estimates as dots, with their intervals as lines if `spread` says what those are.

    Rows have ``coefficient``, ``estimate``, ``lower`` and ``upper``.
    """
    alt = altair("a coefficient plot")
    named: Rows = [{**row, "coefficient": safe_name(row["coefficient"])} for row in rows]
    base = alt.Chart(alt.InlineData(named)).encode(
        y=alt.Y("coefficient:N", sort=None, title=None, axis=alt.Axis(grid=False)),
        tooltip=["coefficient:N", "estimate:Q", "lower:Q", "upper:Q"],
    )
    zero = alt.Chart(alt.InlineData([{"x": 0}])).mark_rule(color=colour("muted")).encode(x="x:Q")
    what = "estimate" if spread is None else f"estimate and {spread}"
    dots = base.mark_point(filled=True, size=60, opacity=1).encode(
        x=alt.X("estimate:Q", title=what)
    )
    lines = base.mark_rule(strokeWidth=2).encode(x=alt.X("lower:Q", title=what), x2="upper:Q")
    layers = [zero, dots] if spread is None else [zero, lines, dots]
    return alt.LayerChart(layer=layers, title=safe_name(title))


def calibration(rows: Rows, *, title: str) -> Chart:
    """Draw what groups of bags have on average against what was predicted for them.

    Rows have ``predicted``, ``observed``, ``low`` and ``high``.
    """
    alt = altair("a plot of a calibration")
    ends = [row[name] for row in rows for name in ("predicted", "low", "high")]
    low, high = min(ends), max(ends)
    room = 0.04 * (high - low) or max(abs(high), 1.0) * 0.04
    title = safe_name(title)
    domain = alt.Scale(domain=[low - room, high + room], nice=False)
    x = alt.X("predicted:Q", title=f"{title}, predicted", scale=domain)
    base = alt.Chart(alt.InlineData(rows), height=300).encode(x=x)
    line: Rows = [{"predicted": at, "observed": at} for at in (low - room, high + room)]
    same = alt.Chart(alt.InlineData(line)).mark_line(
        strokeDash=[5, 4], strokeWidth=1.5, color=colour("muted")
    )
    return alt.LayerChart(
        layer=[
            same.encode(x=x, y=alt.Y("observed:Q", title=f"{title}, in the bags", scale=domain)),
            base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", scale=domain), y2="high:Q"),
            base.mark_point(filled=True, size=60).encode(
                y=alt.Y("observed:Q", scale=domain),
                tooltip=["predicted:Q", "observed:Q", "low:Q", "high:Q"],
            ),
        ]
    )


def histogram(edges: FloatArray, counts: IntArray, *, title: str) -> Chart:
    """Draw how many bags lie between each two edges."""
    alt = altair("a plot")
    rows: Rows = [
        {"from": float(low), "to": float(high), "bags": int(number)}
        for low, high, number in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    x = alt.X("from:Q", bin="binned", title=safe_name(title))
    return _bags_by(x, rows, ["from:Q", "to:Q"]).encode(x2="to:Q")


def _bags_by(x: Any, rows: Rows, named: list[str]) -> Chart:
    """Draw the number of bags for each of several values as a bar; `named` labels the bars."""
    alt = altair("a plot of bags")
    y = alt.Y("bags:Q", title="bags", axis=alt.Axis(tickMinStep=1, tickCount=5))
    base = alt.Chart(alt.InlineData(rows), height=200)
    return base.mark_bar().encode(x=x, y=y, tooltip=[*named, "bags:Q"])


def _round_numbers(values: Sequence[float]) -> list[float]:
    """Return 1, 2 and 5 times powers of ten that lie among positive values."""
    low, high = min(values), max(values)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    return [tick for tick in ticks if low / 1.1 <= tick <= high * 1.1]


def nice_edges(values: FloatArray, *, bins: int = _BINS) -> FloatArray:
    """Return edges of equal width on round numbers that cover all values.

    >>> nice_edges(np.array([-0.9, 3.1]), bins=5).tolist()
    [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    """
    low, high = float(values.min()), float(values.max())
    raw = (high - low) / bins or 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw * (1 - 1e-9))
    first, last = math.floor(low / step), math.ceil(high / step)
    return np.arange(first, max(last, first + 1) + 1, dtype=np.float64) * step

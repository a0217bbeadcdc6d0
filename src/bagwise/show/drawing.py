"""Charts as SVG for pages, in one style, with colours that a style sheet adapts to dark screens.

A page contains drawings and no scripts: it opens at once, prints as it looks, and cannot load
anything from a network. Each chart is drawn twice, for wide screens and for phones, because a
drawing that is only scaled down becomes illegible.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from bagwise._printable import printable
from bagwise.errors import MissingExtraError

if TYPE_CHECKING:
    import altair as alt

WIDE, NARROW = 600, 268
"""Widths of the plotting area, without axes, in pixels."""

COLOURS = {
    "ink": ("#1d232b", "#e8ebef"),
    "muted": ("#59636f", "#a5afba"),
    "line": ("#e1e4e8", "#323a44"),
    "series-1": ("#0b63a5", "#7cbcf2"),
    "series-2": ("#b4540a", "#f0a35e"),
    "series-3": ("#1c7044", "#74cf9d"),
    "series-4": ("#7a3fa0", "#cfa2f0"),
    "series-5": ("#a0224d", "#f592b4"),
    "series-6": ("#5c6b00", "#c6d36a"),
}
"""By role: the colour on a light page, and on a dark one."""

SERIES = [light for role, (light, _) in COLOURS.items() if role.startswith("series")]

# What widths of text are measured by when a chart is drawn; pages show it in the same.
FONT = "Arial, 'Liberation Sans', Helvetica, sans-serif"
_NAME = re.compile(r"""\b(id="|url\(#|href="#)""")


def altair(what: str) -> Any:
    """Return the plotting library, or report which extra `what` needs.

    Its charts keep their scripts within the pages that they are saved as.
    """
    try:
        import altair
        import vl_convert  # noqa: F401
    except ImportError:
        raise MissingExtraError(what, "plot") from None
    own = {kind.__name__: _offline(kind) for kind in (altair.Chart, altair.LayerChart)}
    return SimpleNamespace(**{**vars(altair), **own})


@cache
def _offline(kind: Any) -> Any:
    """Return a chart class whose pages load nothing: Altair's own load scripts from a host."""

    def save(self: Any, fp: Any, format: Any = None, **options: Any) -> None:
        if (format or str(fp).rpartition(".")[2]) == "html":
            options.setdefault("inline", True)
        kind.save(self, fp, format, **options)

    def to_html(self: Any, *, inline: bool = True, **options: Any) -> Any:
        return kind.to_html(self, inline=inline, **options)

    return type(kind.__name__, (kind,), {"save": save, "to_html": to_html})


def colour(role: str) -> str:
    """Return the colour of a role on a light page; the style sheet turns it on a dark one."""
    return COLOURS[role][0]


def safe_name(text: str) -> str:
    """Return a safe chart name: notebooks put names into a script, which no name may end."""
    return printable(text).replace("<", "‹")


def to_svg(chart: "alt.TopLevelMixin", *, width: int, numbers: Iterator[int] | None = None) -> str:
    """Return a chart as an SVG element of this width, in the look of our pages.

    `numbers` keeps names inside several drawings of one page apart.
    """
    import vl_convert

    specification = chart.to_dict()
    specification.update(width=width, autosize={"type": "pad"}, background="transparent")
    specification["padding"] = {"left": 12, "right": 5, "top": 5, "bottom": 5}  # for wider letters
    specification["config"] = _look(narrow=width < WIDE)
    drawn = str(vl_convert.vegalite_to_svg(specification))
    prefix = f"c{next(numbers or count())}-"
    drawn = _NAME.sub(lambda match: match[0] + prefix, drawn)
    # The frame around it says in words what is drawn.
    return drawn.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)


def _look(*, narrow: bool) -> dict[str, Any]:
    size = 12 if narrow else 13
    text = {"font": FONT, "fontSize": size, "color": colour("muted")}
    axis = {
        "labelFont": FONT,
        "labelFontSize": size,
        "labelColor": colour("muted"),
        "titleFont": FONT,
        "titleFontSize": size,
        "titleFontWeight": "normal",
        "titleColor": colour("muted"),
        "domainColor": colour("line"),
        "tickColor": colour("line"),
        "gridColor": colour("line"),
        "labelLimit": 130 if narrow else 240,
    }
    legend = {
        "labelFont": FONT,
        "labelFontSize": size,
        "labelColor": colour("ink"),
        "labelLimit": 270 if narrow else 560,
        "title": None,
        "orient": "bottom",
        "columns": 1,
        "symbolType": "stroke",
        "symbolStrokeWidth": 3,
    }
    return {
        "aria": False,  # what it says of marks is made by expressions, which undo escapes in names
        "axis": axis,
        "axisX": {"tickCount": 4 if narrow else 8},
        # Above the axis, where it can be read without turning the head.
        "axisY": {
            "titleAngle": 0,
            "titleAlign": "left",
            "titleBaseline": "bottom",
            "titleX": 0,
            "titleY": -10,
        },
        "legend": legend,
        "text": text,
        "title": {"font": FONT, "color": colour("ink")},
        "view": {"stroke": None},
        "range": {"category": SERIES},
        "bar": {"color": SERIES[0]},
        "line": {"color": SERIES[0], "strokeWidth": 2.5},
        "point": {"color": SERIES[0], "filled": True, "size": 45},
        "rule": {"color": colour("muted")},
    }

"""Self-contained pages: one template for each kind of page, with all of its text.

The caller computes the contents and writes no HTML. Templates escape all text, except our own
drawings, whose text is escaped by their library.

>>> html = render(Page("page.html", "Bags <b>", "10 & 12"))
>>> "Bags &lt;b&gt;" in html, "10 &amp; 12" in html, "<script" in html
(True, True, False)
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from bagwise._printable import printable
from bagwise._version import SOFTWARE
from bagwise.errors import MissingExtraError
from bagwise.show.drawing import COLOURS, NARROW, WIDE, to_svg

if TYPE_CHECKING:
    import altair as alt
    import jinja2

Tone = Literal["plain", "good", "warn", "bad"]

_ON_A_PHONE, _FEW_COLUMNS = 3, 6
_SHORT_NAME = 36  # letters; longer ones need a column that is wide enough to be read
_NUMBER = re.compile(r"[≥<~−+-]*\d[\d.,\u202f]*(e[+-]?\d+)?( ?%)?\*?|")


@dataclass(frozen=True)
class Grid:
    """Rows of cells, the first being the heading.

    `folded` is the title of a fold that hides the table until somebody opens it.
    """

    rows: Sequence[Sequence[str]]
    caption: str = ""
    folded: str = ""

    @property
    def shape(self) -> str:
        """Return style-sheet classes: too wide for a phone, many columns, long names.

        >>> Grid([("claim", "verdict"), ("random bags are better than sorted ones", "fails")]).shape
        'long'
        >>> Grid([tuple("abcdefg"), tuple("1234567")]).shape
        'stack many'
        """
        columns = len(self.rows[0])
        known = {
            "stack": columns > _ON_A_PHONE,
            "many": columns > _FEW_COLUMNS,
            "long": any(len(row[0]) > _SHORT_NAME for row in self.rows[1:]),
        }
        return " ".join(name for name, holds in known.items() if holds)

    @property
    def aligned(self) -> list[bool]:
        """Return for each column whether it holds numbers, which are aligned to the right."""
        return [
            all(_NUMBER.fullmatch(cell) for cell in column)
            for column in zip(*self.rows[1:], strict=True)
        ]


@dataclass(frozen=True)
class Figure:
    """A chart, its description in words, and the numbers behind it.

    Attributes
    ----------
    alt : str
        What somebody who does not see the chart should know of it.
    caption : str
        How to read it.
    numbers : Grid, optional
        Below the chart, folded.
    """

    chart: "alt.TopLevelMixin"
    alt: str
    caption: str = ""
    numbers: Grid | None = None


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes
    ----------
    template : str
        File that has its sections and their words.
    title, lead : str
        What it is about, and one sentence about that.
    values : mapping
        What the template shows, by name.
    """

    template: str
    title: str
    lead: str
    values: Mapping[str, Any] = field(default_factory=dict)


def render(page: Page) -> str:
    """Return the page as HTML, complete in itself."""
    environment = _environment()
    numbers = count()

    def draw(chart: "alt.TopLevelMixin", *, narrow: bool) -> Any:
        from markupsafe import Markup

        drawn = to_svg(chart, width=NARROW if narrow else WIDE, numbers=numbers)
        return Markup(drawn)  # noqa: S704 (a drawing of our own)

    return environment.get_template(page.template).render(
        title=page.title,
        lead=page.lead,
        headings=[],
        draw=draw,
        colours=COLOURS,
        software=SOFTWARE,
        **page.values,
    )


@cache
def _environment() -> "jinja2.Environment":
    try:
        import jinja2
    except ImportError:
        raise MissingExtraError("a page", "plot") from None
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("bagwise.show"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Without characters that would steer how the rest is shown.
        finalize=lambda value: printable(value, keep="\n") if type(value) is str else value,
    )
    made.globals["Grid"] = Grid
    # A line should not break between an option and what it is set to.
    made.filters["pieces"] = lambda command: re.split(r" (?=-)", command)
    made.filters["anchor"] = lambda title: re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return made

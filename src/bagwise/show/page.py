"""Pages that need no network: what is on them as plain records, rendered by templates.

Whoever makes a page puts records together and writes no HTML. Templates escape every text, whoever
wrote it; only drawings of our own, which hold no text that was not escaped by their library, are
taken as they are. One template draws one kind of block, by its name.

>>> page = Page("Bags <b>", "Two bags.", (Section("Sizes", (Prose("10 & 12"),)),))
>>> html = render(page)
>>> "Bags &lt;b&gt;" in html, "10 &amp; 12" in html, "<script" in html
(True, True, False)
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bagwise._printable import printable
from bagwise._version import SOFTWARE
from bagwise.errors import MissingExtraError
from bagwise.show.drawing import COLOURS, NARROW, WIDE, to_svg

if TYPE_CHECKING:
    import altair as alt
    import jinja2

Tone = Literal["plain", "good", "warn", "bad"]

_FEW_COLUMNS = 6
_SHORT_NAME = 36  # letters; longer ones need a column that is wide enough to be read
_NUMBER = re.compile(r"[≥<~−+-]*\d[\d.,\u202f]*(e[+-]?\d+)?( ?%)?\*?|")


class Block:
    """A piece of a page; `kind` names its template."""

    kind: ClassVar[str]


@dataclass(frozen=True)
class Prose(Block):
    """Plain sentences, one paragraph per line."""

    kind: ClassVar[str] = "prose"
    text: str


@dataclass(frozen=True)
class Headline(Block):
    """What a reader should take away if they read nothing else."""

    kind: ClassVar[str] = "headline"
    figure: str
    words: str
    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Notice(Block):
    """Something that must not be overlooked."""

    kind: ClassVar[str] = "notice"
    text: str
    tone: Tone = "warn"


@dataclass(frozen=True)
class Facts(Block):
    """Names and values."""

    kind: ClassVar[str] = "facts"
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Card:
    """A short list under a title."""

    title: str
    points: Sequence[str]
    tone: Tone = "plain"


@dataclass(frozen=True)
class Cards(Block):
    """Short lists side by side."""

    kind: ClassVar[str] = "cards"
    cards: Sequence[Card]


@dataclass(frozen=True)
class Points(Block):
    """A list of remarks."""

    kind: ClassVar[str] = "points"
    points: Sequence[str]


@dataclass(frozen=True)
class Grid(Block):
    """Rows of cells, the first being the heading.

    `folded` is the title of a fold that hides the table until somebody opens it.
    """

    kind: ClassVar[str] = "grid"
    rows: Sequence[Sequence[str]]
    caption: str = ""
    folded: str = ""

    @property
    def shape(self) -> str:
        """Name what a style sheet should know: whether there are many columns, or long names.

        >>> Grid([("claim", "verdict"), ("random bags are better than sorted ones", "fails")]).shape
        'long'
        >>> Grid([tuple("abcdefg"), tuple("1234567")]).shape
        'many'
        """
        many = len(self.rows[0]) > _FEW_COLUMNS
        long = any(len(row[0]) > _SHORT_NAME for row in self.rows[1:])
        return " ".join(["many"] * many + ["long"] * long)

    @property
    def aligned(self) -> list[bool]:
        """Tell for each column whether it holds numbers, which stand to the right."""
        return [
            all(_NUMBER.fullmatch(cell) for cell in column)
            for column in zip(*self.rows[1:], strict=True)
        ]


@dataclass(frozen=True)
class Figure(Block):
    """A chart, what it shows in words, and the numbers behind it.

    Attributes
    ----------
    alt : str
        What somebody who does not see the chart should know of it.
    caption : str
        How to read it.
    numbers : Grid, optional
        Below the chart, folded.
    """

    kind: ClassVar[str] = "figure"
    chart: "alt.TopLevelMixin"
    alt: str
    caption: str = ""
    numbers: Grid | None = None


@dataclass(frozen=True)
class Step:
    """Something to type, and what it does."""

    command: str
    text: str = ""

    @property
    def pieces(self) -> list[str]:
        """The command in pieces that a line should not break: options with what they are set to."""
        return re.split(r" (?=-)", self.command)


@dataclass(frozen=True)
class Steps(Block):
    """Things to type, in order."""

    kind: ClassVar[str] = "steps"
    steps: Sequence[Step]


@dataclass(frozen=True)
class Question:
    """A question, what is known, and what somebody said."""

    topic: str
    question: str
    answer: str = ""
    said: str = ""
    missing: str = ""


@dataclass(frozen=True)
class Questions(Block):
    """Questions and answers."""

    kind: ClassVar[str] = "questions"
    questions: Sequence[Question]


@dataclass(frozen=True)
class Section:
    """A part of a page, with a heading."""

    title: str
    blocks: Sequence[Block]
    id: str = ""

    @property
    def anchor(self) -> str:
        """What links inside the page call it by."""
        return self.id or re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes
    ----------
    title, lead : str
        What it is about, and one sentence about that.
    sections : sequence of Section
    top : sequence of Block
        What comes before the first heading.
    label : str
        The kind of page, above the title.
    """

    title: str
    lead: str
    sections: Sequence[Section]
    top: Sequence[Block] = ()
    label: str = ""


def render(page: Page) -> str:
    """Return the page as HTML, complete in itself."""
    environment = _environment()
    numbers = count()

    def draw(chart: "alt.TopLevelMixin", *, narrow: bool) -> Any:
        return _trusted(to_svg(chart, width=NARROW if narrow else WIDE, numbers=numbers))

    return environment.get_template("page.html").render(
        page=page, draw=draw, trusted=_trusted, colours=COLOURS, software=SOFTWARE
    )


def _trusted(svg: str) -> Any:
    from markupsafe import Markup

    return Markup(svg)  # noqa: S704 (a drawing of our own)


@cache
def _environment() -> "jinja2.Environment":
    try:
        import jinja2
    except ImportError:
        raise MissingExtraError("a page", "plot") from None
    return jinja2.Environment(
        loader=jinja2.PackageLoader("bagwise.show"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )


def _shown(value: object) -> object:
    """Return text without characters that would steer how the rest is shown."""
    return printable(value, keep="\n") if type(value) is str else value

"""A document of headings, paragraphs, tables and figures that can be Markdown or HTML."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bagwise.show.page import Block as PageBlock
from bagwise.show.page import Drawing, Page, Prose, Section, Step, Steps, render
from bagwise.show.page import Grid as PageGrid


@dataclass(frozen=True)
class Heading:
    """A title; level 1 is the document's."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Plain sentences."""

    text: str


@dataclass(frozen=True)
class Command:
    """Something to type."""

    text: str


@dataclass(frozen=True)
class Grid:
    """Rows of cells, the first being the heading."""

    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """A plot, and the name of its file."""

    title: str
    name: str
    svg: str


Block = Heading | Paragraph | Command | Grid | Figure


def to_markdown(blocks: Iterable[Block]) -> str:
    """Return the document as Markdown, with figures as files beside it.

    Examples
    --------
    >>> print(to_markdown([Heading("Bags", 1), Grid([["k", "error"], ["10", "0.5"]])]))
    # Bags
    <BLANKLINE>
    | k | error |
    |---|---|
    | 10 | 0.5 |
    <BLANKLINE>
    """
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def to_html(title: str, blocks: Iterable[Block]) -> str:
    """Return the document as one page that needs no other file.

    Examples
    --------
    >>> "<p>a &lt; b</p>" in to_html("Bags", [Paragraph("a < b")])
    True
    """
    parts: list[tuple[str, list[PageBlock]]] = [("", [])]
    for block in blocks:
        if isinstance(block, Heading):
            parts.append((block.text, []))
        else:
            parts[-1][1].append(_on_page(block))
    named = [(name, content) for name, content in parts[1:] if content and name != title]
    opening = [block for name, content in parts if name in ("", title) for block in content]
    sections = [
        Section(name, content, id=f"part-{number}")
        for number, (name, content) in enumerate(named, start=1)
    ]
    return render(Page(title, "", sections, top=opening, label="bagwise reproduction"))


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Command(text):
            return f"```sh\n{text}\n```"
        case Grid(rows):
            heading, *body = [f"| {' | '.join(row)} |" for row in rows]
            return "\n".join((heading, "|" + "---|" * len(rows[0]), *body))
        case Figure(title, name, _):
            return f"**{title}**\n\n![{title}]({name})"
        case Paragraph(text):
            return text


def _on_page(block: Paragraph | Command | Grid | Figure) -> PageBlock:
    match block:
        case Command(text):
            return Steps([Step(text)])
        case Grid(rows):
            return PageGrid(rows)
        case Figure(title, _, svg):
            return Drawing(svg, alt=title)
        case Paragraph(text):
            return Prose(text)

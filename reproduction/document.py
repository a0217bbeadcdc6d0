"""A document of headings, paragraphs, tables and figures, as Markdown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


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

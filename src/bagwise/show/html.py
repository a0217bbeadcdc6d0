"""Small HTML tables for notebooks; pages are in `page`."""

from collections.abc import Sequence
from html import escape as _escape

from bagwise._printable import printable


def escape(text: str) -> str:
    r"""Return text as HTML that shows it, whoever wrote it.

    >>> escape("<b>\u202e")
    '&lt;b&gt;\\u202e'
    """
    return _escape(printable(text, keep="\n"))


def text(title: str, lines: Sequence[str]) -> str:
    """Render a title and lines of text below it.

    >>> text("Bags", ["two"])
    '<p><strong>Bags</strong></p><p>two</p>'
    """
    return f"<p><strong>{escape(title)}</strong></p>" + "".join(
        f"<p>{escape(line)}</p>" for line in lines
    )


def table(caption: str, rows: Sequence[tuple[str, object]]) -> str:
    """Render name-value pairs as a small table.

    >>> table("Bags", [("rows", 10)])
    '<table><caption>Bags</caption><tr><th>rows</th><td>10</td></tr></table>'
    """
    return _rendered(caption, "", [(name, str(value)) for name, value in rows])


def grid(caption: str, rows: Sequence[Sequence[str]], *, note: str = "") -> str:
    """Render rows of cells, the first being the heading, with a remark below.

    >>> grid("Bags", [["", "rows"], ["a", "10"]])
    '<table><caption>Bags</caption><tr><th></th><th>rows</th></tr><tr><th>a</th><td>10</td></tr></table>'
    """
    heading, *body = rows
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heading)
    return _rendered(caption, f"<tr>{head}</tr>", body) + (f"<p>{escape(note)}</p>" if note else "")


def _rendered(caption: str, head: str, rows: Sequence[Sequence[str]]) -> str:
    lines = "".join(
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        for name, *cells in rows
    )
    return f"<table><caption>{escape(caption)}</caption>{head}{lines}</table>"

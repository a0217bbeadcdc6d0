"""The one place that writes HTML, for notebooks and for pages of their own."""

from collections.abc import Sequence
from html import escape as _escape

from bagwise._printable import printable

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { border-bottom: 1px solid #ddd; padding: 0.3rem 0.7rem; text-align: left; }
caption { font-weight: bold; text-align: left; }
code { background: #f4f4f4; padding: 0.1rem 0.3rem; overflow-wrap: anywhere; }
figure { margin: 1rem 0; overflow-x: auto; }
"""


def escape(text: str) -> str:
    r"""Return text as HTML that shows it, whoever wrote it.

    >>> escape("<b>\u202e")
    '&lt;b&gt;\\u202e'
    """
    return _escape(printable(text, keep="\n"))


def page(title: str, body: str) -> str:
    r"""Return a page that needs no network, around a body that is HTML already.

    >>> page("Bags", "<p>two</p>").endswith("<body><p>two</p></body></html>\n")
    True
    """
    return (
        f"<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )


def table(caption: str, rows: Sequence[tuple[str, object]]) -> str:
    """Render name-value pairs as a small table.

    >>> table("Bags", [("rows", 10)])
    '<table><caption>Bags</caption><tr><th>rows</th><td>10</td></tr></table>'
    """
    body = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows
    )
    return f"<table><caption>{escape(caption)}</caption>{body}</table>"


def grid(caption: str, rows: Sequence[Sequence[str]], *, note: str = "") -> str:
    """Render rows of cells, the first being the heading, with a remark below.

    >>> grid("Bags", [["", "rows"], ["a", "10"]])
    '<table><caption>Bags</caption><tr><th></th><th>rows</th></tr><tr><th>a</th><td>10</td></tr></table>'
    """
    heading, *body = rows
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heading)
    lines = "".join(
        f"<tr><th>{escape(name)}</th>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in body
    )
    remark = f"<p>{escape(note)}</p>" if note else ""
    return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>{lines}</table>{remark}"

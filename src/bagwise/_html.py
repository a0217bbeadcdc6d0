"""The one place that writes HTML for notebooks."""

from collections.abc import Sequence
from html import escape


def table(caption: str, rows: Sequence[tuple[str, object]]) -> str:
    """Render name-value pairs as a small table.

    >>> table("Bags", [("rows", 10)])
    '<table><caption>Bags</caption><tr><th>rows</th><td>10</td></tr></table>'
    """
    body = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows
    )
    return f"<table><caption>{escape(caption)}</caption>{body}</table>"

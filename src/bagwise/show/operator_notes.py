"""Notes that depend on secret labels, shown only to the operator.

Warnings, logs and exceptions end up in files whose readers may not be allowed to see labels, so
they never contain anything that depends on labels. But the operator should know some of it: how
many labels a release without noise reveals, or which column looks like a copy of the label.
`tell_operator` shows such a note on the terminal, if there is one, and does not store it;
`operator_notes_to` sends notes elsewhere.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

OnNote = Callable[[str], None]


def _show_on_terminal(text: str) -> None:
    """Write to the terminal; where errors go into a file or a pipe, say nothing."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"Note: {text}\n")


_listener: ContextVar[OnNote] = ContextVar("listener", default=_show_on_terminal)


def tell_operator(text: str) -> None:
    """Show a note to whoever runs this, and keep it nowhere."""
    _listener.get()(text)


@contextmanager
def operator_notes_to(listener: OnNote) -> Iterator[None]:
    """Call `listener` with every note made inside. What it does with them is its responsibility.

    >>> with operator_notes_to(print):
    ...     tell_operator("a column looks like the label.")
    a column looks like the label.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)

"""Named steps of a pipeline, which report progress and shield errors.

A long step reports its progress with `report_progress`, and the display listens with `progress_to`.
Neither needs to know the other, and no callbacks are passed through.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from bagwise.errors import Shield, StageError

OnStage = Callable[[str], None]
OnProgress = Callable[[str, float], None]


def ignore_stage(_name: str) -> None:
    """Show nothing."""


def _ignore_progress(_what: str, _share: float) -> None:
    """Show nothing."""


_listener: ContextVar[OnProgress] = ContextVar("listener", default=_ignore_progress)


def report_progress(what: str, share: float) -> None:
    """Report to listeners that `what` is done to this share, 0 to 1."""
    _listener.get()(what, share)


@contextmanager
def progress_to(listener: OnProgress) -> Iterator[None]:
    """Call `listener` with every report of progress made inside.

    >>> with progress_to(lambda what, share: print(f"{what}: {share:.0%}")):
    ...     report_progress("sorting", 0.5)
    sorting: 50%
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class Stages:
    """Named steps of a procedure, as shown by a progress bar or in an error.

    >>> seen = []
    >>> stage = Stages(seen.append)
    >>> with stage("doubling"):
    ...     twice = 2 * 21
    >>> twice, seen
    (42, ['doubling'])
    """

    def __init__(self, on_stage: OnStage = ignore_stage) -> None:
        self.on_stage = on_stage

    def __call__(self, name: str) -> Shield:
        """Announce `name`; inside its context the text of unforeseen errors is withheld."""
        self.on_stage(name)
        return Shield(lambda error: StageError(name, error))

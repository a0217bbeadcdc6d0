"""Run the steps of a pipeline by name: announced to whoever shows progress, shielded from leaks."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from bagwise.errors import StageError, shielded

P = ParamSpec("P")
T = TypeVar("T")

OnStage = Callable[[str], None]


def ignore_stage(_name: str) -> None:
    """Show nothing."""


class Stages:
    """Call each step under a name that a reader of a progress bar or an error understands.

    >>> seen = []
    >>> run = Stages(seen.append)
    >>> run("doubling", lambda x: 2 * x, 21), seen
    (42, ['doubling'])
    """

    def __init__(self, on_stage: OnStage = ignore_stage) -> None:
        self._on_stage = on_stage

    def __call__(self, name: str, step: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Announce `name`, run `step`, and withhold the text of any unforeseen error."""
        self._on_stage(name)
        return shielded(lambda: step(*args, **kwargs), lambda error: StageError(name, error))

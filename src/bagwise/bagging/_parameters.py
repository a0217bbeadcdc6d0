"""Checks that the parameters of several strategies share."""

from typing import Any, get_args

import numpy as np

from bagwise.errors import StrategyError, check_name


def check_choices(strategy: Any, **kinds: Any) -> None:
    """Refuse a parameter that is none of the values of its Literal type."""
    for name, kind in kinds.items():
        check_name(name, getattr(strategy, name), get_args(kind))


def check_time_budget(seconds: float | None) -> None:
    """Refuse a time that is not positive."""
    if seconds is not None and not seconds > 0:
        raise StrategyError(f"time_budget must be positive seconds, got {seconds!r}.")


def check_clip(clip: float | None) -> None:
    """Refuse to draw in rows of less than the average leverage."""
    if clip is not None and not 1 <= clip < np.inf:
        raise StrategyError(f"clip must be a number of at least 1, or none: {clip!r}.")

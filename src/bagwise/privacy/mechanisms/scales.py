"""Noise scales that can be drawn safely: whole numbers of steps, not too large."""

import math
from fractions import Fraction

from bagwise.errors import BudgetError

LARGEST_SCALE = 2**31
"""Noise scales, in grid steps, whose square still fits 64 bits."""


def whole_scale(scale: float | Fraction, *, largest: int = LARGEST_SCALE) -> int:
    """Return a scale rounded up to whole steps; refuse one that is too large to be drawn."""
    if not scale <= largest:
        raise BudgetError(
            "so little epsilon and delta asks for more noise than can be drawn safely."
        )
    return max(1, math.ceil(scale))

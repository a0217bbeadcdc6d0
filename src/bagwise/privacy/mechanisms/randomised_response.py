"""Randomised response on one bit: the worst of all mechanisms that need no delta."""

import math
from typing import Any


def exported_coin(epsilon: float, google: Any) -> Any:
    """Return a pure epsilon as an event of dp-accounting (Kairouz, Oh and Viswanath 2015)."""
    return google.RandomizedResponseDpEvent(2 / (1 + math.exp(epsilon)), 2)

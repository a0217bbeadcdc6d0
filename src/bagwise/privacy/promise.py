"""What a promise means, and promises that mean nothing.

A reader who holds two labels for equally likely, and sees a release that is (epsilon, delta)-
private, is right about which of them it is with probability
``(e^epsilon + delta) / (1 + e^epsilon)`` at most (Kairouz, Oh and Viswanath 2015, Theorem 2.1: the
best test between neighbouring tables).
"""

import math
import warnings

from bagwise.errors import BudgetError, WeakPromiseWarning

LARGEST_EPSILON = 50.0
"""Beyond, a reader may be sure of a label to the last digit of a double: nothing is promised."""

WEAK_EPSILON = 10.0
"""Above, a promise is worth a second look."""


def chance_of_guessing(epsilon: float, delta: float) -> float:
    """Return how often a reader can be right at most who started from one chance in two.

    >>> round(chance_of_guessing(1.0, 0.0), 4), chance_of_guessing(0.0, 0.0)
    (0.7311, 0.5)
    """
    # As 1 - (1 - delta) / (1 + e^epsilon), which does not overflow.
    return 1 - (1 - delta) * math.exp(-epsilon) / (1 + math.exp(-epsilon))


def odds_in_words(epsilon: float, delta: float) -> str:
    """Say what a reader may learn at most about one of two labels.

    >>> odds_in_words(1.0, 1e-6)
    'from one chance in two to at most 73.1 %'
    """
    wrong = (1 - delta) * math.exp(-epsilon) / (1 + math.exp(-epsilon))
    if wrong >= 0.001:
        return f"from one chance in two to at most {100 * (1 - wrong):.3g} %"
    return f"from one chance in two to all but certainty (wrong once in {1 / wrong:.2g} times)"


def check_promise(epsilon: float, delta: float, *, n_rows: int) -> None:
    """Refuse a promise that promises nothing for a table of this size, and warn of a weak one."""
    if delta > 1 / n_rows:
        raise BudgetError(
            f"delta = {delta:g} is above one in {n_rows}, the number of rows: such a promise would "
            "allow showing one of the labels outright. Choose delta far below that, or 0."
        )
    if epsilon > LARGEST_EPSILON:
        raise BudgetError(
            f"epsilon = {epsilon:g} promises nothing: it takes a reader "
            f"{odds_in_words(epsilon, delta)}. Choose epsilon of about 1, {LARGEST_EPSILON:g} at "
            "most, or say not_private=True (--not-private)."
        )
    if epsilon > WEAK_EPSILON:
        warnings.warn(
            f"epsilon = {epsilon:g} is a weak promise: it may take a reader who holds two labels "
            f"for equally likely {odds_in_words(epsilon, delta)}. Epsilon of about 1 is usual.",
            WeakPromiseWarning,
            stacklevel=2,
        )

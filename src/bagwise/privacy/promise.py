"""The meaning of a guarantee, and limits of meaningful guarantees.

A reader who holds two labels for equally likely, and sees a release that is (epsilon, delta)-
private, is right about which of them it is with probability
``(e^epsilon + delta) / (1 + e^epsilon)`` at most (Kairouz, Oh and Viswanath 2015, Theorem 2.1: the
best test between neighbouring tables).
"""

import math
import warnings

import numpy as np

from bagwise.errors import BudgetError, StrongPromiseWarning, WeakPromiseWarning

LARGEST_EPSILON = 50.0
"""Beyond, a reader may be sure of a label to the last digit of a double: nothing is promised."""

WEAK_EPSILON = 10.0
"""Above, a promise is worth a second look."""


_FRACTIONS = ((4, 0.9), (10, 0.9), (20, 0.9), (4, 0.75), (10, 0.75), (100, 0.5), (1000, 0.5))
"""Denominators in the order in which they are tried, and the share of the doubt that must stay."""

_WORDS = {(3, 4): "three in four", (9, 10): "nine in ten"}

LOST_MEAN = 0.1
"""Noise on the mean of all labels, in widths of the bounds, that leaves nothing to learn."""


def chance_of_guessing(epsilon: float, delta: float) -> float:
    """Return how often a reader, starting from even odds, can be right at most.

    >>> round(chance_of_guessing(1.0, 0.0), 4), chance_of_guessing(0.0, 0.0)
    (0.7311, 0.5)
    """
    # As 1 - (1 - delta) / (1 + e^epsilon), which does not overflow.
    return 1 - (1 - delta) * math.exp(-epsilon) / (1 + math.exp(-epsilon))


def odds_in_fractions(epsilon: float, delta: float) -> str:
    """Describe what a reader may learn at most about one of two labels, never understating it.

    >>> odds_in_fractions(1.0, 0.0)
    'From one chance in two to at most three in four'
    >>> odds_in_fractions(0.1, 0.0), odds_in_fractions(4.0, 0.0)
    ('From one chance in two to at most 11 in 20', 'From one chance in two to at most 99 in 100')
    """
    right = chance_of_guessing(epsilon, delta)
    for parts, least in _FRACTIONS:
        several = math.ceil(right * parts)
        # The doubt that is left, (parts - several) / parts, is understated, but not by too much.
        if several < parts and parts - several >= least * (1 - right) * parts:
            words = _WORDS.get((several, parts), f"{several:,} in {parts:,}")
            return f"From one chance in two to at most {words}"
    return "From one chance in two to all but certainty"


def noise_on_mean(epsilon: float, n_rows: int) -> float:
    """Return the standard deviation of Laplace noise on the mean of all labels, in bounds' widths.

    One label moves the mean by a width over n_rows at most, and Laplace noise of scale
    ``sensitivity / epsilon`` has a standard deviation of sqrt(2) times that (Dwork, McSherry,
    Nissim and Smith 2006).

    >>> round(noise_on_mean(0.1, 1000), 4)
    0.0141
    """
    return math.sqrt(2) / (epsilon * n_rows)


def check_promise(epsilon: float, delta: float, *, n_rows: int) -> None:
    """Refuse a meaningless promise for a table of this size, and warn of a weak one.

    Only the promise and the number of rows are looked at, which are public.
    """
    if delta > 1 / n_rows:
        raise BudgetError(
            f"delta = {delta:g} is above one in {n_rows}, the number of rows: such a promise would "
            "allow showing one of the labels outright. Choose delta far below that, or 0."
        )
    odds = odds_in_fractions(epsilon, delta).lower()
    if epsilon > LARGEST_EPSILON:
        raise BudgetError(
            f"epsilon = {epsilon:g} promises nothing: it takes a reader {odds}. Choose epsilon of "
            f"about 1, {LARGEST_EPSILON:g} at most, or say not_private=True (--not-private)."
        )
    if epsilon > WEAK_EPSILON:
        warnings.warn(
            f"epsilon = {epsilon:g} is a weak promise: it may take a reader who holds two labels "
            f"for equally likely {odds}. Epsilon of about 1 is usual; with {n_rows} rows it "
            "leaves the mean of all labels a noise of "
            f"{noise_on_mean(1.0, n_rows):.1g} widths of the bounds.",
            WeakPromiseWarning,
            stacklevel=2,
        )


def check_limits(*, max_epsilon: float | None = None, max_delta: float | None = None) -> None:
    """Refuse limits that cannot be compared: every comparison with NaN is false."""
    for name, limit, end in (("epsilon", max_epsilon, math.inf), ("delta", max_delta, 1.0)):
        if limit is None:
            continue
        is_number = isinstance(limit, int | float | np.number) and not isinstance(limit, bool)
        if not is_number or not 0 <= limit < end:
            most = "" if math.isinf(end) else f" and below {end:g}"
            raise BudgetError(
                f"max_{name} (--max-{name}) is a finite number of at least 0{most}, got {limit!r}. "
                "Give such a number, or leave it out for no limit."
            )


def warn_of_strong_promise(epsilon: float, *, n_rows: int) -> None:
    """Warn if the noise of a release or a model hides everything in a table of this size."""
    enough = 100 * noise_on_mean(1.0, n_rows)  # the epsilon that tells the mean to a hundredth
    allowed = f"Epsilon of {enough:.2g} leaves a hundredth of that width; or take more rows."
    if enough > WEAK_EPSILON:
        allowed = "So few rows say little under any promise worth making; take more of them."
    if noise_on_mean(epsilon, n_rows) > LOST_MEAN:
        warnings.warn(
            f"epsilon = {epsilon:g} is more than {n_rows} rows can keep: the mean of all labels "
            f"alone would carry noise of {noise_on_mean(epsilon, n_rows):.2g} widths of the "
            f"bounds, and bags or models carry more. {allowed}",
            StrongPromiseWarning,
            stacklevel=2,
        )

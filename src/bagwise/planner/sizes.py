"""Which bag sizes are worth a try."""

from collections.abc import Sequence

from bagwise.errors import BagTooSmallError
from bagwise.requests.verbs import SMALLEST

BAGS_PER_COEFFICIENT = 3
"""Fewer bags than so many per coefficient leave hardly anything to tell the errors of a fit by."""


FEWEST_BAGS = 10
"""So many are left to learn anything from, where intervals are given up."""


def grid(*, n_rows: int, coefficients: int, least: int) -> list[int]:
    """Return sizes from `least` on, each about twice the one before, as far as intervals allow.

    The best size falls as epsilon grows, over two orders of magnitude; between neighbours on this
    grid the error hardly differs.

    >>> grid(n_rows=50_000, coefficients=33, least=10)
    [10, 20, 50, 100, 200, 500]
    >>> grid(n_rows=50_000, coefficients=33, least=60)
    [60, 100, 200, 500]
    """
    return powers(n_rows // (BAGS_PER_COEFFICIENT * coefficients), least)


def without_intervals(*, n_rows: int, coefficients: int, least: int) -> list[int]:
    """Return the sizes beyond that grid, as far as any bags are left.

    >>> without_intervals(n_rows=50_000, coefficients=33, least=10)
    [1000, 2000, 5000]
    """
    sizes = grid(n_rows=n_rows, coefficients=coefficients, least=least)
    return [size for size in powers(n_rows // FEWEST_BAGS, least) if size > sizes[-1]]


def powers(most: int, least: int) -> list[int]:
    """Return `least`, and 10, 20, 50, 100 and so on between it and `most`."""
    sizes, decade = {least}, 10
    while decade <= most:
        sizes |= {size for size in (decade, 2 * decade, 5 * decade) if least < size <= most}
        decade *= 10
    return sorted(sizes)


def check_sizes(sizes: Sequence[int] | None, least: int | None) -> tuple[tuple[int, ...], int]:
    """Return the sizes that were named, none below the least, and the least."""
    named = {int(size) for size in sizes or ()}
    if min(named, default=1) < 1 or (least is not None and least < 1):
        raise BagTooSmallError("bag sizes are whole numbers of at least 1.")
    smallest = SMALLEST if least is None else int(least)
    return tuple(sorted({max(size, int(least or 1)) for size in named})), smallest


def usable(sizes: Sequence[int], *, n_rows: int, most: int | None = None) -> list[int]:
    """Return the sizes that leave two bags, up to `most`."""
    limit = n_rows // 2 if most is None else min(most, n_rows // 2)
    kept = [size for size in sizes if size <= limit]
    if not kept:
        raise BagTooSmallError(
            f"{n_rows} rows do not fill two bags of {min(sizes)}, or a stratum none. Name a "
            "smaller bag size."
        )
    return kept

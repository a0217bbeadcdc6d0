"""Which bag sizes are worth a try."""

from collections.abc import Sequence

from bagwise.errors import BagTooSmallError

SMALLEST = 10  # what is published about fewer rows, nobody asked for unless by name
BAGS_PER_COEFFICIENT = 3
"""Fewer bags than so many per coefficient leave hardly anything to tell the errors of a fit by."""


def grid(*, n_rows: int, coefficients: int, least: int) -> list[int]:
    """Return sizes from `least` on, each about twice the one before, as far as intervals allow.

    The best size falls as epsilon grows, over two orders of magnitude; between neighbours on this
    grid the error hardly differs.

    >>> grid(n_rows=50_000, coefficients=33, least=10)
    [10, 20, 50, 100, 200, 500]
    >>> grid(n_rows=50_000, coefficients=33, least=60)
    [60, 100, 200, 500]
    """
    most = n_rows // (BAGS_PER_COEFFICIENT * coefficients)
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


def usable(sizes: Sequence[int], *, n_rows: int) -> list[int]:
    """Return the sizes that leave two bags."""
    kept = [size for size in sizes if size <= n_rows // 2]
    if not kept:
        raise BagTooSmallError(
            f"{n_rows} rows do not fill two bags of {min(sizes)}. Name a smaller bag size."
        )
    return kept

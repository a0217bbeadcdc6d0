"""Offsets: the part of a row's linear predictor that is known.

A count y_i over an exposure e_i, such as claims over years, has the mean ``e_i mu_i`` with a rate
``mu_i = exp(x_i'theta)``, which is ``exp(x_i'theta + log e_i)``: exposure is an offset of log e_i
under a logarithmic link (McCullagh and Nelder 1989, 6.3). The mean label of a bag is then the mean
of ``e_i mu_i`` over its rows, whose variance is phi times the mean variance function of these,
divided by their number: nothing but eta changes, and bag loss holds as it stands.
"""

from typing import Any

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError, StrategyError
from bagwise.families import Family


def read_offset(
    n_rows: int, family: Family, *, exposure: Any = None, offset: Any = None
) -> FloatArray | None:
    """Return what is added to each row's linear predictor, checked; None if it is nothing.

    >>> from bagwise.families import find_family
    >>> read_offset(2, find_family("poisson"), exposure=[1.0, np.e], offset=0.5)
    array([0.5, 1.5])
    """
    if exposure is None and offset is None:
        return None
    total = np.zeros(n_rows)
    if exposure is not None:
        if not family.has_log_link:
            raise StrategyError(
                f"exposure multiplies expected labels, and the link of {family.name} is not the "
                "logarithm. Choose poisson, or gamma or inverse_gaussian with link='log'."
            )
        times = _one_per_row(exposure, n_rows, "exposure")
        if not (times > 0).all():
            raise BagsError("exposure must be positive in every row.")
        total = np.log(times)
    if offset is not None:
        if family.has_classes or np.isfinite(family.eta_range).any():
            raise StrategyError(
                f"an offset needs one linear predictor without limits, and {family.name} with this "
                "link has none. Choose another family or link='log'."
            )
        total = total + _one_per_row(offset, n_rows, "offset")
    return total


def _one_per_row(values: Any, n_rows: int, what: str) -> FloatArray:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim == 0:
        numbers = np.full(n_rows, float(numbers))
    if numbers.shape != (n_rows,):
        raise BagsError(f"{what} must be one number or one per row, got shape {numbers.shape}.")
    if not np.isfinite(numbers).all():
        raise BagsError(f"{what} must be finite.")
    return numbers


def centroids_of(
    rows: FloatArray, offset: FloatArray | None, bags: Bags, family: Family
) -> tuple[FloatArray, FloatArray | None]:
    """Return the centroid of each bag, and its offset.

    Rows count by their exposure, so that to first order in the slopes the centroid is expected to
    have the mean label of the bag: ``mean(e_i exp(x_i'theta))`` is about
    ``mean(e) exp(sum(e_i x_i)'theta / sum(e))``.
    """
    if offset is None:
        return bags.mean(rows), None
    share = family.slope(offset)
    weighted: FloatArray = bags.sum(rows * share[:, None]) / bags.sum(share)[:, None]
    return weighted, family.predictor(bags.mean(family.mean(offset)))


def spread_by_exposure(
    labels: FloatArray, offset: FloatArray | None, bags: Bags, family: Family
) -> FloatArray:
    """Return the label of each row's bag, divided among its rows by their exposure."""
    repeated: FloatArray = bags.repeat(labels)
    if offset is None:
        return repeated
    if not family.has_log_link:
        raise StrategyError("instance loss takes offsets with a logarithmic link only: use 'bag'.")
    times = family.mean(offset)
    return repeated * times / bags.repeat(bags.mean(times))

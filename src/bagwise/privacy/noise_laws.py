"""The joint distribution of label noise and privacy noise.

The label of a bag varies around its expectation by the noise of its rows' labels, nearly normal
with standard deviation s, plus privacy noise of a known kind with standard deviation t. Least
squares treat the sum as normal. Its true density says more where the noise has a peak: for Laplace
noise the location is known up to twice as well as its variance suggests.

Everything is a function of the residual in units of t and of the ratio s / t, so that one table of
the information by that ratio serves for all bags.

References
----------
Reed (2006), The normal-Laplace distribution and its relatives. A normal plus a staircase is a sum
of normal integrals over the steps.
"""

import math
from functools import cache

import numpy as np

from bagwise._types import FloatArray
from bagwise.errors import check_name
from bagwise.privacy.laws import Gaussian, Laplace, Law

_LEAST, _MOST = 0.25, 3.0
"""Ratios of the two deviations that are told apart.

Above, the sum is as good as normal: its information is that of a normal to one part in a thousand.
Below, the density has so sharp a peak that estimates follow single labels, as medians do, and are
far less sure than the information says unless there are hundreds of labels for each coefficient. A
label noise of a quarter is assumed then: it loses little, makes estimates better for the number of
bags that people have, and lets intervals cover."""


LAWS: dict[str, Law] = {law.kind: law for law in (Gaussian(1), Laplace(1))}
"""Kinds of noise that need no more than a name: their shape does not depend on the scale."""


def find_law(noise: str | Law) -> Law:
    """Return a kind of noise by its name.

    >>> find_law("laplace").kind
    'laplace'
    """
    if isinstance(noise, str):
        check_name("noise", noise, LAWS)
        return LAWS[noise]
    return noise


def log_density(
    law: Law, residual: FloatArray, label_sd: FloatArray, noise_sd: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the log density of residuals and its negated derivative.

    Where there is no noise, or as good as none, labels are normal.

    >>> r, one = np.array([0.5]), np.ones(1)
    >>> value, score = log_density(LAWS["laplace"], r, one, np.zeros(1))
    >>> score.tolist()
    [0.5]
    """
    exact = noise_sd > label_sd / _MOST
    value, score = np.empty_like(residual), np.empty_like(residual)
    t = noise_sd[exact]
    spread = np.maximum(label_sd[exact] / t, _LEAST)
    part, slope = law.terms(residual[exact] / t, spread)
    value[exact], score[exact] = part - np.log(t), slope / t
    rest, s = residual[~exact], np.hypot(label_sd, noise_sd)[~exact]
    value[~exact] = -0.5 * (rest / s) ** 2 - np.log(s) - 0.5 * math.log(2 * math.pi)
    score[~exact] = rest / s**2
    return value, score


def information(law: Law, label_sd: FloatArray, noise_sd: FloatArray) -> FloatArray:
    """Return the information of one label about its location: the mean of the squared score.

    >>> one = np.ones(1)
    >>> more = information(LAWS["laplace"], 0.3 * one, one) * 1.09     # times the variance
    >>> round(float(more[0]), 2)
    1.38
    """
    exact = noise_sd > label_sd / _MOST
    found = 1 / np.maximum(label_sd**2 + noise_sd**2, 1e-300)
    ratio = np.log(np.clip(label_sd[exact] / noise_sd[exact], _LEAST, _MOST))
    places, values = _information_table(law)
    found[exact] = np.exp(np.interp(ratio, places, values)) / noise_sd[exact] ** 2
    return found


@cache
def _information_table(law: Law) -> tuple[FloatArray, FloatArray]:
    """Return the logarithm of the information for noise of variance 1, by log spread."""
    places = np.linspace(math.log(_LEAST), math.log(_MOST), 25)
    found = []
    for spread in np.exp(places):
        # The squared score is integrated, finely enough for a normal of this spread.
        r = np.arange(0.0, 15 + 7 * spread, min(0.02, spread / 3))
        value, score = law.terms(r, np.full(r.size, spread))
        found.append(math.log(2 * np.trapezoid(np.exp(value) * score**2, r)))
    return places, np.array(found)

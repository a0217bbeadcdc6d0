"""How likely a noisy label is: the distribution of label noise and privacy noise together.

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
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import log_ndtr, ndtr

from bagwise._types import AnyArray, FloatArray
from bagwise.errors import check_name

_LEAST, _MOST = 0.25, 3.0
"""Ratios of the two deviations that are told apart.

Above, the sum is as good as normal: its information is that of a normal to one part in a thousand.
Below, the density has so sharp a peak that estimates follow single labels, as medians do, and are
far less sure than the information says unless there are hundreds of labels for each coefficient. A
label noise of a quarter is assumed then: it loses little, makes estimates better for the number of
bags that people have, and lets intervals cover."""


class NoiseLaw(Hashable, Protocol):
    """A kind of noise of standard deviation 1, plus a normal of standard deviation `spread`."""

    @property
    def name(self) -> str:
        """What it is called."""

    def terms(self, residual: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the logarithm of the density, and the derivative of it, its sign turned."""


@dataclass(frozen=True)
class GaussianLaw:
    """Normal noise: the sum is normal, and least squares are all there is."""

    name: str = "gaussian"

    def terms(self, residual: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log density and score."""
        variance = 1 + spread**2
        log_density = -0.5 * (residual**2 / variance + np.log(2 * np.pi * variance))
        return log_density, residual / variance


@dataclass(frozen=True)
class LaplaceLaw:
    """Laplace noise. The sum is log-concave, as both of its parts are."""

    name: str = "laplace"

    def terms(self, residual: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log density and score.

        With b the scale, ``z = r / s`` and ``a = s / b`` the density is the sum of
        ``exp(a^2 / 2 -+ z a) Phi(+-z - a) / (2 b)``, and the normal densities cancel in its
        derivative.
        """
        scale = math.sqrt(0.5)
        z, a = residual / spread, spread / scale
        right = a**2 / 2 - z * a + log_ndtr(z - a)
        left = a**2 / 2 + z * a + log_ndtr(-z - a)
        top = np.maximum(right, left)
        up, down = np.exp(right - top), np.exp(left - top)
        log_density = top + np.log(up + down) - math.log(2 * scale)
        return log_density, (up - down) / (up + down) / scale


@dataclass(frozen=True)
class StaircaseLaw:
    """Staircase noise: steps of width `width`, falling by ``exp(-epsilon)``.

    Attributes
    ----------
    epsilon : float
    inner : float
        Width of the highest step on either side, as a share of a step's width.
    """

    epsilon: float
    inner: float
    name: str = "staircase"

    @cached_property
    def _width(self) -> float:
        """The width of a step, in standard deviations of the noise."""
        levels = np.arange(max(3, math.ceil(40 / self.epsilon)))
        begin = np.concatenate([1.0 * levels, levels + self.inner])
        end = np.concatenate([levels + self.inner, levels + 1.0])
        height = np.exp(-self.epsilon * np.concatenate([levels, levels + 1.0]))
        mass = float((height * (end - begin)).sum())
        return 1 / math.sqrt(float((height * (end**3 - begin**3)).sum()) / 3 / mass)

    def terms(self, residual: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log density and score, from the normal's integral over each step in reach.

        Steps are counted from the one that a residual lies on, and their heights are in units of
        its height, so that nothing vanishes far out.
        """
        width, r = self._width, np.abs(residual)
        here = np.floor(r / width)
        reach = self._reach(float(spread.max(initial=_LEAST)) / width)
        density, slope = np.zeros_like(r), np.zeros_like(r)
        edge = _Edge.at((r - (here - reach) * width) / spread)
        for away in range(-reach, reach + 1):
            level = here + away
            middle = level + np.where(level < 0, 1 - self.inner, self.inner)
            # Left of 0 steps rise: they are those of the other side, seen in a mirror.
            rising = np.exp(self.epsilon * np.where(level < 0, level + here, 0.0))
            falls = math.exp(-self.epsilon)
            first = np.where(level < 0, rising, falls**away)
            second = np.where(level < 0, rising / falls, falls ** (away + 1))
            for end, height in ((middle, first), (level + 1, second)):
                last, edge = edge, _Edge.at((r - end * width) / spread)
                density += height * last.between(edge)
                slope += height * (last.peak - edge.peak)
        density = np.maximum(density, 1e-300)
        score = -slope / (spread * math.sqrt(2 * np.pi) * density)
        # What all steps add up to where the highest has height 1, in widths.
        fall = math.exp(-self.epsilon)
        mass = 2 * (self.inner + (1 - self.inner) * fall) / (1 - fall)
        value = np.log(density) - self.epsilon * here - math.log(mass * width)
        return value, np.sign(residual) * score

    def _reach(self, spread: float) -> int:
        """Return how many steps away matter to a normal of this spread, in widths of a step.

        A step that is D nearer to 0 is ``exp(epsilon D)`` times as high, and the normal there less
        than ``exp(-(D / spread)**2 / 2)`` of what it is: together less than 1e-17.
        """
        loss, rise = 40.0, self.epsilon * spread
        return math.ceil(spread * (rise + math.sqrt(rise**2 + 2 * loss))) + 1


class _Edge(NamedTuple):
    """Where a step ends, as the normals around residuals see it: the tail beyond it, and a peak."""

    right: AnyArray
    tail: FloatArray
    peak: FloatArray

    @classmethod
    def at(cls, z: FloatArray) -> "_Edge":
        return cls(z < 0, ndtr(-np.abs(z)), np.exp(-(z**2) / 2))

    def between(self, other: "_Edge") -> FloatArray:
        """Return the mass of the normals between this edge and one farther to the right."""
        apart = self.right != other.right
        return np.asarray(np.where(apart, 1 - self.tail - other.tail, abs(self.tail - other.tail)))


LAWS: dict[str, NoiseLaw] = {law.name: law for law in (GaussianLaw(), LaplaceLaw())}
"""Kinds of noise that need no more than a name."""


def find_law(noise: str | NoiseLaw) -> NoiseLaw:
    """Return a kind of noise by its name.

    >>> find_law("laplace").name
    'laplace'
    """
    if isinstance(noise, str):
        check_name("noise", noise, LAWS)
        return LAWS[noise]
    return noise


def log_density(
    law: NoiseLaw, residual: FloatArray, label_sd: FloatArray, noise_sd: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the log density of residuals and its derivative, the sign turned.

    Where there is no noise, or as good as none, labels are normal.

    >>> r, one = np.array([0.5]), np.ones(1)
    >>> value, score = log_density(LaplaceLaw(), r, one, np.zeros(1))
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


def information(law: NoiseLaw, label_sd: FloatArray, noise_sd: FloatArray) -> FloatArray:
    """Return what one label tells about its location: the mean of the squared score.

    >>> one = np.ones(1)
    >>> more = information(LaplaceLaw(), 0.3 * one, one) * 1.09     # times the variance
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
def _information_table(law: NoiseLaw) -> tuple[FloatArray, FloatArray]:
    """Return the logarithm of the information for noise of variance 1, by log spread."""
    places = np.linspace(math.log(_LEAST), math.log(_MOST), 25)
    return places, np.array([math.log(_information(law, math.exp(place))) for place in places])


def _information(law: NoiseLaw, spread: float) -> float:
    """Integrate the squared score; finely enough for a normal of this spread."""
    r = np.arange(0.0, 15 + 7 * spread, min(0.02, spread / 3))
    value, score = law.terms(r, np.full(r.size, spread))
    return 2 * float(np.trapezoid(np.exp(value) * score**2, r))

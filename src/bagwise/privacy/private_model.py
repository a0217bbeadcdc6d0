"""The label statistics that a model needs, released with label privacy.

Features are public, so any matrix B with ``B Z = I`` turns labels into unbiased coefficients B y.
One label moves B y by ``(hi - lo) |b_i|``; noise shaped to the columns b_i is cheaper than noise
shaped to the largest of them. The optimum over all shapes is a weighted least-squares fit,

    A = sum_i w_i z_i z_i',     w_i = (z_i' A^(-3/2) z_i)^(-1/2),
    theta = A^-1 Z'W y + (hi - lo)/mu * A^(-1/4) N(0, I),

with privacy error ``((hi - lo)/mu)^2 tr A^(-1/2)`` (theory page, the direct release). What is
released is ``u = A^(-3/4) Z'W y``: there every row's column has length one, so that plain spherical
noise is right, and spherical discrete noise has a safe sampler. Privacy holds for any A > 0, as
long as the same A is in the weights and in the columns; only unbiasedness needs convergence.

Weights that differ much are right for labels that follow the model. Where they do not, a weighted
fit is another model than the one that rows ask for. So the shorter columns can be left as they
are, ``w_i = 1 / max(|A^(-3/4) z_i|, shortest)``. No column is longer than one then either, and
``A^(-1/4) u`` is without bias, with the same formula for its error.

Laplace noise needs no delta, and columns of length one in L1 instead. For coordinates ``c = G z``
of a row its column is ``c |c| / sum(c^2)``, coordinate by coordinate. It leans towards the largest
of them, since in L1 a row brings the most if all of it goes there. With ``J = sum_i b_i z_i'`` the
coefficients ``J^-1 u`` are without bias whatever G is, and their privacy error is
``2 ((hi - lo)/epsilon)^2 tr (J'J)^-1``. G follows the gradient of that, ``J (J'J)^-2``, from two
sets of axes: the principal ones, and those closest to the features themselves, along which rows of
indicators keep most of their zeros (theory page).

A generalised linear model needs no more than u either (`glm.statistic`): its labels too
enter the equations ``sum_i b_i (y_i - mean(z_i'theta)) = 0`` by u alone.

With u goes one more number, ``sum_i (y_i - middle)^2`` in units of half the range h, times a factor
k. It says how much labels vary, and costs nothing: two labels that are 2h apart have the same
square, and labels that are nearer move u by less. A label that moves by d, from both sides of which
it is ``2h - d`` to an end at most, moves u by d and the square by ``k d (2h - d) / h`` at most. In
L2 both together are at most 2h if ``k^2 <= (11 + 5 sqrt(5)) / 8``, in L1 if ``k <= 1/2`` (theory
page).

Arithmetic on labels is in integers: the columns are rounded to multiples of 2**-20 and labels to
whole grid steps before they meet, and the sensitivity is that of the rounded columns.
"""

import dataclasses
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from scipy import linalg
from threadpoolctl import threadpool_limits

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.privacy.grid import LABEL_STEPS, labels_to_steps
from bagwise.privacy.mechanisms import Mechanism
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds
from bagwise.rows.whitening import BlockedRows, Columns, over_blocks

_COLUMN_BITS = 20
_HALF = LABEL_STEPS // 2
_MOST_ROUNDS = 500
_TOLERANCE = 1e-9
_WORTHWHILE, _PATIENCE = 1e-3, 5  # a search ends after so many rounds that bring less than that
_ROUGHLY = 1e-4  # tolerance where rows are a sample; the privacy error moves with its square
_EVERY = 8  # a search of a sample begins with every eighth of its rows
_SHORT = 1 / 3  # a quarter of the way to where the gradient points
_LEAST_SPREAD = 0.3  # variance that some rows must have in every direction in which all have 1
_KEPT = 2**28  # bytes of coordinates that are computed once for a search
_ROUNDING = 1e-6

SAMPLED_ROWS, SAMPLED_BLOCK = 2**17, 2**8
"""Rows from which weights are found, in blocks that are cheap to read."""

Norm = Literal["L1", "L2"]
"""In which columns have length one: L2 for Gaussian noise, L1 for Laplace noise."""

SQUARE_EIGHTHS: dict[Norm, int] = {"L2": 13, "L1": 4}
"""Eight times the factor of squared labels: (13/8)^2 < (11 + 5 sqrt(5)) / 8, and 4/8 = 1/2."""


@dataclass(frozen=True)
class ModelDesign:
    """The weights of rows in a private model, computed from the features alone."""

    # (d,): features are used as ``(x - center) / spread``, so that their units do not matter.
    center: FloatArray
    spread: FloatArray
    # (d + 1, r): coordinates ``z = [1, (x - center) / spread] basis``, in which rows have second
    # moment n I.
    basis: FloatArray
    # (r, r): G; a row's column b_i points where ``c = G z`` does, or near it. In L2 it is A^(-3/4).
    mix: FloatArray
    # (r, r): ``J = sum_i b_i z_i'``. In L2 it is A^(1/4).
    jacobian: FloatArray
    # How far one label can move the rounded statistics, in label steps and in this norm.
    sensitivity_steps: int
    # Features that the others determine; they get coefficients by least norm.
    dropped: tuple[str, ...]
    norm: Norm = "L2"  # in which the columns have length one
    even: float = 0.0  # share of the rows, those that bring least, that weigh alike
    # What the last of these brings. The columns of those that bring less stay below one.
    shortest: float = 0.0

    @property
    def rank(self) -> int:
        """Number of coefficients that the features determine, the intercept included."""
        return int(self.basis.shape[1])

    @property
    def decoder(self) -> FloatArray:
        """The inverse of J: from sums to the coefficients of a linear model in z."""
        return np.asarray(np.linalg.inv(self.jacobian))

    @property
    def privacy_trace(self) -> float:
        """Tr (J'J)^-1: the privacy error of the coefficients z, in variances of the noise.

        The noise is one that hides a label: of standard deviation ``(hi - lo)/mu``, or Laplace
        noise of scale ``(hi - lo)/epsilon``.
        """
        return float(np.sum(self.decoder**2))


@dataclass(frozen=True)
class NoisyStatistics:
    """The noisy statistics of the labels; everything computed from them costs no further budget."""

    # (r,): ``sum_i b_i (y_i - middle)`` with noise; the middle is that of the bounds.
    sums: FloatArray
    square: float  # ``sum_i (y_i - middle)^2`` with noise
    middle: float
    # Standard deviation of the noise on each of the sums, and on the square.
    noise_sd: float
    square_sd: float


@dataclass(frozen=True)
class LinearScores:
    """A released model: what it predicts may be used without further cost."""

    intercept: float
    coef: FloatArray
    dropped: tuple[str, ...]
    # What a label is; coefficients are those of the linear predictor.
    family: str = "gaussian"
    link: str = "canonical"

    def predict(self, X: FloatArray) -> FloatArray:
        """Return the linear predictor of each row, which rises with its expected label."""
        scores: FloatArray = X @ self.coef
        scores += self.intercept  # in place: there may be very many rows
        return scores


def design_model(
    X: FloatArray, names: Sequence[str], *, norm: Norm = "L2", even: float = 0.0
) -> ModelDesign:
    """Find the optimal weights for the rows of X; labels are not needed.

    In L1 they are the best of a search, and a good choice rather than the optimum. A share `even`
    of the rows, those that are weighed most, weigh alike. Of many rows a sample is enough to find
    the weights; J and the sensitivity, on which the promise rests, are always those of all rows.
    """
    designs = Designs(X, names, even=even)
    return designs.finished(designs.sketch(norm))


class Designs:
    """Designs for the rows of X, one for each norm; shared quantities are computed once."""

    def __init__(self, X: FloatArray, names: Sequence[str], *, even: float = 0.0) -> None:
        self._X, self._names, self._even = X, names, even

    @cached_property
    def _columns(self) -> Columns:
        return Columns(self._X)

    @cached_property
    def _sample(self) -> FloatArray:
        return _sampled(self._X)

    @property
    def least_trace(self) -> float:
        """A lower bound of the privacy trace in either norm; cheap, since it needs no search.

        With ``sum z z' = n I`` and columns that are no longer than one in L2, as those of length
        one in L1 are, the singular values of J add up to ``sum_i |z_i| <= n sqrt(r)`` at most.
        ``tr (J'J)^-1`` is smallest if they are equal: ``r^2 / n^2``.
        """
        rank = 1 + self._columns.axes.rank
        return (1 - _ROUNDING) * float(rank / self._X.shape[0]) ** 2

    def sketch(self, norm: Norm) -> ModelDesign:
        """Return the design of all rows, or, if there are many, of a sample."""
        columns, sample = self._columns, self._sample
        is_sample = sample.shape[0] < self._X.shape[0]  # few rows on many machines are all there
        # The constant column is orthogonal to the others, which are centred.
        basis = linalg.block_diag(1.0, columns.axes.vectors / np.sqrt(columns.axes.values))
        one = np.eye(basis.shape[1])
        center, spread = columns.mean, columns.axes.spread
        dropped: tuple[str, ...] = ()
        if columns.axes.rank < len(self._names):
            correlation = columns.axes.units[:, None] * columns.covariance * columns.axes.units
            _, _, pivots = linalg.qr(correlation, pivoting=True)
            dropped = tuple(self._names[j] for j in sorted(pivots[columns.axes.rank :]))
        start = ModelDesign(center, spread, basis, one, one, 0, dropped, norm, even=self._even)
        # Small matrices by the thousand: threads for each of them wait longer than they work.
        with threadpool_limits(1):
            if norm == "L2":
                best = _solved_in_l2(sample, start, is_sample=is_sample)
            else:
                starts = [start]
                if columns.axes.rank == self._X.shape[1]:
                    # Turned back by the principal axes: of white coordinates closest to the
                    # features.
                    turned = basis.copy()
                    turned[1:, 1:] = basis[1:, 1:] @ columns.axes.vectors.T
                    starts.append(dataclasses.replace(start, basis=turned))
                best = _best_in_l1(sample, starts, is_sample=is_sample)
            steps = _sensitivity_steps(sample, best)
        copies = self._X.shape[0] / sample.shape[0]  # 1 if all rows are in it
        return dataclasses.replace(best, jacobian=copies * best.jacobian, sensitivity_steps=steps)

    def finished(self, sketch: ModelDesign) -> ModelDesign:
        """Return the design with J and sensitivity of all rows, on which the promise rests."""
        if self._sample is self._X:
            return sketch
        with threadpool_limits(1):
            best = _WhiteRows(self._X, sketch, keep=False).measured(sketch)
            return dataclasses.replace(best, sensitivity_steps=_sensitivity_steps(self._X, best))


def _sampled(X: FloatArray) -> FloatArray:
    """Return X, or short blocks from all over a long X, which may be sorted by a feature."""
    n = X.shape[0]
    if isinstance(X, BlockedRows):
        return X.sampled(SAMPLED_ROWS)
    if n <= SAMPLED_ROWS:
        return X
    blocks = SAMPLED_ROWS // SAMPLED_BLOCK
    middles = (2 * np.arange(blocks) + 1) * n // (2 * blocks)  # of equal parts, so that all count
    starts = (middles - SAMPLED_BLOCK // 2).tolist()
    return np.concatenate([X[start : start + SAMPLED_BLOCK] for start in starts])


class _WhiteRows:
    """The rows of X in coordinates z, for a search that goes through them again and again."""

    def __init__(self, X: FloatArray, design: ModelDesign, *, keep: bool = True) -> None:
        self._X = X
        self._white: Callable[[FloatArray], FloatArray] = partial(_white, design=design)
        if keep and 8 * X.shape[0] * design.rank <= _KEPT:
            self._X, self._white = np.concatenate(list(over_blocks(X, self._white))), np.asarray

    def measured(self, design: ModelDesign) -> ModelDesign:
        """Return the design with the J and the shortest column that follow from its G."""
        white: Any = {"design": design, "white": self._white}
        if design.even > 0:
            if isinstance(self._X, BlockedRows):
                raise AssertionError("strengths of all rows would have to fit into one machine")
            strengths = list(over_blocks(self._X, partial(_strengths, **white)))
            shortest = float(np.quantile(np.concatenate(strengths), design.even))
            white["design"] = design = dataclasses.replace(design, shortest=shortest)
        blocks = over_blocks(self._X, partial(_jacobian, **white))
        return dataclasses.replace(design, jacobian=sum(blocks, np.zeros(design.mix.shape)))


def _strengths(
    block: FloatArray, *, design: ModelDesign, white: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    mixed = white(block) @ design.mix.T
    return _brought(_directions(mixed, design.norm), mixed)


def _jacobian(
    block: FloatArray, *, design: ModelDesign, white: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    Z = white(block)
    return np.asarray(_columns_of(Z, design).T @ Z)


def _few_rows(X: FloatArray, design: ModelDesign) -> FloatArray | None:
    """Return some rows of a sample to begin a search with; None if they are too few.

    They must have every direction in about the share that all rows have.
    """
    few = X[::_EVERY]
    Z = _white(few, design)
    least = linalg.eigvalsh(Z.T @ Z / Z.shape[0], subset_by_index=(0, 0))[0]
    return few if least > _LEAST_SPREAD else None


def _solved_in_l2(X: FloatArray, design: ModelDesign, *, is_sample: bool) -> ModelDesign:
    """Iterate A = F(A) until it holds: of a sample, which is itself not exact, roughly."""
    n, rank = X.shape[0], design.rank
    start = np.full(rank, float(n)), np.eye(rank)
    if not is_sample:
        return _iterated(X, design, *start, _TOLERANCE)[0]
    if (few := _few_rows(X, design)) is not None:
        start = _iterated(few, design, *start, _ROUGHLY)[1:]
    return _iterated(X, design, *start, _ROUGHLY)[0]


def _iterated(
    X: FloatArray, design: ModelDesign, values: FloatArray, vectors: FloatArray, tolerance: float
) -> tuple[ModelDesign, FloatArray, FloatArray]:
    """Return the design, and the eigenvalues and eigenvectors of the A that came next."""
    rank, rows = design.rank, _WhiteRows(X, design)
    for _ in range(_MOST_ROUNDS):
        old = (vectors * values) @ vectors.T
        mix = (vectors * values**-0.75) @ vectors.T
        design = rows.measured(dataclasses.replace(design, mix=mix))
        new = (vectors * values**0.75) @ vectors.T @ design.jacobian  # sum_i w_i z_i z_i'
        # F(cA) = c^(3/4) F(A), so the scale can be set right at once: c^(1/4) = tr(A^-1 F(A)) / r.
        growth = float(np.trace(linalg.solve(old, new, assume_a="pos"))) / rank
        A = growth**3 * (new + new.T) / 2
        values, vectors = linalg.eigh(A)
        if np.abs(A - old).max() <= tolerance * np.abs(A).max():
            break
    return design, values, vectors


def _best_in_l1(X: FloatArray, starts: list[ModelDesign], *, is_sample: bool) -> ModelDesign:
    """Search from each start; of a sample, from where a search among some of its rows ended.

    That is near the best, so that shorter steps come nearer.
    """
    few = _few_rows(X, starts[0]) if is_sample else None
    found = [_solved_in_l1(X if few is None else few, each) for each in starts]
    best = min(found, key=lambda each: each.privacy_trace)
    return best if few is None else _solved_in_l1(X, best, stride=_SHORT)


def _solved_in_l1(X: FloatArray, design: ModelDesign, *, stride: float = 1.0) -> ModelDesign:
    """Follow the gradient of the privacy error; return the best that was met on the way.

    `stride` is what the gradient counts beside the G before it, both in length one.
    """
    best, trace, since = design, math.inf, 0
    rows = _WhiteRows(X, design)
    for _ in range(_MOST_ROUNDS):
        design = rows.measured(design)
        now = design.privacy_trace
        since = 0 if now < trace * (1 - _WORTHWHILE) else since + 1
        if now < trace:
            best, trace = design, now
        if since > _PATIENCE:
            break
        inverse = linalg.inv(design.jacobian.T @ design.jacobian)
        gradient = design.jacobian @ inverse @ inverse
        # Halfway, since a step that goes all the way is followed by one that goes back.
        mix = design.mix / linalg.norm(design.mix) + stride * gradient / linalg.norm(gradient)
        design = dataclasses.replace(design, mix=mix)
    return best


def release_statistics(
    X: FloatArray,
    labels: FloatArray | None,
    *,
    design: ModelDesign,
    bounds: Bounds,
    event: Mechanism,
    source: NoiseSource,
) -> NoisyStatistics:
    """Return the statistics with noise; everything after the noise is post-processing."""
    low, high = bounds
    exact = exact_statistics(X, labels, design=design, bounds=bounds, step=event.grid_step)
    noisy = np.asarray(event.grid_step * event.law.hide(exact, source), dtype=np.float64)
    unit = 4 * (high - low) / SQUARE_EIGHTHS[design.norm]  # h / k
    return NoisyStatistics(
        sums=noisy[:-1],
        square=float(noisy[-1] * unit),
        middle=(low + high) / 2,
        noise_sd=event.number_sd,
        square_sd=event.number_sd * unit,
    )


def exact_statistics(
    X: FloatArray, labels: AnyArray | None, *, design: ModelDesign, bounds: Bounds, step: float
) -> IntArray:
    """Return sum_i b_i y_i, and the squares after it, in label steps.

    Sums are exact before they are rounded to steps. A block fits 53 bits, and blocks are added up
    in integers of any length, so that there may be any number of rows.
    """
    work = partial(_of_block, design=design, bounds=bounds, step=step)
    blocks = over_blocks(X, work, operator.add, labels)
    *sums, square = sum(blocks, np.zeros(design.rank + 1, object))
    half = 1 << (_COLUMN_BITS - 1)
    rounded = [(each + half) >> _COLUMN_BITS for each in sums]  # to the nearest step
    return np.array([*rounded, square], dtype=np.int64)


def _of_block(
    block: FloatArray, labels: FloatArray, *, design: ModelDesign, bounds: Bounds, step: float
) -> AnyArray:
    # From the middle of the bounds, which is public: half the range, half the bias.
    steps = labels_to_steps(labels, bounds=bounds, step=step) - _HALF
    sums = steps @ _integer_columns(block, design)
    # k y^2 / h for labels y in steps, h being half the range, to the nearest step
    squares = (SQUARE_EIGHTHS[design.norm] * steps**2 + 4 * _HALF) // (8 * _HALF)
    return np.array([*sums.tolist(), int(squares.sum())], dtype=object)  # whole, of any length


def best_share(design: ModelDesign, *, n_rows: int, bag_size: int) -> float:
    """Return the share of the budget for the model that minimises the error of instance loss.

    The error is ``a/f + b/(1-f)`` where Gaussian noise follows Gaussian noise and f is a share of
    mu squared: least at ``f = sqrt(a) / (sqrt(a) + sqrt(b))``. The variance of Laplace noise falls
    with the square of its epsilon. With f a share of epsilon, ``a/f^2 + b/(1-f)^2`` is least at
    ``f = cbrt(a) / (cbrt(a) + cbrt(b))``.
    """
    root = math.sqrt if design.norm == "L2" else math.cbrt
    a, b = map(root, error_factors(design, n_rows=n_rows, bag_size=bag_size))
    return min(0.99, max(0.01, a / (a + b)))


def error_factors(design: ModelDesign, *, n_rows: int, bag_size: int) -> tuple[float, float]:
    """Return how much the variance of either noise adds to the error of instance loss: a and b.

    Bags are sorted by a private model. a is that of the noise on each of its statistics, for the
    directions that the model got wrong; b that of the noise on the sum of a bag.
    """
    d = max(1, design.rank - 1)
    shrunk = (1 - 1 / bag_size) ** 2 * (d - 1) / d * design.privacy_trace
    return shrunk, (bag_size + d - 1) / (n_rows * bag_size**2)


def _white(block: FloatArray, design: ModelDesign) -> FloatArray:
    """Return the coordinates z of the rows of a block."""
    scaled = (block - design.center) / design.spread
    return np.asarray(np.column_stack([np.ones(scaled.shape[0]), scaled]) @ design.basis)


def unit_columns(block: FloatArray, design: ModelDesign) -> tuple[FloatArray, FloatArray]:
    """Return the coordinates z_i, and the columns b_i, of the rows of a block."""
    Z = _white(block, design)
    return Z, _columns_of(Z, design)


def _columns_of(Z: FloatArray, design: ModelDesign) -> FloatArray:
    mixed = Z @ design.mix.T
    columns = _directions(mixed, design.norm)
    if design.shortest > 0:
        columns *= np.minimum(1.0, _brought(columns, mixed) / design.shortest)[:, None]
    return columns


def _integer_columns(block: FloatArray, design: ModelDesign) -> IntArray:
    """Return the columns b_i of unit length, as whole multiples of 2**-20, (rows, rank)."""
    unit = unit_columns(block, design)[1]
    return np.asarray(np.rint(unit * 2**_COLUMN_BITS), dtype=np.int64)


def _directions(mixed: FloatArray, norm: Norm) -> FloatArray:
    """Return a column of length one for each row c = G z of the array."""
    length, columns = (mixed**2).sum(axis=1, keepdims=True), mixed
    if norm == "L2":
        length = np.sqrt(length)
    else:
        columns = mixed * np.abs(mixed)
    unit = np.divide(columns, length, out=np.zeros_like(columns), where=length > 0)
    return np.asarray(unit)


def _brought(columns: FloatArray, mixed: FloatArray) -> FloatArray:
    """Return the contribution b'c of each row."""
    return np.asarray((columns * mixed).sum(axis=1))


def _sensitivity_steps(X: FloatArray, design: ModelDesign) -> int:
    """Bound how far one label moves the rounded statistics.

    A label moves by LABEL_STEPS at most, the sums by that times the longest rounded column, or by
    less if the square moves too: that is so for columns of length one or more, and a shorter one
    counts as one. Rounding to steps adds at most one step in each coordinate: sqrt(rank + 1) in L2,
    and rank + 1 in L1.
    """
    numbers, one = design.rank + 1, 2**_COLUMN_BITS
    lengths = over_blocks(X, partial(_longest, design=design), max)
    if design.norm == "L1":
        return int(-(-LABEL_STEPS * max(one, *lengths) // one)) + numbers
    longest = max(one**2, *lengths)
    length = math.isqrt(LABEL_STEPS**2 * longest) + 1  # in units of 2**-20 steps, rounded up
    return int(-(-length // one)) + math.isqrt(numbers) + 1


def _longest(block: FloatArray, *, design: ModelDesign) -> int:
    """Return the length of the longest column of a block in L1, or its square in L2."""
    columns = _integer_columns(block, design)
    sizes = np.abs(columns) if design.norm == "L1" else columns**2
    return int(sizes.sum(axis=1).max())

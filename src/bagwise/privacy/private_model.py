"""The statistics of a model, released with label privacy: all that any model needs of the labels.

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

A generalised linear model needs no more than u either (`models.from_statistics`): its labels too
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import linalg

from bagwise._types import FloatArray, IntArray
from bagwise.data.labels import Bounds
from bagwise.data.whitening import Axes, Columns
from bagwise.privacy.grid import LABEL_STEPS, labels_to_steps
from bagwise.privacy.mechanisms import GaussianModel, LaplaceModel
from bagwise.rng import NoiseSource

_COLUMN_BITS = 20
_CHUNK = 65_536  # rows; sums of as many products of labels and columns fit 53 bits
_HALF = LABEL_STEPS // 2
_MOST_ROUNDS = 500
_TOLERANCE = 1e-9
_WORTHWHILE, _PATIENCE = 1e-3, 5  # a search ends after so many rounds that bring less than that

Norm = Literal["L1", "L2"]
"""In which columns have length one: L2 for Gaussian noise, L1 for Laplace noise."""

SQUARE_EIGHTHS: dict[Norm, int] = {"L2": 13, "L1": 4}
"""Eight times the factor of squared labels: (13/8)^2 < (11 + 5 sqrt(5)) / 8, and 4/8 = 1/2."""


@dataclass(frozen=True)
class ModelDesign:
    """How rows are weighed, from the features alone.

    Attributes
    ----------
    center, spread : (d,)
        Features are used as ``(x - center) / spread``, so that their units do not matter.
    basis : (d + 1, r)
        Coordinates ``z = [1, (x - center) / spread] basis``, in which rows have second moment n I.
    mix : (r, r)
        G; a row's column b_i points where ``c = G z`` does, or near it. In L2 it is A^(-3/4).
    jacobian : (r, r)
        ``J = sum_i b_i z_i'``. In L2 it is A^(1/4).
    sensitivity_steps : int
        How far one label can move the rounded statistics, in label steps and in this norm.
    dropped : tuple of str
        Features that the others determine; they get coefficients by least norm.
    norm : {"L2", "L1"}
        In which the columns have length one.
    even : float
        Share of the rows, those that bring least, that weigh alike.
    shortest : float
        What the last of these brings. The columns of those that bring less stay below one.
    """

    center: FloatArray
    spread: FloatArray
    basis: FloatArray
    mix: FloatArray
    jacobian: FloatArray
    sensitivity_steps: int
    dropped: tuple[str, ...]
    norm: Norm = "L2"
    even: float = 0.0
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
    """All that is known of the labels: what is made of it needs no further budget.

    Attributes
    ----------
    sums : (r,)
        ``sum_i b_i (y_i - middle)`` with noise; the middle is that of the bounds.
    square : float
        ``sum_i (y_i - middle)^2`` with noise.
    middle : float
    noise_sd, square_sd : float
        Standard deviation of the noise on each of the sums, and on the square.
    """

    sums: FloatArray
    square: float
    middle: float
    noise_sd: float
    square_sd: float


@dataclass(frozen=True)
class LinearScores:
    """A released model: what it predicts may be used without further cost.

    Attributes
    ----------
    family : str
        What a label is; coefficients are those of the linear predictor.
    """

    intercept: float
    coef: FloatArray
    dropped: tuple[str, ...]
    family: str = "gaussian"

    def predict(self, X: FloatArray) -> FloatArray:
        """Return the linear predictor of each row, which rises with its expected label."""
        return X @ self.coef + self.intercept


def design_model(
    X: FloatArray, names: Sequence[str], *, norm: Norm = "L2", even: float = 0.0
) -> ModelDesign:
    """Find the optimal weights for the rows of X; labels are not needed.

    In L1 they are the best of a search, and a good choice rather than the optimum. A share `even`
    of the rows, those that are weighed most, weigh alike.
    """
    columns = Columns(X)
    basis, dropped = _with_constant(columns.axes), _dependent(columns, names)
    one = np.eye(basis.shape[1])
    start = ModelDesign(columns.mean, columns.axes.spread, basis, one, one, 0, dropped, norm, even)
    if norm == "L2":
        best = _solved_in_l2(X, start)
    else:
        starts = [start]
        if columns.axes.rank == X.shape[1]:
            # Turned back by the principal axes: of all white coordinates closest to the features.
            turned = basis.copy()
            turned[1:, 1:] = basis[1:, 1:] @ columns.axes.vectors.T
            starts.append(dataclasses.replace(start, basis=turned))
        found = [_solved_in_l1(X, each) for each in starts]
        best = min(found, key=lambda each: each.privacy_trace)
    return dataclasses.replace(best, sensitivity_steps=_sensitivity_steps(X, best))


def _solved_in_l2(X: FloatArray, design: ModelDesign) -> ModelDesign:
    """Iterate A = F(A) until it holds."""
    rank = design.rank
    values, vectors = np.full(rank, float(X.shape[0])), np.eye(rank)
    for _ in range(_MOST_ROUNDS):
        old = (vectors * values) @ vectors.T
        mix = (vectors * values**-0.75) @ vectors.T
        design = _measured(X, dataclasses.replace(design, mix=mix))
        new = (vectors * values**0.75) @ vectors.T @ design.jacobian  # sum_i w_i z_i z_i'
        # F(cA) = c^(3/4) F(A), so the scale can be set right at once: c^(1/4) = tr(A^-1 F(A)) / r.
        growth = float(np.trace(linalg.solve(old, new, assume_a="pos"))) / rank
        A = growth**3 * (new + new.T) / 2
        values, vectors = linalg.eigh(A)
        if np.abs(A - old).max() <= _TOLERANCE * np.abs(A).max():
            break
    return design


def _solved_in_l1(X: FloatArray, design: ModelDesign) -> ModelDesign:
    """Follow the gradient of the privacy error; return the best that was met on the way."""
    best, trace, since = design, math.inf, 0
    for _ in range(_MOST_ROUNDS):
        design = _measured(X, design)
        now = design.privacy_trace
        since = 0 if now < trace * (1 - _WORTHWHILE) else since + 1
        if now < trace:
            best, trace = design, now
        if since > _PATIENCE:
            break
        inverse = linalg.inv(design.jacobian.T @ design.jacobian)
        gradient = design.jacobian @ inverse @ inverse
        # Halfway, since a step that goes all the way is followed by one that goes back.
        mix = design.mix / linalg.norm(design.mix) + gradient / linalg.norm(gradient)
        design = dataclasses.replace(design, mix=mix)
    return best


def release_statistics(
    X: FloatArray,
    labels: FloatArray,
    *,
    design: ModelDesign,
    bounds: Bounds,
    event: GaussianModel | LaplaceModel,
    source: NoiseSource,
) -> NoisyStatistics:
    """Return the statistics with noise; everything after the noise is post-processing."""
    low, high = bounds
    # Measured from the middle of the bounds, which is public: half the range, half the bias.
    steps = labels_to_steps(labels, bounds=bounds, step=event.grid_step) - _HALF
    exact = _integer_statistics(X, steps, design)
    noisy = np.asarray(event.grid_step * (exact + event.draw(exact.size, source)), dtype=np.float64)
    unit = 4 * (high - low) / SQUARE_EIGHTHS[design.norm]  # h / k
    return NoisyStatistics(
        sums=noisy[:-1],
        square=float(noisy[-1] * unit),
        middle=(low + high) / 2,
        noise_sd=event.number_sd,
        square_sd=event.number_sd * unit,
    )


def best_share(design: ModelDesign, *, n_rows: int, bag_size: int) -> float:
    """Return the share of the budget for the model that minimises the error of instance loss.

    The error is ``a/f + b/(1-f)`` where Gaussian noise follows Gaussian noise and f is a share of
    mu squared: least at ``f = sqrt(a) / (sqrt(a) + sqrt(b))``. The variance of Laplace noise falls
    with the square of its epsilon. With f a share of epsilon, ``a/f^2 + b/(1-f)^2`` is least at
    ``f = cbrt(a) / (cbrt(a) + cbrt(b))``.
    """
    model, bags = _instance_error(design, n_rows=n_rows, bag_size=bag_size)
    root = math.sqrt if design.norm == "L2" else math.cbrt
    a, b = root(model), root(bags)
    return min(0.99, max(0.01, a / (a + b)))


def instance_error(
    design: ModelDesign, *, n_rows: int, bag_size: int, model_sd: float, sum_sd: float
) -> float:
    """Return about the error of instance loss on bags sorted by a private model.

    `model_sd` is the noise on each statistic of the model, `sum_sd` that on the sum of a bag; the
    error is in the square of their unit.
    """
    model, bags = _instance_error(design, n_rows=n_rows, bag_size=bag_size)
    return model * model_sd**2 + bags * sum_sd**2


def _instance_error(design: ModelDesign, *, n_rows: int, bag_size: int) -> tuple[float, float]:
    """Return how much the variances of both kinds of noise count, a and b.

    a is for the directions that the model got wrong, b for the noise on the bags.
    """
    d = max(1, design.rank - 1)
    shrunk = (1 - 1 / bag_size) ** 2 * (d - 1) / d * design.privacy_trace
    return shrunk, (bag_size + d - 1) / (n_rows * bag_size**2)


def _white_rows(X: FloatArray, design: ModelDesign) -> Iterator[tuple[slice, FloatArray]]:
    """Yield blocks of z."""
    for start in range(0, X.shape[0], _CHUNK):
        rows = slice(start, start + _CHUNK)
        scaled = (X[rows] - design.center) / design.spread
        yield rows, np.column_stack([np.ones(scaled.shape[0]), scaled]) @ design.basis


def _with_constant(axes: Axes) -> FloatArray:
    """Return the basis for [1, columns in standard deviations]: second moment n I together.

    The constant column is orthogonal to the others, which are centred.
    """
    basis = np.zeros((axes.units.size + 1, 1 + axes.rank))
    basis[0, 0] = 1.0
    basis[1:, 1:] = axes.vectors / np.sqrt(axes.values)
    return basis


def _dependent(columns: Columns, names: Sequence[str]) -> tuple[str, ...]:
    """Name the features that a pivoted factorisation leaves over."""
    axes = columns.axes
    if axes.rank == len(names):
        return ()
    correlation = axes.units[:, None] * columns.covariance * axes.units
    _, _, pivots = linalg.qr(correlation, pivoting=True)
    return tuple(names[j] for j in sorted(pivots[axes.rank :]))


def _measured(X: FloatArray, design: ModelDesign) -> ModelDesign:
    """Return the design with the J and the shortest column that follow from its G."""
    if design.even > 0:
        strengths = [
            _directions(Z @ design.mix.T, design.norm)[1] for _, Z in _white_rows(X, design)
        ]
        shortest = float(np.quantile(np.concatenate(strengths), design.even))
        design = dataclasses.replace(design, shortest=shortest)
    jacobian = np.zeros((design.rank, design.rank))
    for _, Z, columns in unit_columns(X, design):
        jacobian += columns.T @ Z
    return dataclasses.replace(design, jacobian=jacobian)


def unit_columns(
    X: FloatArray, design: ModelDesign
) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
    """Yield blocks of rows: which they are, their coordinates z_i, and their columns b_i."""
    for rows, Z in _white_rows(X, design):
        columns, strength = _directions(Z @ design.mix.T, design.norm)
        if design.shortest > 0:
            columns = columns * np.minimum(1.0, strength / design.shortest)[:, None]
        yield rows, Z, columns


def _integer_columns(X: FloatArray, design: ModelDesign) -> Iterator[tuple[slice, IntArray]]:
    """Yield the columns b_i of unit length, as whole multiples of 2**-20, (rows, rank)."""
    for rows, _, unit in unit_columns(X, design):
        yield rows, np.rint(unit * 2**_COLUMN_BITS).astype(np.int64)


def _directions(mixed: FloatArray, norm: Norm) -> tuple[FloatArray, FloatArray]:
    """Return a column of length one for each row c = G z of the array, and what it brings, b'c."""
    size = np.abs(mixed)
    squares = mixed**2
    if norm == "L2":
        strength = np.sqrt(squares.sum(axis=1))
        length, columns = strength[:, None], mixed
    else:
        length, columns = squares.sum(axis=1, keepdims=True), mixed * size
        cubes = (squares * size).sum(axis=1)
        strength = np.divide(cubes, length[:, 0], out=np.zeros_like(cubes), where=cubes > 0)
    unit = np.divide(columns, length, out=np.zeros_like(columns), where=length > 0)
    return unit, strength


def _integer_statistics(X: FloatArray, steps: IntArray, design: ModelDesign) -> IntArray:
    """Return sum_i b_i y_i, and the squares after it, in label steps.

    Sums are exact before they are rounded to steps. A block fits 53 bits, and blocks are added up
    in integers of any length, so that there may be any number of rows.
    """
    total: list[int] = [0] * design.rank
    square = 0
    for rows, columns in _integer_columns(X, design):
        here = steps[rows] @ columns
        total = [old + int(new) for old, new in zip(total, here, strict=True)]
        square += int(_square_steps(steps[rows], design.norm).sum())
    half = 1 << (_COLUMN_BITS - 1)
    rounded = [(each + half) >> _COLUMN_BITS for each in total]  # to the nearest step
    return np.array([*rounded, square], dtype=np.int64)


def _square_steps(steps: IntArray, norm: Norm) -> IntArray:
    """Return k y^2 / h for labels y in steps, h being half the range, to the nearest step."""
    return (SQUARE_EIGHTHS[norm] * steps**2 + 4 * _HALF) // (8 * _HALF)


def _sensitivity_steps(X: FloatArray, design: ModelDesign) -> int:
    """Bound how far one label moves the rounded statistics.

    A label moves by LABEL_STEPS at most, the sums by that times the longest rounded column, or by
    less if the square moves too: that is so for columns of length one or more, and a shorter one
    counts as one. Rounding to steps adds at most one step in each coordinate: sqrt(rank + 1) in L2,
    and rank + 1 in L1.
    """
    numbers, one = design.rank + 1, 2**_COLUMN_BITS
    if design.norm == "L1":
        sums = (
            int(np.abs(columns).sum(axis=1).max()) for _, columns in _integer_columns(X, design)
        )
        return int(-(-LABEL_STEPS * max(one, *sums) // one)) + numbers
    squares = (int((columns**2).sum(axis=1).max()) for _, columns in _integer_columns(X, design))
    longest = max(one**2, *squares)
    length = math.isqrt(LABEL_STEPS**2 * longest) + 1  # in units of 2**-20 steps, rounded up
    return int(-(-length // one)) + math.isqrt(numbers) + 1

"""The expected error when theta is not known, only how strong the signal is thought to be.

Everything is computed in coordinates in which the features are uncorrelated with variance 1. There
the error of predictions is the squared length of the error of the coefficients, and "a signal of
this size in any direction" is a simple prior: theta ~ N(0, signal^2 / d I). What a bag contributes
is its size, the sum of its rows, and how much its rows differ.

References
----------
F1-F4 of the theory page, averaged over theta: bias and choice are quadratic in theta, so that only
its second moments matter. Exact for the Gaussian family.
"""

from dataclasses import dataclass

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.data.whitening import Columns
from bagwise.errors import StrategyError
from bagwise.privacy.aggregate import LabelKind
from bagwise.theory.exact import Risk


@dataclass(frozen=True)
class Whitening:
    """Coordinates in which features have mean 0 and are uncorrelated with variance 1.

    Attributes
    ----------
    rows : (n, r)
    basis : (d, r)
        ``rows = (X - mean) @ basis``; slopes in the features' own units are ``basis @ slopes``.
    """

    rows: FloatArray
    basis: FloatArray

    @classmethod
    def of(cls, X: FloatArray) -> "Whitening":
        """Whiten X, (n, d); directions without spread are dropped."""
        columns = Columns(X)
        return cls(columns.white_rows(), columns.axes.basis)


@dataclass(frozen=True)
class BagMoments:
    """What bags keep of whitened rows.

    Attributes
    ----------
    n_rows : int
    sizes : (m,)
    sums : (m, r + 1)
        Sum of each bag's rows and, last, their number.
    spread : (m,)
        Variance inside the bag, averaged over the directions.
    """

    n_rows: int
    sizes: FloatArray
    sums: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, white: Whitening, bags: Bags) -> "BagMoments":
        """Add up the rows of each bag; rows that are in no bag do not count."""
        rows, index = white.rows[bags.in_bag], bags.index[bags.in_bag]
        inside = Bags(index)
        sizes = inside.sizes.astype(np.float64)
        sums = inside.sum(rows)
        directions = max(1, rows.shape[1])
        squares = inside.sum(np.einsum("ij,ij->i", rows, rows))
        within = squares - np.einsum("ij,ij->i", sums, sums) / sizes
        spread = np.maximum(within, 0.0) / sizes / directions
        return cls(len(rows), sizes, np.column_stack([sums, sizes]), spread)


def prior_risk(
    moments: BagMoments,
    *,
    signal_sd: float,
    label_noise_sd: float,
    label_kind: LabelKind,
    loss: str,
    noise_sd: float | FloatArray = 0.0,
    metric: FloatArray | None = None,
) -> Risk:
    """Return the expected squared error of predictions, theta being drawn from the prior.

    Parameters
    ----------
    signal_sd : float
        Standard deviation of the expected labels ``X theta``.
    loss : {"bag", "instance"}
        Bag loss has weights from the known variances (F4).
    metric : (r, r), optional
        Error of the slopes in this metric instead of that of predictions.

    Examples
    --------
    >>> X = np.array([[-1.0], [-1.0], [1.0], [1.0]])
    >>> moments = BagMoments.of(Whitening.of(X), Bags(np.array([0, 0, 1, 1])))
    >>> risk = prior_risk(moments, signal_sd=1.0, label_noise_sd=2.0, label_kind="mean",
    ...                   loss="bag")
    >>> round(risk.total, 9)    # sigma^2 p / n for two coefficients
    2.0
    """
    picked = label_kind == "pick"
    width = moments.sums.shape[1]
    choice = moments.spread * (signal_sd**2 if picked else 0.0)
    noise = label_noise_sd**2 / (np.ones_like(moments.sizes) if picked else moments.sizes)
    privacy = np.broadcast_to(np.asarray(noise_sd, dtype=np.float64) ** 2, noise.shape)
    bias = 0.0
    full = _full_metric(metric, width)
    if loss == "instance":
        lever = moments.sums / moments.n_rows
        bias = _shrinkage_bias(moments, signal_sd, full)
    elif loss == "bag":
        omega: FloatArray = np.asarray(choice + noise + privacy)
        omega = np.maximum(omega, 1e-12 * omega.max()) if omega.any() else np.ones_like(omega)
        centroids = moments.sums / moments.sizes[:, None]
        instruments = centroids / omega[:, None]
        information = instruments.T @ centroids
        values = np.linalg.eigvalsh(information)
        if values[0] <= 1e-12 * values[-1]:
            return Risk.of(bias=np.inf, choice=0.0, label_noise=0.0, privacy=0.0)
        lever = np.asarray(np.linalg.solve(information, instruments.T).T, dtype=np.float64)
    else:
        raise StrategyError(f"loss must be bag or instance, got {loss!r}.")
    squares = np.einsum("ij,jk,ik->i", lever, full, lever)
    return Risk.of(
        bias=bias,
        choice=float(squares @ choice),
        label_noise=float(squares @ noise),
        privacy=float(squares @ privacy),
    )


def _full_metric(metric: FloatArray | None, width: int) -> FloatArray:
    full = np.eye(width)
    if metric is not None:
        full[:-1, :-1], full[-1, -1] = metric, 0.0
    return full


def _shrinkage_bias(moments: BagMoments, signal_sd: float, metric: FloatArray) -> float:
    """Return the expected squared bias of instance loss: slopes lose what varies inside bags."""
    sums = moments.sums
    kept = (sums / moments.sizes[:, None]).T @ sums / moments.n_rows
    lost = (np.eye(len(kept)) - kept)[:, :-1]  # the intercept is never shrunk
    directions = max(1, lost.shape[1])
    squares = float(np.trace(lost.T @ metric @ lost))
    return float(squares * signal_sd**2 / directions)

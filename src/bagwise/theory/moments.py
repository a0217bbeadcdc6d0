"""The expected error when theta is not known, only how strong the signal is thought to be.

Everything is computed in coordinates in which the features are uncorrelated with variance 1. There
the error of predictions is the squared length of the error of the coefficients, and "a signal of
this size in any direction" is a simple prior: theta ~ N(0, signal^2 / d I). Where some directions
are thought to carry less (`beliefs`), theta is drawn accordingly, and the fit, which does not
know that, still shrinks all alike. What a bag contributes is its size, the sum of its rows, how
much its rows differ, and its means of what a linear model leaves (`beliefs`).

Bag loss is what the default fit does: the posterior mean under that very prior, with a free
intercept and the known noise of each bag,

    ``T = (C'WC + P)^-1 C'W``,   ``theta_hat - theta = (TC - I) theta + T (noise + misfit)``,

with C the bag means of the rows (and a one), W one over the variance of the bag labels, and P =
d / signal^2 on the slopes, 0 on the intercept. Averaged over the prior, the first term is the bias;
each cause of noise adds its variance through T.

References
----------
F1-F4 of the theory page, averaged over theta: bias and choice are quadratic in theta, so that only
its second moments matter. Exact for the Gaussian family. The posterior mean: Lindley and Smith
(1972); without shrinkage (signal to infinity) it is F4.
"""

from dataclasses import dataclass, replace

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import StrategyError
from bagwise.privacy.aggregate import LabelKind
from bagwise.rows.whitening import Columns
from bagwise.theory.exact import Risk

_NO_NOISE = 1e-12  # of the largest variance, or of the signal's: a bag label is never exact


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
    """What bags keep of whitened rows, and of what a linear model leaves.

    Attributes
    ----------
    n_rows : int
    sizes : (m,)
    sums : (m, r + 1)
        Sum of each bag's rows and, last, their number.
    spread : (m,)
        Variance inside the bag, averaged over the directions.
    signal_spread : (m,)
        Variance of a signal of variance 1 inside the bag, averaged over what is believed of it.
    misfit : (m, f)
        Bag means of f functions that a linear model does not explain.
    misfit_spread : (m,)
        Variance of these inside the bag, averaged over the functions.
    root : (r, k)
        Slopes of a signal of variance 1 are this times standard normal numbers.
    """

    n_rows: int
    sizes: FloatArray
    sums: FloatArray
    spread: FloatArray
    signal_spread: FloatArray
    misfit: FloatArray
    misfit_spread: FloatArray
    root: FloatArray

    @classmethod
    def of(
        cls,
        white: Whitening,
        bags: Bags,
        functions: FloatArray | None = None,
        root: FloatArray | None = None,
    ) -> "BagMoments":
        """Add up the rows of each bag; rows that are in no bag do not count.

        Without a `root` the signal is thought to lie in all directions alike.
        """
        rows = white.rows
        directions = max(1, rows.shape[1])
        if root is None:
            root = np.eye(rows.shape[1]) / np.sqrt(directions)
        left = np.empty((len(rows), 0)) if functions is None else functions
        inside = bags
        if not bags.in_bag.all():
            rows, left = rows[bags.in_bag], left[bags.in_bag]
            inside = Bags(bags.index[bags.in_bag])
        sizes = inside.sizes.astype(np.float64)
        sums, spread = _sums_and_spread(inside, rows, sizes)
        misfit, misfit_spread = _sums_and_spread(inside, left, sizes)
        _, per_column = _sums_and_spread(inside, rows @ root, sizes)
        return cls(
            n_rows=len(rows),
            sizes=sizes,
            sums=np.column_stack([sums, sizes]),
            spread=spread,
            signal_spread=per_column * max(1, root.shape[1]),
            misfit=misfit / sizes[:, None],
            misfit_spread=misfit_spread,
            root=root,
        )

    @property
    def centroids(self) -> FloatArray:
        """Means of the rows of each bag and, last, a one, (m, r + 1)."""
        return np.asarray(self.sums / self.sizes[:, None])

    def grown(self, times: float) -> "BagMoments":
        """Return what as many bags would keep if each had `times` as many rows of the same kind.

        A mean of few rows differs from that of its kind by chance: by the variance inside over
        their number. So means of more rows differ less from each other, by just that.
        """
        if times == 1:
            return self
        sizes = self.sizes * times
        shrink, spread = _grow(self.centroids[:, :-1], self.spread, self.sizes, times)
        misfit_shrink, misfit_spread = _grow(self.misfit, self.misfit_spread, self.sizes, times)
        return replace(
            self,
            n_rows=round(self.n_rows * times),
            sizes=sizes,
            sums=np.column_stack([self.sums[:, :-1] * times * shrink, sizes]),
            spread=spread,
            signal_spread=_grown_spread(self.signal_spread, self.sizes, times),
            misfit=self.misfit * misfit_shrink,
            misfit_spread=misfit_spread,
        )


def _sums_and_spread(
    bags: Bags, values: FloatArray, sizes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the sums of bags, (m, c), and the variance inside, averaged over the columns."""
    sums = bags.sum(values)
    squares = bags.sum(np.einsum("ij,ij->i", values, values))
    within = squares - np.einsum("ij,ij->i", sums, sums) / sizes
    return sums, np.maximum(within, 0.0) / sizes / max(1, values.shape[1])


def _grow(
    means: FloatArray, spread: FloatArray, sizes: FloatArray, times: float
) -> tuple[float, FloatArray]:
    """Return what bag means shrink by with `times` as many rows, and the variance inside then."""
    inside = _spread_of_kind(spread, sizes)
    between = float(sizes @ np.einsum("ij,ij->i", means, means))
    by_chance = means.shape[1] * float(np.sum(inside)) * (1 - 1 / times)
    left = max(0.0, 1 - by_chance / between) if between > 0 else 0.0
    return float(np.sqrt(left)), _grown_spread(spread, sizes, times)


def _spread_of_kind(spread: FloatArray, sizes: FloatArray) -> FloatArray:
    """Return the variance inside of the kind of a bag's rows, not of the few that are there."""
    return spread * sizes / np.maximum(sizes - 1, 1)


def _grown_spread(spread: FloatArray, sizes: FloatArray, times: float) -> FloatArray:
    """Return the variance inside with `times` as many rows."""
    return _spread_of_kind(spread, sizes) * (1 - 1 / (sizes * times))


def prior_risk(
    moments: BagMoments,
    *,
    signal_sd: float,
    label_noise_sd: float,
    label_kind: LabelKind,
    loss: str,
    misfit: float = 0.0,
    noise_sd: float | FloatArray = 0.0,
    repeats: float = 1.0,
    metric: FloatArray | None = None,
    slopes: FloatArray | None = None,
) -> Risk:
    """Return the expected squared error of predictions, theta being drawn from the prior.

    Parameters
    ----------
    signal_sd : float
        Standard deviation of the expected labels ``X theta``.
    loss : {"bag", "instance"}
        Bag loss has weights from the known variances (F4), and shrinks as the prior says.
    misfit : float
        Variance of what a linear model leaves, as a share of the signal's.
    repeats : float
        How often each bag is there, where the rows are a sample: other bags of its kind, of which
        each has its own noise.
    metric : (r, r), optional
        Error of the slopes in this metric instead of that of predictions.
    slopes : (r,), optional
        For instance loss: the slopes, if bags were made in knowledge of them. A prior that knows
        nothing would then be wrong.

    Examples
    --------
    >>> X = np.array([[-1.0], [-1.0], [1.0], [1.0]])
    >>> moments = BagMoments.of(Whitening.of(X), Bags(np.array([0, 0, 1, 1])))
    >>> risk = prior_risk(moments, signal_sd=1e6, label_noise_sd=2.0, label_kind="mean",
    ...                   loss="bag")
    >>> round(risk.total, 6)    # sigma^2 p / n for two coefficients
    2.0
    >>> risk = prior_risk(moments, signal_sd=1.0, label_noise_sd=2.0, label_kind="mean",
    ...                   loss="bag")
    >>> round(risk.total, 6)    # a slope of the size of its error is worth half: 1 + 1/2
    1.5
    """
    picked = label_kind == "pick"
    misfit_variance = misfit * signal_sd**2
    choice = np.zeros_like(moments.sizes)
    if picked:
        choice = moments.signal_spread * signal_sd**2 + moments.misfit_spread * misfit_variance
    noise = label_noise_sd**2 / (np.ones_like(moments.sizes) if picked else moments.sizes)
    privacy = np.broadcast_to(np.asarray(noise_sd, dtype=np.float64) ** 2, noise.shape)
    full = np.eye(moments.sums.shape[1])
    if metric is not None:
        full[:-1, :-1], full[-1, -1] = metric, 0.0
    if loss == "instance":
        lever = moments.sums / (moments.n_rows * repeats)
        # Slopes lose what varies inside bags; the intercept is never shrunk.
        kept = moments.centroids.T @ moments.sums / moments.n_rows
        lost = (np.eye(len(kept)) - kept)[:, :-1]
        lost = signal_sd * lost @ moments.root if slopes is None else lost @ slopes[:, None]
        bias = float(np.sum((full @ lost) * lost))
    elif loss == "bag":
        lever, bias = _posterior(moments, choice + noise + privacy, signal_sd, repeats, full)
    else:
        raise StrategyError(f"loss must be bag or instance, got {loss!r}.")
    squares = repeats * np.einsum("ij,ij->i", lever @ full, lever)
    return Risk.of(
        bias=bias,
        choice=float(squares @ choice),
        label_noise=float(squares @ noise),
        privacy=float(squares @ privacy),
        misfit=misfit_variance * _misfit_error(moments, lever, squares, full, repeats),
    )


def _posterior(
    moments: BagMoments, omega: FloatArray, signal_sd: float, repeats: float, metric: FloatArray
) -> tuple[FloatArray, float]:
    """Return T', (m, r + 1), and the expected squared bias.

    In units of the prior's standard deviation the precision of the prior is one, so that neither a
    signal of 0 nor fewer bags than coefficients need a case of their own.
    """
    centroids = moments.centroids
    slopes = centroids.shape[1] - 1
    least = _NO_NOISE * max(float(omega.max()), signal_sd**2)
    instruments = centroids / np.maximum(omega, least or 1.0)[:, None]
    units = np.append(np.full(slopes, signal_sd / np.sqrt(max(1, slopes))), 1.0)
    precision = repeats * (instruments.T @ centroids) * np.outer(units, units)
    precision[np.arange(slopes), np.arange(slopes)] += 1.0
    inverse = np.linalg.inv(precision) * units[:, None]
    lever = instruments @ (inverse * units).T
    # The fit takes slopes to be alike; they are drawn by the root, in units of what it takes.
    lost = inverse[:, :-1] @ moments.root * np.sqrt(max(1, slopes))
    return lever, float(np.sum((metric @ lost) * lost))


def _misfit_error(
    moments: BagMoments,
    lever: FloatArray,
    squares: FloatArray,
    metric: FloatArray,
    repeats: float,
) -> float:
    """Return the expected squared error by a misfit of variance 1, averaged over its draws.

    Repeated bags are other bags with the same expected misfit. What their means have by chance, a
    variance inside over a size, is another draw in each and averages out as noise does.
    """
    functions = int(moments.misfit.shape[1])
    if not functions:
        return 0.0
    moved = repeats * (lever.T @ moments.misfit)  # (r + 1, f)
    whole = float(np.sum((metric @ moved) * moved)) / functions
    if repeats == 1:
        return whole
    by_chance = float(squares @ (moments.misfit_spread / np.maximum(moments.sizes - 1, 1)))
    return max(0.0, whole - repeats * by_chance) + by_chance

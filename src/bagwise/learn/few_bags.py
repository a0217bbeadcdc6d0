"""Probabilities from a few large bags, using shares and the bag that each row is in.

Ten bags cannot determine a hundred slopes by their shares alone. But who put rows into bags has
said more: if rows of one class went to other bags than rows of another, then the bag of each row
tells of its label. Let ``q_cj`` be how often a row of class c is in bag j, which is known from
shares and sizes. For a row with chances ``p_ic`` of its classes, and for bag j of size N_j with
shares ``s_cj``,

    P(row i is in bag j)             = sum_c p_ic q_cj
    P(it has class c, being there)   = p_ic q_cj / sum_e p_ie q_ej

The first is a likelihood over rows, the second has a mean in each bag that is compared with its
share, whose sampling variance is s (1 - s) / N. Together they are the likelihood of bags and
shares, given the features, if the bag depends on the label alone. The first is what the mean map
(Quadrianto and others 2009) knows by moments: features differ between bags along a line. Where all
bags have the same shares but for chance, every q_cj is N_j / N, the first says nothing, and the
second is the likelihood of the shares alone. In between, shares are pulled towards the mean of
all by as much as chance explains of their spread (James and Stein 1961).

Slopes of standardised columns are N(0, 1.5^2 / d), so that log odds vary over rows as they usually
do. Columns, and not directions without correlation, are standardised: what bags say of one column
is then shared by those that go with it, and of directions in which rows hardly differ nothing is
believed.

References
----------
Quadrianto, Smola, Caetano and Le (2009), JMLR 10. Scott and Zhang (2020), NeurIPS 33.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, logsumexp

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.glm.design import Design
from bagwise.learn.fitting import Setting, warn_of_gradient
from bagwise.models.row_model import Estimates

_USUAL_LOG_ODDS_SD = 1.5
_STEPS = 500
_ROUNDS = 50  # of rescaling odds
_CLOSE = 1e-6
_SURER = 2.0  # times the slopes: where the shares ask for more, bags follow labels
_NEVER = 1e-12  # a chance that no logarithm can make infinite
_NOTE = (
    "No intervals: with fewer than five bags for each coefficient, what features and bags have to "
    "do with each other decides more than the sampling of labels. ridge=0 fits shares alone."
)


@dataclass(frozen=True)
class BagLikelihood:
    """How likely bags and their shares are, given chances of classes that are linear in log odds.

    Attributes
    ----------
    design : Design
    bags : Bags
    weight : (n,)
        How much each row counts.
    shares : (m, classes)
    """

    design: Design
    bags: Bags
    weight: FloatArray
    shares: FloatArray

    @cached_property
    def sizes(self) -> FloatArray:
        """How many rows each bag counts for."""
        return np.asarray(self.bags.sum(self.weight))

    @property
    def mean(self) -> FloatArray:
        """The shares of all bags combined."""
        return np.asarray(np.average(self.shares, axis=0, weights=self.sizes))

    @cached_property
    def log_lift(self) -> FloatArray:
        """The logarithm of q_cj, relative to the size of bag j, (m, classes).

        Spread that chance explains is taken out, so that shares of random bags say nothing here.
        """
        mean, sizes = self.mean, self.sizes
        known = mean > 0
        off = (self.shares - mean)[:, known]
        spread = float(np.sum(sizes[:, None] * off**2 / mean[known]))
        by_chance = (len(sizes) - 1) * (int(known.sum()) - 1)  # Pearson's statistic, no signal
        kept = max(0.0, 1 - by_chance / spread) if spread > 0 else 0.0
        shrunk = mean + kept * (self.shares - mean)
        least = 0.5 / np.maximum(sizes, 1.0)[:, None]  # half a row: rare, but never excluded
        return np.asarray(np.log(np.maximum(shrunk, least) / np.maximum(mean, least)))

    @cached_property
    def precision(self) -> FloatArray:
        """Inverse covariance of one column's slopes."""
        outputs = self.shares.shape[1] - 1
        among = np.eye(outputs) + (1.0 if outputs > 1 else 0.0)  # no class is special
        return np.asarray(np.linalg.inv(among) * max(1, self.varying) / _USUAL_LOG_ODDS_SD**2)

    @property
    def varying(self) -> int:
        """Number of columns that are not constant."""
        flat, width = self.design.flat, self.design.rows.shape[1]
        return int(width) if flat is None else int(np.sum(~flat))

    def log_chances(self, eta: FloatArray) -> FloatArray:
        """Return logarithms of the chances of all classes, wherever a row is, (n, classes)."""
        if self.design.offset is not None:
            eta = eta + self.design.offset[:, None]
        return np.asarray(log_softmax(np.column_stack([np.zeros(len(eta)), eta]), axis=1))

    def loss(self, beta: FloatArray) -> tuple[float, FloatArray]:
        """Return the negative log likelihood, with what is believed of slopes, and its gradient.

        beta is (p * (classes - 1),), in standard units.
        """
        design, index = self.design, self.bags.index
        table = beta.reshape(design.width, -1)
        weight = self.weight

        # 1. The bag of each row.
        coef, intercept = design.coefficients(table)
        log_chance = self.log_chances(design.rows @ coef + intercept)
        joint = log_chance + self.log_lift[index]
        log_bag = logsumexp(joint, axis=1)
        inside = np.exp(joint - log_bag[:, None])
        value = -float(weight @ log_bag)
        slope = -weight[:, None] * (inside - np.exp(log_chance))

        # 2. The shares of each bag.
        mean = self.bags.sum(weight[:, None] * inside) / self.sizes[:, None]
        mean = np.maximum(mean, _NEVER)
        value -= float(np.sum(self.sizes[:, None] * self.shares * np.log(mean)))
        pull = -weight[:, None] * (self.shares / mean)[index]
        slope += inside * (pull - np.sum(pull * inside, axis=1, keepdims=True))

        # 3. What is believed of slopes. The first class has none.
        slope, width = slope[:, 1:], design.rows.shape[1]
        held = table[:width] @ self.precision
        value += float(np.sum(held * table[:width])) / 2
        gradient = design.standardise_sums((design.rows.T @ slope).T, slope.sum(axis=0)).T
        gradient[:width] += held
        return value, gradient.ravel()

    def of_shares(self, eta: FloatArray, intercept: FloatArray) -> float:
        """Return the log likelihood of the shares, if bags follow features alone."""
        chances = np.exp(self.log_chances(eta + self.rescaled(eta, intercept)))
        mean = self.bags.sum(self.weight[:, None] * chances) / self.sizes[:, None]
        return float(np.sum(self.sizes[:, None] * self.shares * np.log(np.maximum(mean, _NEVER))))

    def rescaled(self, eta: FloatArray, intercept: FloatArray) -> FloatArray:
        """Return the intercepts with which all rows together have the shares of all bags."""
        weight = self.weight
        wanted = np.log(np.maximum(self.mean, _NEVER))
        for _ in range(_ROUNDS):
            predicted = weight @ np.exp(self.log_chances(eta + intercept)) / weight.sum()
            off = wanted - np.log(np.maximum(predicted, _NEVER))
            intercept = intercept + (off[1:] - off[0])
            if np.abs(off).max() < _CLOSE:
                break
        return intercept


def fit_few_bags(setting: Setting) -> Estimates:
    """Fit chances of classes to shares of few bags, and to the bags that rows are in."""
    # 1. Read labels as shares of all classes.
    data, labels = setting.data, setting.data.labels
    design = Design.of(
        data.X,
        data.row_weights,
        fit_intercept=setting.fit_intercept,
        offset=data.offset,
    )
    shares = labels if setting.family.has_classes else np.column_stack([1 - labels, labels])
    likelihood = BagLikelihood(design, data.bags, data.row_weights, shares)

    # 2. Start where every row has the mean shares.
    start = np.zeros((design.width, shares.shape[1] - 1))
    if design.fit_intercept:
        mean = np.clip(likelihood.mean, 0.01, 0.99)
        start[-1] = np.log(mean[1:] / mean[0])
    found = minimize(
        likelihood.loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS}
    )

    # 3. Bags that follow features more than labels make chances too large or too small, and too
    # sure: rescale them, and hold slopes back where that brings chances closer to the shares.
    coef, intercept = design.coefficients(found.x.reshape(design.width, -1))
    if design.fit_intercept:
        eta = design.rows @ coef
        held = minimize_scalar(
            lambda kept: -likelihood.of_shares(kept * eta, intercept),
            bounds=(0, _SURER),
            options={"xatol": 0.01},
        )
        kept = min(1.0, float(held.x))
        coef, intercept = kept * coef, likelihood.rescaled(kept * eta, intercept)
    if not found.success:
        warn_of_gradient(float(np.linalg.norm(found.jac)) / float(likelihood.sizes.sum()))
    return Estimates(
        table=np.column_stack([coef.T, intercept]),
        rank=min(data.bags.n_bags - 1, likelihood.varying),
        dispersion=1.0,
        converged=bool(found.success),
        freedom=1,
        note=_NOTE,
    )


def share_threshold(chance: FloatArray, share: float, weight: FloatArray) -> float:
    """Return the chance that is exceeded by as many rows as the bags have labels of 1.

    Examples
    --------
    >>> share_threshold(np.array([0.1, 0.2, 0.3, 0.6]), 0.5, np.ones(4))
    0.25
    """
    order = np.argsort(-chance, kind="stable")
    positive = int(np.searchsorted(np.cumsum(weight[order]), share * float(weight.sum()) - 1e-9))
    above = chance[order[min(positive, len(order) - 1)]]
    below = chance[order[min(positive + 1, len(order) - 1)]]
    return float((above + below) / 2)

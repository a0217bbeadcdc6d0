"""Chances from a few large bags: what shares say, and what the bag that a row is in says.

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

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax

from bagwise._types import FloatArray
from bagwise.learn.design import Design
from bagwise.learn.fitting import Fitted
from bagwise.learn.losses import Setting

_USUAL_LOG_ODDS_SD = 1.5
_STEPS = 500
_ROUNDS = 50  # of rescaling odds
_CLOSE = 1e-6
_NOTE = (
    "No intervals: with fewer than five bags for each coefficient, what features and bags have to "
    "do with each other decides more than the sampling of labels. ridge=0 fits shares alone."
)


def fit_few_bags(setting: Setting) -> Fitted:
    """Fit chances of classes to shares of few bags, and to the bags that rows are in."""
    data, family = setting.data, setting.family
    index, bags = data.bags.index, data.bags
    weight = bags.repeat(data.weight)
    design = Design.of(data.X, weight, fit_intercept=setting.fit_intercept, offset=data.offset)
    shares = data.labels if family.has_classes else np.column_stack([1 - data.labels, data.labels])
    sizes = data.weight * bags.sizes
    log_lift = _log_lift(shares, sizes)[index]
    outputs = shares.shape[1] - 1
    among = np.eye(outputs) + (1.0 if outputs > 1 else 0.0)  # no class is special
    varying = int((~design.flat).sum()) if design.flat is not None else design.rows.shape[1]
    precision = np.linalg.inv(among) * max(1, varying) / _USUAL_LOG_ODDS_SD**2
    d = design.rows.shape[1]

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        beta = flat.reshape(design.width, outputs)
        coef, intercept = design.coefficients(beta)
        eta = design.rows @ coef + intercept
        if design.offset is not None:
            eta += design.offset[:, None]
        log_chance = log_softmax(np.column_stack([np.zeros(len(eta)), eta]), axis=1)
        # 1. The bag of each row.
        log_bag = logsumexp(log_chance + log_lift, axis=1)
        inside = np.exp(log_chance + log_lift - log_bag[:, None])  # chances, given the bag
        value = -float(weight @ log_bag)
        slope = -weight[:, None] * (inside - np.exp(log_chance))
        # 2. The shares of each bag.
        mean = np.column_stack([bags.mean(column) for column in inside.T])
        mean = np.maximum(mean, 1e-12)
        value -= float(np.sum(sizes[:, None] * shares * np.log(mean)))
        pull = (-data.weight[:, None] * shares / mean)[index]
        slope += inside * (pull - np.sum(pull * inside, axis=1, keepdims=True))
        # 3. What is believed of slopes.
        value += float(np.sum((beta[:d] @ precision) * beta[:d])) / 2
        gradient = np.zeros_like(beta)
        along = slope[:, 1:]
        sums = design.rows.T @ along - np.outer(design.center, along.sum(axis=0))
        gradient[:d] = sums / design.scale[:, None]
        gradient[:d] += beta[:d] @ precision
        if design.flat is not None:
            gradient[:d][design.flat] = 0.0
        if design.fit_intercept:
            gradient[-1] = along.sum(axis=0)
        return value, gradient.ravel()

    # 4. Start where every row has the mean shares.
    start = np.zeros((design.width, outputs))
    if design.fit_intercept:
        mean = np.clip(np.average(shares, axis=0, weights=sizes), 0.01, 0.99)
        start[-1] = np.log(mean[1:] / mean[0])
    found = minimize(
        objective, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS}
    )
    coef, intercept = design.coefficients(found.x.reshape(design.width, outputs))

    # 5. Bags that follow features more than labels make chances too large or too small. Rescale the
    # odds of classes until all rows together have the shares of all bags together.
    eta = design.rows @ coef + (0.0 if design.offset is None else design.offset[:, None])
    total = np.maximum(np.average(shares, axis=0, weights=sizes), 1e-12)
    for _ in range(_ROUNDS if design.fit_intercept else 0):
        scores = np.column_stack([np.zeros(len(eta)), eta + intercept])
        off = np.log(total / (weight @ softmax(scores, axis=1) / weight.sum()))
        intercept = intercept + (off[1:] - off[0])
        if np.abs(off).max() < _CLOSE:
            break
    return Fitted(
        estimates=np.column_stack([coef.T, np.atleast_1d(intercept)]),
        rank=min(bags.n_bags - 1, varying),
        phi=1.0,
        converged=bool(found.success),
        gradient=float(np.linalg.norm(found.jac)) / float(sizes.sum()),
        covariance=None,
        freedom=1,
        note=_NOTE,
    )


def _log_lift(shares: FloatArray, sizes: FloatArray) -> FloatArray:
    """Return the logarithm of q_cj, relative to the size of bag j, (m, classes).

    Spread that chance explains is taken out, so that shares of random bags say nothing here.
    """
    mean = np.average(shares, axis=0, weights=sizes)
    known = mean > 0
    spread = float(np.sum(sizes[:, None] * (shares - mean)[:, known] ** 2 / mean[known]))
    by_chance = (len(sizes) - 1) * (int(known.sum()) - 1)  # Pearson's statistic without a signal
    kept = max(0.0, 1 - by_chance / spread) if spread > 0 else 0.0
    shrunk = mean + kept * (shares - mean)
    least = 0.5 / np.maximum(sizes, 1.0)[:, None]  # half a row: a class may be rare, never excluded
    return np.asarray(np.log(np.maximum(shrunk, least) / np.maximum(mean, least)))


def share_threshold(chance: FloatArray, share: float, weight: FloatArray) -> float:
    """Return the chance above which as many rows lie as the bags have labels of 1.

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

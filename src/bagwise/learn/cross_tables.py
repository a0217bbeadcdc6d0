"""Ecological inference: tables of groups by outcomes, estimated from totals of places alone.

A place, such as a precinct, states how many people are in each group and how many have each
outcome, never how many are both. Each place is a bag of one row for each group, which stands for
its people. People of a group differ from place to place by more than chance: with n people, the
variance of a place's shares is ``(1 + rho (n - 1)) / n`` times that of one person (Williams 1982),
so that large places tell hardly more than small ones. rho is estimated by Pearson's statistic.

References
----------
Duncan and Davis (1953), American Sociological Review 18: bounds. Williams (1982), Applied
Statistics 31: extra-binomial variation. Shao and Tu (1995), The Jackknife and Bootstrap.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from bagwise._types import AnyArray, FloatArray
from bagwise.errors import BagsError, BagwiseWarning
from bagwise.learn.estimator import BaggedGLM

_PARTS = 20  # of the places, each left out once


@dataclass(frozen=True, eq=False)
class CrossTable:
    """Shares of outcomes in each group, (groups, outcomes), over all places together.

    Attributes
    ----------
    estimate, low, high
        Estimates with an interval of the shares expected of such people, which holds if people of a
        group are alike in all places but for the features and by chance. No totals can test that.
    least, most
        What no table with these totals can leave, whatever people are like.
    """

    estimate: FloatArray
    low: FloatArray
    high: FloatArray
    least: FloatArray
    most: FloatArray


def cross_table(
    groups: Any, outcomes: Any, *, features: Any = None, level: float = 0.95
) -> CrossTable:
    """Estimate shares of outcomes in each group from totals of places.

    Parameters
    ----------
    groups, outcomes : (places, groups), (places, outcomes) counts
        Rows of both add up to the people of a place.
    features : (places, d), optional
        What places differ by, such as indicators of their county.

    Examples
    --------
    >>> voters = np.array([[300, 100], [50, 400], [200, 200], [90, 10]] * 10)
    >>> votes = voters @ [[0.5, 0.5], [0.9, 0.1]]
    >>> cross_table(voters, votes).estimate.round(2)
    array([[0.5, 0.5],
           [0.9, 0.1]])
    """
    G, T = np.asarray(groups, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    people = G.sum(axis=1)
    if not (np.allclose(people, T.sum(axis=1)) and people.min() > 0 and min(G.min(), T.min()) >= 0):
        raise BagsError("groups and outcomes must be counts of the same people, place by place.")
    places, width = G.shape
    X, shares = np.tile(np.eye(width)[:, 1:], (places, 1)), T / people[:, None]
    if features is not None:
        X = np.column_stack([X, np.repeat(np.asarray(features, dtype=np.float64), width, axis=0)])

    def chances(kept: AnyArray, weight: FloatArray) -> FloatArray:
        """Return the chances of outcomes in each place and group, by a fit to some places."""
        rows, bags = np.repeat(kept, width), np.repeat(np.arange(places), width)
        with warnings.catch_warnings(), np.errstate(invalid="ignore"):
            warnings.simplefilter("ignore", BagwiseWarning)
            model = BaggedGLM("multinomial", ridge=0).fit(
                X[rows], shares[bags][rows], bags=bags[rows], counts=G.ravel()[rows],
                sample_weight=weight[bags][rows],
            )  # fmt: skip
        return model.predict(X).reshape(places, width, -1)

    def total(chance: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("pg,pgo->go", G, chance) / G.sum(axis=0)[:, None])

    # 1. How much places differ by more than chance, where all count alike.
    every = np.ones(places, dtype=bool)
    mean = np.einsum("pg,pgo->po", G, chances(every, 1 / people)) / people[:, None]
    pearson = people * np.sum((shares - mean) ** 2 / np.maximum(mean, 1e-9), axis=1)
    more = (pearson / (T.shape[1] - 1) - 1) / np.maximum(people - 1, 1)
    weight = 1 / (1 + max(0.0, float(more.mean())) * (people - 1))

    # 2. Estimates, how they vary when some places are left out, and what the totals allow.
    least = np.maximum(0, G[:, :, None] + T[:, None] - people[:, None, None]).sum(axis=0)
    most = np.minimum(G[:, :, None], T[:, None]).sum(axis=0)
    least, most = (end / G.sum(axis=0)[:, None] for end in (least, most))
    part = np.random.default_rng(0).permutation(np.arange(places) % _PARTS)
    without = np.array([total(chances(part != one, weight)) for one in range(_PARTS)])
    error = np.sqrt((_PARTS - 1) * without.var(axis=0))
    estimate = total(chances(every, weight))
    reach = float(scipy.stats.t.ppf(0.5 + level / 2, _PARTS - 1)) * error
    low, high = (np.clip(estimate + way * reach, least, most) for way in (-1, 1))
    return CrossTable(np.clip(estimate, least, most), low, high, least, most)

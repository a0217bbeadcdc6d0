"""The losses of the paper: what is compared with a bag's label.

===========  ===================================================================  ==============
loss         compares                                                             in the paper
===========  ===================================================================  ==============
instance     every row's expected label with its bag's label                      Def. 1
aggregate    the expected label at a bag's centroid with its label                Def. 3
bag          the mean of its rows' expected labels with its label                 Def. 2
mixture      each row's distribution with the label that was picked from its bag  not there
===========  ===================================================================  ==============
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from bagwise.families import Family
from bagwise.glm.classes import ClassProblem
from bagwise.glm.design import Design, centroids_of, spread_by_exposure
from bagwise.glm.parts import BagParts, PartsProblem, Recipe
from bagwise.glm.problem import BagProblem
from bagwise.glm.weights import NOTHING, Trust, Unexplained
from bagwise.learn.bag_data import BagData
from bagwise.privacy.noise import LabelKind
from bagwise.privacy.noise_laws import LAWS, NoiseLaw

LOSSES = ("bag", "instance", "aggregate", "mixture")
BAGS_PER_COEFFICIENT = 5  # with fewer, shares alone say too little of single slopes


@dataclass(frozen=True)
class Setting:
    """Data, and everything about a fit but the loss.

    Attributes
    ----------
    rule : {"known-noise", "equal", "size"}
        How bags get their weights.
    names : tuple of str
        Of the estimates, for messages.
    law : NoiseLaw
        The kind of noise that labels are known to carry.
    width_of_labels : float
        How far apart two labels can be.
    """

    data: BagData
    family: Family
    label_kind: LabelKind
    rule: str
    fit_intercept: bool
    ridge: float | Literal["auto"]
    names: tuple[str, ...] = ()
    law: NoiseLaw = LAWS["gaussian"]
    width_of_labels: float = np.inf

    @property
    def n_used(self) -> int:
        """Number of bags that count."""
        return int((self.data.weight > 0).sum())

    @property
    def single_rows(self) -> bool:
        """Whether every bag is one row, in the order of the rows."""
        return self.data.bags.n_bags == self.data.bags.n_rows

    @property
    def fixed_ridge(self) -> float:
        """The ridge that somebody chose; none where it is left to the noise."""
        return 0.0 if self.ridge == "auto" else self.ridge

    @property
    def shrinks(self) -> bool:
        """Whether slopes are shrunk as the known noise suggests."""
        known = self.rule == "known-noise" and bool(self.data.noise_sd.any())
        return self.ridge == "auto" and known

    @property
    def has_few_bags(self) -> bool:
        """Whether bags of several rows, without noise, are too few to determine the slopes."""
        data = self.data
        chances = self.family.has_classes or self.family.name == "bernoulli"
        left_to_us = (self.ridge, self.rule, self.label_kind) == ("auto", "known-noise", "mean")
        if not (chances and left_to_us) or data.noise_sd.any() or data.parts is not None:
            return False
        several = bool(data.sizes.min() > 1)
        return several and self.n_used < BAGS_PER_COEFFICIENT * (data.X.shape[1] + 1)

    @property
    def follows_noise(self) -> bool:
        """Whether the noise has a likelihood of its own that is worth following.

        Picks vary by the choice of a row too, which is far from normal; shares of classes are
        compared by contrasts, whose noise is a mixture.
        """
        usual = self.law.name == "gaussian" or self.family.has_classes
        return not usual and self.label_kind == "mean"

    def trust(self) -> Trust:
        """Return the rule for weights with the facts it needs."""
        data = self.data
        phi = 1.0 if self.family.knows_dispersion else None
        trust = Trust(self.rule, self.label_kind, data.sizes, data.noise_sd, data.weight, phi)
        return replace(trust, unexplained=self._unexplained(trust)) if self.shrinks else trust

    def _unexplained(self, trust: Trust) -> Unexplained:
        """Return what a fit that shrinks leaves to lack of fit (`weights`)."""
        family = self.family
        if family.name == "gaussian":  # all labels vary alike
            return Unexplained()
        mean = np.average(self.data.labels, axis=0, weights=trust.base)
        if family.has_classes:
            shares = np.clip(mean, 0.01, 0.99)
            variance = float(np.mean(shares * (1 - shares)))
        else:
            eta = family.predictor(np.asarray(family.interior(float(mean))))
            variance = float(family.variance(eta))
        return Unexplained(
            least=float(family.knows_dispersion),
            shape=0.0 if np.isfinite(family.label_range[1]) else 0.5,
            usual=variance / float(np.median(trust.counts[trust.base > 0])),
        )


def problem_of(setting: Setting, loss: str) -> BagProblem:
    """Return a loss on data as a problem for the solver.

    Instance loss gives every row its bag's label (Def. 1; F1 of the theory page). Aggregate loss
    compares each bag's label with the expected label at its centroid (Def. 3; F2), and bag loss
    with the mean of its rows' expected labels (Def. 2; F2). Where a bag is one row, or the expected
    label is linear, the last two are the same, and centroids are less work.
    """
    data, family, by_row = setting.data, setting.family, loss == "instance"
    is_line = family.name == "gaussian"
    kind = ClassProblem if family.has_classes else BagProblem
    if data.parts is not None:
        return _problem_of_parts(data.parts, setting, of_rows=by_row)
    standardised = partial(Design.of, fit_intercept=setting.fit_intercept)
    if by_row:
        weight = data.bags.repeat(data.weight) if data.row_weight is None else data.row_weight
        design = standardised(data.X, weight, offset=data.offset)
        labels = spread_by_exposure(data.labels, data.offset, data.bags, family)
        if not family.has_classes:
            return BagProblem(design, family, labels, mean_variance=weight)
        ones = np.ones(len(labels))
        return kind(design, family, labels, Trust("equal", "mean", ones, 0 * ones, weight, 1.0))
    trust = setting.trust()
    if loss == "bag" and not (setting.single_rows or is_line):
        design = standardised(data.X, data.row_weights, offset=data.offset)
        return kind(design, family, data.labels, trust, members=data.members)
    rows, offset, inside = data.X, data.offset, None
    if not setting.single_rows:
        rows, offset = centroids_of(rows, offset, data.means, family)
    design = standardised(rows, trust.base, offset=offset)
    curved = not is_line or setting.label_kind == "pick"
    if curved and not (setting.single_rows or family.has_classes):
        inside = (design.about(data.X, data.offset), data.members)
    return kind(design, family, data.labels, trust, inside=inside)


def _problem_of_parts(parts: BagParts, setting: Setting, *, of_rows: bool) -> BagProblem:
    """Do the same for bags in parts; `of_rows` for instance loss."""
    data, family = setting.data, setting.family
    frame = Design.of_moments(parts.moments, fit_intercept=setting.fit_intercept)
    trust = None if of_rows else setting.trust()
    return PartsProblem(
        frame,
        family,
        data.labels,
        trust,
        over=parts.over,
        n_rows=int(data.bags.sizes.sum()),
        recipe=Recipe(
            frame,
            family,
            by_row=of_rows or setting.single_rows or family.name == "gaussian",
            of_rows=of_rows,
            unexplained=NOTHING if trust is None else trust.unexplained,
        ),
    )

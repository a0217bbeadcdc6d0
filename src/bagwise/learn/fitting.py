"""The losses of the paper: the expectation that each compares with a bag's label, and its fit.

===========  ===================================================================  ==============
loss         compares                                                             in the paper
===========  ===================================================================  ==============
instance     every row's expected label with its bag's label                      Def. 1
aggregate    the expected label at a bag's centroid with its label                Def. 3
bag          the mean of its rows' expected labels with its label                 Def. 2
mixture      each row's distribution with the label that was picked from its bag  not there
===========  ===================================================================  ==============
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from bagwise._types import FloatArray
from bagwise.errors import NoEvidenceWarning, NotConvergedWarning, RankWarning
from bagwise.families import Family
from bagwise.glm.data import BagData
from bagwise.glm.inference import covariance_of, uncertainty_of
from bagwise.glm.problem import BagProblem, Loss
from bagwise.glm.shrinkage import TRIES, SlopePrior, shrink_further, solve_shrunk
from bagwise.glm.solver import Penalty, Solution, solve
from bagwise.glm.weights import Trust, Unexplained
from bagwise.learn.doubt import best_of_others, evidence, warn_of_gap, warn_of_separation
from bagwise.learn.exact_noise import follow_the_noise
from bagwise.models.row_model import Estimates
from bagwise.privacy.laws import Law
from bagwise.privacy.noise import LabelKind
from bagwise.privacy.noise_laws import LAWS

LOSSES = ("bag", "instance", "aggregate", "mixture")
ENOUGH_BAGS = 5  # for each coefficient; fewer shares alone say too little of single slopes
_FEW = 5
_CALLER = 4  # warnings point at the line that called fit
_OFF = "No intervals: aggregate loss is off by more than they would be wide."
_GAVE_UP = (
    "the fit did not converge, although slopes were shrunk as far as the noise of the labels "
    "suggests (ridge='auto'). Every row is predicted by the mean label. Set ridge > 0 by hand, "
    "choose the gaussian family, or ask for larger bags or more epsilon."
)
_HIDDEN = (
    "the labels' noise hides every slope: labels are no more likely with slopes than without. "
    "Every row is predicted by the mean label. Choose the gaussian family, or ask for larger bags "
    "or more epsilon."
)
_UNEXPLAINED = (
    "bag labels vary by more than their noise, and the features explain next to nothing of it. "
    "Look for a missing feature, or for one whose effect is no straight line."
)
_LOST = (
    "the fit ran away: the labels' noise hides what they say. Set ridge > 0, choose the gaussian "
    "family, or ask for larger bags or more epsilon."
)


@dataclass(frozen=True)
class Setting:
    """The data and all settings of a fit except the loss.

    Attributes
    ----------
    rule : {"known-noise", "equal", "size"}
        How bags get their weights.
    names : tuple of str
        Of the estimates, for messages.
    law : Law
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
    law: Law = LAWS["gaussian"]
    width_of_labels: float = np.inf

    @property
    def n_used(self) -> int:
        """Number of bags that count."""
        return int((self.data.weight > 0).sum())

    @property
    def fixed_ridge(self) -> float:
        """The ridge that the user chose; None if it is left to the noise."""
        return 0.0 if self.ridge == "auto" else self.ridge

    @property
    def shrinks(self) -> bool:
        """Whether slopes are shrunk as the known noise suggests, or few bags of counts do."""
        known = self.rule == "known-noise" and bool(self.data.noise_sd.any())
        return self.ridge == "auto" and (known or (self.has_few_bags and not self.tells_chances))

    @property
    def tells_chances(self) -> bool:
        """Whether labels are 0 and 1, or classes."""
        return self.family.label_range == (0.0, 1.0)

    @property
    def has_few_bags(self) -> bool:
        """Whether bags of several rows, without noise, are too few to determine the slopes."""
        data = self.data
        left_to_us = (self.ridge, self.rule, self.label_kind) == ("auto", "known-noise", "mean")
        known = data.noise_sd.any() or not self.family.knows_dispersion
        if known or not left_to_us or data.parts is not None:
            return False
        several = bool(data.sizes.min() > 1)
        return several and self.n_used < ENOUGH_BAGS * (data.X.shape[1] + 1)

    @property
    def follows_noise(self) -> bool:
        """Whether the noise has a likelihood of its own that is worth following.

        Picks vary by the choice of a row too, which is far from normal; shares of classes are
        compared by contrasts, whose noise is a mixture.
        """
        usual = self.law.is_normal or self.family.has_classes
        return not usual and self.label_kind == "mean"

    def trust(self) -> Trust:
        """Return the rule for weights.

        A fit with shrinkage allows for lack of fit (`weights`).
        """
        data, family = self.data, self.family
        rule = Trust(self.rule, self.label_kind, 1.0 if family.knows_dispersion else None)
        if not self.shrinks or family.name == "gaussian":  # there all labels vary alike
            return rule
        here = rule.over(data.sizes, data.noise_sd, data.weight)
        mean = np.average(data.labels, axis=0, weights=here.base)
        if family.has_classes:
            shares = np.clip(mean, 0.01, 0.99)
            variance = float(np.mean(shares * (1 - shares)))
        else:
            eta = family.predictor(np.asarray(family.interior(float(mean))))
            variance = float(family.variance(eta))
        lack = Unexplained(
            least=float(family.knows_dispersion),
            shape=0.0 if np.isfinite(family.label_range[1]) else 0.5,
            usual=variance / float(np.median(here.counts[here.base > 0])),
        )
        return replace(rule, unexplained=lack)


def problem_of(setting: Setting, loss: str) -> BagProblem:
    """Return a loss on data as a problem for the solver."""
    trust = setting.trust()
    if loss == "instance":
        trust = Trust("equal", "mean", 1.0 if setting.family.has_classes else None)
    return BagProblem.of(Loss(loss, setting.family, trust, setting.fit_intercept), setting.data)


def estimates_of(
    table: FloatArray, covariance: FloatArray | None = None, **known: Any
) -> Estimates:
    """Return estimates with the standard errors of a covariance."""
    errors = None if covariance is None else np.sqrt(np.diag(covariance))
    return Estimates(table=table, standard_errors=errors, covariance=covariance, **known)


def warn_of_rank(setting: Setting, rank: int) -> None:
    """Warn of bags that do not determine some coefficients."""
    n_features = setting.data.X.shape[1]
    if rank < n_features:
        warnings.warn(
            f"{setting.data.bags.n_bags} bags determine {rank} of {n_features} coefficients "
            "(constant or duplicate columns, or too few bags); the least-norm solution is used. "
            "Predictions on similar data are not affected; drop columns or set ridge > 0.",
            RankWarning,
            stacklevel=_CALLER,
        )


def warn_of_gradient(gradient: float) -> None:
    """Warn of equations that were not solved."""
    warnings.warn(
        f"the fit did not converge: the gradient of the mean loss has length {gradient:.2g}. "
        "Set ridge > 0, or scale down columns with extreme values.",
        NotConvergedWarning,
        stacklevel=_CALLER,
    )


def fit_equations(setting: Setting, loss: str, *, covariance: str = "auto") -> Estimates:
    """Fit a loss that has estimating equations; slopes that noise drives away are held back."""
    if covariance == "auto":  # trust the variances of the Gaussian family alone
        covariance = "model" if setting.family.name == "gaussian" else "cautious"
    problem = problem_of(setting, loss)
    start = problem.constant_start()
    if setting.shrinks and loss != "instance":
        return _fit_shrunk(setting, problem, start, covariance)
    solution = solve_loss(setting, problem, loss)
    # Where noise drove slopes away, hold them back as far as that takes.
    if setting.ridge == "auto" and setting.data.noise_sd.any() and not solution.is_sound():
        prior = _prior(setting, problem, start)
        largest = min(prior.size.most, prior.size.usual)
        sizes = (largest if np.isfinite(largest) else 1.0) / 4.0 ** np.arange(TRIES)
        tried = (solve(problem, start, penalty=prior.scaled(float(size)).penalty) for size in sizes)
        held = next((one for one in tried if one.is_sound(penalised=True)), None)
        if held is None:
            warnings.warn(_GAVE_UP, NotConvergedWarning, stacklevel=_CALLER)
            return _constant(setting, problem, start, solution)
        solution = held
    return _judged(setting, loss, solution, covariance)


def _judged(
    setting: Setting, loss: str, solution: Solution[BagProblem], covariance: str
) -> Estimates:
    """Assess the uncertainty of a fit that was not shrunk."""
    separated = warn_of_separation(solution, setting.names)
    lost = solution.problem.noisy and solution.problem.runs_away(solution.beta)
    matrix, by_row = None, loss == "instance"
    if by_row:
        note = (
            "No intervals: instance loss estimates slopes that the bags have shrunk. "
            "Use loss='bag' or debias=True."
        )
    elif separated:
        note = "No intervals: the labels are separated, and no coefficients are best."
    elif lost:
        note = "No intervals: the fit ran away in the noise of the labels."
    elif not solution.converged:
        note = "No intervals: the fit did not converge."
    else:
        matrix = covariance_of(solution, kind=covariance, ridge=setting.fixed_ridge)
        note = f"Standard errors: {covariance}, over {setting.n_used} bags."
        if warn_of_gap(solution, matrix):
            matrix, note = None, _OFF
        if setting.n_used - solution.rank < _FEW:
            note += " With hardly more bags than coefficients, intervals say little."
        if setting.fixed_ridge > 0:
            note += " They leave out the bias of the ridge penalty."
    if lost:
        warnings.warn(_LOST, NotConvergedWarning, stacklevel=_CALLER)
    elif not (solution.converged or separated):
        warn_of_gradient(solution.gradient)
    fitted = _estimates(setting, solution, matrix, note, warns=not (lost or separated))
    dispersion = None if by_row else fitted.dispersion
    return replace(fitted, dispersion=dispersion, converged=bool(solution.converged) and not lost)


def _fit_shrunk(
    setting: Setting, problem: BagProblem, start: FloatArray, covariance: str
) -> Estimates:
    """Fit labels with known noise: slopes shrunk as the labels suggest, intervals without that."""
    # 1. Shrink as the labels suggest, and further where that does not converge.
    shrunk = solve_shrunk(problem, start, _prior(setting, problem, start))
    if not shrunk.is_sound:
        shrunk = shrink_further(problem, start, shrunk) or shrunk

    # 2. Follow the law of the noise, where there are bags enough to tell.
    if setting.follows_noise and setting.n_used >= ENOUGH_BAGS * shrunk.effective:
        followed = follow_the_noise(shrunk, setting.law)
        shrunk = followed if followed.is_sound else shrunk

    # 3. Doubt the result. Only means that are at hand can be compared bag by bag.
    if not shrunk.is_sound:
        warnings.warn(_GAVE_UP, NotConvergedWarning, stacklevel=_CALLER)
        return _constant(setting, problem, start, shrunk.solution)
    means = setting.label_kind == "mean" and not setting.family.has_classes
    if means and problem.here is not None:
        if setting.family.has_log_link and evidence(shrunk, setting.law) <= 0:
            warnings.warn(_HIDDEN, NoEvidenceWarning, stacklevel=2)
            rank = max(0, shrunk.solution.rank - setting.fit_intercept)
            warn_of_rank(setting, rank)
            flat = _constant(setting, problem, start, shrunk.solution)
            return replace(flat, rank=rank, converged=True)
        shrunk, explains = best_of_others(problem, start, shrunk)
        if not explains:
            warnings.warn(_UNEXPLAINED, NoEvidenceWarning, stacklevel=2)

    # 4. Judge how sure it is, without the shrinking.
    solution = shrunk.solution
    unshrunk, matrix, posterior = uncertainty_of(shrunk, kind=covariance)
    if warn_of_gap(solution, matrix):
        return _estimates(setting, solution, None, _OFF)
    note = (
        "Coefficients are shrunk more where noise is larger. Standard errors, p values and "
        f"intervals are for the unshrunk coefficients ({covariance} covariance, {setting.n_used} "
        "bags)."
    )
    if setting.n_used - solution.rank < _FEW:
        note += " With hardly more bags than coefficients, they say little."
    fitted = _estimates(setting, solution, matrix, note)
    return replace(fitted, unshrunk=unshrunk, posterior=posterior)


def _estimates(
    setting: Setting,
    solution: Solution[BagProblem],
    covariance: FloatArray | None,
    note: str,
    *,
    warns: bool = True,
) -> Estimates:
    problem = solution.problem
    rank = max(0, solution.rank // problem.outputs - setting.fit_intercept)
    if warns and solution.converged:
        warn_of_rank(setting, rank)
    return estimates_of(
        (problem.to_own_units() @ solution.beta).reshape(problem.outputs, -1),
        covariance,
        rank=rank,
        dispersion=float(problem.phi),
        freedom=max(1, setting.n_used - solution.rank),
        note=note,
    )


def _constant(
    setting: Setting, problem: BagProblem, start: FloatArray, given_up: Solution[BagProblem]
) -> Estimates:
    """Predict the mean label for every row: no fit may do worse."""
    flat = replace(given_up, beta=start, problem=problem.reweighted(start), rank=0)
    note = "No intervals: every row gets the mean label."
    fitted = _estimates(setting, flat, None, note, warns=False)
    return replace(fitted, converged=False, freedom=1)


def solve_loss(setting: Setting, problem: BagProblem, loss: str) -> Solution[BagProblem]:
    """Minimise a loss, from the best start at hand."""
    start = problem.constant_start()
    penalty = Penalty.ridge(problem, setting.fixed_ridge)
    if loss == "bag" and not (setting.data.single_rows or problem.is_line):
        rough = solve(problem.at_centroids(), start, penalty=penalty)
        if np.isfinite(rough.beta).all() and not problem.runs_away(rough.beta):
            start = rough.beta
    return solve(problem, start, penalty=penalty)


def _prior(setting: Setting, problem: BagProblem, start: FloatArray) -> SlopePrior:
    """Return the belief about slopes of these rows, before the labels."""
    rows = setting.data.X if setting.data.axes is None else setting.data.axes
    return SlopePrior.of(problem, rows, start, width_of_labels=setting.width_of_labels)

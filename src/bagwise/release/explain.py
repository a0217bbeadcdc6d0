"""The causes of the expected error of a release, in words and numbers.

Only published data are used: features, bags, and the noise that the release states. What a learner
would find (theta) and how much single labels vary (sigma) are supplied: by the user, as a guess, or
by a fit to the release itself.
"""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import StrategyError, check_name
from bagwise.families import Family, find_family
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.queries import BagMeans
from bagwise.rows.whitening import Columns
from bagwise.show import charts, html
from bagwise.theory.accuracy import Accuracy, shrunk, signal_of_shrunk
from bagwise.theory.beliefs import DEFAULT_MISFIT, draw_misfit
from bagwise.theory.exact import Risk, exact_risk

if TYPE_CHECKING:
    from bagwise.release.release import Release

_CAUSES = {
    "bias": "bags that mix rows of different expected labels",
    "choice": "not knowing which row a label was picked from",
    "label_noise": "the noise of the labels themselves",
    "privacy": "the privacy noise",
    "misfit": "labels that do not follow the model, as far as that is believed",
}
_IN_SHORT = {
    "bias": "bags that mix unlike rows",
    "choice": "which row a label is from",
    "label_noise": "noise of the labels themselves",
    "privacy": "privacy noise",
    "misfit": "what the model lacks (a belief)",
}
_HARDLY_SEEN = 0.1  # kept of what true labels would give
_SEEN = 0.25  # of the privacy noise: from there on the noise of labels shows in their spread
_REMEDIES = {
    "bias": "Use loss='bag', or more compact bags.",
    "choice": "Publish means (label_kind='mean'), make bags more compact, or fit loss='mixture'.",
    "label_noise": "Only more rows, or more compact bags, help.",
    "privacy": "More epsilon, larger and more compact bags, or a model released directly "
    "(release_model) help.",
    "misfit": "Smaller or more compact bags help, or columns that the model lacks.",
}


@dataclass(frozen=True)
class Explanation:
    """The expected squared error of a learner, by cause.

    Attributes
    ----------
    loss, family : str
    slopes : Risk or None
        Of the coefficients, the intercept left out. None where the features depend on each other.
    predictions : Risk
        Mean square of the error of predictions (of the linear predictor, for other families).
    rows : float
        What least squares, or maximum likelihood, on the row labels would have for predictions.
    signal : float
        Variance of the predictions themselves: what an error is to be compared with.
    noise : float or None
        Variance of single labels around the expected ones; None where it is not known.
    other_losses : dict of str to float
        Expected error of predictions with the other losses.
    remarks : tuple of str
    """

    loss: str
    family: str
    slopes: Risk | None
    predictions: Risk
    rows: float
    signal: float
    noise: float | None
    other_losses: dict[str, float]
    remarks: tuple[str, ...]

    def text(self) -> str:
        """Return the account in words."""
        risk = self.predictions
        main, share = next(iter(risk.shares().items()))
        lines = [
            f"A model fitted with {self.loss} loss ({self.family}) {self.accuracy}.",
            f"{share:.0%} of what is lost is due to {_CAUSES[main]}. {_REMEDIES[main]}",
        ]
        others = list(risk.shares().items())[1:]
        rest = [f"{part:.0%} from {_CAUSES[name]}" for name, part in others if part >= 0.005]
        if rest:
            lines.append(f"The rest: {', '.join(rest)}.")
        better = min(self.other_losses, key=lambda name: self.other_losses[name], default=None)
        # Where hardly a signal is seen, a loss that shrinks all slopes to 0 would look best.
        seen = self.accuracy.kept > _HARDLY_SEEN
        if better and seen and self.other_losses[better] < 0.95 * risk.total:
            kept = self._accuracy_of(self.other_losses[better]).about
            lines.append(f"loss='{better}' would keep {kept} instead.")
        return "\n".join([*lines, *self.remarks])

    def _accuracy_of(self, excess: float) -> Accuracy:
        """Return the accuracy of a learner that shrinks its coefficients according to the noise."""
        return Accuracy.of(
            shrunk(excess, self.signal),
            with_labels=shrunk(self.rows, self.signal),
            signal=self.signal,
            noise=self.noise,
        )

    @property
    def accuracy(self) -> Accuracy:
        """The expected accuracy on single rows, and how much of that of row labels it retains."""
        return self._accuracy_of(self.predictions.total)

    def __str__(self) -> str:
        return self.text()

    def to_json(self) -> dict[str, Any]:
        """Return the account as plain values."""
        return {
            **asdict(self),
            "accuracy": asdict(self.accuracy),
            "remarks": list(self.remarks),
            "text": self.text(),
        }

    def table(self) -> list[tuple[str, ...]]:
        """Return the parts as cells, a heading first."""
        parts = {"all": "total", **{cause: name for name, cause in _CAUSES.items()}}
        cells: list[tuple[str, ...]] = [("", "predictions", "slopes")]
        for label, name in parts.items():
            slopes = "" if self.slopes is None else f"{getattr(self.slopes, name):.4g}"
            cells.append((label, f"{getattr(self.predictions, name):.4g}", slopes))
        return cells

    def shares(self) -> dict[str, float]:
        """Return the share of each cause in the expected squared error, the largest first."""
        return {
            _IN_SHORT[name]: share
            for name, share in self.predictions.shares().items()
            if share >= 0.005
        }

    def plot(self) -> charts.Chart:
        """Draw the shares of the causes; needs the extra ``bagwise[plot]``."""
        title = "share of the expected squared error"
        return charts.bars(self.shares(), title=title, percent=True, largest=1)

    def _repr_html_(self) -> str:
        return html.grid("Expected squared error", self.table(), note=self.text())


def explain_release(
    release: "Release",
    *,
    theta: FloatArray,
    sigma: float,
    intercept: float = 0.0,
    family: str = "gaussian",
    loss: str = "bag",
    misfit: float = DEFAULT_MISFIT,
    is_fitted: bool = False,
) -> Explanation:
    """Account for the error that a learner of a release should expect, by cause.

    Only published data are used. Coefficients and noise are a guess or come from a fit to this
    release: ``bagwise report`` does the latter.

    Parameters
    ----------
    theta : (d,)
        Coefficients of the encoded features, in their order; a guess, or those of a fit.
    sigma : float
        Standard deviation of one row's label around the model (for other families the root of the
        dispersion; 1 for bernoulli and poisson).
    intercept : float
    loss : {"bag", "aggregate", "instance", "debiased"}
    misfit : float
        Variance of the part of the expected labels that the model lacks, as a share of that of the
        part it has. It is a belief, and nothing here measures it.
    is_fitted : bool
        Whether theta and sigma come from a fit to the bags. It was shrunk, so that the truth varies
        more; and sigma is too large if the model lacks something.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bagwise import make_release
    >>> table = pa.table({"x": np.arange(40.0), "y": 2 * np.arange(40.0)})
    >>> release = make_release(
    ...     table, label="y", bag_size=4, strategy="random", not_private=True
    ... )
    >>> found = release.explain(theta=[2.0], sigma=2.0)
    >>> found.predictions.privacy, bool(found.predictions.label_noise > found.rows)
    (0.0, True)
    """
    if not 0 <= misfit < np.inf:
        raise StrategyError(f"misfit must be finite and not negative, got {misfit!r}.")
    fitted = find_family(family)
    theta = np.asarray(theta, dtype=np.float64)
    kept = release.bags.in_bag
    X = release.encoder.transform(release.features)[kept]
    if theta.shape != (X.shape[1],):
        raise StrategyError(f"theta must have {X.shape[1]} entries, got shape {theta.shape}.")
    bags = Bags(release.bags.index[kept])
    design, truth, determined = _independent(X, theta, intercept)
    # Draws of what the model may lack, with this share of the expected labels' variance.
    lacked = draw_misfit(Columns(X).white_rows(), np.random.default_rng(0))
    lacked = np.sqrt(misfit * np.var(fitted.mean(design @ truth))) * lacked
    settings: dict[str, Any] = {
        "theta": truth,
        "family": fitted,
        "label_noise_sd": 1.0 if fitted.knows_dispersion else float(sigma),
        "label_kind": release.label_kind,
        "noise_sd": release.noise_sd,
        "weights": "known-noise",
        "misfit": lacked,
    }
    risks = {
        name: exact_risk(design, bags, loss=name, error="predictions", **settings)
        for name in ("bag", "aggregate", "instance", "debiased")
    }
    check_name("loss", loss, risks)
    slopes = None
    if determined:
        only_slopes = np.diag([*np.ones(X.shape[1]), 0.0])
        slopes = exact_risk(design, bags, loss=loss, error=only_slopes, **settings)
    rows = exact_risk(
        design,
        Bags.singletons(len(design)),
        loss="bag",
        error="predictions",
        **{**settings, "label_kind": "mean", "noise_sd": 0.0},
    )
    signal = float(np.var(X @ theta))
    return Explanation(
        loss=loss,
        family=fitted.name,
        slopes=slopes,
        predictions=risks[loss],
        rows=rows.total,
        signal=signal_of_shrunk(signal, risks[loss].total) if is_fitted else signal,
        noise=float(sigma) ** 2 if fitted.name == "gaussian" else None,
        other_losses={name: risk.total for name, risk in risks.items() if name != loss},
        remarks=_remarks(release, fitted, loss, float(sigma)),
    )


def _independent(
    X: FloatArray, theta: FloatArray, intercept: float
) -> tuple[FloatArray, FloatArray, bool]:
    """Return a design with intercept, its coefficients, and whether its columns are the features.

    Columns that depend on each other are replaced by as many combinations as they have
    directions: predictions stay the same, coefficients lose their meaning.
    """
    columns = Columns(X)
    center = columns.mean
    centred = X - center
    if columns.axes.rank == X.shape[1]:
        # Centred, so that the intercept takes part in no other coefficient's error.
        return (
            np.column_stack([centred, np.ones(len(X))]),
            np.append(theta, intercept + center @ theta),
            True,
        )
    rows = columns.white_rows()
    inside = np.linalg.lstsq(rows, centred @ theta)[0]
    design = np.column_stack([rows, np.ones(len(X))])
    return design, np.append(inside, intercept + center @ theta), False


def _what_looks_brought(release: "Release") -> str | None:
    """Describe what a private range and a model to centre on cost, and the noise they saved."""
    certificate = release.certificate
    looks = [event for event in certificate.events if event.hides in ("range", "limit")]
    means = [event for event in certificate.events if event.hides == "bag means"]
    if not looks or not means or certificate.bounds is None or certificate.asked is None:
        return None
    plain = ExactCalibration(*certificate.asked, certificate.bounds)
    rows = certificate.unit_rows
    without = plain.least(BagMeans.of(plain.bounds, rows=rows, square=rows**2))
    cost = sum(float(event.pure_epsilon or 0) for event in looks)
    model = " and a model's part of the budget" if certificate.tells_of_model else ""
    ratio = means[0].number_sd / without.number_sd
    return (
        f"Private queries on the labels cost epsilon {cost:.3g}{model}. Bag labels have "
        f"{ratio:.2g} times the privacy noise that the bounds alone would ask for."
    )


def _remarks(release: "Release", family: Family, loss: str, sigma: float) -> tuple[str, ...]:
    remarks = []
    # A bag label's own noise is so far below the privacy noise that none sees it.
    rows = release.bags.sizes if release.label_kind == "mean" else 1.0
    own = np.median(sigma / np.sqrt(rows) / np.maximum(release.noise_sd, 1e-300))
    if not family.knows_dispersion and (sigma == 0 or own < _SEEN):
        remarks.append(
            "The privacy noise of these bags hides most of how much single labels vary; "
            f"{sigma:.3g} is assumed. In Python, explain_by_fit takes a better guess as sigma."
        )
    if family.name != "gaussian":
        remarks.append("For this family the figures hold to first order, where they are small.")
    scores = release.provenance.scores
    if scores in ("labels", "noisy-labels"):
        remarks.append(
            "Rows were put together by their labels, so that bags know the labels' noise: bag and "
            "aggregate loss are off by more than this, and instance loss by other than this."
        )
    elif scores == "model":
        remarks.append(
            "Rows were put together by a private model of the same labels; its small dependence on "
            "their noise is left out."
        )
    if loss == "instance" and not release.provenance.is_sorted:
        remarks.append("Instance loss shrinks slopes on such bags; loss='bag' does not.")
    if release.certificate.spends_less:
        remarks.append(release.certificate.spends_less)
    if said := _what_looks_brought(release):
        remarks.append(said)
    if release.certificate.bounds is not None:
        remarks.append(
            "Labels beyond the bounds, if any, were clipped, which shrinks slopes by about "
            "the share of labels inside; that is not in the figures."
        )
    return tuple(remarks)

"""How accurate a fit to a few labels is on new rows, and how much more labels would help.

Labels at hand are all that is known, so each is predicted by fits to others: to most of the
labels, and to half of them. With n labels the expected loss of a fit is about
``a + b / n``: what the model cannot say, and what its coefficients are off by, which falls as one
over n (Akaike 1974; Amari and Murata 1993). The two sizes determine a and b, row by row, and so the
slope and its standard error s. The slope is shrunk to ``b (1 - s^2 / b^2)``, or 0, since few labels
tell little of it (James and Stein 1961). With few labels for each coefficient the loss falls more
slowly than that, as a power of n (Hestness and others 2017): the smaller gain of both is taken.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bagwise._printable import figure
from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.annotate.fit import LabelledRows
from bagwise.errors import BagwiseError
from bagwise.rows.labels import Bounds

Fit = Callable[[LabelledRows], Callable[[FloatArray], FloatArray]]
"""From labelled rows to what predicts the mean label, or the chances of classes, of others."""

FEWEST = 30
"""Labels below which no two fits to some of them can be compared."""

MORE = 100
"""Labels whose worth is estimated."""

_MANY_COLUMNS = 100
_HARDLY = 0.005  # a gain that nobody would notice
_MUCH = 0.25  # with so few labels for each coefficient, the curve says no more than that


@dataclass(frozen=True)
class Quality:
    """The quality of a fit on unlabelled rows, by cross-validation over the labelled rows.

    Attributes
    ----------
    labels : int
    typical_error : float
        Root mean square error of a prediction; of two or more classes, the share predicted wrong.
    error_of_mean : float
        The same for the mean of the labels, or for their most common class.
    explained : float
        Share of the squared error of the mean that is gone (R squared); of classes, of the log loss
        of the classes' shares.
    log_loss : float or None
        Of classes.
    gain : float
        Share by which 100 more labels should lower the typical error, or the log loss of classes.
    """

    labels: int
    typical_error: float
    error_of_mean: float
    explained: float
    log_loss: float | None
    gain: float

    def __str__(self) -> str:
        if self.log_loss is not None:
            quality = (
                f"Accuracy on rows it has not seen: {1 - self.typical_error:.1%}; always the most "
                f"common class: {1 - self.error_of_mean:.1%}."
            )
            loss = f"the log loss of {self.log_loss:.3g}"
        else:
            quality = (
                f"Typical error of one prediction: {figure(self.typical_error)}; of the mean "
                f"label: {figure(self.error_of_mean)} (R² {self.explained:.2f})."
            )
            loss = "the typical error"
        if self.gain < _HARDLY:
            return f"{quality} {MORE} more labels would hardly change that."
        share = f"about {self.gain:.0%}" if self.gain < _MUCH else f"{_MUCH:.0%} or more"
        return f"{quality} {MORE} more labels should lower {loss} by {share}."


def measure_quality(
    rows: LabelledRows, predictor: Fit, bounds: Bounds | None, *, is_slow: bool = False
) -> Quality | None:
    """Cross-validate a fit of labelled rows; None if there are too few.

    A fit that `is_slow` is repeated less often.
    """
    y, n = rows.y, len(rows.y)
    if n < FEWEST:
        return None
    classes = rows.family.label_range == (0.0, 1.0)
    rng = np.random.default_rng(n)  # the same labels give the same figures
    # 1. Predict every row by fits to others: to most of them, and to half of them.
    predictions = []
    # Many classes, and many columns, take a second each.
    is_slow = is_slow or (y.ndim > 1 and y.shape[1] > 2) or rows.X.shape[1] > _MANY_COLUMNS
    most_folds, foldings, halvings = (3, 1, 1) if is_slow else (5, 2, 4)
    for folds in (*[most_folds] * foldings, *[2] * halvings):
        part = rng.permutation(np.arange(n) % folds)
        held_out = _predict_parts(rows, part, predictor)
        if held_out is None:
            return None
        predictions.append(held_out if bounds is None else np.clip(held_out, *bounds))
    # 2. Losses row by row: squared error, or log loss for classes.
    means = np.broadcast_to(y.mean(axis=0), y.shape)
    losses = [_losses(y, predicted, classes=classes) for predicted in predictions]
    most, half = np.mean(losses[:foldings], axis=0), np.mean(losses[foldings:], axis=0)
    none = _losses(y, means, classes=classes)
    # 3. The learning curve a + b / n through both, row by row.
    fitted = n * (most_folds - 1) / most_folds
    falls = (half - most) / (2 / n - 1 / fitted)
    slope, error = float(falls.mean()), float(falls.std(ddof=1) / np.sqrt(n))
    slope = slope * (1 - (error / slope) ** 2) if slope > error else 0.0
    loss = float(most.mean())
    now = loss - slope * (1 / fitted - 1 / n)
    later = now - slope * (1 / n - 1 / (n + MORE))
    left = 1.0
    if slope > 0 and now > 0:
        power = np.log(half.mean() / loss) / np.log(2 * fitted / n)
        left = max(later / now, float((n / (n + MORE)) ** power))
    explained = 1 - loss / float(none.mean()) if none.mean() > 0 else 0.0
    wrong = [_wrong(y, predictions[0]), _wrong(y, means)] if classes else []
    return Quality(
        labels=n,
        typical_error=wrong[0] if classes else float(np.sqrt(loss)),
        error_of_mean=wrong[1] if classes else float(np.sqrt(none.mean())),
        explained=explained,
        log_loss=loss if classes else None,
        gain=1 - (left if classes else float(np.sqrt(left))),
    )


def _predict_parts(rows: LabelledRows, part: IntArray, predictor: Fit) -> FloatArray | None:
    """Predict the rows of each part by a fit to the others; None where some fit is impossible."""
    predicted = np.empty_like(rows.y)
    for number in np.unique(part):
        here = part == number
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                predicted[here] = predictor(rows.take(~here))(rows.X[here])
        except BagwiseError:
            return None
    return predicted if np.isfinite(predicted).all() else None


def _losses(y: FloatArray, mean: FloatArray, *, classes: bool) -> FloatArray:
    if not classes:
        return np.asarray((y - mean) ** 2)
    chance = np.sum(y * mean, axis=1) if y.ndim > 1 else np.where(y > 0, mean, 1 - mean)
    return np.asarray(-np.log(np.maximum(chance, np.finfo(float).eps)))


def _wrong(y: FloatArray, mean: FloatArray) -> float:
    """Return the share of rows whose most likely class is not theirs."""
    miss: AnyArray = (
        y.argmax(axis=1) != mean.argmax(axis=1) if y.ndim > 1 else (y > 0) != (mean > 0.5)
    )
    return float(np.mean(miss))

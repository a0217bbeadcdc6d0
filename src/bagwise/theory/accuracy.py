"""The meaning of "error" throughout bagwise: the typical error of one prediction.

The excess error of a learner (the distance of its predictions from expected labels) cannot be
compared with an error on rows. So it is always combined with the variation of single labels, and
shown beside the share that is kept of what a model of the true labels would explain.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from bagwise._printable import figure


def shrunk(risk: float, signal: float) -> float:
    """Return the risk after estimates are shrunk by the factor that is optimal for the signal.

    With a signal of variance s and an error of variance r, the posterior mean is s / (s + r) times
    the estimate, and off by s r / (s + r): never more than the signal, however loud the noise.

    >>> shrunk(1.0, signal=1.0), shrunk(0.0, signal=0.0)
    (0.5, 0.0)
    """
    return risk * signal / max(risk + signal, 1e-300)


def signal_of_shrunk(variance: float, risk: float) -> float:
    """Return the variance of the signal at which shrunken predictions have this variance.

    They have s^2 / (s + r), which is solved for s.

    >>> signal_of_shrunk(0.5, risk=1.0)
    1.0
    """
    return (variance + float(np.sqrt(variance**2 + 4 * variance * risk))) / 2


@dataclass(frozen=True)
class Accuracy:
    """The accuracy of predictions on single rows.

    Attributes
    ----------
    error : float or None
        Root mean square of the label of a row minus its prediction. None if the variation of
        single labels is unknown.
    with_labels : float or None
        The same for a model that was fitted to the true labels of all rows.
    kept : float
        Share, 0 to 1, of what that model explains beyond the mean label.

    Examples
    --------
    >>> Accuracy.of(0.04, with_labels=0.0, signal=1.0, noise=1.0).share
    '96 %'
    """

    error: float | None
    with_labels: float | None
    kept: float

    @classmethod
    def of(
        cls, excess: float, *, with_labels: float, signal: float, noise: float | None = None
    ) -> Self:
        """Return the accuracy from variances, all of them mean squares.

        Parameters
        ----------
        excess, with_labels : float
            Of predictions around the expected labels: from a release, and from the true labels.
            As they are shrunk: see `shrunk`.
        signal : float
            Of the expected labels around their mean.
        noise : float, optional
            Of single labels around the expected ones.
        """
        kept = (signal - excess) / max(signal - with_labels, 1e-300)
        return cls(
            error=None if noise is None else float(np.sqrt(noise + excess)),
            with_labels=None if noise is None else float(np.sqrt(noise + with_labels)),
            kept=float(np.clip(kept, 0.0, 1.0)),
        )

    @property
    def share(self) -> str:
        """The share that is kept, in words."""
        return "over 99 %" if self.kept > 0.99 else f"{100 * self.kept:.0f} %"

    @property
    def about(self) -> str:
        """The same, worded for use within a sentence."""
        return self.share if self.kept > 0.99 else f"about {self.share}"

    def __str__(self) -> str:
        said = f"keeps {self.about} of what true labels would give"
        if self.error is None or self.with_labels is None:
            return said
        added = figure(self.error - self.with_labels, 2) if self.error else "0"
        return (
            f"{said}. The typical error of one prediction is {figure(self.error)}, of which bags "
            f"and privacy add {added}"
        )

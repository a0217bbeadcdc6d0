"""What a bag's label says about one row, to whoever knows the labels of all its other rows.

One class for each kind of bag label. Each redraws the labels of bags as the release's own
mechanism does, and tells how likely a bag label is for either of two labels of one row.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import cast

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.privacy.aggregate import pick_rows
from bagwise.privacy.grid import one_hot
from bagwise.privacy.laws import Unbiased
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import noisy_bag_labels
from bagwise.privacy.noise_laws import find_law
from bagwise.privacy.queries import ClassPicks as PickedClasses
from bagwise.privacy.queries import SingleLabels
from bagwise.release.release import Release
from bagwise.release.verify import predictions_of
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds

_EXACT = 1e-9  # of the spread of labels: noise so small stands for none, which has no density
_SHARP = 0.02  # spread that a law is smoothed by, in standard deviations of the noise


@dataclass(frozen=True)
class Reader(ABC):
    """Someone who knows how bag labels are made.

    Attributes
    ----------
    event : Mechanism or None
        What hides them; None where nothing does.
    bounds : (float, float) or None
    classes : int
        0 for labels that are numbers.
    tiny : float
        Standard deviation that stands for no noise.
    """

    event: Mechanism | None
    bounds: Bounds | None
    classes: int
    tiny: float

    def redraw(self, labels: AnyArray, bags: Bags, source: NoiseSource) -> FloatArray:
        """Return bag labels of these rows, as the release would have drawn them."""
        if self.event is None or self.bounds is None:
            return self.exact(labels, bags, source)
        return noisy_bag_labels(
            labels,
            bags,
            bounds=self.bounds,
            event=self.event,
            source=source,
            classes=self.classes,
        )

    @abstractmethod
    def exact(self, labels: AnyArray, bags: Bags, source: NoiseSource) -> FloatArray:
        """Return bag labels without noise."""

    @abstractmethod
    def log_likelihood(
        self, shown: FloatArray, labels: AnyArray, bags: Bags, rows: IntArray, of: AnyArray
    ) -> FloatArray:
        """Return the log likelihood of one label for one row of each bag, up to a constant.

        Parameters
        ----------
        shown : (m,) or (m, classes)
            The labels of the bags.
        labels : (n,)
            Those of all rows; the entries of `rows` are not looked at.
        rows : (m,)
            The row of each bag that it is about.
        of : (m,)
            The label that this row is supposed to have.
        """

    def log_ratio(
        self, shown: FloatArray, labels: AnyArray, bags: Bags, rows: IntArray, pair: AnyArray
    ) -> FloatArray:
        """Return the log likelihood of the second label of each pair, (m, 2), less the first's."""
        first, second = (
            self.log_likelihood(shown, labels, bags, rows, pair[:, one]) for one in (0, 1)
        )
        return np.asarray(second - first)

    def _log_density(self, residual: AnyArray, sd: float | FloatArray) -> AnyArray:
        """Return the log density of noise, but for a constant."""
        law = find_law("gaussian") if self.event is None else self.event.law.density
        scaled = residual / np.maximum(sd, self.tiny)
        if law.name == "gaussian":
            return -0.5 * np.square(scaled)
        if law.name == "laplace":
            return -math.sqrt(2) * np.abs(scaled)
        return law.terms(scaled, np.full(scaled.shape, _SHARP))[0]


def hidden_by_noise(release: Release, labels: AnyArray) -> tuple[AnyArray, FloatArray]:
    """Return what the noise of a release hides of each row, and what is published about it.

    Mostly that is the labels, and those of the bags. Where labels were centred, the mean prediction
    of each bag is public, and its noise hides what the model leaves of the labels, clipped to the
    limit. An attacker who held such noise against whole labels would see more than there is.
    """
    certificate = release.certificate
    if certificate.limit is None or release.model is None:
        return labels, release.labels
    predictions = predictions_of(release, release.model)
    left = np.clip(labels - predictions, -certificate.limit, certificate.limit)
    return left, release.labels - release.bags.mean(predictions)


def reader_of(release: Release, spread: float) -> Reader:
    """Return the reader for a release: by its kind of labels and by its noise.

    It reads what `hidden_by_noise` returns.
    """
    limit = release.certificate.limit
    bounds = release.certificate.clipped_to if limit is None else (-limit, limit)
    hiding = [event for event in release.certificate.events if event.query.labels_bags]
    event = hiding[0] if hiding else None
    kind: type[Reader] = Sums
    if release.label_kind == "pick":
        kind = Picks if release.classes is None else ClassPicks
    elif event is not None and event.hides == "single labels":
        kind = Singles
    if release.classes is not None:
        return kind(event, bounds, len(release.classes), _EXACT)
    return kind(event, bounds, 0, _EXACT * (spread or 1.0))


class Sums(Reader):
    """Means of numbers, or shares of classes: sums of the rows' numbers, divided by their count."""

    def exact(self, labels: AnyArray, bags: Bags, source: NoiseSource) -> FloatArray:
        """Return means."""
        del source
        return bags.mean(self._numbers(labels))

    def log_likelihood(
        self, shown: FloatArray, labels: AnyArray, bags: Bags, rows: IntArray, of: AnyArray
    ) -> FloatArray:
        """Compare with what is left of the sums when the others are taken off."""
        others = self._numbers(labels)
        others[rows] = 0.0
        left = (shown.T * bags.sizes).T - bags.sum(others)
        sd = 0.0 if self.event is None else self.event.number_sd
        each = self._log_density(left - self._numbers(of), sd)
        return np.asarray(each.reshape(bags.n_bags, -1).sum(axis=1))

    def _numbers(self, labels: AnyArray) -> AnyArray:
        if self.classes:
            return one_hot(labels, self.classes).astype(np.float64)
        return np.array(labels, dtype=np.float64)


class Singles(Sums):
    """Single labels, reported by a table of chances."""

    def log_likelihood(
        self,
        shown: FloatArray,
        labels: AnyArray,  # noqa: ARG002 (there are no others in the bag)
        bags: Bags,
        rows: IntArray,
        of: AnyArray,
    ) -> FloatArray:
        """Return the chance of what was reported."""
        event = cast(Mechanism, self.event)
        query, law = cast(SingleLabels, event.query), cast(Unbiased, event.law)
        which = np.abs(shown[:, None] - query.reported(event.laws)).argmin(axis=1)
        place = which[bags.index[rows]][:, None]
        shares = law.shares_of(query.scaled(of))
        return np.asarray(np.log(np.take_along_axis(shares, place, axis=1)[:, 0]))


class Picks(Reader):
    """The label of one row of each bag, picked in secret."""

    def exact(self, labels: AnyArray, bags: Bags, source: NoiseSource) -> FloatArray:
        """Return picks."""
        return labels[pick_rows(bags, source)]

    def log_likelihood(
        self, shown: FloatArray, labels: AnyArray, bags: Bags, rows: IntArray, of: AnyArray
    ) -> FloatArray:
        """Mix over rows: any row of the bag may have been the one."""
        sd = np.zeros(bags.n_bags) if self.event is None else self.event.noise_sd(bags.sizes)
        each = self._log_density(shown[bags.index] - labels, sd[bags.index])
        each[rows] = self._log_density(shown - of, sd)
        starts = np.cumsum(bags.sizes) - bags.sizes
        by_bag = np.argsort(bags.index, kind="stable")
        return np.asarray(np.logaddexp.reduceat(each[by_bag], starts))


class ClassPicks(Reader):
    """The class of one row of each bag, picked in secret and perhaps replaced."""

    def exact(self, labels: AnyArray, bags: Bags, source: NoiseSource) -> FloatArray:
        """Return the class of the pick."""
        return one_hot(labels[pick_rows(bags, source)], self.classes).astype(np.float64)

    def log_likelihood(
        self, shown: FloatArray, labels: AnyArray, bags: Bags, rows: IntArray, of: AnyArray
    ) -> FloatArray:
        """Return the chance of the class that was reported: the largest entry."""
        reported = shown.argmax(axis=1)
        keep = np.full(bags.n_bags, 1 - _EXACT)
        if self.event is not None:
            query = cast(PickedClasses, self.event.query)
            keep = query.keep_chances(self.event.laws, bags.sizes)
        other = (1 - keep) / (self.classes - 1)
        agree = (labels == reported[bags.index]).astype(np.float64)
        agree[rows] = of == reported
        return np.asarray(np.log(other + (keep - other) * bags.mean(agree)))

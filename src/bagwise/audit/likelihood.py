"""What a bag's label says about one row, to whoever knows the labels of all its other rows.

One class for each kind of bag label. Each redraws the labels of bags as the release's own
mechanism does, and tells how likely a bag label is for either of two labels of one row.
"""

import math
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.privacy.aggregate import pick_labels
from bagwise.privacy.grid import one_hot
from bagwise.privacy.laws import Unbiased
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import (
    private_bag_means,
    private_class_picks,
    private_picks,
    private_shares,
    reported_labels,
)
from bagwise.privacy.noise_laws import NoiseLaw, find_law
from bagwise.privacy.queries import ClassPicks as PickedClasses
from bagwise.privacy.queries import SingleLabels
from bagwise.release.release import Release
from bagwise.release.verify import predictions_of
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds

_EXACT = 1e-9  # of the spread of labels: noise so small stands for none, which has no density
_SHARP = 0.02  # spread that a law is smoothed by, in standard deviations of the noise


class Reader(Protocol):
    """Someone who knows how bag labels are made."""

    def redraw(self, labels: AnyArray, bags: Bags, source: NoiseSource) -> FloatArray:
        """Return bag labels of these rows, as the release would have drawn them."""

    def log_ratio(
        self, shown: FloatArray, labels: AnyArray, bags: Bags, rows: IntArray, pair: AnyArray
    ) -> FloatArray:
        """Return the log likelihood of the second label of each pair, less that of the first.

        Parameters
        ----------
        shown : (m,) or (m, classes)
            The labels of the bags.
        labels : (n,)
            Those of all rows; the entries of `rows` are not looked at.
        rows : (m,)
            The row of each bag that the pair is about.
        pair : (m, 2)
        """


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
    tiny = _EXACT * (spread or 1.0)
    if release.classes is not None:
        classes = len(release.classes)
        if release.label_kind == "pick":
            return ClassPicks(classes, event)
        return Shares(classes, event)
    if release.label_kind == "pick":
        return Picks(bounds, event, tiny)
    if event is not None and event.hides == "single labels":
        return Singles(event)
    return Means(bounds, event, tiny)


@dataclass(frozen=True)
class Means:
    """Means of numbers."""

    bounds: Bounds | None
    event: Mechanism | None
    tiny: float

    def redraw(self, labels: AnyArray, bags: Bags, source: NoiseSource) -> FloatArray:
        """Return noisy means, or exact ones."""
        if self.event is None or self.bounds is None:
            return bags.mean(labels)
        return private_bag_means(labels, bags, bounds=self.bounds, event=self.event, source=source)

    def log_ratio(
        self, shown: FloatArray, labels: AnyArray, bags: Bags, rows: IntArray, pair: AnyArray
    ) -> FloatArray:
        """Compare what is left of the sum when the others are taken off."""
        others = labels.copy()
        others[rows] = 0.0
        left = shown * bags.sizes - bags.sum(others)
        law = find_law("gaussian") if self.event is None else self.event.law.density
        sd = self.tiny if self.event is None else max(self.event.number_sd, self.tiny)
        first, second = (_log_density(law, left - pair[:, which], sd) for which in (0, 1))
        return second - first


@dataclass(frozen=True)
class Singles:
    """Single labels, reported by a table of chances."""

    event: Mechanism

    def redraw(self, labels: AnyArray, bags: Bags, source: NoiseSource) -> FloatArray:
        """Return what is reported."""
        return reported_labels(bags.mean(labels), event=self.event, source=source)

    def log_ratio(
        self,
        shown: FloatArray,
        labels: AnyArray,  # noqa: ARG002 (there are no others in the bag)
        bags: Bags,
        rows: IntArray,
        pair: AnyArray,
    ) -> FloatArray:
        """Compare the chances of what was reported."""
        query, law = cast(SingleLabels, self.event.query), cast(Unbiased, self.event.law)
        which = np.abs(shown[:, None] - query.reported(self.event.laws)).argmin(axis=1)
        place = which[bags.index[rows]][:, None]
        first, second = (
            np.take_along_axis(law.shares_of(query.scaled(pair[:, one])), place, axis=1)[:, 0]
            for one in (0, 1)
        )
        return np.asarray(np.log(second) - np.log(first))


@dataclass(frozen=True)
class Shares:
    """Shares of classes."""

    classes: int
    event: Mechanism | None

    def redraw(self, labels: AnyArray, bags: Bags, source: NoiseSource) -> FloatArray:
        """Return noisy shares, or exact ones."""
        if self.event is None:
            shares: FloatArray = bags.mean(one_hot(labels, self.classes).astype(np.float64))
            return shares
        return private_shares(labels, bags, classes=self.classes, event=self.event, source=source)

    def log_ratio(
        self, shown: FloatArray, labels: AnyArray, bags: Bags, rows: IntArray, pair: AnyArray
    ) -> FloatArray:
        """Compare what is left of the counts; only those of the two classes can differ."""
        each = one_hot(labels, self.classes).astype(np.float64)
        each[rows] = 0.0
        left = shown * bags.sizes[:, None] - bags.sum(each)
        law = find_law("gaussian") if self.event is None else self.event.law.density
        sd = _EXACT if self.event is None else max(self.event.number_sd, _EXACT)
        likely = [
            _log_density(law, left - one_hot(pair[:, which], self.classes), sd).sum(axis=1)
            for which in (0, 1)
        ]
        return np.asarray(likely[1] - likely[0])


@dataclass(frozen=True)
class Picks:
    """The label of one row of each bag, picked in secret."""

    bounds: Bounds | None
    event: Mechanism | None
    tiny: float

    def redraw(self, labels: AnyArray, bags: Bags, source: NoiseSource) -> FloatArray:
        """Return noisy picks, or exact ones."""
        if self.event is None or self.bounds is None:
            return pick_labels(labels, bags, source)
        return private_picks(labels, bags, bounds=self.bounds, event=self.event, source=source)

    def log_ratio(
        self, shown: FloatArray, labels: AnyArray, bags: Bags, rows: IntArray, pair: AnyArray
    ) -> FloatArray:
        """Compare mixtures: any row of the bag may have been the one."""
        law = find_law("gaussian") if self.event is None else self.event.law.density
        sd = np.full(bags.n_bags, self.tiny)
        if self.event is not None:
            sd = np.maximum(self.event.noise_sd(bags.sizes), self.tiny)
        each = _log_density(law, shown[bags.index] - labels, sd[bags.index])
        each[rows] = -np.inf
        starts = np.cumsum(bags.sizes) - bags.sizes
        others = np.logaddexp.reduceat(each[np.argsort(bags.index, kind="stable")], starts)
        first, second = (
            np.logaddexp(others, _log_density(law, shown - pair[:, which], sd)) for which in (0, 1)
        )
        return np.asarray(second - first)


@dataclass(frozen=True)
class ClassPicks:
    """The class of one row of each bag, picked in secret and perhaps replaced."""

    classes: int
    event: Mechanism | None

    def redraw(self, labels: AnyArray, bags: Bags, source: NoiseSource) -> FloatArray:
        """Return estimated shares from a randomised pick, or the pick itself."""
        if self.event is None:
            picked = pick_labels(labels.astype(np.float64), bags, source).astype(np.int64)
            return one_hot(picked, self.classes).astype(np.float64)
        return private_class_picks(labels, bags, event=self.event, source=source)

    def log_ratio(
        self, shown: FloatArray, labels: AnyArray, bags: Bags, rows: IntArray, pair: AnyArray
    ) -> FloatArray:
        """Compare the chances of the class that was reported: the largest entry."""
        reported = shown.argmax(axis=1)
        keep = np.full(bags.n_bags, 1 - _EXACT)
        if self.event is not None:
            query = cast(PickedClasses, self.event.query)
            keep = query.keep_chances(self.event.laws, bags.sizes)
        other = (1 - keep) / (self.classes - 1)
        agree = (labels == reported[bags.index]).astype(np.float64)
        agree[rows] = 0.0
        counts = bags.sum(agree)
        first, second = (
            other + (keep - other) * (counts + (pair[:, which] == reported)) / bags.sizes
            for which in (0, 1)
        )
        return np.asarray(np.log(second) - np.log(first))


def _log_density(law: NoiseLaw, residual: AnyArray, sd: float | FloatArray) -> AnyArray:
    """Return the log density of noise, but for a constant."""
    scaled = residual / sd
    if law.name == "gaussian":
        return -0.5 * np.square(scaled)
    if law.name == "laplace":
        return -math.sqrt(2) * np.abs(scaled)
    return law.terms(scaled, np.full(scaled.shape, _SHARP))[0]

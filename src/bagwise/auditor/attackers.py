"""Attackers: one knows the labels of all other rows of a bag, another only the release."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import RidgeCV

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.errors import TableError
from bagwise.privacy.grid import one_hot
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import noisy_bag_labels, pick_rows
from bagwise.release.release import Release
from bagwise.release.verify import bag_features, predictions_of
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds

CLOSE, AT_THE_END = 0.1, 0.01
"""Shares of the labels' spread: what counts as a hit of a regression, and as the end of a range."""

FOLDS = 5

_EXACT = 1e-9  # of the spread of labels: noise so small stands for none, which has no density
_PENALTIES = np.logspace(-4, 6, 11)
_ROWS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Reader:
    """Someone who knows how bag labels are made."""

    event: Mechanism | None  # the mechanism that hides bag labels; None if nothing does
    bounds: Bounds
    classes: int  # 0 for labels that are numbers
    picks: bool  # whether a bag's label is that of one row, picked in secret, instead of a mean
    tiny: float  # standard deviation that stands for no noise

    def redraw(self, labels: AnyArray, bags: Bags, source: NoiseSource) -> FloatArray:
        """Return bag labels of these rows, as the release would have drawn them."""
        if self.event is not None:
            return noisy_bag_labels(
                labels,
                bags,
                event=self.event,
                source=source,
                bounds=self.bounds,
                classes=self.classes,
            )
        numbers = self._numbers(labels)
        return numbers[pick_rows(bags, source)] if self.picks else bags.mean(numbers)

    def log_ratio(
        self, shown: FloatArray, labels: AnyArray, bags: Bags, rows: IntArray, pair: AnyArray
    ) -> FloatArray:
        """Return the log likelihood of the second label of each pair less that of the first.

        Parameters
        ----------
        shown : (m,) or (m, classes)
            The labels of the bags.
        labels : (n,)
            Those of all rows; the entries of `rows` are not looked at.
        rows : (m,)
            The row of each bag that it is about.
        pair : (m, 2)
            The labels that this row may have.
        """
        numbers, found = self._numbers(labels), []
        for one in pair.T:
            numbers[rows] = self._numbers(one)
            if not self.picks:
                found.append(self._log_likelihood(shown, bags.mean(numbers), bags.sizes))
                continue
            # Any row of the bag may have been the one.
            each = self._log_likelihood(shown[bags.index], numbers, bags.sizes[bags.index])
            found.append(np.logaddexp.reduceat(each[rows_by_bag(bags)], first_rows(bags)))
        return np.asarray(found[1] - found[0])

    def _log_likelihood(self, shown: FloatArray, exact: FloatArray, sizes: IntArray) -> FloatArray:
        if self.event is not None:
            return self.event.log_likelihood(shown, exact, sizes, self.bounds[0])
        off = np.atleast_2d((shown - exact).T) / self.tiny
        return np.asarray(-0.5 * np.square(off).sum(axis=0))

    def _numbers(self, labels: AnyArray) -> FloatArray:
        """Return numbers as they are, and a one in the place of each class."""
        return np.array(one_hot(labels, self.classes) if self.classes else labels, dtype=np.float64)


def hidden_by_noise(release: Release, labels: AnyArray) -> tuple[AnyArray, FloatArray]:
    """Return the quantity of each row that a release hides by noise, and its published aggregate.

    Usually these are the labels and the bag labels. If labels were centred, the mean prediction of
    each bag is public, and noise hides the labels' residuals, clipped to the limit. An attacker
    who compared such noise with whole labels would see more than there is.
    """
    certificate = release.certificate
    if certificate.limit is None or release.model is None:
        return labels, release.labels
    predictions = predictions_of(release, release.model)
    left = np.clip(labels - predictions, -certificate.limit, certificate.limit)
    return left, release.labels - release.bags.mean(predictions)


def reader_of(release: Release, spread: float) -> Reader:
    """Return the reader for a release, given the result of `hidden_by_noise`."""
    limit = release.certificate.limit
    bounds = release.certificate.clipped_to if limit is None else (-limit, limit)
    hiding = [event for event in release.certificate.events if event.query.labels_bags]
    tiny = _EXACT * (1.0 if release.classes is not None else spread or 1.0)
    return Reader(
        event=hiding[0] if hiding else None,
        bounds=bounds or (0.0, 1.0),
        classes=len(release.classes or ()),
        picks=release.label_kind == "pick",
        tiny=tiny,
    )


def guesses_by_neighbours(
    release: Release,
    labels: AnyArray,
    usable: IntArray,
    *,
    trials: int,
    rng: np.random.Generator,
    noise: NoiseSource,
) -> dict[str, tuple[AnyArray, FloatArray]]:
    """Return which guesses of one who knows all other labels of a bag are right, and how sure.

    Two labels are as likely for one row of each bag, before the release. They are those of any two
    rows, and the bag's label is drawn anew; or the row's own and that of another row, and the bag's
    label is the published one.
    """
    values, published = hidden_by_noise(release, labels)
    if np.all(values == values[0]):
        raise TableError("all labels are equal, so that there is nothing to guess.")
    reader = reader_of(release, float(np.ptp(values)))

    def copies(chosen: IntArray) -> tuple[AnyArray, Bags, IntArray]:
        """Return the labels of the chosen bags, one after the other, and one row of each."""
        lengths, starts = release.bags.sizes[chosen], first_rows(release.bags)[chosen]
        new_starts = np.cumsum(lengths) - lengths
        places = np.arange(int(lengths.sum())) + np.repeat(starts - new_starts, lengths)
        bags = Bags(np.repeat(np.arange(chosen.size), lengths))
        one = new_starts + rng.integers(0, lengths)
        return values[rows_by_bag(release.bags)[places]].copy(), bags, one

    def guess(ratio: FloatArray, truth: IntArray) -> tuple[AnyArray, FloatArray]:
        """Decide ties by a coin."""
        coin = rng.integers(0, 2, size=truth.size)
        return np.where(ratio == 0, coin, ratio > 0) == truth, np.abs(ratio)

    def redrawn(trials: int) -> tuple[AnyArray, FloatArray]:
        here, bags, rows = copies(rng.choice(usable, size=trials))
        drawn = rng.integers(0, values.size, size=(trials, 2))
        while (same := values[drawn[:, 0]] == values[drawn[:, 1]]).any():
            drawn[same] = rng.integers(0, values.size, size=(int(same.sum()), 2))
        pair, truth = values[drawn], rng.integers(0, 2, size=trials)
        here[rows] = pair[np.arange(trials), truth]
        shown = reader.redraw(here, bags, noise)
        return guess(reader.log_ratio(shown, here, bags, rows, pair), truth)

    def as_published() -> tuple[AnyArray, FloatArray]:
        here, bags, rows = copies(usable)
        truth = rng.integers(0, 2, size=usable.size)
        own, other = here[rows], values[rng.integers(0, values.size, size=usable.size)]
        pair = np.stack([np.where(truth == 0, own, other), np.where(truth == 0, other, own)], 1)
        ratio = reader.log_ratio(published[usable], here, bags, rows, pair)
        return guess(ratio[own != other], truth[own != other])

    block = max(1, int(_ROWS_AT_ONCE / release.bags.sizes[usable].mean()))
    each = [redrawn(min(block, trials - start)) for start in range(0, trials, block)]
    right, sureness = map(np.concatenate, zip(*each, strict=True))
    return {"redrawn": (right, sureness), "as published": as_published()}


def rows_by_bag(bags: Bags) -> IntArray:
    """Return the rows ordered by bag."""
    return np.argsort(bags.index, kind="stable")[int((~bags.in_bag).sum()) :]


def first_rows(bags: Bags) -> IntArray:
    """Return the place in this order at which each bag begins."""
    return np.asarray(np.cumsum(bags.sizes) - bags.sizes)


def guesses_by_regression(
    release: Release, values: AnyArray, usable: IntArray, rng: np.random.Generator
) -> dict[str, tuple[AnyArray, AnyArray]]:
    """Return which guesses of a model of the bags are right, with and without the row's own bag."""
    places = first_rows(release.bags)[usable] + rng.integers(0, release.bags.sizes[usable])
    rows = rows_by_bag(release.bags)[places]
    without, own = predict_rows(release, rows)
    truth, shown = values[rows], release.labels[usable]
    if release.classes is not None:
        base = without.argmax(axis=1) == truth
        ends = shown.max(axis=1) >= 1 - AT_THE_END
        return {
            "regression": (own.argmax(axis=1) == truth, base),
            "homogeneous bags": ((shown.argmax(axis=1) == truth)[ends], base[ends]),
        }
    spread = float(np.ptp(values)) or 1.0
    close, same = CLOSE * spread, AT_THE_END * spread
    middle = float(np.median(release.labels))
    low, high = release.certificate.bounds or (float(values.min()), float(values.max()))
    ends = (shown <= low + same) | (shown >= high - same)
    # Whoever knows the features alone would name the end that is nearer to the prediction.
    named = np.where(np.abs(without - low) < np.abs(without - high), low, high)
    pure = (np.abs(np.clip(shown, low, high) - truth) <= same, np.abs(named - truth) <= same)
    return {
        "regression": (np.abs(own - truth) <= close, np.abs(without - truth) <= close),
        "threshold": ((own > middle) == (truth > middle), (without > middle) == (truth > middle)),
        "homogeneous bags": (pure[0][ends], pure[1][ends]),
    }


def predict_rows(release: Release, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return predictions of the labels of `rows` without and with the label of their own bag.

    The model is ridge regression on bag means, fitted to the bags of other folds: a reader of these
    knows how labels follow features, and nothing of the row's own bag. With the own bag's label
    comes what is left of it after the model, shrunk by the share of it that is not privacy noise:
    the best linear prediction of one row's residual from that of its bag.

    Each is (n,), or (n, classes) for shares of classes.
    """
    means, labels = bag_features(release), release.labels
    scale = means.std(axis=0)
    used = scale > 0
    centre, scale = means.mean(axis=0)[used], scale[used]
    Z = (means[:, used] - centre) / scale
    X = (release.encoder.transform(release.features.take(rows))[:, used] - centre) / scale
    bags = release.bags.index[rows]
    fold_of_bag = np.random.default_rng(0).permutation(release.bags.n_bags) % FOLDS
    at_rows, at_bags = np.empty((rows.size, *labels.shape[1:])), np.empty(labels.shape)
    for fold in range(FOLDS):
        rest = fold_of_bag != fold
        model = _fit(Z[rest], labels[rest], release.bags.sizes[rest])
        at_bags[~rest] = model(Z[~rest])
        here = fold_of_bag[bags] == fold
        if here.any():  # few rows may all be in other folds
            at_rows[here] = model(X[here])
    # The slope of one row's residual on that of its bag, for each bag.
    left, sizes = labels - at_bags, release.bags.sizes.astype(np.float64)
    noise = np.square(release.noise_sd)
    share = np.ones(sizes.size) if release.label_kind == "pick" else 1 / sizes  # of its variance
    slopes = []
    for one in np.atleast_2d(left.T):
        variance = max(float(np.mean((np.square(one) - noise) / share)), 0.0)
        slopes.append(variance / sizes / np.maximum(variance * share + noise, 1e-300))
    return at_rows, at_rows + (np.array(slopes).T.reshape(left.shape) * left)[bags]


def _fit(Z: FloatArray, labels: FloatArray, sizes: IntArray) -> Callable[[FloatArray], FloatArray]:
    """Return a function that predicts; the mean where there is nothing to learn from."""
    if Z.shape[1] == 0 or Z.shape[0] < 3:
        mean = np.average(labels, axis=0, weights=sizes) if labels.size else 0.0
        return lambda X: np.broadcast_to(mean, (X.shape[0], *np.shape(mean)))
    model = RidgeCV(alphas=_PENALTIES).fit(Z, labels, sample_weight=sizes)
    return lambda X: np.asarray(model.predict(X))
